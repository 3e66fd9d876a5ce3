"""The options of operators, under Kafka Streams' names. All are immutable, and most operators also take their fields
as keyword arguments.

    words.group_by_key().count(materialized=Materialized.as_("counts").with_value_serde("long"))
    words.group_by_key().count(materialized="counts")                                           # the same
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ottla.flow.check import check_name, checked
from ottla.flow.error import TopologyError
from ottla.flow.operator.suppress import SuppressRule
from ottla.flow.serde import Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.topology import Extractor, Partitioner
from ottla.flow.where import Where, here
from ottla.flow.window import Duration, ms


@checked
@dataclass(frozen=True, slots=True)
class Consumed:
    """How to read a topic. `offset_reset`: "earliest", "latest", "none", or "by_duration:PT1H" (KIP-1106)."""

    key_serde: Any = None
    value_serde: Any = None
    timestamp_extractor: Extractor | None = None
    offset_reset: str | None = None
    name: str | None = None


@checked
@dataclass(frozen=True, slots=True)
class Produced:
    """How to write a topic. `partitioner(topic, key, value, partitions)` returns a partition, several, or None for
    Kafka's default.
    """

    key_serde: Any = None
    value_serde: Any = None
    partitioner: Partitioner | None = None
    name: str | None = None


@checked
@dataclass(frozen=True, slots=True)
class Grouped:
    """How to group a stream or table. `name` names the repartition topic."""

    name: str | None = None
    key_serde: Any = None
    value_serde: Any = None


@checked
@dataclass(frozen=True, slots=True)
class Joined:
    """How to join a stream with a table. `grace`, a timedelta or ms, needs a versioned table."""

    key_serde: Any = None
    value_serde: Any = None
    other_value_serde: Any = None
    name: str | None = None
    grace: Duration | None = None


@checked
@dataclass(frozen=True, slots=True)
class StreamJoined:
    """How to join two streams: serdes, names and state stores.

    `key_serde` and `value_serde` are those of this stream, `other_value_serde` that of the other stream's values.
    """

    key_serde: Any = None
    value_serde: Any = None
    other_value_serde: Any = None
    name: str | None = None
    store_name: str | None = None
    this_store: StoreSpec | None = None
    other_store: StoreSpec | None = None
    in_memory: bool = False
    logging: bool = True
    log_settings: Mapping[str, str] = field(default_factory=dict)


@checked
@dataclass(frozen=True, slots=True)
class TableJoined:
    """How to join tables by foreign key: the join's name, and partitioners of the left key and of the foreign key."""

    name: str | None = None
    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None


@checked
@dataclass(frozen=True, slots=True)
class Repartitioned:
    """How to repartition a stream. `partitions` None: as many as the topics it must be co-partitioned with."""

    name: str | None = None
    key_serde: Any = None
    value_serde: Any = None
    partitioner: Partitioner | None = None
    partitions: int | None = None


@checked
@dataclass(frozen=True, slots=True)
class Materialized:
    """How to store a table: the store's name, serdes, changelog and retention.

    `retention` is for windowed tables; `versioned` is the history retention of a versioned store (KIP-889), which
    windowed tables cannot have. `caching` has no effect: every change is emitted. `store_type` "in_memory" only
    selects the details in which Kafka Streams' in-memory stores differ.
    """

    store_name: str | None = None
    key_serde: Any = None
    value_serde: Any = None
    logging: bool = True
    log_settings: Mapping[str, str] = field(default_factory=dict)
    caching: bool = True
    retention: Duration | None = None
    store_type: Literal["persistent", "in_memory"] = "persistent"
    versioned: Duration | None = None
    #: A store made by `ottla.streams.stores`.
    store: StoreSpec | None = None

    @classmethod
    def as_(cls, store: str | StoreSpec) -> Materialized:
        """Use a store with this name, or a store made by `ottla.streams.stores` (Kafka Streams: Materialized.as)."""
        if isinstance(store, StoreSpec):
            return cls(store_name=store.name, store=store)
        return cls(store_name=store)

    @classmethod
    def with_(cls, key_serde: Any, value_serde: Any) -> Materialized:
        """Use a store with a generated name and these serdes (Kafka Streams: Materialized.with)."""
        return cls(key_serde=key_serde, value_serde=value_serde)

    def with_key_serde(self, key_serde: Any) -> Materialized:
        """Set the serde of the keys."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Any) -> Materialized:
        """Set the serde of the values."""
        return replace(self, value_serde=value_serde)

    def with_retention(self, retention: Duration) -> Materialized:
        """Set how long a windowed table keeps its windows: a timedelta or ms, at least the window and its grace."""
        ms(retention, "retention")
        return replace(self, retention=retention)

    def with_logging_disabled(self) -> Materialized:
        """Write no changelog. The store is empty after a restart."""
        return replace(self, logging=False, log_settings={})

    def with_logging_enabled(self, settings: Mapping[str, str]) -> Materialized:
        """Write a changelog topic with these topic settings."""
        return replace(self, logging=True, log_settings=dict(settings))

    def with_caching_enabled(self) -> Materialized:
        """Accepted for compatibility; every change is emitted."""
        return replace(self, caching=True)

    def with_caching_disabled(self) -> Materialized:
        """Accepted for compatibility; every change is emitted."""
        return replace(self, caching=False)

    def with_store_type(self, store_type: Literal["persistent", "in_memory"]) -> Materialized:
        """Behave as Kafka Streams' persistent or in-memory stores where the two differ."""
        return replace(self, store_type=store_type)


