"""The joins of a stream: with another stream, a table or a global table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.flow import plan
from ottla.flow.column.batch import JoinBatch
from ottla.flow.column.function import JoinFunction
from ottla.flow.error import TopologyError
from ottla.flow.make_store import Sides
from ottla.flow.serde import Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import Where
from ottla.flow.window import JoinWindows, ms
from ottla.streams.function import Function, serde_of
from ottla.streams.option import Joined, StreamJoined
from ottla.streams.stream import KStream

if TYPE_CHECKING:
    from ottla.streams.table import GlobalKTable, KTable


def with_stream(
    this: KStream[Any, Any],
    other: KStream[Any, Any],
    joiner: Function,
    windows: JoinWindows,
    options: StreamJoined,
    kind: Any,
    where: Where,
) -> KStream[Any, Any]:
    """Join two streams, repartitioned where needed, through window stores."""
    builder, name = this.builder, options.name
    key = serde(options.key_serde, where)
    value, other_value = serde(options.value_serde, where), serde(options.other_value_serde, where)
    this = this.repartitioned(f"{name}-left" if name else this.node.name, key, value, where)
    other = other.repartitioned(f"{name}-right" if name else other.node.name, key, other_value, where)
    sources = this.sources | other.sources
    builder.copartition(sources, where)
    left_outer, right_outer = kind != "inner", kind == "outer"
    this_suffix = "-outer-this-join" if right_outer else "-this-join"
    other_suffix = "-outer-other-join" if left_outer else "-other-join"
    this_windowed = builder.named(name, "KSTREAM-WINDOWED-", "-this-windowed")
    other_windowed = builder.named(name, "KSTREAM-WINDOWED-", "-other-windowed")
    this_generated = builder.next_name("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-")
    other_generated = builder.next_name("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-")
    merged = builder.named(name, "KSTREAM-MERGE-", "-merge")
    store_key = key or this.key_serde or other.key_serde
    store_value, store_other = value or this.value_serde, other_value or other.value_serde

    serdes = (store_key, store_value, store_other)
    suffixes = (this_suffix, other_suffix)
    this_store, other_store = _stores(options, windows, serdes, suffixes, (this_generated, other_generated), where)
    candidates = _candidates(options, serdes, right_outer, this_generated) if left_outer else None
    schema = plan.Schema("stream", key or this.key_serde, _result(this, other.value_serde, joiner))
    node = plan.StreamJoin(
        merged,
        (this.node, other.node),
        schema,
        where,
        kind,
        joiner,
        windows,
        this_windowed,
        other_windowed,
        name + this_suffix if name else this_generated,
        name + other_suffix if name else other_generated,
        this_store,
        other_store,
        candidates,
    )
    return KStream(builder, builder.add(node), sources)


Serdes = tuple[Serde | None, Serde | None, Serde | None]


def _stores(
    options: StreamJoined,
    windows: JoinWindows,
    serdes: Serdes,
    suffixes: tuple[str, str],
    generated: tuple[str, str],
    where: Where,
) -> tuple[StoreSpec, StoreSpec]:
    """The window stores of both sides: those of the options, or new ones."""
    retention, size, key = windows.size_ms + windows.grace_ms, windows.size_ms, serdes[0]
    logs: dict[str, Any] = {"logging": options.logging, "log_settings": options.log_settings}
    specs = []
    for given, side, suffix, name in zip(
        (options.this_store, options.other_store), serdes[1:], suffixes, generated, strict=True
    ):
        if given is None:
            base = options.store_name + suffix if options.store_name else name
            spec = StoreSpec(f"{base}-store", "window", key, side, retention, size, duplicates=True, **logs)
            specs.append(replace(spec, in_memory=options.in_memory))
        elif not given.duplicates or (given.retention_ms, given.window_ms) != (retention, size):
            raise TopologyError(
                f"store {given.name} does not fit the join (expected retain_duplicates=True, retention {retention} ms "
                f"and window size {size} ms)",
                where,
            )
        else:
            specs.append(replace(given, kind="window").with_serdes(key, side))
    this, other = specs
    if this.name == other.name:
        raise TopologyError(
            f"both sides of the join use the store name {this.name}; give each side its own name", where
        )
    return this, other


def _candidates(options: StreamJoined, serdes: Serdes, right_outer: bool, generated: str) -> StoreSpec:
    """The store of records that have no match yet."""
    shared = "-outer-shared-join" if right_outer else "-left-shared-join"
    base = options.this_store.name if options.this_store is not None else options.store_name
    name = base + shared if base else "KSTREAM-OUTERSHARED-" + generated[-10:]
    sides = Sides(serdes[1], serdes[2])
    return StoreSpec(f"{name}-store", "unjoined", serdes[0], sides, logging=options.logging)


def with_table(
    this: KStream[Any, Any], table: KTable[Any, Any], joiner: Function, options: Joined, left: bool, where: Where
) -> KStream[Any, Any]:
    """Join a stream with a table by key."""
    builder = this.builder
    key, value = serde(options.key_serde, where), serde(options.value_serde, where)
    this = this.repartitioned(options.name or this.node.name, key, value, where)
    sources = this.sources | table.sources
    builder.copartition(sources, where)
    name = builder.named(options.name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    buffer = None
    if options.grace is not None:
        grace = ms(options.grace, "grace period")
        _check_grace(table, grace, where)
        stream_key, stream_value = key or this.key_serde, value or this.value_serde
        buffer = StoreSpec(f"{name}-Buffer", "join_buffer", stream_key, stream_value, grace_ms=grace)
    schema = plan.Schema("stream", key or this.key_serde, _result(this, table.value_serde, joiner))
    node = plan.StreamTableJoin(name, (this.node, table.node), schema, where, left, joiner, None, buffer)
    return KStream(builder, builder.add(node), sources)


def _check_grace(table: KTable[Any, Any], grace: int, where: Where) -> None:
    if not table.node.is_versioned:
        raise TopologyError(
            "a stream-table join with a grace period needs a versioned table; materialize it with "
            "ottla.streams.stores.versioned",
            where,
        )
    store = getattr(table.node, "store", None)
    if isinstance(store, StoreSpec) and store.retention_ms < grace:
        raise TopologyError(
            f"the history retention of {store.name}, {store.retention_ms} ms, is shorter than the join's grace period, "
            f"{grace} ms",
            where,
        )


def with_global_table(
    this: KStream[Any, Any],
    table: GlobalKTable[Any, Any],
    selector: Function,
    joiner: Function,
    left: bool,
    name: str | None,
    where: Where,
) -> KStream[Any, Any]:
    """Join a stream with a global table by the key that `selector(key, value)` returns."""
    builder = this.builder
    node_name = builder.named(name, "KSTREAM-LEFTJOIN-")
    schema = replace(this.node.schema, value=_result(this, table.node.schema.value, joiner))
    node = plan.StreamTableJoin(node_name, (this.node,), schema, where, left, joiner, selector, None, table.store)
    return KStream(builder, builder.add(node), this.sources)


def _result(this: KStream[Any, Any], other_value: Serde | None, joiner: Function) -> Serde | None:
    """The serde of a column joiner's results, if their type is known here."""
    if not isinstance(joiner, (JoinFunction, JoinBatch)):
        return None
    given = (this.key_serde, this.value_serde, other_value)
    key, left, right = (None if each is None else each.column_type for each in given)
    joiner.inputs = (key, left, right)
    return serde_of(joiner.kind)
