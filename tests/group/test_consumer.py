"""The consumer protocol (KIP-848): joining, reconciling, epochs, fencing, static members."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.group.event import SettingsChanged
from ottla.group.records.encode import current_entry
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember, ConsumerState, MemberState
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from tests.group.client import REBALANCE_MS, Consumer, commit_request, fetched, rounds, settled
from tests.group.host import Host

NONE = ErrorCode.NONE


def state(host: Host, member_id: str) -> MemberState:
    found: MemberState = host.group().members[member_id].state
    return found


def test_the_first_member_gets_everything_at_its_first_heartbeat() -> None:
    host = Host()
    member = Consumer(host, "a")
    answer = member.join()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "a", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert member.partitions() == [0, 1, 2, 3]
    assert host.group().state is ConsumerState.STABLE


def test_before_version_1_the_coordinator_makes_the_member_id() -> None:
    host = Host()
    request = Consumer(host, "").request(full=True)
    request.subscribed_topic_regex = None
    answer = host.call(request, 0)
    assert answer.error_code == NONE and len(answer.member_id) == 22


def test_a_second_member_takes_half_when_the_first_has_given_it_up() -> None:
    host = Host()
    (first,) = settled(host, "a")
    second = Consumer(host, "b")
    second.join()
    assert second.partitions() == [] and state(host, "b") is MemberState.UNRELEASED_PARTITIONS
    answer = first.send(first.request(full=False))
    assert answer.member_epoch == 2 and first.partitions() == [0, 1]
    assert state(host, "a") is MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.partitions() == [], "what the first may still read is not the second's"
    first.beat()
    assert first.epoch == second.epoch == 3 and state(host, "a") is MemberState.STABLE
    second.beat()
    assert second.partitions() == [2, 3] and host.group().state is ConsumerState.STABLE


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_brings_no_assignment() -> None:
    host = Host()
    (member,) = settled(host, "a")
    written = len(host.log)
    answer = member.beat(full=False)
    assert answer.assignment is None and len(host.log) == written
    assert member.beat(full=True).assignment is not None and len(host.log) == written


def test_targets_are_computed_at_most_once_an_interval() -> None:
    host = Host()
    first = Consumer(host, "a")
    first.join()
    second = Consumer(host, "b")
    second.join()
    assert host.group().epoch == 3 and host.group().assignment_epoch == 2
    assert host.group().state is ConsumerState.ASSIGNING
    host.pass_ms(999)
    second.beat()
    assert host.group().assignment_epoch == 2
    host.pass_ms(1)
    second.beat()
    assert host.group().assignment_epoch == 3


def test_a_member_that_leaves_sets_its_partitions_free() -> None:
    host = Host()
    first, second = settled(host, "a", "b")
    assert second.leave().member_epoch == -1
    host.pass_ms(1_000)
    first.beat()
    assert first.partitions() == [0, 1, 2, 3]


def test_the_last_member_leaves_an_empty_group_that_can_be_deleted() -> None:
    host = Host()
    (member,) = settled(host, "a")
    member.leave()
    assert host.group().state is ConsumerState.EMPTY
    assert host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == NONE
    assert host.group() is None and host.replayed_group() is None


def test_a_silent_member_is_fenced_at_its_session_timeout() -> None:
    host = Host()
    first, second = settled(host, "a", "b")
    for _ in range(5):
        host.pass_ms(10_000)
        first.beat()
    assert second.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.partitions() == [0, 1, 2, 3]


def test_a_group_may_have_timeouts_of_its_own() -> None:
    host = Host()
    override = GroupOverride(consumer_session_timeout_ms=10_000, consumer_heartbeat_interval_ms=3_000)
    host.send(SettingsChanged(host.settings, {"g": override}))
    (member,) = settled(host, "a")
    assert member.beat().heartbeat_interval_ms == 3_000
    host.pass_ms(10_001)
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_fenced() -> None:
    host = Host()
    (first,) = settled(host, "a")
    second = Consumer(host, "b")
    second.join()
    first.send(first.request(full=False))
    for _ in range(7):
        host.pass_ms(REBALANCE_MS // 6)
        second.beat()
        if host.group().members.get("a") is not None:
            # It is alive, and still holds what it was told to give up.
            first.send(first.request(full=False))
    assert "a" not in host.group().members
    second.beat()
    assert second.partitions() == [0, 1, 2, 3]


def test_a_lost_answer_is_given_again() -> None:
    host = Host()
    (first,) = settled(host, "a")
    second = Consumer(host, "b")
    second.join()
    first.send(first.request(full=False))
    lost = first.request(full=True)
    assert host.call(lost, 1).member_epoch == 3
    answer = host.call(lost, 1)
    assert answer.error_code == NONE and answer.member_epoch == 3 and answer.assignment is not None


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_wrong_epoch_is_fenced(instance_id: str | None) -> None:
    host = Host()
    member = Consumer(host, "a", instance_id=instance_id)
    member.join()
    for epoch in (member.epoch + 1, member.epoch - 1):
        request = member.request(full=False)
        request.member_epoch = epoch
        assert host.call(request, 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.beat().error_code == NONE
    if instance_id is None:
        assert member.join().error_code == NONE and member.partitions() == [0, 1, 2, 3]


def test_a_member_with_the_epoch_before_and_more_than_it_has_is_fenced() -> None:
    host = Host()
    (first,) = settled(host, "a")
    second = Consumer(host, "b")
    second.join()
    rounds([first, second])
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None and host.group().members["a"].previous_epoch == first.epoch - 1
    request = first.request(full=True)
    request.member_epoch = first.epoch - 1
    request.topic_partitions = [TopicPartitions(topic_id=topic_id, partitions=second.partitions())]
    assert host.call(request, 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    # The same in two entries of the topic.
    request.topic_partitions.append(TopicPartitions(topic_id=topic_id, partitions=first.partitions()))
    assert host.call(request, 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    request.topic_partitions = [TopicPartitions(topic_id=topic_id, partitions=first.partitions())]
    assert host.call(request, 1).error_code == NONE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
    ],
)
def test_a_bad_heartbeat_is_refused_in_kafkas_words(change: dict[str, object], text: str) -> None:
    host = Host()
    request = Consumer(host, "a").request(full=True)
    for name, value in change.items():
        setattr(request, name, value)
    answer = host.call(request, 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)
    assert host.group("g") is None


def test_an_unknown_assignor_group_or_member_is_said() -> None:
    host = Host()
    odd = Consumer(host, "a", assignor="sticky").join()
    assert odd.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert odd.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    lost = ConsumerGroupHeartbeatRequest(group_id="none", member_id="a", member_epoch=3)
    assert host.call(lost, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    settled(host, "a")
    stranger = ConsumerGroupHeartbeatRequest(group_id="g", member_id="x", member_epoch=3)
    assert host.call(stranger, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert Consumer(host, "x").leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_in() -> None:
    host = Host(CoordinatorSettings(group_consumer_max_size=1))
    (member,) = settled(host, "a")
    assert Consumer(host, "b").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member.join().error_code == NONE


def test_the_assignor_with_most_votes_is_taken() -> None:
    host = Host()
    host.topics.create("pairs", 4)
    first = Consumer(host, "a", topics=["orders", "pairs"], assignor="range")
    second = Consumer(host, "b", topics=["orders", "pairs"], assignor="range")
    first.join(), second.join()
    rounds([first, second])
    assert first.partitions("orders") == first.partitions("pairs") == [0, 1]


# -- static members


def test_a_static_member_that_left_for_a_while_finds_its_partitions() -> None:
    host = Host()
    first = Consumer(host, "a", instance_id="i")
    second = Consumer(host, "b", instance_id="j")
    first.join(), second.join()
    rounds([first, second])
    before = first.partitions()
    assert first.leave(-2).member_epoch == -2
    host.pass_ms(1_000)
    second.beat()
    assert second.partitions() != [0, 1, 2, 3]
    epoch = host.group().epoch
    again = Consumer(host, "c", instance_id="i")
    assert again.join().error_code == NONE
    assert again.partitions() == before and host.group().epoch == epoch
    assert first.beat().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_fenced() -> None:
    host = Host()
    first = Consumer(host, "a", instance_id="i")
    second = Consumer(host, "b", instance_id="j")
    first.join(), second.join()
    rounds([first, second])
    first.leave(-2)
    for _ in range(6):
        host.pass_ms(10_000)
        second.beat()
    assert second.partitions() == [0, 1, 2, 3] and list(host.group().static_members) == ["j"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_static_member_that_is_away_need_not_give_up_partitions_in_time(restarted: bool) -> None:
    """It left when it was told to give some up. Its session, not its rebalance timeout, says when it must be back."""
    host = Host()
    (first,) = settled(host, "a", instance_id="i")
    request = first.request(full=True)
    request.rebalance_timeout_ms = 5_000
    first.send(request)
    second = Consumer(host, "b")
    second.join()
    first.send(first.request(full=False))
    assert first.partitions() == [0, 1] and host.group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    first.leave(-2)
    if restarted:
        host.restart()
    host.pass_ms(5_001)
    second.beat()
    assert second.partitions() == [2, 3]
    again = Consumer(host, "c", instance_id="i")
    assert again.join().error_code == NONE and again.partitions() == [0, 1]


def test_an_instance_id_that_is_in_use_is_not_given_away() -> None:
    host = Host()
    first = Consumer(host, "a", instance_id="i")
    first.join()
    assert Consumer(host, "c", instance_id="i").join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    other = Consumer(host, "c", instance_id="none")
    other.epoch = 2
    assert other.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_for_good_is_gone() -> None:
    host = Host()
    first = Consumer(host, "a", instance_id="i")
    first.join()
    first.leave()
    assert host.group().members == {} and host.group().static_members == {}


# -- offsets of members


def test_a_member_commits_at_its_epoch() -> None:
    host = Host()
    (member,) = settled(host, "a")

    def commit(epoch: int, version: int = 9, partition: int = 0, member_id: str = "a") -> ErrorCode:
        request = commit_request("g", {"orders": {partition: 5}}, epoch, member_id)
        return ErrorCode(host.call(request, version).topics[0].partitions[0].error_code)

    assert commit(member.epoch) is NONE
    assert commit(member.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(member.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(member.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(member.epoch, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(-1, member_id="") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_of_an_older_epoch_counts_for_what_the_member_has_had_since() -> None:
    host = Host()
    first, second = settled(host, "a", "b")
    third = Consumer(host, "c", topics=["clicks"])
    third.join()
    old = first.epoch
    rounds([first, second, third])
    assert first.epoch > old
    kept = first.partitions()[0]
    request = commit_request("g", {"orders": {kept: 5}}, old, "a")
    assert host.call(request, 9).topics[0].partitions[0].error_code == NONE
    lost = commit_request("g", {"orders": {second.partitions()[0]: 5}}, old, "a")
    assert host.call(lost, 9).topics[0].partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_fetches_at_its_epoch() -> None:
    host = Host()
    (member,) = settled(host, "a")
    host.call(commit_request("g", {"orders": {0: 5}}, member.epoch, "a"), 9)
    good: dict[str, Any] = {"member_id": "a", "member_epoch": member.epoch}
    assert fetched(host, "g", {"orders": [0]}, **good) == {("orders", 0): (5, NONE)}
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}
    stale: dict[str, Any] = {"member_id": "a", "member_epoch": member.epoch + 1}
    assert fetched(host, "g", {"orders": [0]}, **stale) == {}


# -- restarts


def test_a_consumer_group_survives_a_restart_of_the_coordinator() -> None:
    host = Host()
    first, second = settled(host, "a", "b")
    third = Consumer(host, "c")
    third.join()
    before = host.group()
    host.restart()
    after = host.group()
    assert after.members == before.members and after.targets == before.targets and after.owners == before.owners
    rounds([first, second, third])
    assert sorted(first.partitions() + second.partitions() + third.partitions()) == [0, 1, 2, 3]


def test_after_a_restart_a_member_still_has_its_rebalance_timeout_only() -> None:
    host = Host()
    (first,) = settled(host, "a")
    second = Consumer(host, "b")
    second.join()
    first.send(first.request(full=False))
    host.restart()
    for _ in range(7):
        host.pass_ms(REBALANCE_MS // 6)
        second.beat()
        if "a" in host.group().members:
            first.send(first.request(full=False))
    assert "a" not in host.group().members


def test_a_member_in_a_state_of_a_newer_kafka_starts_anew() -> None:
    host = Host()
    (member,) = settled(host, "a")
    key, value = current_entry("g", replace(host.group().members["a"], state=MemberState.UNKNOWN))
    host.coordinator.replay(key, value, offset=len(host.log))
    assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.join().error_code == NONE and member.partitions() == [0, 1, 2, 3]


def test_what_a_static_members_successor_has_stays_when_its_predecessor_goes() -> None:
    group, topic_id = ConsumerGroup("g"), Uuid(bytes(15) + b"\x01")
    old = ConsumerMember("old", instance_id="i", assigned={topic_id: {0: 1, 1: 1}})
    group.put(old)
    group.put(replace(old, member_id="new", assigned={topic_id: {0: 2}}))
    group.remove("old")
    assert group.owners == {(topic_id, 0): "new"}
    assert group.static_members == {"i": "new"}


def test_a_static_member_that_changes_its_instance_id_sets_the_old_one_free() -> None:
    host = Host()
    changing = Consumer(host, "m1", instance_id="a")
    changing.join()
    changing.instance_id = "b"
    assert changing.join().error_code == NONE
    successor = Consumer(host, "m2", instance_id="a")
    assert successor.join().error_code == NONE
    changing.leave()
    assert Consumer(host, "m3", instance_id="b").join().error_code == NONE
    assert host.group().static_members == host.replayed_group().static_members == {"a": "m2", "b": "m3"}