def materialized(given: Materialized | str | StoreSpec | None) -> Materialized:
    """An operator's `materialized` argument as options."""
    if given is None:
        return Materialized()
    return given if isinstance(given, Materialized) else Materialized.as_(given)


def store_of(
    options: Materialized,
    name: str,
    kind: Literal["timestamped_key_value", "timestamped_window", "session"],
    key: Serde | None,
    value: Serde | None,
    retention_ms: int = 0,
    window_ms: int = 0,
) -> StoreSpec:
    """The store that a table's options describe."""
    where = here()
    key, value = serde(options.key_serde, where) or key, serde(options.value_serde, where) or value
    common: dict[str, Any] = {
        "logging": options.logging,
        "log_settings": options.log_settings,
        "caching": options.caching,
    }
    if options.store is not None:
        given = options.store
        kinds = {"key_value": "timestamped_key_value", "window": "timestamped_window"}
        as_table = kinds.get(given.kind, given.kind)
        if as_table not in (kind, "versioned" if kind == "timestamped_key_value" else kind):
            raise TopologyError(f"store {given.name} is a {given.kind} store (expected {kind})", where)
        if given.retention_ms < retention_ms:
            raise _short(given.name, given.retention_ms, retention_ms, where)
        if given.duplicates:
            raise TopologyError(
                f"store {given.name} keeps every value of a window (retain_duplicates); aggregates keep one",
                where,
            )
        return replace(given, kind=as_table, **common).with_serdes(key, value)
    if options.versioned is not None:
        if kind != "timestamped_key_value":
            raise TopologyError(f"state store {name} cannot be versioned: it is a {kind} store", where)
        return StoreSpec(name, "versioned", key, value, ms(options.versioned, "history retention"), **common)
    if options.retention is not None:
        asked_ms = ms(options.retention, "retention")
        if asked_ms < retention_ms:
            raise _short(name, asked_ms, retention_ms, where)
        retention_ms = asked_ms
    in_memory = options.store_type == "in_memory"
    return StoreSpec(name, kind, key, value, retention_ms, window_ms, in_memory=in_memory, **common)


def _short(name: str, retention_ms: int, least_ms: int, where: Where) -> TopologyError:
    """The error for a retention that would forget windows which late records may still change."""
    return TopologyError(
        f"invalid retention of state store {name}: {retention_ms} ms (expected at least {least_ms} ms, the window and "
        "its grace period)",
        where,
    )


@dataclass(frozen=True, slots=True)
class EmitStrategy:
    """When a windowed aggregate emits: on each update, or once when a window closes (KIP-825)."""

    on_close: bool = False

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Emit each update."""
        return cls(False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Emit one final result per window."""
        return cls(True)


