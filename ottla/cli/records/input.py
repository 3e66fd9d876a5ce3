"""Input parsed to records: lines, records in JSON, JSON lines. Pure; `ottla produce` sends the records.

Rules:
- A format is a function from a line to a record, or to None for an empty line of JSON. Invalid input raises
  `BadRecord` with the line number, and nothing is guessed: an unknown field and a timestamp that is not an integer are
  errors, and so are NaN, a number that would lose digits, and a record without "value", because a null value deletes.
- "value_text" and "key_text" appear beside a value or key that `ottla consume --json` shows as JSON, when compact JSON
  would differ from its bytes (spaces, 1.50). They take precedence.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from math import inf
from typing import Any, BinaryIO

from ottla.cli.records.field import no_constant
from ottla.kernel.error import OttlaError
from ottla.operations.writing import Headers, InputRecord

#: What `consume --json` prints. Topic, partition and offset say where a record was; it is not written there again.
_FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "key_text", "value_text"}
_INT64_MAX = (1 << 63) - 1
_LINE_MAX = 64 << 20
#: Every number of up to so many digits, and no double needs more.
_DOUBLE_DIGITS = 17
_BOM = b"\xef\xbb\xbf"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


class BadRecord(OttlaError):
    """A line or row of the input that is not a valid record."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place} {why}")


@dataclass(frozen=True)
class Shape:
    """How a run makes records: constant parts, and the columns (fields) that become keys, values and headers."""

    key: bytes | None = None
    separator: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    null: bytes | None = None
    #: For JSON lines and tables.
    key_column: str | None = None
    header_columns: tuple[str, ...] = ()
    value_column: str | None = None


#: A line and its number to its record.
Parse = Callable[[bytes, int], InputRecord | None]


def lines_of(source: BinaryIO) -> Iterator[bytes]:
    """Read lines. One that does not end is refused, not read into memory."""
    for number, line in enumerate(iter(partial(source.readline, _LINE_MAX + 1), b""), 1):
        if len(line) > _LINE_MAX:
            raise BadRecord(f"line {number}", f"has more than {_LINE_MAX >> 20} MiB")
        yield line


def records(lines: Iterable[bytes], parse: Parse) -> Iterator[InputRecord]:
    """Parse lines, numbered from 1, to records."""
    for number, line in enumerate(lines, 1):
        record = parse(line, number)
        if record is not None:
            yield record


def from_line(shape: Shape) -> Parse:
    """Parse a line as a value; with a separator, as KEY, separator, VALUE."""

    def parse(line: bytes, number: int) -> InputRecord:
        value: bytes | None = line.removesuffix(b"\n").removesuffix(b"\r")
        key = shape.key
        if shape.separator is not None and value is not None:
            before, separator, after = value.partition(shape.separator)
            if not separator:
                raise BadRecord(f"line {number}", f"has no key separator {shape.separator.decode()!r}")
            key, value = before, after
        if value == shape.null:
            value = None
        return InputRecord(value, key, shape.headers, shape.partition, None, len(line))

    return parse


def from_json(shape: Shape) -> Parse:
    """Parse a line as a whole record, in the format of `ottla consume --json`."""

    def parse(line: bytes, number: int) -> InputRecord | None:
        if not line.strip():
            return None
        where = f"line {number}"
        document = _loads(_without_mark(line, number), where, _exact)
        if not isinstance(document, dict):
            raise BadRecord(where, f"is not a record in JSON: expected an object, got {_shown(document)}")
        if unknown := sorted(document.keys() - _FIELDS):
            raise BadRecord(
                where,
                f"is not a record in JSON: unknown field {unknown[0]!r} (expected key, value, headers and timestamp; "
                "for plain JSON values use --format jsonl)",
            )
        if not document.keys() & {"value", "value_text"}:
            raise BadRecord(where, 'has no "value"; to delete a key (a tombstone), write "value": null')
        return InputRecord(
            _content(document, "value", where),
            shape.key if shape.key is not None else _content(document, "key", where),
            shape.headers + _headers(document.get("headers"), where),
            shape.partition,
            _timestamp(document.get("timestamp"), where),
            len(line),
        )

    return parse


