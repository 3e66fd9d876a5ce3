"""A refusal begins exactly where it says, and an option arrives where it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ottla.flow.operator.suppress import SuppressRule
from ottla.streams import (
    Branched,
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    JoinWindows,
    Materialized,
    Produced,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Window,
    Windows,
    batch,
    stores,
)
from ottla.streams.application import Application

CLOSE, UPDATE = EmitStrategy.on_window_close(), EmitStrategy.on_window_update()
UNBOUNDED = BufferConfig.unbounded()
TEN = JoinWindows.of_time_difference_with_no_grace(10)


class Shifts(Windows):
    size_ms = 10

    def windows_for(self, timestamp: int) -> Iterable[Window]:
        return [Window(timestamp // 10 * 10, timestamp // 10 * 10 + 10)]


def first(left: Any, right: Any) -> Any:
    return left


def windowed(b: StreamsBuilder, windows: Any) -> Any:
    return b.stream("in").group_by_key().windowed_by(windows)


def joined(b: StreamsBuilder, options: StreamJoined, windows: JoinWindows = TEN) -> Any:
    return b.stream("in").join(b.stream("other"), first, windows, options)


def kept(name: str, retention: int = 20, size: int = 20, *, duplicates: bool = True) -> Any:
    return stores.window(name, retention, size, retain_duplicates=duplicates)


def table(b: StreamsBuilder, history: int | None = None) -> Any:
    return b.table("rows", materialized=None if history is None else Materialized("v", versioned=history))


_AT_BOUND: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "close of unlimited windows": (
        lambda b: windowed(b, UnlimitedWindows.of()).emit_strategy(UPDATE),
        lambda b: windowed(b, UnlimitedWindows.of()).emit_strategy(CLOSE),
        "an unlimited window never closes; on_window_close() needs TimeWindows or SlidingWindows",
    ),
    "close of windows of one's own": (
        lambda b: windowed(b, Shifts()).emit_strategy(UPDATE),
        lambda b: windowed(b, Shifts()).emit_strategy(CLOSE),
        "on_window_close() needs TimeWindows or SlidingWindows; for windows of your own use suppress",
    ),
    "windows of another kind": (
        lambda b: windowed(b, SlidingWindows(0)),
        lambda b: windowed(b, JoinWindows(5, 5)),
        "JoinWindows",
    ),
    "retention": (
        lambda b: windowed(b, TimeWindows(10, 10, 5)).count(materialized=Materialized("s", retention=15)),
        lambda b: windowed(b, TimeWindows(10, 10, 5)).count(materialized=Materialized("s", retention=14)),
        "invalid retention of state store s: 14 ms (expected at least 15 ms, the window and its grace period)",
    ),
    "retention of sessions": (
        lambda b: windowed(b, SessionWindows(10, 5)).count(materialized=Materialized("s", retention=15)),
        lambda b: windowed(b, SessionWindows(10, 5)).count(materialized=Materialized("s", retention=14)),
        "invalid retention of state store s: 14 ms (expected at least 15 ms",
    ),
    "a versioned window": (
        lambda b: b.stream("in").group_by_key().count(materialized=Materialized("s", versioned=5)),
        lambda b: windowed(b, TimeWindows.of(10)).count(materialized=Materialized("s", versioned=5)),
        "state store s cannot be versioned: it is a timestamped_window store",
    ),
    "a store of another kind": (
        lambda b: b.stream("in").group_by_key().count(materialized=Materialized.as_(stores.key_value("s"))),
        lambda b: b.stream("in").group_by_key().count(materialized=Materialized.as_(stores.session("s", 10))),
        "store s is a session store (expected timestamped_key_value)",
    ),
    "a window's store of another kind": (
        lambda b: windowed(b, TimeWindows.of(10)).count(materialized=Materialized.as_(stores.window("s", 10, 10))),
        lambda b: windowed(b, TimeWindows.of(10)).count(materialized=Materialized.as_(stores.versioned("s", 10))),
        "store s is a versioned store (expected timestamped_window)",
    ),
    "grace of a join": (
        lambda b: b.stream("in").join(table(b, 5), first, grace=5),
        lambda b: b.stream("in").join(table(b, 4), first, grace=5),
        "the history retention of v, 4 ms, is shorter than the join's grace period, 5 ms",
    ),
    "grace without history": (
        lambda b: b.stream("in").join(table(b), first),
        lambda b: b.stream("in").join(table(b), first, grace=0),
        "versioned",
    ),
    "stores of a join": (
        lambda b: joined(b, StreamJoined(this_store=kept("one"), other_store=kept("two"))),
        lambda b: joined(b, StreamJoined(this_store=kept("one"), other_store=kept("one"))),
        "both sides of the join use the store name one; give each side its own name",
    ),
    "a join's store without duplicates": (
        lambda b: joined(b, StreamJoined(this_store=kept("one"))),
        lambda b: joined(b, StreamJoined(this_store=kept("one", duplicates=False))),
        "store one does not fit the join (expected retain_duplicates=True, retention 20 ms and window size 20 ms)",
    ),
    "a join's store with another retention": (
        lambda b: joined(b, StreamJoined(this_store=kept("one", 25)), replace(TEN, grace_ms=5)),
        lambda b: joined(b, StreamJoined(other_store=kept("one", 24)), replace(TEN, grace_ms=5)),
        "store one does not fit the join (expected retain_duplicates=True, retention 25 ms and window size 20 ms)",
    ),
    "a join's store with another size": (
        lambda b: joined(b, StreamJoined(other_store=kept("one", 20, 20))),
        lambda b: joined(b, StreamJoined(other_store=kept("one", 20, 19))),
        "store one does not fit the join",
    ),
    "a flat batch": (
        lambda b: b.stream("in", key_serde="string", value_serde="string").flat_map(batch(len, key="string")),
        lambda b: b.stream("other").flat_map(batch(len)),
        "the batch function of flat_map needs key= (the type of its keys)",
    ),
    "partitions": (
        lambda b: b.stream("in").repartition(partitions=1),
        lambda b: b.stream("in").repartition(partitions=0),
        "invalid number of partitions: 0 (expected at least 1)",
    ),
    "a buffer": (
        lambda b: BufferConfig(0, 0),
        lambda b: BufferConfig(0, -1),
        "invalid number of bytes for a buffer: -1 (expected 0 or more)",
    ),
    "a time limit": (
        lambda b: Suppressed.until_time_limit(0, UNBOUNDED),
        lambda b: Suppressed.until_time_limit(-1, UNBOUNDED),
        "invalid time limit: -1 ms (expected 0 or more)",
    ),
    "results that are final": (
        lambda b: Suppressed.until_window_closes(BufferConfig(records=5, shut_down=True)),
        lambda b: Suppressed.until_window_closes(UNBOUNDED.emit_early_when_full()),
        "a buffer that emits early would emit results that are not final",
    ),
    "a suppressed version": (
        lambda b: table(b).suppress(Suppressed.until_time_limit(5, UNBOUNDED)),
        lambda b: table(b, 5).suppress(Suppressed.until_time_limit(5, UNBOUNDED)),
        "a versioned table cannot be suppressed",
    ),
    "two uses of a branch": (
        lambda b: (Branched(function=print), Branched(consumer=print)),
        lambda b: Branched(function=print, consumer=print),
        "a branch takes function= or consumer=, not both",
    ),
    "branches of a split": (
        lambda b: b.stream("in").split().branch(first).branch(first).no_default_branch(),
        lambda b: (split := b.stream("in").split("s"), split.no_default_branch(), split.branch(first)),
        "split s has all its branches: add others before default_branch() or no_default_branch()",
    ),
    "an advance": (
        lambda b: TimeWindows.of(10).advance_by(10),
        lambda b: TimeWindows.of(10).advance_by(11),
        "invalid window advance: 11 ms (expected at most the window size, 10 ms)",
    ),
    "bounds of a join": (
        lambda b: JoinWindows(-5, 5).before(-5).after(5),
        lambda b: JoinWindows(5, 5).before(-6),
        "invalid time difference: -6 ms (expected -5 or more)",
    ),
    "later bounds of a join": (
        lambda b: JoinWindows(5, 5).after(-5),
        lambda b: JoinWindows(5, 5).after(-6),
        "invalid time difference: -6 ms (expected -5 or more)",
    ),
    "a store of few keys": (
        lambda b: stores.lru_map("s", 1),
        lambda b: stores.lru_map("s", 0),
        "invalid size of store s: 0 (expected at least 1)",
    ),
    "a store of windows": (
        lambda b: stores.window("s", 10, 10),
        lambda b: stores.window("s", 9, 10),
        "invalid retention of store s: 9 (expected at least the window size, 10)",
    ),
    "a window's start": (
        lambda b: UnlimitedWindows.of().start_on(0),
        lambda b: UnlimitedWindows.of().start_on(-1),
        "invalid window start: -1 ms since 1970 (expected 0 or more)",
    ),
    "windows of a size": (
        lambda b: TimeWindows.of(1),
        lambda b: TimeWindows.of(0),
        "invalid window size: 0 ms (expected more than 0)",
    ),
    "windows of a builder": (
        lambda b: b.build(emit="every"),
        lambda b: b.build(emit="last"),
        "emit",
    ),
    "a program": (
        lambda b: b.stream("in").to("out") or b.build(),
        lambda b: StreamsBuilder().build(),
        "the program is empty: begin with stream(), table() or global_table()",
    ),
}


@pytest.mark.parametrize("name", _AT_BOUND)
def test_a_refusal_begins_where_it_says(name: str) -> None:
    taken, refused, told = _AT_BOUND[name]
    builder = StreamsBuilder()
    builder.stream("first")
    taken(builder)
    assert builder.build().topology.sources
    with pytest.raises(TopologyError) as caught:
        refused(builder)
    assert told in str(caught.value)
    assert caught.value.where is not None and caught.value.where.file == __file__


_OPTIONS: list[tuple[Any, Any]] = [
    (Materialized.as_("s"), Materialized(store_name="s")),
    (Materialized.as_(stores.key_value("s")), Materialized(store_name="s", store=stores.key_value("s"))),
    (Materialized.with_("string", "long"), Materialized(key_serde="string", value_serde="long")),
    (Materialized("s").with_key_serde("string"), Materialized("s", "string")),
    (Materialized("s").with_value_serde("long"), Materialized("s", None, "long")),
    (Materialized("s").with_retention(5), Materialized("s", retention=5)),
    (Materialized("s", log_settings={"a": "b"}).with_logging_disabled(), Materialized("s", logging=False)),
    (Materialized("s", logging=False).with_logging_enabled({"a": "b"}), Materialized("s", log_settings={"a": "b"})),
    (Materialized("s").with_caching_disabled(), Materialized("s", caching=False)),
    (Materialized("s", caching=False).with_caching_enabled(), Materialized("s")),
    (Materialized("s").with_store_type("in_memory"), Materialized("s", store_type="in_memory")),
    (UPDATE, EmitStrategy(False)),
    (CLOSE, EmitStrategy(True)),
    (EmitStrategy(), UPDATE),
    (BufferConfig.max_records(5), BufferConfig(5, None, False, True)),
    (BufferConfig.max_bytes(5), BufferConfig(None, 5, False, True)),
    (UNBOUNDED, BufferConfig(None, None, True, True)),
    (BufferConfig.max_bytes(5).with_max_records(6), BufferConfig(6, 5)),
    (BufferConfig.max_records(5).with_max_bytes(6), BufferConfig(5, 6)),
    (BufferConfig(5, 6).with_no_bound(), UNBOUNDED),
    (BufferConfig(5).shut_down_when_full(), BufferConfig(5, shut_down=True)),
    (BufferConfig(5).shut_down_when_full().emit_early_when_full(), BufferConfig(5)),
    (BufferConfig(5).with_logging_disabled(), BufferConfig(5, logging=False)),
    (Suppressed.until_window_closes(UNBOUNDED), Suppressed(None, UNBOUNDED)),
    (Suppressed.until_time_limit(timedelta(seconds=1), UNBOUNDED), Suppressed(1_000, UNBOUNDED)),
    (Suppressed(5, UNBOUNDED).with_name("n"), Suppressed(5, UNBOUNDED, "n")),
    (Branched.as_("n"), Branched("n")),
    (Branched.with_function(print, "n"), Branched("n", print)),
    (Branched.with_consumer(print), Branched(None, None, print)),
    (TimeWindows.of(10), TimeWindows(10, 10, 0)),
    (TimeWindows.of_size_with_no_grace(10), TimeWindows(10, 10, 0)),
    (TimeWindows.of_size_and_grace(10, 3), TimeWindows(10, 10, 3)),
    (TimeWindows.of(10).advance_by(5).grace(3), TimeWindows(10, 5, 3)),
    (UnlimitedWindows.of().start_on(5), UnlimitedWindows(5)),
    (SlidingWindows.of_time_difference_with_no_grace(5), SlidingWindows(5, 0)),
    (SlidingWindows.of_time_difference_and_grace(5, 3), SlidingWindows(5, 3)),
    (SessionWindows.of_inactivity_gap_with_no_grace(5), SessionWindows(5, 0)),
    (SessionWindows.of_inactivity_gap_and_grace(5, 3), SessionWindows(5, 3)),
    (TEN, JoinWindows(10, 10, 0)),
    (JoinWindows.of_time_difference_and_grace(5, 3), JoinWindows(5, 5, 3)),
    (TEN.before(1).after(2), JoinWindows(1, 2, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("made", "expected"), _OPTIONS, ids=repr)
def test_an_option_changes_its_own_part(made: Any, expected: Any) -> None:
    assert made == expected


def test_the_size_of_a_join_window_is_that_of_both_sides() -> None:
    assert (JoinWindows(3, 4).size_ms, JoinWindows(-3, 4).size_ms) == (7, 1)


@pytest.mark.parametrize(
    ("close", "limit", "rule"), [(7, None, (7, True)), (7, 5, (5, False)), (7, 0, (0, False)), (0, None, (0, True))]
)
def test_a_rule_waits_for_its_limit_or_for_the_window(close: int, limit: int | None, rule: tuple[int, bool]) -> None:
    made = Suppressed(limit, BufferConfig(3, 4, True)).rule(close)
    assert made == SuppressRule(*rule, 3, 4, True)


def built(b: StreamsBuilder, **options: Any) -> Application:
    return b.build(application_id="app", key_serde="string", value_serde="string", **options)


def test_options_arrive_at_the_topics_that_they_are_for() -> None:
    def time(record: Any, newest: int) -> int:
        return 5

    def choose(*_: Any) -> int:
        return 0

    b = StreamsBuilder()
    source = b.stream("in", Consumed("long", "double", time, "latest", "src"))
    source.to("out", Produced("long", "double", choose, "snk"))
    source.repartition(Repartitioned("rep", "long", "double", choose, 3)).to("out2")
    source.group_by(first, Grouped("grp", "string", "double")).count()
    topology = built(b).topology
    read = topology.sources["src"]
    assert (repr(read.key), repr(read.value), read.extractor, read.reset) == ("long", "double", time, "latest")
    written = topology.sinks["snk"]
    assert (repr(written.key), repr(written.value), written.partitioner) == ("long", "double", choose)
    assert {name: each.partitions for name, each in topology.internal_topics.items()} == {
        "rep-repartition": 3,
        "grp-repartition": None,
    }
    sinks = {str(sink.topic): sink for sink in topology.sinks.values()}
    assert (repr(sinks["rep-repartition"].key), repr(sinks["rep-repartition"].value)) == ("long", "double")
    assert (repr(sinks["grp-repartition"].key), repr(sinks["grp-repartition"].value)) == ("string", "double")
    assert sinks["rep-repartition"].partitioner is choose


def test_arguments_stand_before_options() -> None:
    b = StreamsBuilder()
    b.stream("in", Consumed("long", "double", name="src"), key_serde="string", name="mine").to(
        "out", Produced("long", "double", name="snk"), value_serde="string", name="its"
    )
    topology = built(b).topology
    assert [(name, repr(each.key), repr(each.value)) for name, each in topology.sources.items()] == [
        ("mine", "string", "double")
    ]
    assert [(name, repr(each.key), repr(each.value)) for name, each in topology.sinks.items()] == [
        ("its", "long", "string")
    ]


@pytest.mark.parametrize("logging", [True, False])
def test_the_stores_of_a_join_have_its_names_serdes_and_logs(logging: bool) -> None:
    b = StreamsBuilder()
    options = StreamJoined("string", "long", "double", store_name="st", logging=logging, log_settings={"a": "b"})
    b.stream("in").left_join(b.stream("other"), first, TEN, replace(options, in_memory=True))
    made = built(b).topology.stores
    assert list(made) == ["st-this-join-store", "st-outer-other-join-store", "st-left-shared-join-store"]
    this, other, _ = made.values()
    assert [(repr(each.key), repr(each.value)) for each in (this, other)] == [("string", "long"), ("string", "double")]
    assert [(each.retention_ms, each.window_ms, each.duplicates, each.in_memory) for each in (this, other)] == [
        (20, 20, True, True)
    ] * 2
    assert [each.logging for each in made.values()] == [logging] * 3
    assert [dict(each.log_settings) for each in (this, other)] == [{"a": "b"}] * 2


@pytest.mark.parametrize(
    ("kind", "this", "other", "shared"),
    [
        ("join", "-this-join", "-other-join", None),
        ("left_join", "-this-join", "-outer-other-join", "-left-shared-join"),
        ("outer_join", "-outer-this-join", "-outer-other-join", "-outer-shared-join"),
    ],
)
def test_the_parts_of_a_join_of_streams_are_named_as_by_kafka_streams(
    kind: str, this: str, other: str, shared: str | None
) -> None:
    for options in (StreamJoined(), StreamJoined(name="n"), StreamJoined(name="n", store_name="st")):
        b = StreamsBuilder()
        getattr(b.stream("in"), kind)(b.stream("other"), first, TEN, options)
        topology = built(b).topology
        outer_this, outer_other = (f"OUTER{side}" if "outer" in suffix else f"JOIN{side}" for side, suffix in
                                   (("THIS", this), ("OTHER", other)))  # fmt: skip
        generated = [f"KSTREAM-{outer_this}-0000000004", f"KSTREAM-{outer_other}-0000000005"]
        nodes = [f"n{this}", f"n{other}"] if options.name else generated
        assert [name for name in topology.order if name.endswith((this, other)) or name in generated] == nodes
        named = [f"st{this}-store", f"st{other}-store"] if options.store_name else None
        found = list(topology.stores)
        if named is not None:
            assert found == named + ([f"st{shared}-store"] if shared else [])
        assert len(found) == (3 if shared else 2)
        assert not any(store.in_memory for store in topology.stores.values())


def test_stores_of_all_kinds_have_what_they_were_made_with() -> None:
    for in_memory in (False, True):
        for make in (stores.key_value, stores.timestamped_key_value):
            spec = make("s", "string", "long", in_memory=in_memory)
            assert (spec.name, repr(spec.key), repr(spec.value), spec.in_memory) == ("s", "string", "long", in_memory)
        spec = stores.window("s", 20, 10, "string", "long", retain_duplicates=in_memory, in_memory=in_memory)
        assert (spec.kind, spec.retention_ms, spec.window_ms, spec.duplicates) == ("window", 20, 10, in_memory)
        spec = stores.session("s", 20, "string", "long", in_memory=in_memory)
        assert (spec.kind, spec.retention_ms, spec.in_memory) == ("session", 20, in_memory)
    assert stores.window("s", 20, 10, timestamped=True).kind == "timestamped_window"
    assert stores.versioned("s", timedelta(seconds=1)).retention_ms == 1_000
    assert (stores.lru_map("s", 3).capacity, stores.lru_map("s", 3).in_memory) == (3, True)
    kinds: dict[Any, bool] = {
        "window": True,
        "timestamped_window": True,
        "session": True,
        "key_value": False,
        "versioned": False,
    }
    assert {kind: replace(stores.key_value("s"), kind=kind).windowed for kind in kinds} == kinds
