"""Keys that are numbers and values that are text: each part of a program takes the default that is for it.

Where both defaults are one serde, as in most tests, a part that took the wrong one would not be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.flow.serde import serde as named
from ottla.streams import (
    BufferConfig,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TestDriver,
    TimeWindows,
    stores,
)

TEN = JoinWindows.of_time_difference_with_no_grace(10)
TUMBLING = TimeWindows.of(10)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(5)


def bar(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def text(key: Any, value: Any) -> str:
    return str(value)


class Keep(Processor):
    def process(self, record: Record) -> None:
        store = self.context.get_state_store("kept")
        store.put(record.key, record.value)
        self.context.forward(record.with_value(store.get(record.key)))


def _kept(b: StreamsBuilder) -> Any:
    b.add_state_store(stores.key_value("kept"))
    return b.stream("in").process(Keep, "kept")


def _versioned(b: StreamsBuilder) -> Any:
    rows = b.table("rows", materialized=Materialized("v", versioned=100))
    return b.stream("in").join(rows, bar, grace=2)


def _cogrouped(b: StreamsBuilder) -> Any:
    add: Any = lambda key, value, aggregate: aggregate + value  # noqa: E731
    one = b.stream("in").group_by_key().cogroup(add)
    return one.cogroup(b.stream("rows").group_by_key(), add).aggregate(str).to_stream()


_PROGRAMS: dict[str, tuple[Callable[[StreamsBuilder], Any], list[tuple[int, str | None]]]] = {
    "stream": (lambda b: b.stream("in"), [(1, "a"), (2, "b"), (1, "c")]),
    "repartition": (lambda b: b.stream("in").repartition(), [(1, "a"), (2, "b"), (1, "c")]),
    "new key": (lambda b: b.stream("in").group_by(lambda key, value: 7).reduce(bar).to_stream(),
                [(7, "a"), (7, "a|b"), (7, "a|b|c")]),
    "count": (lambda b: b.stream("in").group_by_key().count().map_values(text).to_stream(),
              [(1, "1"), (2, "1"), (1, "2")]),
    "reduce": (lambda b: b.stream("in").group_by_key().reduce(bar).to_stream(), [(1, "a"), (2, "b"), (1, "a|c")]),
    "aggregate": (lambda b: b.stream("in").group_by_key().aggregate(str, lambda k, v, agg: agg + v).to_stream(),
                  [(1, "a"), (2, "b"), (1, "ac")]),
    "cogroup": (_cogrouped, [(1, "x"), (1, "xa"), (2, "b"), (1, "xac")]),
    "windows": (lambda b: b.stream("in").group_by_key().windowed_by(TUMBLING).reduce(bar).to_stream(
        lambda key, value: key.key), [(1, "a"), (2, "b"), (1, "a|c")]),
    "sessions": (lambda b: b.stream("in").group_by_key().windowed_by(SESSIONS).reduce(bar).filter(
        lambda key, value: value is not None).to_stream(lambda key, value: key.key),
        [(1, "a"), (2, "b"), (1, None), (1, "a|c")]),
    "join of streams": (lambda b: b.stream("in").join(b.stream("rows"), bar, TEN), [(1, "a|x"), (1, "c|x")]),
    "left join of streams": (lambda b: b.stream("in").left_join(b.stream("rows"), bar, TEN), [(1, "a|x"), (1, "c|x")]),
    "outer join of streams": (lambda b: b.stream("in").outer_join(b.stream("rows"), bar, TEN),
                              [(1, "a|x"), (1, "c|x")]),
    "join with a table": (lambda b: b.stream("in").join(b.table("rows"), bar), [(1, "a|x"), (1, "c|x")]),
    "join in time": (_versioned, [(1, "a|x")]),
    "join with a global table": (lambda b: b.stream("in").join(b.global_table("rows"), bar,
                                                               key_selector=lambda key, value: key),
                                 [(1, "a|x"), (1, "c|x")]),
    "table": (lambda b: b.table("in", materialized="t").to_stream(), [(1, "a"), (2, "b"), (1, "c")]),
    "join of tables": (lambda b: b.table("in").join(b.table("rows"), bar, materialized="j").to_stream(),
                       [(1, "a|x"), (1, "c|x")]),
    "join by foreign key": (lambda b: b.table("in").join(b.table("rows"), bar, foreign_key=lambda value: 1).to_stream(),
                            [(1, "a|x"), (2, "b|x"), (1, "c|x")]),
    "left join by foreign key": (lambda b: b.table("in").left_join(b.table("rows"), bar, foreign_key=lambda value: 5)
                                 .to_stream(), [(1, "a|None"), (2, "b|None"), (1, "c|None")]),
    "groups of a table": (lambda b: b.table("in").group_by(lambda key, value: (7, value)).reduce(
        bar, lambda old, value: old.replace(value, "-")).to_stream(), [(7, "a"), (7, "a|b"), (7, "-|b|c")]),
    "suppressed": (lambda b: b.table("in").suppress(Suppressed.until_time_limit(3, BufferConfig.unbounded()))
                   .to_stream(), [(1, "c")]),
    "a store": (_kept, [(1, "a"), (2, "b"), (1, "c")]),
    "to a table": (lambda b: b.stream("in").to_table("t").to_stream(), [(1, "a"), (2, "b"), (1, "c")]),
}  # fmt: skip


def _run(b: StreamsBuilder, key_serde: Any, value_serde: Any) -> TestDriver:
    app = b.build(application_id="app", key_serde=key_serde, value_serde=value_serde)
    driver = TestDriver(app, changelog=True)
    if "rows" in {topic for source in app.topology.sources.values() for topic in source.topics}:
        driver.input_topic("rows").pipe(1, "x", 1)
    topic = driver.input_topic("in")
    for key, value, time in ((1, "a", 1), (2, "b", 2), (1, "c", 4)):
        topic.pipe(key, value, time)
    return driver


@pytest.mark.parametrize("name", _PROGRAMS)
def test_each_part_takes_the_default_that_is_for_it(name: str) -> None:
    make, expected = _PROGRAMS[name]
    b = StreamsBuilder()
    make(b).to("out")
    driver = _run(b, "long", "string")
    found = driver.output_topic("out").read_key_values()
    assert found == expected
    for records in driver.take_produced().values():
        assert all(record.key is None or len(record.key) >= 8 for record in records)


class Registered:
    """A serde that notes the topics for which it is called, as one does that derives its subjects from them."""

    def __init__(self, name: str, topics: set[str]) -> None:
        serde = named(name)
        assert serde is not None
        self._inner, self._topics = serde, topics

    def serialize(self, topic: str, value: Any) -> bytes:
        self._topics.add(topic)
        return self._inner.serialize(topic, value)

    def deserialize(self, topic: str, data: bytes) -> Any:
        self._topics.add(topic)
        return self._inner.deserialize(topic, data)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_each_serde_is_told_a_topic_of_the_program(name: str) -> None:
    b, keys, values = StreamsBuilder(), set[str](), set[str]()
    make, expected = _PROGRAMS[name]
    make(b).to("out")
    driver = _run(b, Registered("long", keys), Registered("string", values))
    assert driver.output_topic("out").read_key_values() == expected
    for topic in keys | values:
        assert topic in ("in", "rows", "out") or topic.startswith("app-"), topic


def test_the_serdes_of_a_join_by_foreign_key_are_told_kafka_streams_topics() -> None:
    b, keys, values = StreamsBuilder(), set[str](), set[str]()
    make, _ = _PROGRAMS["join by foreign key"]
    make(b).to("out")
    _run(b, Registered("long", keys), Registered("string", values))
    asked = {f"app-{topic}" for topic in b.build("app").topology.internal_topics if "REGISTRATION" in topic}
    (asked_topic,) = asked
    internal = {topic for topic in keys | values if topic.startswith(asked_topic)}
    assert internal == {asked_topic, *(f"{asked_topic}-{suffix}" for suffix in ("fk", "pk", "vh"))}
    assert f"{asked_topic}-vh" not in keys
    assert values.isdisjoint({asked_topic, f"{asked_topic}-fk", f"{asked_topic}-pk"})
