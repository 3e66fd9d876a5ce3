"""Validators of setting values: each checks a value and describes the valid values.

`str` of a validator is Apache Kafka's text for it; `valid_values` is our description.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

_WHOLE_NUMBER = re.compile(r"[+-]?(?=[0-9])0*+([0-9]{0,19})")
_THROTTLED_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
#: A pattern that is compiled on first use: few nodes have a duration.
_DURATION = r"P(?!$)((?P<days>\d+)D)?(T(?=\d)((?P<hours>\d+)H)?((?P<minutes>\d+)M)?((?P<seconds>\d+(\.\d{1,9})?)S)?)?"


def whole_number(text: str, bits: int = 64) -> int | None:
    """Parse decimal digits; None if the text is no number or does not fit into `bits` bits.

    `int` raises for a text of more than 4,300 digits, which a client may send.
    """
    match = _WHOLE_NUMBER.fullmatch(text)
    if match is None:
        return None
    value = int(match[1] or "0") * (-1 if text[0] == "-" else 1)
    half = 1 << bits - 1
    return value if -half <= value < half else None


def duration_ms(text: str) -> int:
    """Parse Java's text form of a duration (ISO 8601: P1DT2H3M4.5S) into milliseconds.

    ValueError if it is not a duration or exceeds 64 bits.
    """
    match = re.fullmatch(_DURATION, text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"invalid duration: {text!r} (expected ISO 8601, such as PT1H)")
    days, hours, minutes, seconds = (float(match[unit] or 0) for unit in ("days", "hours", "minutes", "seconds"))
    total_ms = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000
    if not total_ms < LONG_MAX:
        raise ValueError(f"duration too long: {text[:40]!r} (expected less than 2^63 ms)")
    return int(total_ms)


def _is_below(digits: str, bits: int) -> bool:
    """Return True if this is an unsigned number that fits into `bits` bits, including a sign bit."""
    return digits.isdecimal() and whole_number(digits, bits) is not None


def _is_duration(text: str) -> bool:
    try:
        duration_ms(text)
    except ValueError:
        return False
    return True


class Check(Protocol):
    """Checks a typed value; None is a setting without a value."""

    @property
    def valid_values(self) -> str:
        """The valid values, as a phrase that follows "expected"."""

    def accepts(self, value: Any) -> bool: ...


class AtLeast:
    """Numbers with a lower bound."""

    __slots__ = ("low",)

    def __init__(self, low: int) -> None:
        self.low = low

    @property
    def valid_values(self) -> str:
        return f"{self.low} or more"

    def accepts(self, value: Any) -> bool:
        return value is not None and value >= self.low

    def __str__(self) -> str:
        return f"[{self.low},...]"


class Between:
    """Numbers between two bounds, both inclusive, plus `other` if given."""

    __slots__ = ("high", "low", "other")

    def __init__(self, low: int, high: float, *, other: int | None = None) -> None:
        self.low = low
        self.high = high
        self.other = other

    @property
    def valid_values(self) -> str:
        return f"{self.low} to {self.high}" + ("" if self.other is None else f", or {self.other}")

    def accepts(self, value: Any) -> bool:
        return value is not None and (self.low <= value <= self.high or value == self.other)

    def __str__(self) -> str:
        return f"[{self.low},...,{self.high}]" + ("" if self.other is None else f" or {self.other}")


class OneOf:
    """A word of a list; with `any_case`, case-insensitive."""

    __slots__ = ("any_case", "words")

    def __init__(self, *words: str, any_case: bool = False) -> None:
        self.words = words
        self.any_case = any_case

    @property
    def valid_values(self) -> str:
        return "one of " + ", ".join(self.words)

    def accepts(self, value: Any) -> bool:
        if value is None:
            return False
        return value.upper() in map(str.upper, self.words) if self.any_case else value in self.words

    def __str__(self) -> str:
        return f"{'(case insensitive) ' if self.any_case else ''}[{', '.join(self.words)}]"


class ListOf:
    """A list without duplicates and empty entries, restricted to `words` if given."""

    __slots__ = ("empty", "null", "words")

    def __init__(self, *words: str, empty: bool = True, null: bool = False) -> None:
        self.words = words
        self.empty = empty
        self.null = null

    @property
    def valid_values(self) -> str:
        kind = f"a list of {', '.join(self.words)}" if self.words else "a comma-separated list"
        return f"{kind} without duplicates" + ("" if self.empty else ", at least one entry")

    def accepts(self, value: Sequence[str] | None) -> bool:
        if value is None:
            return self.null
        if not value:
            return self.empty
        if len(set(value)) != len(value) or "" in value:
            return False
        return not self.words or all(word in self.words for word in value)

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" if self.words else ""


class Addresses:
    """The addresses of the quorum: host:port or id@host:port entries."""

    __slots__ = ("with_id",)

    def __init__(self, *, with_id: bool) -> None:
        self.with_id = with_id

    @property
    def valid_values(self) -> str:
        return f"{'id@' if self.with_id else ''}host:port entries, comma-separated"

    def accepts(self, value: Sequence[str] | None) -> bool:
        return value is not None and all(map(self._fits, value))

    def _fits(self, entry: str) -> bool:
        identity, at, address = entry.rpartition("@")
        if self.with_id != bool(at) or (self.with_id and not _is_below(identity, 32)):
            return False
        host, _, port = address.rpartition(":")
        return bool(host) and _is_below(port, 17)

    def __str__(self) -> str:
        return "non-empty list"


class TextCheck:
    """Any text; `empty` allows the empty text, `null` a setting without a value."""

    __slots__ = ("empty", "null")

    def __init__(self, *, empty: bool, null: bool = False) -> None:
        self.empty = empty
        self.null = null

    @property
    def valid_values(self) -> str:
        return "text" if self.empty else "non-empty text"

    def accepts(self, value: str | None) -> bool:
        return self.null if value is None else self.empty or bool(value)

    def __str__(self) -> str:
        return "non-null string" if self.empty else "non-empty string"


class ThrottledReplicas:
    """`*`, or partition:node entries (KIP-73)."""

    valid_values = "* or comma-separated partition:node entries"

    def accepts(self, value: Sequence[str]) -> bool:
        return "".join(value) == "*" or all(_THROTTLED_REPLICA.fullmatch(entry.strip()) for entry in value)

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class OffsetReset:
    """The position where a share group starts (KIP-932)."""

    valid_values = "latest, earliest, or by_duration:DURATION, such as by_duration:PT1H"

    def accepts(self, value: str | None) -> bool:
        if value is None:
            return False
        kind, colon, duration = value.partition(":")
        if kind.lower() == "by_duration":
            return bool(colon) and _is_duration(duration)
        return value.lower() in ("latest", "earliest")

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


#: Validators that many settings share.
POSITIVE = AtLeast(1)
NOT_NEGATIVE = AtLeast(0)
EVERY_REPLICA = ThrottledReplicas()
SOME_TEXT = TextCheck(empty=False)
SOME_TEXT_OR_NULL = TextCheck(empty=False, null=True)
NOT_NULL = TextCheck(empty=True)
LIST = ListOf()
LIST_OR_NULL = ListOf(null=True)
FULL_LIST = ListOf(empty=False)
FULL_LIST_OR_NULL = ListOf(empty=False, null=True)
CODECS = OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP = ListOf("compact", "delete")
TIMESTAMP = OneOf("CreateTime", "LogAppendTime")
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
#: `Double.MAX_VALUE`.
DOUBLE_MAX = 1.7976931348623157e308