@checked
@dataclass(frozen=True, slots=True)
class BufferConfig:
    """How much `suppress` may hold back, in records and bytes (None: no limit).

    When the buffer is full, the oldest update is emitted early or, with `shut_down`, the task fails. `logging`: whether
    the buffer has a changelog.
    """

    records: int | None = None
    size: int | None = None
    shut_down: bool = False
    logging: bool = True

    def __post_init__(self) -> None:
        for what, limit in (("records", self.records), ("bytes", self.size)):
            if limit is not None and limit < 0:
                raise TopologyError(f"invalid number of {what} for a buffer: {limit} (expected 0 or more)", here())

    @classmethod
    def max_records(cls, records: int) -> BufferConfig:
        """Hold at most this many keys; emit early beyond that."""
        return cls(records=records)

    @classmethod
    def max_bytes(cls, size: int) -> BufferConfig:
        """Hold at most this many bytes; emit early beyond that."""
        return cls(size=size)

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """Hold everything; never emit early."""
        return cls(shut_down=True)

    def with_max_records(self, records: int) -> BufferConfig:
        """Set the limit in keys."""
        return replace(self, records=records)

    def with_max_bytes(self, size: int) -> BufferConfig:
        """Set the limit in bytes."""
        return replace(self, size=size)

    def with_no_bound(self) -> BufferConfig:
        """Remove both limits."""
        return replace(self, records=None, size=None, shut_down=True)

    def shut_down_when_full(self) -> BufferConfig:
        """Fail the task when the buffer is full."""
        return replace(self, shut_down=True)

    def emit_early_when_full(self) -> BufferConfig:
        """Emit the oldest update when the buffer is full."""
        return replace(self, shut_down=False)

    def with_logging_disabled(self) -> BufferConfig:
        """Write no changelog. The buffer is empty after a restart."""
        return replace(self, logging=False)


@checked
@dataclass(frozen=True, slots=True)
class Suppressed:
    """How `suppress` holds a table's updates back (Kafka Streams: Suppressed)."""

    #: How long to wait, in ms of stream time; None: until the window closes.
    wait_ms: int | None
    buffer: BufferConfig
    name: str | None = None

    def __post_init__(self) -> None:
        if self.wait_ms is not None:
            ms(self.wait_ms, "time limit")
        if self.name is not None:
            check_name(self.name, "name", here())

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig) -> Suppressed:
        """Emit one final result per window. TopologyError if the buffer may emit early: it must be `unbounded()` or
        `.shut_down_when_full()`.
        """
        if not buffer.shut_down:
            raise TopologyError(
                "a buffer that emits early would emit results that are not final; use BufferConfig.unbounded() or "
                ".shut_down_when_full()",
                here(),
            )
        return cls(None, buffer)

    @classmethod
    def until_time_limit(cls, limit: Duration, buffer: BufferConfig) -> Suppressed:
        """Emit at most one update of a key per `limit` (a timedelta or ms of stream time)."""
        return cls(ms(limit, "time limit"), buffer)

    def with_name(self, name: str) -> Suppressed:
        """Name the operator and its store."""
        return replace(self, name=name)

    def rule(self, close_ms: int) -> SuppressRule:
        """The rule for the operator. `close_ms`: how long after its end the window closes."""
        buffer = self.buffer
        wait = close_ms if self.wait_ms is None else self.wait_ms
        return SuppressRule(wait, self.wait_ms is None, buffer.records, buffer.size, buffer.shut_down)


@checked
@dataclass(frozen=True, slots=True)
class Branched:
    """How to handle a branch: its name, and a function or consumer of the branch's stream.

    `function(stream)` returns the stream that the dict of branches holds. With `consumer(stream)` the dict does not
    hold the branch.
    """

    name: str | None = None
    function: Callable[[Any], Any] | None = None
    consumer: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.function is not None and self.consumer is not None:
            raise TopologyError("a branch takes function= or consumer=, not both", here())

    @classmethod
    def as_(cls, name: str) -> Branched:
        """Name the branch (Kafka Streams: Branched.as)."""
        return cls(name)

    @classmethod
    def with_function(cls, function: Callable[[Any], Any], name: str | None = None) -> Branched:
        """Put `function(stream)` into the dict of branches, unless it is None."""
        return cls(name, function=function)

    @classmethod
    def with_consumer(cls, consumer: Callable[[Any], Any], name: str | None = None) -> Branched:
        """Pass the branch's stream to `consumer` and leave it out of the dict of branches."""
        return cls(name, consumer=consumer)
