"""Members of share and streams groups whose requests or records are out of the ordinary."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.group.records.encode import current_entry, epoch_entry
from ottla.group.records.encode_share import share_current_entry
from ottla.group.records.encode_streams import streams_current_entry
from ottla.group.share.assignor import assign_simple
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember, MemberState
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup, TaskState
from ottla.group.topology.configuration import Status
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.api.streams_group_heartbeat import TaskOffset, Topology
from ottla.wire.record.consumer_group import TopicPartitions as OwnedTopic
from ottla.wire.record.offset import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    StreamsGroupTopologyKey,
    key_bytes,
    parse,
    value_bytes,
)
from tests.group.client import Consumer, rounds, settled
from tests.group.host import Host, Topics
from tests.group.streams import QUICK, Streamer, copartitioned, described, info, reader, task_ids
from tests.group.streams import settled as streams_settled
from tests.group.test_share_group import CLICKS, ORDERS, Sharer, settle

NONE = ErrorCode.NONE


# -- share groups


def heartbeat(**change: Any) -> ShareGroupHeartbeatRequest:
    fields = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["orders"], **change}
    return ShareGroupHeartbeatRequest(**fields)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"member_id": "", "group_id": ""}, "Invalid member id in the request."),
        ({"member_id": "m" * 37}, "Invalid member id in the request."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_a_share_heartbeat_that_makes_no_sense_is_refused_in_kafkas_words(change: dict[str, Any], words: str) -> None:
    host = Host()
    answer = host.call(heartbeat(**change), 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, words)
    assert host.log == [] and host.group() is None


def test_the_longest_member_id_is_taken() -> None:
    assert Host().call(heartbeat(member_id="m" * 36), 1).error_code == NONE


def test_what_a_share_member_says_of_itself_is_kept_until_it_says_otherwise() -> None:
    host = Host()
    host.call(heartbeat(rack_id="a", subscribed_topic_names=["orders", "clicks", "orders"]), 1, "billing")
    member = host.replayed_group().members["m"]
    assert (member.rack_id, member.client_id, member.client_host) == ("a", "billing", "/127.0.0.1")
    assert member.topics == ("clicks", "orders")
    host.call(heartbeat(member_epoch=member.epoch, subscribed_topic_names=None), 1, "billing")
    assert host.replayed_group().members["m"].topics == member.topics
    assert host.replayed_group().members["m"].rack_id == "a"
    host.call(heartbeat(member_epoch=member.epoch, subscribed_topic_names=["clicks"], rack_id="b"), 1, "other")
    changed = host.replayed_group().members["m"]
    assert (changed.topics, changed.rack_id, changed.client_id) == (("clicks",), "b", "other")


def test_a_share_heartbeat_that_changes_nothing_writes_nothing_and_brings_no_assignment() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    settle(host, one)
    before = len(host.log)
    answer = one.beat()
    assert len(host.log) == before and answer.assignment is None
    assert one.beat(topics=["orders"]).assignment is not None, "it said everything"
    assert len(host.log) == before


def test_a_held_heartbeat_of_a_member_that_is_fenced_meanwhile_is_answered_with_what_it_had() -> None:
    host = Host()
    host.share_waits = True
    ticket = host.ask(heartbeat(), 1)
    assert host.waits(ticket)
    ahead = share_current_entry("g", replace(host.group().members["m"], epoch=9, previous_epoch=8))
    host.group().epoch = 9
    host.coordinator.replay(*ahead, offset=len(host.log))
    host.share_waits = False
    host.answer_share_calls()
    host.change_topics()
    answer = host.answers[ticket]
    assert answer.error_code == NONE and answer.member_id == "m"
    assert host.coordinator.shard.held == {}


@pytest.mark.parametrize("kind", [ConsumerGroupDescribeRequest, ShareGroupDescribeRequest, StreamsGroupDescribeRequest])
def test_a_group_without_a_name_is_described_as_an_error_beside_others(kind: Any) -> None:
    host = Host()
    answer = host.call(kind(group_ids=["", "none"]), 0 if kind is StreamsGroupDescribeRequest else 1)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        ("", ErrorCode.INVALID_GROUP_ID),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_partitions_of_share_groups_go_round_members_that_have_them_already() -> None:
    """More members than partitions: each member has one, and each partition equally many."""
    partitions = {ORDERS: [0, 1]}
    everyone = {name: [ORDERS] for name in "abcd"}
    first = assign_simple(everyone, {}, partitions)
    shares = sorted(index for target in first.values() for index in target[ORDERS])
    assert shares == [0, 0, 1, 1] and all(len(target[ORDERS]) == 1 for target in first.values())
    fewer = assign_simple({name: [ORDERS] for name in "ab"}, {"a": {ORDERS: (0,)}, "b": {ORDERS: (0,)}}, partitions)
    assert sorted(index for target in fewer.values() for index in target[ORDERS]) == [0, 1]
    mixed = assign_simple({"a": [ORDERS], "b": [ORDERS, CLICKS], "c": []}, {}, {**partitions, CLICKS: [0, 1, 2]})
    assert mixed["b"][CLICKS] == (0, 1, 2) and mixed["c"] == {}
    assert sorted(index for name in "ab" for index in mixed[name].get(ORDERS, ())) == [0, 1]


def test_a_share_member_comes_back_with_its_epoch_the_one_before_or_none() -> None:
    host = Host()
    Sharer(host, "one", ["orders"]).beat()
    two = Sharer(host, "two", ["orders"])
    two.beat()
    assert two.epoch > 2 and host.group().members["two"].previous_epoch == 0
    for epoch in (1, two.epoch - 1, two.epoch + 1):
        assert two.beat(epoch=epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert two.beat(epoch=two.epoch).error_code == two.beat(epoch=0).error_code == NONE


def test_a_share_group_without_members_has_nothing_to_assign() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    topics = host.coordinator.shard.topics
    assert not host.group().has_unassigned(topics)
    one.leave()
    assert set(host.group().initialized) == {ORDERS}
    assert not host.group().has_unassigned(topics) and not ShareGroup("h").has_unassigned(topics)


# -- streams groups


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
        ({"active_tasks": task_ids({"0": (0,)})}, "ActiveTasks must be empty when (re-)joining."),
        ({"task_end_offsets": [TaskOffset()]}, "TaskEndOffsets are not supported yet."),
        ({"task_offsets": [TaskOffset()]}, "TaskOffsets are not supported yet."),
        ({"warmup_tasks": task_ids({"0": (0,)})}, "WarmupTasks are not supported yet."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": -2, "topology": None}, "InstanceId can't be null."),
        ({"member_epoch": -3, "topology": None}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"rack_id": " "}, "RackId can't be empty."),
    ],
)
def test_a_streams_heartbeat_that_makes_no_sense_is_refused_in_kafkas_words(change: dict[str, Any], words: str) -> None:
    host = Host(QUICK)
    one = Streamer(host, "one")
    answer = one.send(one.request(**change))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, words)
    assert host.log == []


@pytest.mark.parametrize("missing", ["active_tasks", "standby_tasks", "warmup_tasks"])
def test_a_member_names_its_tasks_of_all_kinds_or_of_none(missing: str) -> None:
    host = Host(QUICK)
    (one,) = streams_settled(host, "one")
    answer = one.send(one.request(**{missing: None}))
    assert answer.error_message == "If one task-type is non-null, all must be non-null."
    assert one.send(one.request(active_tasks=None, standby_tasks=None, warmup_tasks=None)).error_code == NONE


def test_a_topology_of_a_negative_epoch_is_refused() -> None:
    host = Host(QUICK)
    answer = Streamer(host, "one", Topology(epoch=-1, subtopologies=[reader()])).join()
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert answer.error_message == "Topology epoch must be non-negative."
    twice = Topology(subtopologies=[reader(), reader()])
    assert Streamer(host, "one", twice).join().error_message == "Two subtopologies have the same id."


def test_a_group_whose_topology_was_lost_has_its_members_join_again() -> None:
    host = Host(QUICK)
    (one,) = streams_settled(host, "one")
    entry = key_bytes(StreamsGroupTopologyKey(group_id="g")), None
    host.log.append((*entry, -1))
    host.coordinator.replay(*entry, offset=len(host.log))
    answer = one.beat()
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNKNOWN_MEMBER_ID, "Group g has no topology.")
    assert described(host).topology is None
    assert one.join().error_code == NONE
    assert one.active == {"0": (0, 1, 2, 3)} and host.replayed_group().topology is not None


def test_a_streams_member_in_a_state_of_a_newer_kafka_begins_again_without_tasks() -> None:
    host = Host(QUICK)
    (one,) = streams_settled(host, "one")
    entry = streams_current_entry("g", replace(host.group().members["one"], state=TaskState.UNKNOWN))
    host.coordinator.replay(*entry, offset=len(host.log))
    assert host.group().members["one"].state is TaskState(55) is TaskState.UNKNOWN
    answer = one.beat()
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer.error_message == (
        "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
    )
    assert one.join().error_code == NONE and one.active == {"0": (0, 1, 2, 3)}
    assert host.group().members["one"].state is TaskState.STABLE


def test_repartition_topics_that_are_joined_have_the_count_of_the_larger() -> None:
    host = Host(QUICK, Topics({"orders": 4, "clicks": 2}))
    sinks = [
        reader("0", ["orders"], repartition_sink_topics=["app-a"]),
        reader("1", ["clicks"], repartition_sink_topics=["app-b"]),
    ]
    joins = copartitioned(reader("2", [], repartition_source_topics=[info("app-a"), info("app-b")]))
    one = Streamer(host, "one", Topology(subtopologies=[*sinks, joins]))
    assert one.join().error_code == NONE
    assert one.missing == {"app-a": 4, "app-b": 4}


@pytest.mark.parametrize(("counts", "fits"), [((3, 3), True), ((3, 5), False)])
def test_fixed_counts_of_repartition_topics_that_are_joined_are_equal(counts: tuple[int, int], fits: bool) -> None:
    host = Host(QUICK)
    sinks = reader("0", ["orders"], repartition_sink_topics=["app-a", "app-b"])
    sources = [info("app-a", counts[0]), info("app-b", counts[1])]
    joins = copartitioned(reader("1", [], repartition_source_topics=sources))
    one = Streamer(host, "one", Topology(subtopologies=[sinks, joins]))
    assert one.join().error_code == NONE
    if fits:
        assert one.missing == {"app-a": 3, "app-b": 3}
        return
    assert one.codes == [Status.INCORRECTLY_PARTITIONED_TOPICS] and one.missing == {}
    assert one.statuses[0][1] == ("Following topics do not have the same number of partitions: [{app-a=3, app-b=5}]")


def test_a_fixed_count_follows_the_source_that_it_is_joined_with() -> None:
    host = Host(QUICK)
    sinks = reader("0", ["clicks"], repartition_sink_topics=["app-a"])
    joins = copartitioned(reader("1", ["orders"], repartition_source_topics=[info("app-a", 3)]))
    one = Streamer(host, "one", Topology(subtopologies=[sinks, joins]))
    one.join()
    words = "Number of partitions [3] of repartition topic [app-a] doesn't match number of partitions [4]"
    assert one.statuses == [(Status.INCORRECTLY_PARTITIONED_TOPICS, f"{words} of the source topic.")]


def test_a_long_list_of_missing_topics_is_cut_short() -> None:
    host = Host(QUICK)
    changelogs = [info(f"app-{number}-changelog") for number in range(5)]
    one = Streamer(host, "one", Topology(subtopologies=[reader(state_changelog_topics=changelogs)]))
    one.join()
    assert len(one.missing) == 5 and set(one.missing.values()) == {4}
    assert one.statuses[0][1].endswith("app-0-changelog, app-1-changelog, app-2-changelog and 2 additional topics")


def test_only_the_deadlines_of_a_streams_member_that_is_there_end_something() -> None:
    host = Host(QUICK)
    one, two = streams_settled(host, "one", "two")
    one.leave()
    for _ in range(8):
        host.pass_ms(10_000)
        two.beat()
    assert set(host.group().members) == {"two"}
    assert two.active == {"0": (0, 1, 2, 3)}


# -- records of consumer groups


def test_a_record_without_epochs_of_its_partitions_gives_them_the_members() -> None:
    """As Apache Kafka before 4.3 wrote it."""
    host = Host()
    for epochs in (None, [3]):
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            assigned_partitions=[OwnedTopic(topic_id=ORDERS, partitions=[0, 2], assignment_epochs=epochs)],
        )
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
        host.coordinator.replay(*epoch_entry("g", 7, 0), offset=1)
        host.coordinator.replay(key_bytes(key), value_bytes(value, 0), offset=2)
        member = host.group().members["m"]
        assert (member.epoch, member.previous_epoch, member.assigned) == (7, 6, {ORDERS: {0: 7, 2: 7}})


def test_the_old_record_of_a_groups_topics_is_deleted_with_the_next_change() -> None:
    host = Host()
    (one,) = settled(host, "one")
    key = key_bytes(ConsumerGroupPartitionMetadataKey(group_id="g"))
    value = value_bytes(ConsumerGroupPartitionMetadataValue(), 0)
    host.log.append((key, value, -1))
    host.restart()
    assert host.group().has_partition_metadata
    one.beat()
    two = Consumer(host, "two")
    assert two.join().error_code == NONE
    assert [entry[:2] for entry in host.log if entry[0] == key] == [(key, value), (key, None)]
    assert not host.group().has_partition_metadata and not host.replayed_group().has_partition_metadata
    rounds([one, two])
    assert sum(entry[0] == key for entry in host.log) == 2, "once"


def test_tombstones_of_what_is_not_there_make_no_group() -> None:
    host = Host()
    (one,) = settled(host, "one")
    one.leave()
    kinds = {type(parse(key, value)[0]) for key, value, _ in host.log}
    assert ConsumerGroupMemberMetadataKey in kinds
    empty = Host()
    for key, _, _ in host.log:
        empty.coordinator.replay(key, None, offset=1)
    assert empty.group() is None
    sharing, other = Host(), Host()
    Sharer(sharing, "m", ["orders"]).beat()
    for key, _, _ in sharing.log:
        other.coordinator.replay(key, None, offset=1)
    assert sharing.log and other.group() is None


def test_a_member_state_that_a_newer_kafka_wrote_is_unknown() -> None:
    assert MemberState(99) is MemberState.UNKNOWN
    host = Host()
    (one,) = settled(host, "one")
    entry = current_entry("g", replace(host.group().members["one"], state=MemberState.UNKNOWN))
    host.coordinator.replay(*entry, offset=len(host.log))
    one.owned = {}
    assert one.beat(full=False).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it does not say that it has nothing"
    assert one.beat().error_code == NONE
    assert one.partitions() == [0, 1, 2, 3] and host.group().members["one"].state is MemberState.STABLE


def test_a_consumer_group_says_who_may_join_it_and_what_it_reads() -> None:
    group = ConsumerGroup("g")
    assert group.supports("consumer", (("range", b""),)) and not group.supports("connect", (("range", b""),))
    assert not group.supports("consumer", ())
    group.put(ConsumerMember("m", topics=("orders",)))
    assert group.subscription()("orders") and not group.subscription()("clicks")
    assert not group.waits_for_others(group.members["m"])
    with pytest.raises(KafkaError) as raised:
        group.member("none")
    assert raised.value.message == "Member none is not a member of group g."
    assert StreamsGroup("h").subscription()("orders") is False
