"""A field of a record by its path: `key`, `value.price`, `value.items[0].name`, `header.trace`, `timestamp`.

A path that does not exist in a record (no JSON, no such field) has the value None, like JSON's null.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from math import isinf
from typing import TYPE_CHECKING, Any

from ottla.cli.amount import instant
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client.acknowledgement import ShareRecord
    from ottla.columns.record import ConsumerRecord

    Shown = ConsumerRecord | ShareRecord

Getter = Callable[["Shown"], Any]
FIELDS = "topic, partition, offset, timestamp, timestamp_ms, key, value, headers, header.NAME, key.PATH, value.PATH"
_STEP = re.compile(r'\.([A-Za-z_$][\w$-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
_PATH = re.compile(rf"[a-z_]+(?:{_STEP.pattern})*")
_OWN: dict[str, Getter] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: instant(record.timestamp),
    "timestamp_ms": lambda record: record.timestamp,
    "headers": lambda record: [[name, text(content)] for name, content in record.headers],
}


def text(content: bytes | None) -> str | None:
    """Decode bytes as UTF-8; invalid bytes become escapes."""
    return None if content is None else content.decode(errors="backslashreplace")


def as_json(content: bytes | None) -> Any:
    """Return bytes as text, or losslessly as {"base64": ...} if they are not UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def without_surrogates(value: str) -> str:
    r"""Replace halves of surrogate pairs, which JSON can have ("\ud800") and UTF-8 cannot, by their escapes."""
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which Python's parser takes: JSON has no such numbers."""
    raise ValueError(f"JSON has no {name}")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text} is larger than any double")
    return number


def parsed(content: bytes | None) -> Any:
    """Parse bytes as JSON in UTF-8; None if they are not that (NaN is not, nor is 1e999)."""
    if not content:
        return None
    try:
        return json.loads(content.decode(), parse_constant=no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def getter(path: str) -> Getter:
    """Return a function that reads a field of a record. OttlaError for a path that no record can have."""
    if not _PATH.fullmatch(path):
        raise OttlaError(f"unknown field {path} (expected {FIELDS})")
    root = re.match(r"[a-z_]+", path)
    assert root is not None
    name = root.group()
    steps: list[str | int] = [
        field or (int(index) if index else json.loads(f'"{quoted}"'))
        for field, index, quoted in _STEP.findall(path[len(name) :])
    ]
    if name == "header" and len(steps) == 1:
        return _header(str(steps[0]))
    if name in _OWN and not steps:
        return _OWN[name]
    if name not in ("key", "value"):
        raise OttlaError(f"unknown field {path} (expected {FIELDS})")
    is_key = name == "key"
    if not steps:
        return lambda record: text(record.key if is_key else record.value)
    return lambda record: _walk(parsed(record.key if is_key else record.value), steps)


def _header(name: str) -> Getter:
    return lambda record: next((text(content) for header, content in reversed(record.headers) if header == name), None)


def _walk(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value
