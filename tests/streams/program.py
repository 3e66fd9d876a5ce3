"""Programs in statements, so that one text runs on our engine and on Kafka Streams (tests/interop/java/driver).

A statement is a dict: `op`, the `id` that its result gets, `on` and `other` for what it works on, `f` and so on for
functions by name (function.py), `name`, `store`, `windows` and other options as text.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.flow.record import Input
from ottla.streams import (
    Application,
    Branched,
    BufferConfig,
    EmitStrategy,
    GlobalKTable,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    PunctuationType,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windows,
    stores,
)
from ottla.streams.cogrouped import CogroupedKStream, SessionWindowedCogroupedKStream
from ottla.streams.grouped import KGroupedStream
from ottla.streams.grouped_table import KGroupedTable
from ottla.streams.windowed import SessionWindowedKStream
from tests.streams import function

Statement = Mapping[str, str]
#: The referee's settings: no cache, and emission that is not throttled, in Kafka Streams' internal settings.
UNTHROTTLED = {
    "statestore.cache.max.bytes": "0",
    "__emit.interval.ms.kstreams.windowed.aggregation__": "0",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0",
}


def build(program: Iterable[Statement], config: Mapping[str, str] = UNTHROTTLED) -> Application:
    builder = StreamsBuilder()
    made: dict[str, Any] = {}
    for statement in program:
        result = _make(builder, made, statement)
        if "id" in statement:
            made[statement["id"]] = result
    return builder.build("app", key_serde="string", value_serde="string", config=config)


def _kept(s: Statement) -> Materialized | None:
    if not {"store", "versioned", "kept"} & set(s):
        return None
    if "versioned" in s:
        return Materialized.as_(stores.versioned(s["store"], int(s["versioned"])))
    kept = Materialized(s.get("store"), retention=int(s["retention"]) if "retention" in s else None)
    return kept.with_store_type("in_memory") if "in_memory" in s else kept


def _make(builder: StreamsBuilder, made: dict[str, Any], s: Statement) -> Any:
    name, f, kept = s.get("name"), s.get("f", ""), _kept(s)
    on: Any = made.get(s.get("on", ""))
    other: Any = made.get(s.get("other", ""))
    match s["op"]:
        case "stream":
            return builder.stream(s["topic"].split(","), key_serde="string", value_serde="string", name=name)
        case "table":
            return builder.table(s["topic"], key_serde="string", value_serde="string", name=name, materialized=kept)
        case "global_table":
            return builder.global_table(s["topic"])
        case "filter" | "filter_not" as operation:
            options = {"materialized": kept} if isinstance(on, KTable) else {}
            return getattr(on, operation)(function.test(f), name=name, **options)
        case "map":
            return on.map(function.pair(f), name=name)
        case "map_values":
            options = {"materialized": kept} if isinstance(on, KTable) else {}
            return on.map_values(function.value(f), name=name, **options)
        case "flat_map":
            return on.flat_map(function.pairs(f), name=name)
        case "flat_map_values":
            return on.flat_map_values(function.values(f), name=name)
        case "select_key":
            return on.select_key(function.key(f), name=name)
        case "merge":
            return on.merge(other, name=name)
        case "split":
            return _split(made, on, s)
        case "remember":
            builder.add_state_store(stores.key_value(s["store"], "string", "string"))
            return on.process(lambda: _Remember(s["store"], s.get("every")), s["store"], name=name)
        case "to_table":
            return on.to_table(kept, name=name)
        case "to_stream":
            return on.to_stream(function.key(f) if f else None, name=name)
        case "repartition":
            return on.repartition(name=name)
        case "group_by_key":
            return on.group_by_key(name=name)
        case "group_by":
            if isinstance(on, KStream):
                return on.group_by(function.key(f), name=name)
            return on.group_by(function.pair(f), name=name, key_serde="string", value_serde="string")
        case "windowed_by":
            return on.windowed_by(windows(s["windows"]))
        case "emit":
            return on.emit_strategy(EmitStrategy.on_window_close())
        case "count" | "reduce" | "aggregate":
            return _aggregate(on, s, name, f, kept)
        case "cogroup":
            return on.cogroup(other, function.add(f)) if other is not None else on.cogroup(function.add(f))
        case "suppress":
            return on.suppress(_suppressed(s["until"], name))
        case "join" | "left_join" | "outer_join":
            return _join(s["op"], on, other, s, name, f, kept)
        case "to":
            return on.to(s["topic"])
    raise ValueError(s["op"])


class _Remember:
    """Forwards a record a millisecond later, then writes it to a plain store; writes there `every` ms by each clock."""

    def __init__(self, store: str, every: str | None) -> None:
        self._name = store
        self._every = every

    def init(self, context: Any) -> None:
        self._context, self._store = context, context.get_state_store(self._name)
        if self._every is not None:
            for kind in PunctuationType:
                self._schedule(kind)

    def _schedule(self, kind: PunctuationType) -> None:
        self._context.schedule(int(self._every or 0), kind, lambda time: self._store.put(kind.name, str(time)))

    def process(self, record: Any) -> None:
        self._context.forward(record.with_timestamp(record.timestamp + 1))
        self._store.put(record.key, record.value)


def _split(made: dict[str, Any], on: Any, s: Statement) -> Any:
    branched = on.split(name=s.get("name"))

    def keep(name: str) -> Branched:
        return Branched.with_consumer(lambda stream: made.__setitem__(name, stream))

    for number, predicate in enumerate(s["f"].split(","), 1):
        branched = branched.branch(function.test(predicate), keep(f"{s['id']}{number}"))
    if "default" in s:
        branched.default_branch(keep(f"{s['id']}0"))
    return branched


class Own(Windows):
    """Windows that begin at the multiples of `step` and are `size_ms` long, but at odd multiples half as long; there
    are none from `closed` on.
    """

    def __init__(self, size: int, step: int, grace: int, closed: int) -> None:
        self.size_ms, self.grace_ms = size, grace
        self._step, self._closed = step, closed

    def windows_for(self, timestamp: int) -> list[Window]:
        starts = range(0, timestamp + 1, self._step)
        sizes = [self.size_ms // (1 + start // self._step % 2) for start in starts]
        found = [Window(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        return [window for window in found if timestamp < window.end and timestamp < self._closed]


def windows(text: str) -> Any:
    kind, *numbers = text.split(":")
    values = [int(number) for number in numbers]
    match kind:
        case "time":
            return TimeWindows.of_size_and_grace(values[0], values[2]).advance_by(values[1])
        case "sliding":
            return SlidingWindows.of_time_difference_and_grace(*values)
        case "session":
            return SessionWindows.of_inactivity_gap_and_grace(*values)
        case "unlimited":
            return UnlimitedWindows.of().start_on(values[0])
        case "own":
            return Own(*values)
    raise ValueError(text)


def _aggregate(on: Any, s: Statement, name: str | None, f: str, kept: Materialized | None) -> Any:
    options: dict[str, Any] = {"name": name, "materialized": kept}
    if s["op"] == "count":
        return on.count(**options)
    initial = function.initial(s.get("init", "empty"))
    if isinstance(on, KGroupedTable):
        if s["op"] == "reduce":
            return on.reduce(function.reduce(f), function.reduce(s["g"]), **options)
        return on.aggregate(initial, function.add(f), function.add(s["g"]), **options)
    if s["op"] == "reduce":
        return on.reduce(function.reduce(f), **options)
    if isinstance(on, KGroupedStream):
        return on.aggregate(initial, function.add(f), **options)
    if isinstance(on, SessionWindowedKStream):
        return on.aggregate(initial, function.add(f), function.merge, **options)
    if isinstance(on, SessionWindowedCogroupedKStream):
        return on.aggregate(initial, function.merge, **options)
    if isinstance(on, CogroupedKStream) or not hasattr(on, "count"):
        return on.aggregate(initial, **options)
    return on.aggregate(initial, function.add(f), **options)


def _suppressed(until: str, name: str | None) -> Suppressed:
    kind, *numbers = until.split(":")
    if kind == "close":
        made = Suppressed.until_window_closes(BufferConfig.unbounded())
    else:
        buffer = BufferConfig.max_records(int(numbers[1])) if len(numbers) > 1 else BufferConfig.unbounded()
        made = Suppressed.until_time_limit(int(numbers[0]), buffer)
    return made.with_name(name) if name else made


def _join(op: str, on: Any, other: Any, s: Statement, name: str | None, f: str, kept: Materialized | None) -> Any:
    joiner = function.join(f)
    join = getattr(on, op)
    if isinstance(on, KTable):
        plain = lambda left, right: joiner(None, left, right)  # noqa: E731
        if "fk" in s:
            extractor = function.key(s["fk"])
            key = lambda value: extractor(None, value)  # noqa: E731
            return join(other, plain, materialized=kept, foreign_key=key, table_joined=TableJoined(name))
        return join(other, plain, name=name, materialized=kept)
    if isinstance(other, KStream):
        before, after, grace = map(int, s["windows"].split(":"))
        joined = StreamJoined("string", "string", "string", name, s.get("store"))
        return join(other, joiner, JoinWindows(before, after, grace), joined)
    if isinstance(other, GlobalKTable):
        return join(other, joiner, key_selector=function.key(s["selector"]), name=name)
    return join(other, joiner, name=name, grace=int(s["grace"]) if "grace" in s else None)


def bytes_of(topic: str, offset: int, step: Mapping[str, Any]) -> Input:
    """An input of a step: {"topic", "key", "value", "timestamp", "headers"}."""
    key, value = step["key"], step["value"]
    headers = tuple((name, content.encode()) for name, content in step.get("headers", ()))
    encode = [None if each is None else each.encode() for each in (key, value)]
    return Input(topic, 0, offset, step["timestamp"], encode[0], encode[1], headers)
