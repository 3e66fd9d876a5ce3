"""Classic members in a consumer group, and groups that cannot change their protocol: errors and what they leave."""

from typing import Any

import pytest

from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicGroup
from ottla.group.state.consumer import ConsumerGroup, MemberState
from ottla.kernel.error import ErrorCode
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.compile import encode
from ottla.wire.record.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tests.group.client import (
    REBALANCE_MS,
    SESSION_MS,
    Classic,
    Consumer,
    assignment,
    rounds,
    settle,
    settled,
    stable_group,
)
from tests.group.host import Host

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


def mixed(host: Host, **options: Any) -> tuple[Consumer, Classic]:
    """A consumer group with a member of each protocol; the classic one has synced."""
    (new,) = settled(host, "new")
    classic = Classic(host, **options).join()
    assert classic.joined().error_code == NONE
    classic.sync()
    assert classic.synced().error_code == NONE
    return new, classic


def sync_request(classic: Classic, assigned: bytes = b"") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        member_id=classic.member_id,
        generation_id=classic.generation,
        assignments=[SyncGroupRequestAssignment(member_id=classic.member_id, assignment=assigned)],
    )


# -- joining


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\3\0"])
def test_a_classic_member_whose_subscription_cannot_be_read_is_kept_out(metadata: bytes) -> None:
    host = Host()
    settled(host, "new")
    request = Classic(host).join_request()
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    before = len(host.log)
    answer = host.call(request, 3)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert len(host.log) == before and set(host.group().members) == {"new"}


