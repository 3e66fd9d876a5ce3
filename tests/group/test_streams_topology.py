"""The topology of a streams group (KIP-1071): what it makes of topics that are missing, grow, or do not fit."""

from typing import Any

import pytest

from ottla.group.state.streams import StreamsState
from ottla.group.topology.configuration import Status
from ottla.kernel.error import ErrorCode
from ottla.wire.api.streams_group_heartbeat import Topology
from tests.group.host import Host, Topics
from tests.group.streams import (
    QUICK,
    Streamer,
    copartitioned,
    info,
    make_missing,
    reader,
    settled,
    word_count,
)


def test_internal_topics_are_asked_for_and_then_the_application_runs() -> None:
    host = Host(QUICK)
    one = Streamer(host, "one", word_count())
    one.join()
    assert one.missing == {"app-words-repartition": 4, "app-counts-changelog": 4}
    assert one.codes == [Status.MISSING_INTERNAL_TOPICS] and not one.active
    assert host.group().state is StreamsState.NOT_READY
    make_missing(host, one.missing)
    one.beat()
    assert one.active == {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)} and one.statuses == []
    assert not one.missing


def test_an_application_waits_for_its_source_topics() -> None:
    host = Host(QUICK)
    one = Streamer(host, "one", Topology(subtopologies=[reader(topics=["orders", "late"])]))
    one.join()
    assert one.statuses == [(Status.MISSING_SOURCE_TOPICS, "Source topics late are missing.")]
    host.topics.create("late", 6)
    host.change_topics(created=["late"])
    one.beat()
    assert one.active == {"0": (0, 1, 2, 3, 4, 5)}


def test_a_deleted_source_topic_stops_the_application() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    topic_id = host.topics.topic_id("orders")
    host.topics.delete("orders")
    host.change_topics(deleted=[("orders", topic_id)])
    one.beat()
    assert one.codes == [Status.MISSING_SOURCE_TOPICS] and not one.active
    assert host.group().state is StreamsState.NOT_READY


def test_a_source_topic_that_grows_brings_tasks() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    host.topics.grow("orders", 6)
    host.change_topics(changed=["orders"])
    one.beat()
    assert one.active == {"0": (0, 1, 2, 3, 4, 5)}


def test_topics_that_are_joined_must_have_equally_many_partitions() -> None:
    host = Host(QUICK)
    both = copartitioned(reader(topics=["orders", "clicks"]))
    one = Streamer(host, "one", Topology(subtopologies=[both]))
    one.join()
    assert one.codes == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    assert "{clicks=2, orders=4}" in one.statuses[0][1]


def test_a_repartition_topic_takes_the_count_of_what_it_is_joined_with() -> None:
    host = Host(QUICK, Topics({"orders": 4, "clicks": 2}))
    splits = reader("0", ["clicks"], repartition_sink_topics=["r"])
    joins = copartitioned(reader("1", ["orders"], repartition_source_topics=[info("r")]))
    one = Streamer(host, "one", Topology(subtopologies=[splits, joins]))
    one.join()
    assert one.missing == {"r": 4}


def test_an_internal_topic_of_another_size_is_an_error() -> None:
    host = Host(QUICK, Topics({"orders": 4, "app-words-repartition": 3}))
    one = Streamer(host, "one", word_count())
    one.join()
    assert one.codes == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    assert "expected 4, found 3" in one.statuses[0][1]


@pytest.mark.parametrize(
    "subtopologies",
    [
        [reader("0"), reader("0")],
        [reader("0", [])],
        [reader("0", state_changelog_topics=[info("c", 3)])],
        [reader("0", repartition_source_topics=[info("never written")])],
        [reader("0", [], repartition_source_topics=[info("r")], repartition_sink_topics=["r"])],
        [reader("0", repartition_source_topics=[info("r", -1)])],
    ],
)
def test_a_topology_that_no_topics_could_mend_is_refused(subtopologies: list[Any]) -> None:
    host = Host(QUICK)
    answer = Streamer(host, "one", Topology(subtopologies=subtopologies)).join()
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY, answer
    assert host.log == []


def test_a_copartition_group_of_topics_that_are_not_there_is_refused() -> None:
    host = Host(QUICK)
    broken = copartitioned(reader())
    broken.copartition_groups[0].source_topics = [1]
    answer = Streamer(host, "one", Topology(subtopologies=[broken])).join()
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_who_joins_with_another_topology_is_refused_and_with_an_older_one_is_told() -> None:
    host = Host(QUICK)
    first = Topology(epoch=1, subtopologies=[reader()])
    one = Streamer(host, "one", first)
    one.join()
    other = Topology(epoch=1, subtopologies=[reader(topics=["clicks"])])
    assert Streamer(host, "two", other).join().error_code == ErrorCode.INVALID_REQUEST
    newer = Topology(epoch=2, subtopologies=[reader()])
    assert Streamer(host, "two", newer).join().error_code == ErrorCode.INVALID_REQUEST
    late = Streamer(host, "two", Topology(epoch=0, subtopologies=[reader(topics=["clicks"])]))
    late.join()
    assert late.codes == [Status.STALE_TOPOLOGY]
    late.beat()
    assert late.codes == [Status.STALE_TOPOLOGY]


def test_a_member_cannot_own_tasks_that_there_are_not() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    for tasks in ({"0": (0, 4)}, {"7": (0,)}):
        one.active = dict(tasks)
        assert one.beat().error_code == ErrorCode.INVALID_REQUEST
