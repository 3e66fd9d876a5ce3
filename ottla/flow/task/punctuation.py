"""Punctuators: which are due, in which order, and when they are due again.

Rules (Kafka Streams'):
- By stream time the first is due at once, or at its start; by wall clock after one interval, or at its start.
- Due times stay on their grid; a punctuator that missed some is called once and skips them.
- The earliest due goes first; of several the one that was scheduled first. Due times are cells of the task's state.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.flow.store.changelog import Cell

#: The due time of a punctuator that was cancelled.
_CANCELLED = -2


class Schedule:
    """A punctuator."""

    __slots__ = ("call", "due", "interval", "node")

    def __init__(self, node: str, due: Cell, interval: int, call: Callable[[int], None]) -> None:
        self.node = node
        self.due = due
        self.interval = interval
        self.call = call

    def cancel(self) -> None:
        self.due.value = _CANCELLED


class Punctuators:
    """The punctuators of one clock of one task, in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.schedules: list[Schedule] = []

    def __bool__(self) -> bool:
        return bool(self.schedules)

    def add(self, schedule: Schedule) -> None:
        self.schedules.append(schedule)

    def next_due(self) -> int | None:
        """The earliest due time."""
        return min((each.due.value for each in self.schedules if each.due.value != _CANCELLED), default=None)

    def run(self, time: int, call: Callable[[Schedule, int], None]) -> None:
        """Call what is due at `time`, each once."""
        while True:
            due = [each for each in self.schedules if _CANCELLED != each.due.value <= time]
            if not due:
                break
            first = min(due, key=lambda each: each.due.value)
            last = first.due.value
            missed = max(0, (time - last) // first.interval)
            first.due.value = last + (missed + 1) * first.interval
            call(first, time)
        self.schedules = [each for each in self.schedules if each.due.value != _CANCELLED]
