"""An aggregate of a table subtracts exactly what it added: it equals the aggregate of the rows that the table's changes
leave, whatever the table is.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.streams import (
    BufferConfig,
    EmitStrategy,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TestDriver,
    TimeWindows,
)

Table = Callable[[StreamsBuilder], Any]
_CLOSES = Suppressed.until_window_closes(BufferConfig.unbounded())
_TUMBLING = TimeWindows.of(10).grace(5)
_HOPPING = TimeWindows.of(10).advance_by(4).grace(5)
_SLIDING = SlidingWindows.of_time_difference_and_grace(10, 5)
_SESSIONS = SessionWindows.of_inactivity_gap_and_grace(5, 10)
#: A store forgets a window at the edge of its grace period while late records may still change it, as in Kafka Streams.
_KEPT = Materialized(retention=1_000, key_serde="string", value_serde="long")
_LONGS = Materialized.with_("string", "long")


def grouped(builder: StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, key_serde="string", value_serde="long").group_by_key()


def table(builder: StreamsBuilder, topic: str = "rows") -> Any:
    return builder.table(topic, key_serde="string", value_serde="long")


def held(limit: int, records: int | None = None) -> Suppressed:
    buffer = BufferConfig.unbounded() if records is None else BufferConfig.max_records(records)
    return Suppressed.until_time_limit(limit, buffer)


def last(key: Any, value: int | None, aggregate: int) -> int | None:
    """An aggregator that deletes its key now and then."""
    return None if value in (3, None) else aggregate + (value or 0)


def windowed(builder: StreamsBuilder, windows: Any) -> Any:
    return grouped(builder).windowed_by(windows).aggregate(lambda: 100, last, materialized=_KEPT)


_TABLES: dict[str, Table] = {
    "table": table,
    "count": lambda b: grouped(b).count(),
    "reduce": lambda b: grouped(b).reduce(max),
    "aggregate": lambda b: grouped(b).aggregate(lambda: 100, last, materialized=_LONGS),
    "cogroup": lambda b: (
        grouped(b).cogroup(last).cogroup(grouped(b, "two"), last).aggregate(lambda: 100, materialized=_LONGS)
    ),
    "to_table": lambda b: grouped(b).stream.to_table(),
    "tumbling": lambda b: windowed(b, _TUMBLING),
    "hopping": lambda b: windowed(b, _HOPPING),
    "sliding": lambda b: windowed(b, _SLIDING),
    "sessions": lambda b: grouped(b).windowed_by(_SESSIONS).count(materialized=_KEPT),
    "on close": lambda b: grouped(b).windowed_by(_TUMBLING).emit_strategy(EmitStrategy.on_window_close()).count(),
    "suppressed windows": lambda b: windowed(b, _TUMBLING).suppress(_CLOSES),
    "suppressed hopping windows": lambda b: windowed(b, _HOPPING).suppress(_CLOSES),
    "suppressed sliding windows": lambda b: windowed(b, _SLIDING).suppress(_CLOSES),
    "suppressed sessions": lambda b: grouped(b).windowed_by(_SESSIONS).count(materialized=_KEPT).suppress(_CLOSES),
    "held": lambda b: table(b).suppress(held(15)),
    "held at most two": lambda b: grouped(b).count().suppress(held(50, 2)),
    "held twice": lambda b: table(b).suppress(held(5)).suppress(held(9)),
    "a filter of what was held": lambda b: table(b).suppress(held(15)).filter(lambda key, value: value > 2),
    "filter": lambda b: table(b).filter(lambda key, value: value > 2),
    "filter of an aggregate": lambda b: grouped(b).count().filter_not(lambda key, value: value == 2),
    "map_values": lambda b: grouped(b).count().map_values(lambda value: None if value == 2 else value * 2),
    "join": lambda b: table(b).join(grouped(b).count(), lambda one, two: one + two),
    "left join": lambda b: grouped(b).count().left_join(table(b), lambda one, two: one + (two or 0)),
    "outer join": lambda b: table(b).outer_join(table(b, "two"), lambda one, two: (one or 0) + (two or 0)),
    "join of what was held": lambda b: table(b).suppress(held(15)).join(table(b, "two"), lambda one, two: one + two),
    "join by foreign key": lambda b: table(b).join(
        table(b, "two"), lambda one, two: one + two, foreign_key=lambda value: "abc"[value % 3], materialized=_LONGS
    ),
    "aggregate of a table": lambda b: table(b).group_by(lambda key, value: (str(value % 2), value)).count(),
}


@pytest.mark.parametrize("name", _TABLES)
@pytest.mark.parametrize("seed", range(3))
def test_an_aggregate_of_a_table_has_what_its_rows_have(name: str, seed: int) -> None:
    rng = Random(seed)
    builder = StreamsBuilder()
    made: KTable[Any, Any] = _TABLES[name](builder)
    made.to_stream().to("out", value_serde="long")
    every = made.group_by(lambda key, value: ("all", value), value_serde="long")
    every.aggregate(
        lambda: 0, lambda _, value, total: total + value, lambda _, value, total: total - value, materialized="total"
    )
    app = builder.build("app", key_serde="string", value_serde="long")
    driver = TestDriver(app)
    topics = sorted({"in", "rows", "two"} & {topic for each in app.topology.sources.values() for topic in each.topics})
    out, rows, time = driver.output_topic("out"), dict[Any, int | None](), 0
    for _ in range(150):
        time += rng.choice((0, 1, 2, 12))
        value = rng.choice((1, 2, 3, 4, 5, None))
        driver.advance_wall_clock(1_001)
        driver.input_topic(rng.choice(topics)).pipe(rng.choice("abc"), value, max(0, time - rng.choice((0, 0, 3, 8))))
        rows |= out.read_map()
        total = driver.state_store("total").get("all")
        assert (0 if total is None else total.value) == sum(each for each in rows.values() if each is not None)
    assert rows


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        ([1, "a"], [True, "a"], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({"a": [1]}, {"a": [1.0]}, False),
        ("1", 1, False),
        ("a", "a", True),
        ([{"a": 1.5}], [{"a": 1.5}], True),
    ],
)
def test_a_row_leaves_the_group_of_its_old_key(before: Any, after: Any, kept: bool) -> None:
    """Keys may be equal in Python and differ in JSON."""
    builder = StreamsBuilder()
    rows = builder.table("rows", key_serde="string", value_serde="json")
    groups = rows.group_by(lambda key, value: (value, value), name="groups")
    groups.count(materialized="count").to_stream().to("out", value_serde="long")
    with TestDriver(builder.build("app", key_serde="json", value_serde="json")) as driver:
        topic = driver.input_topic("rows")
        topic.pipe_all([("row", before), ("other", after), ("row", after)])
        counts = [(repr(key), value) for key, (value, _) in driver.state_store("count").all()]
        changes = len(driver.output_topic("out"))
    if kept:
        assert (counts, changes) == ([(repr(after), 2)], 3), "one change subtracts and adds"
    else:
        assert sorted(counts) == sorted([(repr(before), 0), (repr(after), 2)])
        assert changes == 4


def pure_add(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    return [*aggregate, value]


def add_in_place(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    aggregate.append(value)
    return aggregate


def pure_remove(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    at = aggregate.index(value)
    return [*aggregate[:at], *aggregate[at + 1 :]]


def remove_in_place(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    aggregate.remove(value)
    return aggregate


def pure_join(key: Any, first: list[Any], second: list[Any]) -> list[Any]:
    return [*first, *second]


def join_in_place(key: Any, first: list[Any], second: list[Any]) -> list[Any]:
    second[:0] = first
    return second


Functions = tuple[Any, Any, Any]
_PURE: Functions = (pure_add, pure_remove, pure_join)
_IN_PLACE: Functions = (add_in_place, remove_in_place, join_in_place)


def lists(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key_serde="string", value_serde="long").group_by_key()


#: Tables of lists, made by (add, remove, join).
_LISTS: dict[str, Callable[[StreamsBuilder, Any, Any, Any], Any]] = {
    "aggregate": lambda b, add, *_: lists(b).aggregate(list, add),
    "versions": lambda b, add, *_: lists(b).aggregate(list, add, materialized=Materialized("v", versioned=1_000)),
    "cogroup": lambda b, add, *_: lists(b).cogroup(add).aggregate(list),
    "tumbling": lambda b, add, *_: lists(b).windowed_by(_TUMBLING).aggregate(list, add),
    "sliding": lambda b, add, *_: lists(b).windowed_by(_SLIDING).aggregate(list, add),
    "sessions": lambda b, add, _, join: lists(b).windowed_by(_SESSIONS).aggregate(list, add, join),
    "reduce": lambda b, _, __, join: (
        b.stream("in", key_serde="string", value_serde="long")
        .map_values(lambda value: [value])
        .group_by_key()
        .reduce(lambda one, two: join("", two, one))
    ),
    "table": lambda b, add, remove, _: (
        b.table("in", key_serde="string", value_serde="long")
        .group_by(lambda key, value: (str(value % 2), value), value_serde="long")
        .aggregate(list, add, remove)
    ),
}


@pytest.mark.parametrize("subtracted", [True, False])
@pytest.mark.parametrize("name", _LISTS)
def test_an_aggregator_may_change_its_aggregate_in_place(name: str, subtracted: bool) -> None:
    results = []
    for functions in (_PURE, _IN_PLACE):
        rng, builder, time = Random(7), StreamsBuilder(), 0
        made = _LISTS[name](builder, *functions)
        made.to_stream(lambda key, value: str(key)).to("out", key_serde="string")
        if subtracted:
            sizes = made.group_by(lambda key, value: (str(len(value)), value), key_serde="string").count()
            sizes.to_stream().to("sizes", key_serde="string", value_serde="long")
        with TestDriver(builder.build("app", key_serde="string", value_serde="json")) as driver:
            topic = driver.input_topic("in")
            for _ in range(80):
                time += rng.choice((0, 1, 3, 7))
                topic.pipe(rng.choice("ab"), rng.choice((1, 2, 3)), max(0, time - rng.choice((0, 2, 6))))
            results.append(driver.take_produced())
    assert results[0] == results[1]
    assert results[0]["out"]
