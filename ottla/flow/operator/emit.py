"""Emit on window close: which windows have closed since the last time, at most once in `interval` ms of wall clock."""

from __future__ import annotations

from typing import Any

from ottla.flow.processor import Context
from ottla.flow.record import NO_TIMESTAMP

#: Kafka Streams' internal settings that turn the throttles off (0).
WINDOW_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
JOIN_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"


def interval_ms(configs: dict[str, Any], name: str) -> int:
    """How often emission may be tried; the default is 1,000 ms."""
    return int(configs.get(name, 1000))


class CloseClock:
    """When closed windows were emitted last, by wall clock and by the time up to which they were."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._interval = interval_ms(context.app_configs, WINDOW_INTERVAL)
        self._next = context.cell("next_emit", 0)
        self.last = context.cell("last_emit", NO_TIMESTAMP)

    def due(self, close: int) -> bool:
        """May windows that close by `close` be emitted now?"""
        now = self._context.current_system_time_ms()
        if now < self._next.value:
            return False
        self._next.value = now + self._interval
        return self.last.value == NO_TIMESTAMP or self.last.value < close

    @property
    def first(self) -> bool:
        return self.last.value == NO_TIMESTAMP
