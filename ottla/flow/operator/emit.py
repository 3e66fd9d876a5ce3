"""Throttles for emitting the results of closed windows: at most once per interval of wall clock."""

from __future__ import annotations

from typing import Any

from ottla.flow.processor import Context
from ottla.flow.record import NO_TIMESTAMP

#: Kafka Streams' internal settings for the intervals in ms; 0 turns the throttle off.
WINDOW_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
JOIN_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"


def interval_ms(configs: dict[str, Any], name: str) -> int:
    """The interval between emissions in ms (default: 1,000)."""
    return int(configs.get(name, 1000))


class EmitThrottle:
    """The emit-on-close state of an operator. `last` is the close time up to which it has emitted."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._interval = interval_ms(context.app_configs, WINDOW_INTERVAL)
        self._next = context.cell("next_emit", 0)
        self.last = context.cell("last_emit", NO_TIMESTAMP)

    def due(self, close: int) -> bool:
        """Whether to emit the windows that have closed by `close` now. Starts the next interval."""
        now = self._context.current_system_time_ms()
        if now < self._next.value:
            return False
        self._next.value = now + self._interval
        return self.last.value == NO_TIMESTAMP or self.last.value < close

    @property
    def first(self) -> bool:
        """Whether nothing has been emitted yet."""
        return self.last.value == NO_TIMESTAMP
