"""Parses metrics in OTLP: OpenTelemetry's MetricsData in protobuf, as PushTelemetry carries it (KIP-714).

Field numbers are those of opentelemetry-proto's metrics.proto 1.3; `ottla/client/connection/otlp.py` writes the format.
Only gauges and sums are read, because Kafka's clients send nothing else. The nesting depth is fixed and every length is
checked.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping
from typing import TypeVar

from ottla.kernel.named import NamedTuple
from ottla.wire.writer import varint

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
_DOUBLE, _SFIXED64 = struct.Struct("<d"), struct.Struct("<q")
_VARINT_BYTES_MAX = 10

Field = tuple[int, int | memoryview]
Attributes = tuple[tuple[str, str], ...]
#: Limit of fields in one push: some thousand data points.
FIELDS_MAX = 20_000
_FIELDS_PER_STEP = 500
#: Limit of a point with its attributes, and of the attributes of a client.
_POINT_BYTES_MAX = 4096
_GAUGE, _SUM = 5, 7
#: Limit of a push with the attributes added to each of its parts. The Java client has a part for each metric.
_DESCRIBED_BYTES_MAX = 8 << 20


_T = TypeVar("_T")
Steps = Generator["PushedPoint | None", None, _T]


class NotOtlp(ValueError):
    """The bytes are not a valid MetricsData."""


class PushedPoint(NamedTuple):
    """A data point that a client pushed."""

    #: Attributes that identify the client: its group, its transactional id.
    resource: Attributes
    name: str
    attributes: Attributes
    value: float
    is_sum: bool
    #: True for a sum since the last push, False for a cumulative one.
    is_delta: bool


def read_points(data: bytes) -> Iterator[PushedPoint | None]:
    """The points of a MetricsData one by one; None marks a step, after which the loop may serve others.

    NotOtlp if it is truncated, invalid, or has more than `FIELDS_MAX` fields; struct.error for a number without 8
    bytes. Points of more than `_POINT_BYTES_MAX` are skipped.
    """
    budget = [FIELDS_MAX]
    for number, resource_metrics in (yield from _collect(memoryview(data), budget)):
        if number == 1:
            yield from _resource_metrics(_message(resource_metrics), budget)


def with_attributes(data: bytes, attributes: Mapping[str, str]) -> bytes:
    """A MetricsData with these attributes added to its resources. NotOtlp if its outermost fields cannot be read.

    Protobuf merges a message field that occurs twice, so the attributes are a second resource in each part.
    """
    added = b"".join(
        encode_field(1, encode_field(1, name.encode()) + encode_field(2, encode_field(1, value.encode())))
        for name, value in attributes.items()
    )
    described = bytearray()
    for number, value in _fields(memoryview(data)):
        if number == 1:
            described += encode_field(1, bytes(_message(value)) + encode_field(1, added))
            if len(described) > _DESCRIBED_BYTES_MAX:
                raise NotOtlp(f"more than {_DESCRIBED_BYTES_MAX} bytes with the client's name in each part")
    return bytes(described)


def encode_field(field: int, value: bytes) -> bytes:
    """A length-delimited field."""
    size = len(value)
    if size < 128:
        return bytes((field << 3 | _BYTES, size)) + value
    return bytes((field << 3 | _BYTES,)) + varint(size) + value


def encode_number(field: int, value: int) -> bytes:
    """A varint field of a number that is not negative."""
    return bytes((field << 3 | _VARINT,)) + varint(value)


def _resource_metrics(data: memoryview, budget: list[int]) -> Steps[None]:
    parts = yield from _collect(data, budget)
    described = [_message(value) for number, value in parts if number == 1]
    resource = tuple(
        _attribute(_message(value))
        for each in described
        if len(each) <= _POINT_BYTES_MAX
        for number, value in _fields(each)
        if number == 1
    )
    for number, scope in parts:
        if number == 2:
            for inner, metric in (yield from _collect(_message(scope), budget)):
                if inner == 2:
                    yield from _metric(resource, _message(metric), budget)


def _metric(resource: Attributes, data: memoryview, budget: list[int]) -> Steps[None]:
    parts = yield from _collect(data, budget)
    name = next((_text(value) for number, value in parts if number == 1), "")
    for number, value in parts:
        if number in (_GAUGE, _SUM):
            inner = yield from _collect(_message(value), budget)
            is_sum = number == _SUM and (3, 1) in inner
            is_delta = number == _SUM and (2, _DELTA) in inner
            for field, point in inner:
                if field == 1 and len(_message(point)) <= _POINT_BYTES_MAX:
                    parsed = _point(_message(point))
                    if parsed is not None:
                        yield PushedPoint(resource, name, parsed[1], parsed[0], is_sum, is_delta)


def _collect(data: memoryview, budget: list[int]) -> Steps[list[Field]]:
    """The fields of a message that may have many of them."""
    collected: list[Field] = []
    for field in _fields(data):
        collected.append(field)
        budget[0] -= 1
        if budget[0] < 0:
            raise NotOtlp(f"more than {FIELDS_MAX} fields")
        if not len(collected) % _FIELDS_PER_STEP:
            yield None
    return collected


def _point(data: memoryview) -> tuple[float, Attributes] | None:
    value: float | None = None
    attributes = []
    for number, field in _fields(data):
        if number == 4:
            (value,) = _DOUBLE.unpack(_message(field))
        elif number == 6:
            value = float(_SFIXED64.unpack(_message(field))[0])
        elif number == 7:
            attributes.append(_attribute(_message(field)))
    return None if value is None else (value, tuple(attributes))


def _attribute(data: memoryview) -> tuple[str, str]:
    name = text = ""
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for kind, inner in _fields(_message(value)):
                if kind == 1:
                    text = _text(inner)
                elif kind in (2, 3):
                    text = str(inner) if isinstance(inner, int) else ""
                elif kind == 4:
                    text = str(_DOUBLE.unpack(_message(inner))[0])
    return name, text


def _text(value: int | memoryview) -> str:
    return str(_message(value), "utf-8", "replace")


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise NotOtlp("a number where bytes are expected")
    return value


def _fields(data: memoryview) -> Iterator[Field]:
    """(field number, value): an int for a varint, otherwise the bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise NotOtlp(f"wire type {kind}")
        if size > end - position:
            raise NotOtlp("a field that ends behind its message")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise NotOtlp("a number without an end")
