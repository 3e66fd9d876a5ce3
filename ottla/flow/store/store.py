"""The bases of stores: entries, serdes and changelog."""

from __future__ import annotations

from collections.abc import Callable

from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell, Log
from ottla.flow.store.ordered import OrderedBytes
from ottla.flow.store.spec import StoreSpec


class Store:
    """A state store. `topic` is the topic name for the serdes; `log` None means no changelog."""

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
    """A store with a retention. `observed` is the newest time put; `now` returns the time of writes without one."""

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
