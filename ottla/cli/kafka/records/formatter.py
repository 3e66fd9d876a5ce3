"""The formatters and deserializers of kafka-console-consumer, by the names of Kafka's classes.

Apache's tool loads a class by its name; here the names are in a table, and any other name is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol

from ottla.cli.kafka.program.option import Usage

if TYPE_CHECKING:
    from ottla.client import ConsumerRecord, ShareRecord

    Shown = ConsumerRecord | ShareRecord

Deserializer = Callable[[bytes], str]


class Formatter(Protocol):
    """A writer that formats records and counts them."""

    shown: int

    def write(self, record: Shown, out: BinaryIO) -> None:
        """Write a record."""


def _flag(properties: dict[str, str], name: str, default: bool) -> bool:
    return properties[name].strip().lower() == "true" if name in properties else default


class DefaultFormatter:
    """Formatter that writes the parts of a record named by properties, separated by tabs."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.shown = 0
        #: Topic -> type of its timestamps; CreateTime if missing.
        self.timestamp_types: dict[str, str] = {}
        self.prints_timestamp = _flag(properties, "print.timestamp", False)
        self._columns = [
            show
            for name, show, default in (
                ("print.timestamp", self._timestamp, False),
                ("print.partition", lambda record: f"Partition:{record.partition}".encode(), False),
                ("print.offset", lambda record: f"Offset:{record.offset}".encode(), False),
                ("print.delivery", _delivery, False),
                # Apache's tool does not pass the epoch on either.
                ("print.epoch", lambda record: b"Epoch:NOT_PRESENT", False),
                ("print.headers", self._headers, False),
                ("print.key", self._key, False),
                ("print.value", self._value, True),
            )
            if _flag(properties, name, default)
        ]
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._key_reader = _deserializer(properties, "key.deserializer")
        self._value_reader = _deserializer(properties, "value.deserializer")
        self._header_reader = _deserializer(properties, "headers.deserializer")

    def write(self, record: Shown, out: BinaryIO) -> None:
        """Write a line."""
        self.shown += 1
        if self._columns:
            out.write(self._separator.join([show(record) for show in self._columns]) + self._line_separator)

    def _timestamp(self, record: Shown) -> bytes:
        if record.timestamp < 0:
            return b"NO_TIMESTAMP"
        return f"{self.timestamp_types.get(record.topic, 'CreateTime')}:{record.timestamp}".encode()

    def _headers(self, record: Shown) -> bytes:
        shown = [name.encode() + b":" + self._read(self._header_reader, content) for name, content in record.headers]
        return self._headers_separator.join(shown) if shown else b"NO_HEADERS"

    def _key(self, record: Shown) -> bytes:
        return self._read(self._key_reader, record.key)

    def _value(self, record: Shown) -> bytes:
        return self._read(self._value_reader, record.value)

    def _read(self, reader: Deserializer | None, content: bytes | None) -> bytes:
        raw = self._null if content is None else bytes(content)
        return raw if reader is None else reader(raw).encode()


def _delivery(record: Shown) -> bytes:
    """Format the delivery count, which only records of a share group have."""
    return f"Delivery:{getattr(record, 'delivery_count', 'NOT_PRESENT')}".encode()


class NoFormatter:
    """Formatter that writes nothing."""

    def __init__(self, _: dict[str, str]) -> None:
        self.shown = 0

    def write(self, record: Shown, out: BinaryIO) -> None:
        """Count the record."""
        self.shown += 1


class CoordinatorFormatter:
    """Formatter that writes records of an internal topic as JSON, if their type is one of `types`."""

    def __init__(self, module: str, types: frozenset[int] | None) -> None:
        self.shown = 0
        self._module = module
        self._types = types

    def write(self, record: Shown, out: BinaryIO) -> None:
        """Write a JSON document without a line end, like Kafka."""
        self.shown += 1
        if record.key is None:
            return
        from importlib import import_module

        from ottla.log.dump.decoder import as_json, json_of

        records = import_module(f"ottla.wire.record.{self._module}").RECORDS
        kind = int.from_bytes(record.key[:2], "big")
        if kind not in records.types or (self._types is not None and kind not in self._types):
            return
        key, value = records.parse(record.key, record.value)
        shown = None
        if record.value is not None and value is not None:
            version = int.from_bytes(record.value[:2], "big")
            shown = {"version": version, "data": json_of(value, version)}
        out.write(as_json({"key": {"type": kind, "data": json_of(key, 0)}, "value": shown}).encode())


_PACKAGE = "org.apache.kafka.tools.consumer."
FORMATTERS: dict[str, Callable[[dict[str, str]], Formatter]] = {
    f"{_PACKAGE}DefaultMessageFormatter": DefaultFormatter,
    f"{_PACKAGE}LoggingMessageFormatter": DefaultFormatter,
    f"{_PACKAGE}NoOpMessageFormatter": NoFormatter,
    f"{_PACKAGE}OffsetsMessageFormatter": lambda _: CoordinatorFormatter("offset", frozenset({0, 1})),
    f"{_PACKAGE}GroupMetadataMessageFormatter": lambda _: CoordinatorFormatter("offset", frozenset({2})),
    f"{_PACKAGE}TransactionLogMessageFormatter": lambda _: CoordinatorFormatter("transaction", None),
    f"{_PACKAGE}group.share.ShareGroupStateMessageFormatter": lambda _: CoordinatorFormatter("share", None),
}


def _number(layout: str) -> Deserializer:
    def read(raw: bytes) -> str:
        try:
            (value,) = struct.unpack(layout, raw)
        except struct.error:
            raise ValueError(f"Size of data received by the deserializer is not {struct.calcsize(layout)}") from None
        return repr(value)

    return read


def _boolean(raw: bytes) -> str:
    if raw not in (b"\0", b"\1"):
        raise ValueError("Unexpected byte received by BooleanDeserializer")
    return "true" if raw == b"\1" else "false"


def _uuid(raw: bytes) -> str:
    from uuid import UUID

    return str(UUID(raw.decode()))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


_DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": _text,
    "ByteArrayDeserializer": _text,
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "ShortDeserializer": _number(">h"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}


def _deserializer(properties: dict[str, str], name: str) -> Deserializer | None:
    given = properties.get(name)
    if not given:
        return None
    package, _, short = given.rpartition(".")
    if package not in ("", "org.apache.kafka.common.serialization") or short not in _DESERIALIZERS:
        raise Usage(given)
    return _DESERIALIZERS[short]
