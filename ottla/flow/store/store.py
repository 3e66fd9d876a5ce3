"""What every store has: its entries, the serdes of what it holds, and its changelog."""

from __future__ import annotations

from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Log
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