@pytest.mark.parametrize("change", [{"protocols": []}, {"protocol_type": "connect"}])
def test_a_classic_member_of_another_protocol_is_kept_out(change: dict[str, Any]) -> None:
    host = Host()
    settled(host, "new")
    request: JoinGroupRequest = Classic(host).join_request()
    for name, value in change.items():
        setattr(request, name, value)
    assert host.call(request, 3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert set(host.group().members) == {"new"}


def test_what_a_classic_member_says_of_itself_is_kept() -> None:
    host = Host()
    settled(host, "new")
    subscription = ConsumerProtocolSubscription(topics=["orders", "clicks", "orders"], rack_id="a")
    request = Classic(host).join_request()
    metadata = b"\0\3" + encode(subscription, 3)
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    answer = host.call(request, 3, "billing")
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (NONE, "consumer", "range")
    member = host.replayed_group().members[answer.member_id]
    assert (member.topics, member.rack_id, member.regex) == (("clicks", "orders"), "a", "")
    assert (member.client_id, member.client_host) == ("billing", "/127.0.0.1")
    assert (member.rebalance_timeout_ms, member.classic.session_timeout_ms) == (REBALANCE_MS, SESSION_MS)
    assert member.classic.protocols == (("range", metadata),)
    assert (answer.generation_id, answer.leader, answer.members) == (member.epoch, "", [])


def test_before_version_1_a_classic_members_session_timeout_is_its_rebalance_timeout() -> None:
    host = Host()
    settled(host, "new")
    answer = host.call(Classic(host).join_request(), 0)
    assert host.group().members[answer.member_id].rebalance_timeout_ms == SESSION_MS


def test_a_static_classic_member_joins_again_under_its_id_and_another_one_is_fenced() -> None:
    host = Host()
    new, classic = mixed(host, instance_id="i")
    before = host.group().members[classic.member_id]
    again = classic.join().joined()
    assert (again.error_code, again.member_id) == (NONE, before.member_id)
    assert host.group().static_members == {"i": before.member_id}
    thief = Classic(host, instance_id="i", member_id="thief")
    assert host.call(thief.join_request(), 9).error_code == ErrorCode.FENCED_INSTANCE_ID
    stranger = Classic(host, instance_id="none", member_id="x")
    assert host.call(stranger.join_request(), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(host.group().members) == {new.member_id, before.member_id}


def test_a_classic_member_finds_no_room_in_a_full_consumer_group() -> None:
    host = Host(CoordinatorSettings(group_consumer_max_size=1))
    settled(host, "new")
    assert Classic(host).join().joined().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert set(host.group().members) == {"new"}


# -- syncing and heartbeats


def test_a_sync_in_an_epoch_that_is_over_sends_the_member_back_and_it_must_come_soon() -> None:
    host = Host()
    new, classic = mixed(host)
    other = Consumer(host, "other")
    other.join()
    host.pass_ms(1_000)
    new.beat(), other.beat()
    group = host.group()
    assert group.assignment_epoch > group.members[classic.member_id].epoch
    assert host.call(sync_request(classic), 3).error_code == REBALANCE
    for _ in range(REBALANCE_MS // 10_000 + 1):
        host.pass_ms(10_000)
        new.beat(), other.beat()
        classic.heartbeat()
    assert classic.member_id not in host.group().members
    assert classic.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_keeps_the_session_and_ends_the_wait_for_it() -> None:
    host = Host()
    new, classic = mixed(host)
    for _ in range(REBALANCE_MS // 10_000 + 2):
        host.pass_ms(10_000)
        new.beat()
        assert host.call(sync_request(classic), 3).error_code == NONE
    assert classic.member_id in host.group().members


def test_a_member_that_waits_for_what_others_own_need_not_join_again_before_it_is_free() -> None:
    host = Host()
    (new,) = settled(host, "new")
    classic = Classic(host).join()
    classic.joined(), classic.sync()
    assert host.group().members[classic.member_id].state is MemberState.UNRELEASED_PARTITIONS
    assert classic.heartbeat() is NONE
    rounds([new], 3)
    assert host.group().members[classic.member_id].state is MemberState.UNRELEASED_PARTITIONS
    assert classic.heartbeat() is REBALANCE
    assert classic.join().joined().error_code == NONE
    classic.sync()
    classic.synced()
    assert sorted([*classic.owned["orders"], *new.partitions()]) == [0, 1, 2, 3]
    assert classic.heartbeat() is NONE


def test_nobody_leaves_a_consumer_group_by_a_request_that_names_none_of_its_members() -> None:
    host = Host()
    new, classic = mixed(host)
    before = len(host.log)
    identities = [MemberIdentity(member_id="ghost"), MemberIdentity(member_id="ghost", group_instance_id="i")]
    answer = host.call(LeaveGroupRequest(group_id="g", members=identities), 5)
    assert [one.error_code for one in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert len(host.log) == before and set(host.group().members) == {new.member_id, classic.member_id}


# -- conversions


def test_a_classic_group_that_is_too_large_for_a_consumer_group_stays() -> None:
    host = Host(CoordinatorSettings(group_consumer_max_size=2))
    members = stable_group(host, 3)
    answer = Consumer(host, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "the group size exceeds the consumer group maximum size" in answer.error_message
    assert isinstance(host.group(), ClassicGroup)
    assert [member.heartbeat() for member in members] == [NONE] * 3


def test_a_classic_group_as_large_as_a_consumer_group_may_be_is_converted_but_takes_no_more() -> None:
    host = Host(CoordinatorSettings(group_consumer_max_size=2))
    members = stable_group(host, 2)
    assert Consumer(host, "new").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(host.group(), ClassicGroup) and members[0].heartbeat() is NONE


def stable_with(host: Host, *assigned: bytes) -> list[Classic]:
    """A stable classic group whose leader has dealt out these bytes."""
    members = [Classic(host).join() for _ in assigned]
    host.pass_ms(7_000)
    for member in members:
        member.joined()
    (leader,) = [member for member in members if member.leads]
    request = sync_request(leader)
    request.assignments = [
        SyncGroupRequestAssignment(member_id=member.member_id, assignment=each)
        for member, each in zip(members, assigned, strict=True)
    ]
    for member in members:
        if member is not leader:
            host.ask(sync_request(member), 3)
    host.call(request, 3)
    return members


def test_a_group_whose_leader_dealt_a_partition_out_twice_is_not_converted() -> None:
    host = Host()
    members = stable_with(host, assignment({"orders": [0, 1]}), assignment({"orders": [1, 2]}))
    answer = Consumer(host, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "malformed" in answer.error_message
    assert isinstance(host.group(), ClassicGroup) and members[0].heartbeat() is NONE


def test_a_group_with_an_assignor_of_its_own_is_not_converted() -> None:
    host = Host()
    own = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopicPartition(topic="orders", partitions=[0])], user_data=b"mine"
    )
    stable_with(host, b"\0\3" + encode(own, 3))
    answer = Consumer(host, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "custom assignor" in answer.error_message
    assert isinstance(host.group(), ClassicGroup)


def test_a_conversion_keeps_what_exists_of_what_was_dealt_out() -> None:
    host = Host()
    first, second = stable_with(
        host, assignment({"orders": [2, 0, 2], "gone": [0], "clicks": []}), assignment({"orders": [3]})
    )
    assert Consumer(host, "new", topics=["clicks"]).join().error_code == NONE
    group = host.replayed_group()
    orders = host.topics.topic_id("orders")
    generation = group.members[first.member_id].epoch
    assert group.members[first.member_id].assigned == {orders: {0: generation, 2: generation}}
    assert group.members[second.member_id].assigned == {orders: {3: generation}}
    assert group.members[first.member_id].previous_epoch == generation == first.generation
    assert (group.members[first.member_id].client_id, group.members[first.member_id].client_host) == (
        "client",
        "/127.0.0.1",
    )
    assert group.members[first.member_id].rebalance_timeout_ms == REBALANCE_MS


def test_sessions_go_on_through_both_conversions() -> None:
    host = Host()
    alive, silent = stable_group(host, 2)
    new = Consumer(host, "new")
    assert new.join().error_code == NONE
    for _ in range(2):
        host.pass_ms(SESSION_MS // 2 + 1)
        new.beat()
        alive.heartbeat()
    assert isinstance(host.group(), ConsumerGroup) and silent.member_id not in host.group().members
    new.leave()
    assert isinstance(host.group(), ClassicGroup) and set(host.group().members) == {alive.member_id}
    host.pass_ms(SESSION_MS - 1)
    assert set(host.group().members) == {alive.member_id}
    host.pass_ms(1)
    assert host.group().members == {}


def test_a_group_that_is_classic_again_has_what_the_consumer_group_last_dealt_out() -> None:
    host = Host()
    classics = stable_group(host, 2)
    new = Consumer(host, "new", topics=["clicks"])
    new.join()
    targets = {name: dict(target) for name, target in host.group().targets.items()}
    new.leave()
    group = host.replayed_group()
    orders = host.topics.topic_id("orders")
    assert group.protocol_type == "consumer" and group.protocol_name == "range"
    assert {name: member.assignment for name, member in group.members.items()} == {
        member.member_id: assignment({"orders": list(targets[member.member_id][orders])}) for member in classics
    }
    settle(host, [member.join() for member in classics])
    assert sorted(partition for member in classics for partition in member.owned["orders"]) == [0, 1, 2, 3]
