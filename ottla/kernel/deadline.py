"""Deadlines, some of which may not be set."""

from __future__ import annotations

from collections.abc import Iterable


def earliest(times: Iterable[int | None]) -> int | None:
    """Return the earliest time that is set; None if none is. Timers are planned after each event: a plain loop."""
    found = None
    for time in times:
        if time is not None and (found is None or time < found):
            found = time
    return found
