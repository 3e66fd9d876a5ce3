"""Stores for processors and tables (Kafka Streams: Stores).

builder.add_state_store(stores.key_value("seen", "string", "long"))
stream.process(Deduplicate, "seen")
builder.table("rates", materialized=Materialized.as_(stores.versioned("rates", timedelta(days=1))))
"""

from __future__ import annotations

from typing import Any

from ottla.flow.serde import serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import here
from ottla.flow.window import Duration, ms


def key_value(name: str, key_serde: Any = None, value_serde: Any = None, *, in_memory: bool = False) -> StoreSpec:
    """A key-value store (persistentKeyValueStore, inMemoryKeyValueStore)."""
    return StoreSpec(name, "key_value", serde(key_serde, here()), serde(value_serde, here()), in_memory=in_memory)


def timestamped_key_value(
    name: str, key_serde: Any = None, value_serde: Any = None, *, in_memory: bool = False
) -> StoreSpec:
    """A key-value store with the time of each value: `ValueAndTimestamp` (persistentTimestampedKeyValueStore)."""
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "timestamped_key_value", *kinds, in_memory=in_memory)


def lru_map(name: str, size: int, key_serde: Any = None, value_serde: Any = None) -> StoreSpec:
    """The keys that were used last (lruMap)."""
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "key_value", *kinds, in_memory=True, capacity=size)


def versioned(name: str, history: Duration, key_serde: Any = None, value_serde: Any = None) -> StoreSpec:
    """All versions of each key, back to `history` (persistentVersionedKeyValueStore)."""
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "versioned", *kinds, ms(history, "history retention"))


def window(
    name: str,
    retention: Duration,
    size: Duration,
    key_serde: Any = None,
    value_serde: Any = None,
    *,
    timestamped: bool = False,
    retain_duplicates: bool = False,
    in_memory: bool = False,
) -> StoreSpec:
    """Values by key and window start (persistentWindowStore, inMemoryWindowStore, ...Timestamped...)."""
    return StoreSpec(
        name,
        "timestamped_window" if timestamped else "window",
        serde(key_serde, here()),
        serde(value_serde, here()),
        ms(retention, "retention"),
        ms(size, "window size"),
        duplicates=retain_duplicates,
        in_memory=in_memory,
    )


def session(
    name: str, retention: Duration, key_serde: Any = None, value_serde: Any = None, *, in_memory: bool = False
) -> StoreSpec:
    """Aggregates by key and session (persistentSessionStore, inMemorySessionStore)."""
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "session", *kinds, ms(retention, "retention"), in_memory=in_memory)
