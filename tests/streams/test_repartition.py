"""Repartition topics: which aggregates share one, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.flow.error import TopologyError
from ottla.flow.where import Where
from ottla.streams import KStream, StreamsBuilder
from ottla.streams.driver import TestDriver


def stream(builder: StreamsBuilder, topic: str = "in") -> KStream[Any, Any]:
    return builder.stream(topic, key_serde="string", value_serde="json")


def moved(builder: StreamsBuilder, topic: str = "in") -> KStream[Any, Any]:
    """A stream whose next keyed operator needs a repartition topic."""
    return stream(builder, topic).map(lambda key, value: (value["k"], value))


def two_sums(builder: StreamsBuilder) -> None:
    group = stream(builder).group_by(lambda _, value: value["k"], name="x")
    group.sum(lambda value: value["a"], materialized="a")
    group.sum(lambda value: value["b"], materialized="b")


def a_sum_and_a_reduction(builder: StreamsBuilder) -> None:
    group = moved(builder).group_by_key(name="x")
    group.sum(lambda value: value["a"], materialized="a")
    group.reduce(lambda _, value: value, materialized="b")


def an_average_and_a_window(builder: StreamsBuilder) -> None:
    from ottla.streams import TimeWindows

    group = moved(builder).group_by_key(name="x")
    group.avg(lambda value: value["a"], materialized="a")
    group.windowed_by(TimeWindows.of_size_with_no_grace(1000)).max(lambda value: value["a"], materialized="b")


def two_streams(builder: StreamsBuilder) -> None:
    moved(builder).group_by_key(name="x").count(materialized="a")
    moved(builder, "other").group_by_key(name="x").count(materialized="b")


def two_serdes(builder: StreamsBuilder) -> None:
    change = moved(builder)
    change.group_by_key(name="x", value_serde="json").reduce(lambda _, value: value, materialized="a")
    change.group_by_key(name="x", value_serde="string").reduce(lambda _, value: value, materialized="b")


def two_repartitions(builder: StreamsBuilder) -> None:
    stream(builder).repartition(name="x").to("a")
    stream(builder, "other").repartition(name="x").to("b")


def two_numbers_of_partitions(builder: StreamsBuilder) -> None:
    one = stream(builder)
    one.repartition(name="x", partitions=3).to("a")
    one.repartition(name="x", partitions=4).to("b")


def two_tables(builder: StreamsBuilder) -> None:
    for topic in ("one", "two"):
        table = builder.table(topic, key_serde="string", value_serde="json")
        table.group_by(lambda key, value: (value["k"], value), name="x").count(materialized=f"count-{topic}")


@pytest.mark.parametrize(
    "program",
    [
        two_sums,
        a_sum_and_a_reduction,
        an_average_and_a_window,
        two_streams,
        two_serdes,
        two_repartitions,
        two_numbers_of_partitions,
        two_tables,
    ],
)
def test_a_repartition_topic_does_not_take_two_streams(program: Callable[[StreamsBuilder], None]) -> None:
    builder = StreamsBuilder()
    program(builder)
    with pytest.raises(TopologyError) as caught:
        builder.build("app")
    assert isinstance(caught.value.where, Where)
    assert caught.value.where.file == __file__
    assert "x" in str(caught.value)


def test_aggregates_of_a_named_group_share_their_topic() -> None:
    builder = StreamsBuilder()
    group = moved(builder).group_by_key(name="x", key_serde="string")
    group.count(materialized="count")
    group.reduce(lambda total, value: {"a": total["a"] + value["a"]}, materialized="sum")
    with TestDriver(builder.build("app", value_serde="json")) as driver:
        topic = driver.input_topic("in")
        for number in range(3):
            topic.pipe("any", {"k": "one", "a": number})
        assert driver.state_store("count").get("one").value == 3
        assert driver.state_store("sum").get("one").value == {"a": 3}
    assert builder.build("app").describe().count("Sink: ") == 1


def test_sums_of_groups_of_their_own_are_of_their_own_values() -> None:
    builder = StreamsBuilder()
    moving = moved(builder)
    for name in ("a", "b"):
        group = moving.group_by_key(name=f"by-{name}", key_serde="string")
        group.sum(lambda value, name=name: value[name], materialized=name)
    with TestDriver(builder.build("app", value_serde="json")) as driver:
        topic = driver.input_topic("in")
        for number in range(3):
            topic.pipe("any", {"k": "one", "a": number, "b": 10})
        assert [driver.state_store(name).get("one").value for name in ("a", "b")] == [3, 30]
