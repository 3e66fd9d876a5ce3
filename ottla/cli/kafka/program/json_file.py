"""Parsing of the JSON files for Kafka's tools, with errors that name what is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from ottla.cli.kafka.program.tool import Failed
from ottla.kernel.ids import TopicPartition

T = TypeVar("T")


def parse(text: str, otherwise: str) -> Any:
    """Parse a JSON document. Failed with `otherwise` if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Failed(otherwise) from None


def typed(entry: Any, field: str, kind: type[T], bits: int = 32) -> T:
    """Return a field of an object. Failed if it is missing, has another type, or is a number of more bits."""
    if not isinstance(entry, dict):
        raise Failed(f"Expected JSON object, received {json.dumps(entry)}")
    if field not in entry:
        raise Failed(f"No such field exists: `{field}`")
    return checked(entry[field], kind, bits)


def checked(value: Any, kind: type[T], bits: int = 32) -> T:
    """Return the value. Failed if it has another type, or is a number of more bits."""
    is_wide = isinstance(value, int) and not -1 << bits - 1 <= value < 1 << bits - 1
    if not isinstance(value, kind) or isinstance(value, bool) or is_wide:
        number = "Integer" if bits == 32 else "Long"
        wanted = "String" if kind is str else "JSON array" if kind is list else number
        raise Failed(f"Expected `{wanted}` value, received {json.dumps(value)}")
    return value


def partition_of(entry: Any) -> TopicPartition:
    """Return the partition that an object names. Failed if it names none."""
    topic, number = typed(entry, "topic", str), typed(entry, "partition", int)
    if number < 0:
        raise Failed(f"Invalid partition of {topic}: {number} (expected 0 or more)")
    return TopicPartition(topic, number)


def array(document: Any, field: str, otherwise: Sequence[Any] = ()) -> list[Any]:
    """Return the array in a field of an object; `otherwise` if there is no such field. Failed if it is no array."""
    if not isinstance(document, dict):
        raise Failed(f"Expected JSON object, received {json.dumps(document)}")
    found = document.get(field, list(otherwise))
    if not isinstance(found, list):
        raise Failed(f"Expected JSON array, received {json.dumps(found)}")
    return found
