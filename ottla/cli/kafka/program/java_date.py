"""Times in the formats of Java's SimpleDateFormat, as far as the perf tools need them."""

from __future__ import annotations

import re
from datetime import datetime

from ottla.cli.kafka.program.option import Usage

#: The letters of Java's SimpleDateFormat that are served, longest first.
_LETTERS = {
    "yyyy": "{0:%Y}",
    "yy": "{0:%y}",
    "MM": "{0:%m}",
    "dd": "{0:%d}",
    "HH": "{0:%H}",
    "hh": "{0:%I}",
    "mm": "{0:%M}",
    "ss": "{0:%S}",
    "SSS": "{1:03d}",
}


class DateFormat:
    """Formats milliseconds since 1970 by a pattern, in local time. Usage for an unsupported letter."""

    def __init__(self, pattern: str) -> None:
        self._format = _as_python(pattern)

    def __call__(self, timestamp_ms: int) -> str:
        at = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
        return self._format.format(at, timestamp_ms % 1000)


def _as_python(pattern: str) -> str:
    """Convert a pattern of Java's SimpleDateFormat to a Python format string."""
    converted = ""
    for part in re.finditer(r"'([^']*)'|(([a-zA-Z])\3*)|(.)", pattern):
        quoted, letters, _, other = part.groups()
        if letters is None:
            converted += (quoted if quoted is not None else other).replace("{", "{{").replace("}", "}}")
        elif letters in _LETTERS:
            converted += _LETTERS[letters]
        else:
            raise Usage(f"--date-format: {letters} is not supported (expected {', '.join(_LETTERS)})")
    return converted
