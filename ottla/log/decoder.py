"""How the values of records are shown: as text, or the records of Kafka's own topics as JSON with Kafka's names."""

import json
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ottla.kernel.name import uuid_text
from ottla.wire.batch import Record


def _as_text(record: Record) -> tuple[str | None, str | None]:
    return (
        None if record.key is None else record.key.decode(errors="replace"),
        None if record.value is None else record.value.decode(errors="replace"),
    )


def _as_metadata(record: Record) -> tuple[str | None, str | None]:
    from ottla.wire.record import metadata

    try:
        message, version = metadata.parse(record.value or b"")
    except ValueError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    name = type(message).__name__
    shown = _screaming(name)
    return None, as_json({"type": shown, "version": version, "data": json_of(message, version)})


def _as_keyed(module: str) -> Callable[[Record], tuple[str | None, str | None]]:
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
        return shown, as_json({"version": str(version), "data": json_of(value, version)})

    return show


DECODERS: dict[str | None, Callable[[Record], tuple[str | None, str | None]]] = {
    None: _as_text,
    "cluster-metadata": _as_metadata,
    "offsets": _as_keyed("offset"),
    "transaction-log": _as_keyed("transaction"),
    "share-group-state": _as_keyed("share"),
}


def _screaming(name: str) -> str:
    """TopicRecord -> TOPIC_RECORD."""
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


def json_of(message: Any, version: int) -> dict[str, Any]:
    """A wire message as Kafka's JSON converters write it: its names, the fields of this version, no default tags."""
    from ottla.wire.schema import fields

    found = {}
    for field in fields(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.tag >= 0 and value == (field.factory() if field.factory else field.default):
            continue
        head, *rest = field.name.split("_")
        # Kafka writes this one name in its own way.
        head = "kRaft" if head == "kraft" else head
        found[head + "".join(word.capitalize() for word in rest)] = _json_value(field.type, value, version)
    return found


def _json_value(kind: str, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_json_value(kind, each, version) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if kind == "Uuid":
        return uuid_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    return json_of(value, version)


def as_json(value: Any) -> str:
    """Compact JSON, as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
