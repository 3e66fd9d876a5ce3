"""What a store is declared to be, before a task makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ottla.flow.serde import Serde

Kind = Literal[
    "key_value",
    "timestamped_key_value",
    "versioned",
    "window",
    "timestamped_window",
    "session",
    "suppress_buffer",
    "join_buffer",
    "unjoined",
    "subscription",
]


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A named store. `key` and `value` None take the application's default serdes.

    retention_ms: how long entries of window, session and versioned stores can be read, behind the newest one.
    window_ms: a window store's window size. duplicates: a window store keeps every value of a key and time.
    in_memory: hides the oldest moment that a persistent store still shows to emit-on-close (SEMANTICS of Kafka
    Streams).
    logging: writes go to the changelog topic `<application.id>-<name>-changelog`, with these topic settings.
    """

    name: str
    kind: Kind
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int = 0
    window_ms: int = 0
    grace_ms: int = 0
    duplicates: bool = False
    in_memory: bool = False
    capacity: int = 0
    logging: bool = True
    log_settings: Mapping[str, str] = field(default_factory=dict)
    caching: bool = False

    def with_serdes(self, key: Serde | None, value: Serde | None) -> StoreSpec:
        """The same with serdes where it has none of its own."""
        return replace(self, key=self.key or key, value=self.value or value)

    def without_logging(self) -> StoreSpec:
        return replace(self, logging=False, log_settings={})

    @property
    def windowed(self) -> bool:
        return self.kind in ("window", "timestamped_window", "session")

    @property
    def versioned(self) -> bool:
        return self.kind == "versioned"
