"""The partitions of a program's topics: which must be as many, and which numbers internal topics get."""

from __future__ import annotations

import re

import pytest

from ottla.flow.error import TopologyError
from ottla.flow.topology import Topology
from ottla.spark.streams.layout import Layout
from ottla.streams import StreamsBuilder


def built(builder: StreamsBuilder) -> Topology:
    return builder.build("app", key_serde="string", value_serde="string").topology


def test_topics_of_a_pattern_must_be_partitioned_as_those_that_they_are_joined_with() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("in-.*"))
    stream.join(builder.table("users"), lambda left, right: left + right).to("out")
    topology = built(builder)
    Layout(topology, "app", {"in-a": 3, "in-b": 3, "users": 3}).check()
    with pytest.raises(TopologyError, match=r"have in-a: 3, in-b: 2, users: 3; call repartition\(\)"):
        Layout(topology, "app", {"in-a": 3, "in-b": 2, "users": 3}).check()


def test_a_repartition_topic_is_as_large_as_the_topics_of_a_pattern_that_it_is_joined_with() -> None:
    builder = StreamsBuilder()
    other = builder.stream("clicks").select_key(lambda key, value: value)
    users = builder.stream(re.compile("users-.*")).to_table()
    other.join(users, lambda left, right: left + right).to("out")
    layout = Layout(built(builder), "app", {"clicks": 6, "users-a": 4})
    layout.check()
    assert {topic.name: topic.partitions for topic in layout.internal_topics()} == {
        "app-KSTREAM-KEY-SELECT-0000000001-repartition": 4,
        "app-KSTREAM-TOTABLE-STATE-STORE-0000000004-changelog": 4,
    }


def test_a_table_of_a_cogroup_must_be_partitioned_as_the_stream_that_is_joined_with_it() -> None:
    builder = StreamsBuilder()
    one, two = builder.stream("one").group_by_key(), builder.stream("two").group_by_key()

    def concatenate(key: str, value: str, aggregate: str) -> str:
        return aggregate + value

    table = one.cogroup(concatenate).cogroup(two, concatenate).aggregate(str)
    builder.stream("three").join(table, lambda left, right: left + right).to("out")
    topology = built(builder)
    Layout(topology, "app", {"one": 2, "two": 2, "three": 2}).check()
    with pytest.raises(TopologyError, match="have one: 2, three: 3, two: 2; call repartition"):
        Layout(topology, "app", {"one": 2, "two": 2, "three": 3}).check()


def test_a_topic_that_is_read_twice_must_be_partitioned_as_those_that_its_second_stream_is_joined_with() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("copy")
    builder.stream("in").join(builder.table("users"), lambda left, right: left + right).to("out")
    topology = built(builder)
    Layout(topology, "app", {"in": 2, "users": 2}).check()
    with pytest.raises(TopologyError, match="have in: 2, users: 3; call repartition"):
        Layout(topology, "app", {"in": 2, "users": 3}).check()
