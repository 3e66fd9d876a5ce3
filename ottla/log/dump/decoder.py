"""The decoders for keys and values: text, numbers, or the records of Kafka's internal topics as JSON.

The JSON has Kafka's names and is what Jackson writes, byte for byte: its escapes, and Java's floating-point text.
"""

import codecs
import json
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ottla.kernel.ids import uuid_text
from ottla.kernel.java import java_double
from ottla.kernel.ports import Buffer
from ottla.wire.batch import Record

#: Decodes a record to the text of (key, value); None for a part that is not printed.
Show = Callable[[Record], tuple[str | None, str | None]]


def _replace_like_java(error: UnicodeError) -> tuple[str, int]:
    """Replace malformed UTF-8 as Java does: one mark for an encoded surrogate, where Python writes one per byte."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] != 0xED or not 0xA0 <= (data[start + 1] if start + 1 < len(data) else 0) <= 0xBF:
        return "\ufffd", error.end
    is_whole = start + 2 < len(data) and 0x80 <= data[start + 2] <= 0xBF
    return "\ufffd", start + (3 if is_whole else 2)


codecs.register_error("ottla.java", _replace_like_java)


def _text(data: Buffer) -> str:
    return bytes(data).decode(errors="ottla.java")


#: Apache's decoders of a key or a value, by class name. They raise ValueError for too few bytes.
READERS: dict[str, Callable[[Buffer], str]] = {
    "StringDecoder": _text,
    "IntegerDecoder": lambda data: _number(data, 4),
    "LongDecoder": lambda data: _number(data, 8),
    # Java would print the array's address.
    "DefaultDecoder": lambda data: bytes(data).hex(),
}


def _number(data: Buffer, size: int) -> str:
    if len(data) < size:
        raise ValueError(f"{len(data)} bytes are too few for a number of {size}")
    return str(int.from_bytes(data[:size], "big", signed=True))


def decode_as(key: str, value: str) -> Show:
    """Decode keys and values with the decoders of these names."""
    of_key, of_value = READERS[key], READERS[value]

    def show(record: Record) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else of_key(record.key),
            None if record.value is None else of_value(record.value),
        )

    return show


def _as_metadata(record: Record) -> tuple[str | None, str | None]:
    from ottla.wire.record import metadata

    try:
        message, version = metadata.parse(record.value or b"")
    except ValueError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    name = type(message).__name__
    shown = _upper_snake(name)
    return None, as_json({"type": shown, "version": version, "data": json_of(message, version)})


def _as_keyed(module: str) -> Show:
    def show(record: Record) -> tuple[str | None, str | None]:
        records = import_module(f"ottla.wire.record.{module}").RECORDS
        if record.key is None:
            return f"Error at offset {record.offset}, skipping. The record has no key.", None
        kind = int.from_bytes(record.key[:2], "big")
        if kind not in records.types:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        try:
            key, value = records.parse(record.key, record.value)
        except ValueError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None
        shown = as_json({"type": str(kind), "data": json_of(key, 0)})
        if value is None or record.value is None:
            return shown, "<DELETE>"
        version = int.from_bytes(record.value[:2], "big")
        data = json_of(value, version)
        if data.get("protocolType") == "consumer":
            _expand_members(data, value)
        return shown, as_json({"version": str(version), "data": data})

    return show


def _expand_members(group_json: dict[str, Any], group: Any) -> None:
    """Replace the members' subscriptions and assignments by their JSON; malformed ones stay as bytes."""
    from ottla.wire.record.consumer_protocol import NEWEST, parse_assignment, parse_subscription
    from ottla.wire.type import Malformed

    for shown, member in zip(group_json["members"], group.members, strict=True):
        for name, parse in (("subscription", parse_subscription), ("assignment", parse_assignment)):
            data = getattr(member, name)
            try:
                shown[name] = json_of(parse(data), min(int.from_bytes(data[:2], "big"), NEWEST))
            except Malformed:
                continue


DECODERS: dict[str | None, Show] = {
    None: decode_as("StringDecoder", "StringDecoder"),
    "cluster-metadata": _as_metadata,
    "offsets": _as_keyed("offset"),
    "transaction-log": _as_keyed("transaction"),
    "share-group-state": _as_keyed("share"),
}


def _upper_snake(name: str) -> str:
    """TopicRecord -> TOPIC_RECORD."""
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


def json_of(message: Any, version: int) -> dict[str, Any]:
    """A wire message as Kafka's JSON converters write it: the fields of this version, without default tagged fields."""
    from ottla.wire.schema import fields

    data = {}
    for field in fields(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.tag >= 0 and value == (field.factory() if field.factory else field.default):
            continue
        head, *rest = field.name.split("_")
        # Kafka spells this name differently.
        head = "kRaft" if head == "kraft" else head
        data[head + "".join(word.capitalize() for word in rest)] = _json_value(field.type, value, version)
    return data


def _json_value(kind: str, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_json_value(kind, item, version) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if kind == "Uuid":
        return uuid_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    return json_of(value, version)


def as_json(value: Any) -> str:
    """Compact JSON like Jackson's."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{_quoted(name)}:{as_json(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(as_json, value))}]"
    if isinstance(value, float):
        return java_double(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


_SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(letter): short for letter, short in _SHORT_ESCAPES.items()},
}
