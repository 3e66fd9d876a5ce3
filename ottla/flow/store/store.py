"""What every store has: its entries, the serdes of what it holds, and its changelog."""

from __future__ import annotations

from collections.abc import Callable

from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell, Log
from ottla.flow.store.ordered import OrderedBytes
from ottla.flow.store.spec import StoreSpec


class Store:
    """`topic` is what the serdes are told; without a `log` nothing is written to a changelog."""

    def __init__(self, spec: StoreSpec, entries: OrderedBytes, key: Serde, value: Serde, topic: str, log: Log | None):
        self.name = spec.name
        self.spec = spec
        self.entries = entries
        self._key = key
        self._value = value
        self._topic = topic
        self._log = log

    @property
    def key_serde(self) -> Serde:
        return self._key

    @property
    def value_serde(self) -> Serde:
        return self._value


class TimedStore(Store):
    """A store that forgets: `observed` is the newest time that was put, `now` the time of what has no other."""

    def __init__(
        self,
        spec: StoreSpec,
        entries: OrderedBytes,
        key: Serde,
        value: Serde,
        topic: str,
        log: Log | None,
        now: Callable[[], int],
        observed: Cell,
    ) -> None:
        super().__init__(spec, entries, key, value, topic, log)
        self._now = now
        self._observed = observed
