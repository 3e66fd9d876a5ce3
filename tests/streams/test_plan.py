"""Plans that would be wrong are refused with the user's line; plans are printed and drawn."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from ottla.flow import plan
from ottla.streams import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Materialized,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    stores,
    wallclock_timestamp,
)


def bar(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def two_sources(builder: StreamsBuilder) -> None:
    builder.stream("a").to("out")
    builder.table("a").to_stream().to("other")


def overlapping_sources(builder: StreamsBuilder) -> None:
    builder.stream(["a", "b"]).to("out")
    builder.stream("a").to("other")


def foreign_builder(builder: StreamsBuilder) -> None:
    builder.stream("a").merge(StreamsBuilder().stream("b")).to("out")


def suppressed_version(builder: StreamsBuilder) -> None:
    table = builder.table("a", materialized=Materialized.as_(stores.versioned("v", 10)))
    table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))


def close_without_windows(builder: StreamsBuilder) -> None:
    builder.table("a").suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))


def early_final_results(builder: StreamsBuilder) -> None:
    Suppressed.until_window_closes(BufferConfig.max_records(5))


def grace_without_versions(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.table("b"), bar, grace=5)


def grace_behind_history(builder: StreamsBuilder) -> None:
    table = builder.table("b", materialized=Materialized("v", versioned=timedelta(milliseconds=4)))
    builder.stream("a").join(table, bar, grace=5)


def short_retention(builder: StreamsBuilder) -> None:
    windows = builder.stream("a").group_by_key().windowed_by(TimeWindows.of(10).grace(5))
    windows.count(materialized=Materialized("s", retention=14))


def short_store(builder: StreamsBuilder) -> None:
    windows = builder.stream("a").group_by_key().windowed_by(TimeWindows.of(10).grace(5))
    windows.count(materialized=stores.window("s", 14, 10))


def short_sliding_store(builder: StreamsBuilder) -> None:
    windows = builder.stream("a").group_by_key().windowed_by(SlidingWindows.of_time_difference_and_grace(10, 5))
    windows.count(materialized=stores.window("s", 24, 10))


def short_session_store(builder: StreamsBuilder) -> None:
    windows = builder.stream("a").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 5))
    windows.count(materialized=Materialized.as_(stores.session("s", 14)))


def store_of_duplicates(builder: StreamsBuilder) -> None:
    windows = builder.stream("a").group_by_key().windowed_by(TimeWindows.of(10))
    windows.count(materialized=stores.window("s", 10, 10, retain_duplicates=True))


def unlimited_on_close(builder: StreamsBuilder) -> None:
    windows = builder.stream("a").group_by_key().windowed_by(UnlimitedWindows.of())
    windows.emit_strategy(EmitStrategy.on_window_close())


def same_store_twice(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().count(materialized="s")
    builder.stream("b").group_by_key().reduce(bar, materialized=Materialized("s", value_serde="json"))


def same_name_twice(builder: StreamsBuilder) -> None:
    builder.stream("a").filter(bar, name="f").filter(bar, name="f")


def versioned_global_table(builder: StreamsBuilder) -> None:
    builder.global_table("a", materialized=Materialized("s", versioned=5))


def no_windows(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.stream("b"), bar)


def no_selector(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.global_table("b"), bar)


def no_function(builder: StreamsBuilder) -> None:
    builder.stream("a").filter("x")  # type: ignore[arg-type]


def wide_advance(builder: StreamsBuilder) -> None:
    TimeWindows.of(10).advance_by(11)


def two_topics_of_a_table(builder: StreamsBuilder) -> None:
    builder.table(["a", "b"])  # type: ignore[arg-type]


def no_partitions(builder: StreamsBuilder) -> None:
    builder.stream("a").repartition(partitions=0)


def less_than_no_partitions(builder: StreamsBuilder) -> None:
    builder.stream("a").repartition(Repartitioned(partitions=-1))


def wrong_serde(builder: StreamsBuilder) -> None:
    builder.stream("a", key_serde="text")


_REFUSED: list[tuple[Callable[[StreamsBuilder], None], str]] = [
    (two_sources, "topic a has already been registered by source KSTREAM-SOURCE-0000000000"),
    (overlapping_sources, "two streams read topic a but not the same topics: a, b"),
    (foreign_builder, "is not a stream or table of the same StreamsBuilder"),
    (suppressed_version, "a versioned table cannot be suppressed"),
    (
        close_without_windows,
        "until_window_closes needs a windowed aggregate upstream, not KTABLE-SOURCE-0000000002",
    ),
    (early_final_results, "would emit results that are not final"),
    (grace_without_versions, "needs a versioned table"),
    (grace_behind_history, "the history retention of v, 4 ms, is shorter than the join's grace period, 5 ms"),
    (short_retention, r"invalid retention of state store s: 14 ms \(expected at least 15 ms"),
    (short_store, r"invalid retention of state store s: 14 ms \(expected at least 15 ms"),
    (short_sliding_store, r"invalid retention of state store s: 24 ms \(expected at least 25 ms"),
    (short_session_store, r"invalid retention of state store s: 14 ms \(expected at least 15 ms"),
    (store_of_duplicates, "store s keeps every value"),
    (unlimited_on_close, "an unlimited window never closes"),
    (same_store_twice, "a state store named s has already been added"),
    (same_name_twice, "a node named f has already been added"),
    (versioned_global_table, "a global table cannot be versioned"),
    (no_windows, "needs windows="),
    (no_selector, "needs key_selector="),
    (no_function, "invalid predicate for KStream.filter: 'x'"),
    (wide_advance, r"invalid window advance: 11 ms \(expected at most the window size, 10 ms\)"),
    (two_topics_of_a_table, r"invalid topic for StreamsBuilder.table: \['a', 'b'\] \(expected str\)"),
    (no_partitions, r"invalid number of partitions: 0 \(expected at least 1\)"),
    (less_than_no_partitions, r"invalid number of partitions: -1 \(expected at least 1\)"),
    (wrong_serde, "unknown serde: 'text'"),
]


@pytest.mark.parametrize(("program", "told"), _REFUSED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_plan_that_would_be_wrong_names_the_users_line(program: Callable[[StreamsBuilder], None], told: str) -> None:
    builder = StreamsBuilder()

    def build() -> None:
        program(builder)
        builder.build()

    line = program.__code__.co_firstlineno
    with pytest.raises(TopologyError, match=told) as caught:
        build()
    where = caught.value.where
    assert where is not None
    assert where.file == __file__
    assert line < where.line <= line + 3


_TEN = JoinWindows.of_time_difference_with_no_grace(10)
#: A program without names, the topics and stores to name, and the same program with names.
_NAMED: dict[str, tuple[Callable[[StreamsBuilder], Any], list[str], Callable[[StreamsBuilder], Any]]] = {
    "count": (
        lambda b: b.stream("a").group_by(bar).count(),
        ["KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition", "KSTREAM-AGGREGATE-STATE-STORE-0000000002"],
        lambda b: b.stream("a").group_by(bar, name="grouped").count(materialized="counts"),
    ),
    "the store's name alone": (
        lambda b: b.stream("a").group_by(bar).count("counting"),
        ["KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition", "KSTREAM-AGGREGATE-STATE-STORE-0000000002"],
        lambda b: b.stream("a").group_by(bar).count(materialized="counts"),
    ),
    "repartition": (
        lambda b: b.stream("a").repartition(),
        ["KSTREAM-REPARTITION-0000000001-repartition"],
        lambda b: b.stream("a").repartition(name="r"),
    ),
    "stream join": (
        lambda b: b.stream("a").left_join(b.stream("b"), bar, _TEN),
        [
            "KSTREAM-JOINTHIS-0000000004-store",
            "KSTREAM-OUTEROTHER-0000000005-store",
            "KSTREAM-OUTERSHARED-0000000004-store",
        ],
        lambda b: b.stream("a").left_join(b.stream("b"), bar, _TEN, StreamJoined(store_name="j")),
    ),
    "a table that nothing keeps": (lambda b: b.table("a").to_stream(), [], lambda b: b.table("a").to_stream()),
    "a table that a join keeps": (
        lambda b: b.stream("a").join(b.table("b"), bar),
        ["b-STATE-STORE-0000000001"],
        lambda b: b.stream("a").join(b.table("b", materialized="rows"), bar),
    ),
    "grace": (
        lambda b: b.stream("a").join(b.table("b", materialized=Materialized("v", versioned=10)), bar, grace=5),
        ["KSTREAM-JOIN-0000000003-Buffer"],
        lambda b: b.stream("a").join(
            b.table("b", materialized=Materialized("v", versioned=10)), bar, grace=5, name="j"
        ),
    ),
    "groups of a table": (
        lambda b: b.table("a").group_by(lambda key, value: (value, value)).count(materialized="c"),
        ["a-STATE-STORE-0000000000"],
        lambda b: b.table("a", materialized="rows").group_by(lambda key, value: (value, value)).count(materialized="c"),
    ),
    "suppress": (
        lambda b: b.table("a", materialized="rows").suppress(Suppressed.until_time_limit(1, BufferConfig.unbounded())),
        ["KTABLE-SUPPRESS-STATE-STORE-0000000003"],
        lambda b: b.table("a", materialized="rows").suppress(
            Suppressed.until_time_limit(1, BufferConfig.unbounded()).with_name("held")
        ),
    ),
    "foreign key": (
        lambda b: b.table("a", materialized="l").join(b.table("b", materialized="r"), bar, foreign_key=str),
        [
            "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic",
            "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic",
            "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000008",
        ],
        lambda b: b.table("a", materialized="l").join(b.table("b", materialized="r"), bar, foreign_key=str, name="j"),
    ),
}


@pytest.mark.parametrize("name", _NAMED)
def test_everything_must_have_a_name_if_that_is_asked_for(name: str) -> None:
    explicit = {"ensure.explicit.internal.resource.naming": "true"}
    unnamed, missing, named = _NAMED[name]
    builder = StreamsBuilder()
    unnamed(builder)
    if missing:
        with pytest.raises(TopologyError) as caught:
            builder.build(config=explicit)
        told = str(caught.value)
        assert "ensure.explicit.internal.resource.naming is true, but these have generated names: " in told
        assert re.findall(r"([\w-]+) \(/[^ ]*test_plan\.py:\d+\)", told.partition("names: ")[2])[:-1] == missing
    builder = StreamsBuilder()
    named(builder)
    builder.build(config=explicit)


def test_a_source_table_may_be_its_own_changelog() -> None:
    builder = StreamsBuilder()
    builder.table("a", materialized="kept").to_stream().to("out")
    topology = builder.build(config={"topology.optimization": "all"}).topology
    assert topology.source_changelogs == {"kept": "a"}
    with pytest.raises(TopologyError, match=r"invalid topology\.optimization: some"):
        builder.build(config={"topology.optimization": "some"})


def test_a_plan_is_explained_and_drawn() -> None:
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key_serde="string", value_serde="json")
    windows = TimeWindows.of(timedelta(minutes=5)).grace(timedelta(minutes=1))
    table = clicks.group_by(lambda key, value: value["user"]).windowed_by(windows).count(materialized="counts")
    table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream().to("out")
    app = builder.build(application_id="clicks")
    text = app.explain()
    for part in (
        "stream of clicks",
        "times: of the records",
        "emits a stream: key string, value json; partitioned by key",
        "through topic <application id>-counts-repartition",
        "windows: 300000 ms every 300000 ms, grace 60000 ms",
        "waits 60000 ms after the window ends",
        "lane  record: a Python call for each record",
        "test_plan.py",
    ):
        assert part in text
    builder.table("users", timestamp_extractor=wallclock_timestamp)
    assert "times: by wallclock_timestamp\n" in builder.build().explain()
    drawing = ElementTree.fromstring(app.plan.svg())
    assert len(drawing.findall("{http://www.w3.org/2000/svg}g")) == len(app.plan.nodes)


def test_tables_of_streams_have_the_names_of_kafka_or_those_that_are_given() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to_table()
    builder.stream("b").to_table(name="mine")
    described = builder.build().describe()
    assert "Processor: KSTREAM-TOTABLE-0000000001 " in described
    assert "Processor: mine " in described


@pytest.mark.parametrize(
    ("given", "partitions", "name"),
    [
        ({}, None, "KSTREAM-REPARTITION-0000000001"),
        ({"partitions": 1}, 1, "KSTREAM-REPARTITION-0000000001"),
        ({"repartitioned": Repartitioned(partitions=3, name="told")}, 3, "told"),
        ({"repartitioned": Repartitioned(partitions=3, name="told"), "partitions": 2, "name": "mine"}, 2, "mine"),
    ],
)
def test_a_repartition_has_the_number_and_the_name_that_stand_beside_it(
    given: dict[str, Any], partitions: int | None, name: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("a").repartition(**given).to("out")
    (node,) = (each for each in builder.plan().nodes if isinstance(each, plan.Repartition))
    assert (node.partitions, node.explicit, node.topic) == (partitions, True, f"{name}-repartition")
