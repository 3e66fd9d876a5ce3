"""Encodes metrics as OTLP: OpenTelemetry's MetricsData in protobuf, as PushTelemetry carries it (KIP-714).

Written by hand because it is only five messages; the field numbers are those of opentelemetry-proto's metrics.proto
1.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from ottla.kernel.named import NamedTuple
from ottla.wire.writer import varint

_VARINT, _FIXED64, _BYTES = 0, 1, 2
#: AggregationTemporality.
_DELTA, _CUMULATIVE = 1, 2


class Point(NamedTuple):
    """The current value of a metric."""

    #: Kafka's name: `org.apache.kafka.producer.record.send.rate`.
    name: str
    #: The topic, partition or node that the value belongs to.
    attributes: tuple[tuple[str, str], ...]
    value: float
    #: True for a sum over all time or since the last push, False for a gauge.
    is_sum: bool
    #: Start of a sum, in ns since 1970.
    began_ns: int = 0


def metrics_data(resource: Mapping[str, str], points: Iterable[Point], *, now_ns: int, delta: bool) -> bytes:
    """All points as one MetricsData."""
    metrics = b"".join(_bytes(2, _metric(point, now_ns, delta)) for point in points)
    described = b"".join(_bytes(1, _attribute(name, value)) for name, value in resource.items())
    return _bytes(1, _bytes(1, described) + _bytes(2, metrics))


def _metric(point: Point, now_ns: int, delta: bool) -> bytes:
    data = _fixed(2, struct.pack("<Q", point.began_ns)) if point.is_sum else b""
    data += _fixed(3, struct.pack("<Q", now_ns)) + _fixed(4, struct.pack("<d", point.value))
    data += b"".join(_bytes(7, _attribute(name, value)) for name, value in point.attributes)
    name = _bytes(1, point.name.encode())
    if not point.is_sum:
        return name + _bytes(5, _bytes(1, data))
    return name + _bytes(7, _bytes(1, data) + _number(2, _DELTA if delta else _CUMULATIVE) + _number(3, 1))


def _attribute(name: str, value: str) -> bytes:
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, value.encode()))


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def _fixed(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _FIXED64) + value


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)
