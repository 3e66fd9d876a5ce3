"""Parsing of the JSON files for Kafka's tools, with errors that name what is wrong."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from ottla.cli.kafka.program.tool import Failed

T = TypeVar("T")


def parse(text: str, otherwise: str) -> Any:
    """Parse a JSON document. Failed with `otherwise` if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        raise Failed(otherwise) from None


def typed(entry: Any, field: str, kind: type[T], bits: int = 32) -> T:
    """Return a field of an object. Failed if it is missing, has another type, or is a number of more bits."""
    if not isinstance(entry, dict):
        raise Failed(f"Expected JSON object, received {json.dumps(entry)}")
    if field not in entry:
        raise Failed(f"No such field exists: `{field}`")
    value = entry[field]
    is_wide = isinstance(value, int) and not -1 << bits - 1 <= value < 1 << bits - 1
    if not isinstance(value, kind) or isinstance(value, bool) or is_wide:
        wanted = "String" if kind is str else "Integer" if bits == 32 else "Long"
        raise Failed(f"Expected `{wanted}` value, received {json.dumps(value)}")
    return value
