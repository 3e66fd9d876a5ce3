"""State stores for processors and tables (Kafka Streams: Stores).

    builder.add_state_store(stores.key_value("seen", "string", "long"))
    stream.process(Deduplicate, "seen")
    builder.table("rates", materialized=Materialized.as_(stores.versioned("rates", timedelta(days=1))))

Durations are timedelta or milliseconds; TopologyError if one is negative. Serdes default to the application's. All
stores live in memory and are restored from their changelogs; `in_memory` only selects the details in which Kafka
Streams' in-memory stores differ.
"""

from __future__ import annotations

from typing import Any

from ottla.flow.check import checked
from ottla.flow.error import TopologyError
from ottla.flow.serde import serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import here
from ottla.flow.window import Duration, ms


@checked
def key_value(name: str, key_serde: Any = None, value_serde: Any = None, *, in_memory: bool = False) -> StoreSpec:
    """A key-value store (Kafka Streams: persistentKeyValueStore, inMemoryKeyValueStore)."""
    return StoreSpec(name, "key_value", serde(key_serde, here()), serde(value_serde, here()), in_memory=in_memory)


@checked
def timestamped_key_value(
    name: str, key_serde: Any = None, value_serde: Any = None, *, in_memory: bool = False
) -> StoreSpec:
    """A key-value store of `ValueAndTimestamp` (Kafka Streams: persistentTimestampedKeyValueStore)."""
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "timestamped_key_value", *kinds, in_memory=in_memory)


@checked
def lru_map(name: str, size: int, key_serde: Any = None, value_serde: Any = None) -> StoreSpec:
    """A key-value store of the `size` most recently used keys (Kafka Streams: lruMap). TopologyError if it is 0."""
    if size < 1:
        raise TopologyError(f"invalid size of store {name}: {size} (expected at least 1)", here())
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "key_value", *kinds, in_memory=True, capacity=size)


@checked
def versioned(name: str, history: Duration, key_serde: Any = None, value_serde: Any = None) -> StoreSpec:
    """A store of all versions of each key, as far back as `history` (Kafka Streams: persistentVersionedKeyValueStore,
    KIP-889).
    """
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "versioned", *kinds, ms(history, "history retention"))


@checked
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
    """A store of values by key and window start (Kafka Streams: persistentWindowStore, inMemoryWindowStore and
    persistentTimestampedWindowStore).

    `retention`: how long behind the newest window start entries can be read. `retain_duplicates`: keep every value of
    a key and start instead of the last one.
    """
    if ms(retention, "retention") < ms(size, "window size"):
        raise TopologyError(
            f"invalid retention of store {name}: {retention} (expected at least the window size, {size})", here()
        )
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


@checked
def session(
    name: str, retention: Duration, key_serde: Any = None, value_serde: Any = None, *, in_memory: bool = False
) -> StoreSpec:
    """A store of aggregates by key and session (Kafka Streams: persistentSessionStore, inMemorySessionStore).

    `retention`: how long behind the newest session end entries can be read.
    """
    kinds = serde(key_serde, here()), serde(value_serde, here())
    return StoreSpec(name, "session", *kinds, ms(retention, "retention"), in_memory=in_memory)
