"""Throttles for emitting the results of closed windows: at most once per interval of wall clock."""

from __future__ import annotations

from typing import Any

from ottla.flow.processor import Context
from ottla.flow.record import NO_TIMESTAMP
from ottla.flow.store.changelog import Cell

#: Kafka Streams' internal settings for the intervals in ms; 0 turns the throttle off.
WINDOW_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
JOIN_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"


def interval_ms(configs: dict[str, Any], name: str) -> int:
    """The interval between emissions in ms (default: 1,000)."""
    return int(configs.get(name, 1000))


def is_early(now: int, due: int, interval: int) -> bool:
    """Whether the interval has not passed yet. A due time further away is from a clock that was ahead."""
    return now < due <= now + interval


class EmitThrottle:
    """The emit-on-close state of an operator. `last` is the close time up to which it has emitted.

    It belongs to the store, as in Kafka Streams: a changed program may number its operators otherwise.
    """

    def __init__(self, context: Any, store: str) -> None:
        self._context: Context = context
        self._interval = interval_ms(context.app_configs, WINDOW_INTERVAL)
        self._next: Cell = context.task.cell(f"{store}/next_emit", 0)
        self.last: Cell = context.task.cell(f"{store}/last_emit", NO_TIMESTAMP)

    def due(self, close: int) -> bool:
        """Whether to emit the windows that have closed by `close` now. Starts the next interval."""
        now = self._context.current_system_time_ms()
        if is_early(now, self._next.value, self._interval):
            return False
        self._next.value = now + self._interval
        return self.last.value == NO_TIMESTAMP or self.last.value < close

    @property
    def first(self) -> bool:
        """Whether nothing has been emitted yet."""
        return self.last.value == NO_TIMESTAMP