def from_json_line(shape: Shape) -> Parse:
    """Parse a line as a JSON value; its fields may become the key and headers."""

    def parse(line: bytes, number: int) -> InputRecord | None:
        text = _without_mark(line, number).strip()
        if not text:
            return None
        where = f"line {number}"
        document = _loads(text, where)

        def field_of(name: str) -> Any:
            if not isinstance(document, dict):
                raise BadRecord(where, f"has no field {name}: expected an object, got {_shown(document)}")
            if name not in document:
                raise BadRecord(where, f"has no field {name}; it has {', '.join(document) or 'none'}")
            return document[name]

        value = text if shape.value_column is None else as_bytes(field_of(shape.value_column), where)
        if value == shape.null:
            value = None
        key = shape.key if shape.key_column is None else as_bytes(field_of(shape.key_column), where)
        own: Headers = [(name, as_bytes(field_of(name), where)) for name in shape.header_columns]
        return InputRecord(value, key, shape.headers + own, shape.partition, None, len(line))

    return parse


def _without_mark(line: bytes, number: int) -> bytes:
    """Remove the byte order mark with which some programs begin a file; it is no part of the first record."""
    return line.removeprefix(_BOM) if number == 1 else line


def _exact(text: str) -> float:
    """Parse a number that is written again from the double. ValueError if digits would be lost."""
    number = float(text)
    if len(text) <= _DOUBLE_DIGITS and number not in (0.0, inf, -inf):
        return number
    try:
        wanted = Decimal(text)
    except ArithmeticError:  # an exponent of more than 18 digits
        wanted = Decimal("NaN")
    has_few_digits = len(wanted.as_tuple().digits) <= _DOUBLE_DIGITS and number not in (0.0, inf, -inf)
    if not has_few_digits and wanted not in (Decimal(repr(number)), Decimal(number)):
        raise ValueError(f'a double does not hold {text}; give the JSON as text, in "value_text" or "key_text"')
    return number


def _loads(line: bytes, where: str, parse_float: Callable[[str], float] = float) -> Any:
    try:
        return json.loads(line.decode(), parse_constant=no_constant, parse_float=parse_float)
    except json.JSONDecodeError as error:
        raise BadRecord(where, f"is not JSON ({error.msg} at character {error.pos + 1})") from error
    except RecursionError as error:
        raise BadRecord(where, "is JSON that is nested too deeply") from error
    except ValueError as error:
        raise BadRecord(where, f"is not JSON ({error})") from error


def _content(document: dict[str, Any], name: str, where: str) -> bytes | None:
    """Return a key or value: from its exact text if given, else from its JSON."""
    exact = document.get(f"{name}_text")
    if exact is None:
        return as_bytes(document.get(name), where)
    if not isinstance(exact, str):
        raise BadRecord(where, f'has a "{name}_text" that is not text: {_shown(exact)}')
    return _encoded(exact, where)


def as_bytes(value: Any, where: str) -> bytes | None:
    """Encode text as UTF-8, {"base64": ...} as its bytes, any other JSON as compact JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value, where)
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (Base64Error, TypeError, ValueError) as error:
            raise BadRecord(where, f"has invalid base64: {_shown(value['base64'])}") from error
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise BadRecord(where, f"has a number that a double does not hold: {error}") from error
    return _encoded(text, where)


def _encoded(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRecord(where, f"has half of a surrogate pair, which is not text: {text[error.start]!r}") from error


def _headers(value: Any, where: str) -> Headers:
    if value is None:
        return []
    entries = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(entries, list) or not all(
        isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries
    ):
        raise BadRecord(
            where,
            f'has invalid headers: {_shown(value)} (expected [["name", "value"], ...] or {{"name": "value"}})',
        )
    return [(_encoded(name, where).decode(), as_bytes(content, where)) for name, content in entries]


def _timestamp(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INT64_MAX:
        raise BadRecord(where, f"has an invalid timestamp: {_shown(value)} (expected whole milliseconds since 1970)")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}..."


def unescaped(text: str) -> str:
    r"""Resolve the escapes \t, \n, \r, \0, \\ and \xNN in a separator."""
    characters, at = [], 0
    while at < len(text):
        after = text[at + 1 : at + 2]
        if text[at] != "\\" or not (after in _ESCAPES or after == "x") or not after:
            characters.append(text[at])
            at += 1
        elif after == "x":
            try:
                characters.append(chr(int(text[at + 2 : at + 4], 16)))
            except ValueError:
                raise OttlaError(f"{text}: expected two hexadecimal digits after \\x") from None
            at += 4
        else:
            characters.append(_ESCAPES[after])
            at += 2
    return "".join(characters)
