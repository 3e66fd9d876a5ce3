"""The declaration of a store, from which each task makes its own."""

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
    """A state store's declaration. `key` and `value` None mean the application's default serdes.

    retention_ms: how far behind the newest entry window, session and versioned stores can be read.
    window_ms: the window size of a window store. grace_ms: how long a join buffer holds records.
    duplicates: a window store keeps every value of a key and time. capacity: the maximum number of keys (0: no limit).
    in_memory: the emit-on-close scan hides the oldest moment that a persistent store still shows, as in Kafka Streams.
    logging: writes go to the changelog topic `<application.id>-<name>-changelog`, created with `log_settings`.
    caching: no effect.
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
        """A copy with these serdes in place of missing ones."""
        return replace(self, key=self.key or key, value=self.value or value)

    def without_logging(self) -> StoreSpec:
        return replace(self, logging=False, log_settings={})

    @property
    def windowed(self) -> bool:
        return self.kind in ("window", "timestamped_window", "session")

    @property
    def versioned(self) -> bool:
        return self.kind == "versioned"
