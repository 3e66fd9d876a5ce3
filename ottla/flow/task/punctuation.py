"""Punctuators: which are due, in which order, and when they are due again.

Rules (Kafka Streams):
- Without a start, a stream-time punctuator is first due at once, a wall-clock punctuator after one interval.
- Due times stay on a fixed grid; a punctuator that missed several is called once for them.
- The punctuator with the earliest due time goes first; ties go to the one scheduled first. Due times are cells of the
  task's state.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.flow.store.changelog import Cell

#: The due time of a cancelled punctuator.
CANCELLED = -2


class Schedule:
    """A scheduled punctuator of a node."""

    __slots__ = ("call", "due", "interval", "node")

    def __init__(self, node: str, due: Cell, interval: int, call: Callable[[int], None]) -> None:
        self.node = node
        self.due = due
        self.interval = interval
        self.call = call

    def cancel(self) -> None:
        self.due.value = CANCELLED


class Punctuators:
    """The punctuators of one clock of one task, in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.schedules: list[Schedule] = []

    def __bool__(self) -> bool:
        return bool(self.schedules)

    def add(self, schedule: Schedule) -> None:
        self.schedules.append(schedule)

    def next_due(self) -> int | None:
        """The earliest due time, or None."""
        return min((schedule.due.value for schedule in self.schedules if schedule.due.value != CANCELLED), default=None)

    def run(self, time: int, call: Callable[[Schedule, int], None]) -> None:
        """Call each punctuator that is due at `time`, once."""
        while True:
            due = [schedule for schedule in self.schedules if CANCELLED != schedule.due.value <= time]
            if not due:
                break
            first = min(due, key=lambda schedule: schedule.due.value)
            last = first.due.value
            missed = max(0, (time - last) // first.interval)
            first.due.value = last + (missed + 1) * first.interval
            call(first, time)
        self.schedules = [schedule for schedule in self.schedules if schedule.due.value != CANCELLED]
