"""Human-readable amounts: moments, time spans, bytes.

Rules:
- A moment is shown in UTC with a `Z`, and that form is accepted as input. A moment without a zone is in the local time
  zone, `@N` is milliseconds since 1970, and a span ("2h") is that long ago.
- Spans: 250ms, 90s, 15min (15m), 2h, 7d, 2w, and sums of them (1h30min). Bytes: 10kB is 10,000, 10KiB (or 10K) 10,240.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

_SPANS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?(ms|min|s|m|h|d|w)")
_SPAN_WHOLE = re.compile(r"(?:\d+(?:\.\d+)? ?(?:ms|min|s|m|h|d|w) ?)+")
_BYTES = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)(i?)(b?)", re.IGNORECASE)
#: A timestamp has 64 bits.
_MOMENT_MAX = (1 << 63) - 1
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
#: What stands for a place in a partition.
WHERE = "earliest, latest, an offset, -N, a time (2026-11-21T06:00Z, @1795304325959 in ms), or a time ago (2h)"


def span_ms(text: str) -> int | None:
    """Parse a time span to milliseconds; None if the text is not a span."""
    if not _SPAN_WHOLE.fullmatch(text.strip()):
        return None
    return round(sum(float(number) * _SPANS_MS[unit] for number, unit in _SPAN.findall(text)))


def byte_count(text: str) -> int | None:
    """Parse a size to bytes; None if the text is not a size. KiB, K and k are 1,024 bytes, kB is 1,000."""
    match = _BYTES.fullmatch(text.strip())
    if not match:
        return None
    number, unit, binary, byte = match.groups()
    thousand = 1000 if unit and byte and not binary else 1024
    return round(float(number) * float(thousand ** _POWERS[unit.lower()]))


def moment_ms(text: str) -> int | None:
    """Parse a moment to milliseconds since 1970; None if the text is not a moment."""
    text = text.strip()
    if text.startswith("@") and text[1:].isdecimal():
        moment = int(text[1:])
        return moment if moment <= _MOMENT_MAX else None
    span = span_ms(text)
    if span is not None:
        return time.time_ns() // 1_000_000 - span
    if text == "now":
        return time.time_ns() // 1_000_000
    try:
        at = datetime.fromisoformat(text)
        return round(at.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def size(count: int) -> str:
    """Format bytes: 3.2 MiB."""
    if count < 0:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def instant(timestamp_ms: int | None) -> str | None:
    """Format a moment in UTC: 2026-11-21T23:38:45.123Z."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        at = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"@{timestamp_ms}"
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def counted(count: int, noun: str) -> str:
    """Format a number with its noun: 1 record, 1,000 records."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration(milliseconds: int) -> str:
    """Format a time span: 7 d, 1 h 30 min, 250 ms."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    left = milliseconds // 1000
    parts = []
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= seconds:
            parts.append(f"{left // seconds} {unit}")
            left %= seconds
    return " ".join(parts[:2])


def setting_value(name: str, text: str) -> str:
    """Convert amounts in a setting's value to Kafka's numbers: retention.ms=7d, segment.bytes=1GiB, linger.seconds=5s.

    A value that is not an amount, or a setting whose name ends in no unit, is left alone: the cluster reports errors.
    """
    unit = name.rpartition(".")[2]
    if re.fullmatch(r"-?\d+", text.strip()):
        return text
    amount: int | None = None
    if unit == "ms":
        amount = span_ms(text)
    elif unit in ("seconds", "minutes", "hours"):
        span = span_ms(text)
        per = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}[unit]
        amount = span // per if span is not None and span % per == 0 else None
    elif unit in ("bytes", "size", "rate"):
        amount = byte_count(text.removesuffix("/s"))
    return text if amount is None else str(amount)
