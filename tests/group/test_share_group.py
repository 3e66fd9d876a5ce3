"""Share groups (KIP-932) in the group coordinator: membership, assignment, and the state they have others hold."""

from typing import Any

import pytest

from ottla.coordinator.contract import Append
from ottla.group.event import HeartbeatSuperseded, TopicsChanged
from ottla.group.setting import CoordinatorSettings
from ottla.group.share.assignor import assign_simple
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.now import Now
from ottla.wire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.group.client import Consumer
from tests.group.host import Host, Topics

ORDERS, CLICKS = (Uuid(index.to_bytes(16, "big")) for index in (1, 2))


class Sharer:
    """A member of a share group as a client library has it."""

    def __init__(self, host: Host, member_id: str, topics: list[str], group_id: str = "g") -> None:
        self.host, self.member_id, self.topics, self.group_id = host, member_id, topics, group_id
        self.epoch = 0
        self.assigned: dict[Uuid, list[int]] = {}

    def beat(self, *, epoch: int | None = None, topics: list[str] | None = None) -> Any:
        """One heartbeat; its response."""
        epoch = self.epoch if epoch is None else epoch
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=self.topics if epoch == 0 else topics,
        )
        response = self.host.call(request, 1)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        return response

    def leave(self) -> Any:
        return self.beat(epoch=-1)


def owners(*sharers: Sharer) -> dict[tuple[Uuid, int], int]:
    """How many members have each partition."""
    counts: dict[tuple[Uuid, int], int] = {}
    for sharer in sharers:
        for topic_id, partitions in sharer.assigned.items():
            for index in partitions:
                counts[topic_id, index] = counts.get((topic_id, index), 0) + 1
    return counts


def settle(host: Host, *sharers: Sharer) -> None:
    """Heartbeats until nobody's assignment changes any more."""
    for _ in range(6):
        host.pass_ms(1_000)
        for sharer in sharers:
            assert sharer.beat().error_code == 0


def test_the_first_member_has_every_partition_at_its_first_heartbeat() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    assert one.beat().error_code == 0
    assert one.assigned == {ORDERS: [0, 1, 2, 3]}
    assert {(index, offset) for (_, _, index), (_, offset) in host.share_states.items()} == {
        (0, -1),
        (1, -1),
        (2, -1),
        (3, -1),
    }
    assert host.replayed_group().initialized[ORDERS].partitions == {0, 1, 2, 3}
    assert host.replayed_group().initializing == {}


def test_a_second_member_has_its_half_at_once_and_a_third_waits_for_the_interval() -> None:
    host = Host()
    one, two, three = (Sharer(host, name, ["orders"]) for name in ("one", "two", "three"))
    for sharer in (one, two, three):
        assert sharer.beat().error_code == 0
    assert [len(sharer.assigned.get(ORDERS, [])) for sharer in (one, two, three)] == [4, 2, 0]
    one.beat()
    assert owners(one, two) == dict.fromkeys([(ORDERS, index) for index in range(4)], 1)
    settle(host, one, two, three)
    assert three.assigned


def test_partitions_are_dealt_out_among_members_and_shared_when_they_are_fewer() -> None:
    host = Host()
    few = [Sharer(host, f"m{index}", ["orders"]) for index in range(2)]
    for sharer in few:
        sharer.beat()
    settle(host, *few)
    assert owners(*few) == dict.fromkeys([(ORDERS, index) for index in range(4)], 1)
    many = [*few, *(Sharer(host, f"n{index}", ["orders"]) for index in range(4))]
    for sharer in many[2:]:
        sharer.beat()
    settle(host, *many)
    assert all(sharer.assigned for sharer in many)
    assert set(owners(*many).values()) <= {1, 2}


def test_a_member_that_is_silent_is_fenced_and_what_it_had_goes_to_the_others() -> None:
    host = Host()
    one, two = Sharer(host, "one", ["orders"]), Sharer(host, "two", ["orders"])
    one.beat()
    two.beat()
    settle(host, one, two)
    for _ in range(50):
        host.pass_ms(1_000)
        two.beat()
    assert set(host.group().members) == {"two"}
    assert two.assigned == {ORDERS: [0, 1, 2, 3]}
    assert one.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(host.replayed_group().members) == {"two"}


def test_a_member_with_a_wrong_epoch_is_fenced_unless_it_is_the_one_before() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    before = one.epoch
    host.pass_ms(2_000)
    one.beat(topics=["clicks", "orders"])
    assert one.epoch > before
    assert one.beat(epoch=host.group().members["one"].previous_epoch).error_code == 0
    assert one.beat(epoch=one.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert one.beat(epoch=1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"member_id": ""}, "Invalid member id in the request."),
        ({"member_id": "m" * 37, "group_id": ""}, "Invalid member id in the request."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_an_invalid_request(change: dict[str, Any], words: str) -> None:
    request = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["orders"], **change}
    response = Host().call(ShareGroupHeartbeatRequest(**request), 1)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, words)


def test_a_member_id_may_have_36_characters() -> None:
    one = Sharer(Host(), "m" * 36, ["orders"])
    assert one.beat().error_code == 0


def test_a_group_is_of_one_kind() -> None:
    host = Host()
    Sharer(host, "one", ["orders"], "shares").beat()
    assert Consumer(host, "two", group_id="shares").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    join = JoinGroupRequest(group_id="shares", session_timeout_ms=30_000, member_id="", protocol_type="consumer")
    assert host.call(join, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    Consumer(host, "three", group_id="consumers").join()
    assert Sharer(host, "two", ["orders"], "consumers").beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    topics = [
        OffsetCommitRequestTopic(
            name="orders", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        )
    ]
    commit = OffsetCommitRequest(group_id="shares", generation_id_or_member_epoch=-1, topics=topics)
    assert host.call(commit, 9).topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_lists_and_descriptions_know_share_groups() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    Consumer(host, "two", group_id="other").join()
    listed = host.call(ListGroupsRequest(types_filter=["Share"]), 5).groups
    assert [(each.group_id, each.group_type, each.protocol_type, each.group_state) for each in listed] == [
        ("g", "share", "share", "Stable")
    ]
    described, other, missing = host.call(ShareGroupDescribeRequest(group_ids=["g", "other", "none"]), 1).groups
    assert (described.group_state, described.assignor_name, described.group_epoch) == ("Stable", "simple", one.epoch)
    assert described.members[0].assignment.topic_partitions[0].topic_name == "orders"
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group other is not a share group.",
    )
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
    (nameless,) = host.call(ShareGroupDescribeRequest(group_ids=[""]), 1).groups
    assert (nameless.group_id, nameless.error_code) == ("", ErrorCode.INVALID_GROUP_ID)


def test_a_group_is_deleted_with_its_state_and_only_when_it_is_empty() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    assert host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == 0
    assert host.share_states == {}
    assert host.group() is None
    assert host.replayed_group() is None


def test_a_group_whose_state_cannot_be_deleted_stays() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    one.leave()
    host.share_waits = True
    ticket = host.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert host.waits(ticket)
    host.share_waits = False
    host.answer_share_calls({(ORDERS, 0): KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)})
    host.change_topics()
    assert host.answers[ticket].results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.group().deleting == {ORDERS}
    assert host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == 0
    assert host.share_states == {}


def test_state_that_could_not_begun_is_asked_for_again_and_the_member_is_answered() -> None:
    host = Host()
    host.share_waits = True
    one = Sharer(host, "one", ["orders"])
    ticket = host.ask(
        ShareGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=0, subscribed_topic_names=["orders"]), 1
    )
    assert host.waits(ticket)
    assert host.replayed_group().initializing[ORDERS].partitions == {0, 1, 2, 3}
    host.answer_share_calls({(ORDERS, 1): KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)})
    host.change_topics()
    # It is asked for once more, and this time nobody waits for that.
    assert host.answers[ticket].assignment.topic_partitions == []
    host.share_waits = False
    host.answer_share_calls()
    host.change_topics()
    one.epoch = host.answers[ticket].member_epoch
    host.pass_ms(5_000)
    one.beat()
    assert one.assigned == {ORDERS: [0, 1, 2, 3]}


def held_host() -> tuple[Host, int]:
    """A member's first heartbeat waits for the share coordinator; its ticket."""
    host = Host()
    host.share_waits = True
    ticket = host.ask(
        ShareGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=0, subscribed_topic_names=["orders"]), 1
    )
    assert host.waits(ticket)
    return host, ticket


def answer_share_calls(host: Host) -> None:
    host.share_waits = False
    host.answer_share_calls()
    host.change_topics()


def test_a_member_that_leaves_while_its_heartbeat_is_held_stays_away() -> None:
    host, ticket = held_host()
    Sharer(host, "one", ["orders"]).leave()
    assert host.group().members == {}
    written = len(host.log)
    answer_share_calls(host)
    assert host.answers[ticket].error_code == 0
    assert host.group().members == {}
    # What was begun is noted, and nothing else.
    assert len(host.log) == written + 1
    assert host.replayed_group().initialized[ORDERS].partitions == {0, 1, 2, 3}


@pytest.mark.parametrize("hurries", [True, False])
def test_a_held_heartbeat_is_answered_when_more_comes_behind_it_or_after_two_seconds(hurries: bool) -> None:
    host, ticket = held_host()
    host.pass_ms(1_999)
    assert host.waits(ticket)
    host.send(HeartbeatSuperseded(ticket)) if hurries else host.pass_ms(1)
    answer = host.answers[ticket]
    assert (answer.error_code, answer.member_epoch, answer.assignment.topic_partitions) == (0, 2, [])
    # Late, and for no answer.
    host.send(HeartbeatSuperseded(ticket))
    host.pass_ms(2_000)
    answer_share_calls(host)
    one = Sharer(host, "one", ["orders"])
    one.epoch = answer.member_epoch
    one.beat()
    assert one.assigned == {ORDERS: [0, 1, 2, 3]}


def test_a_hold_that_ended_in_time_says_nothing_about_the_next() -> None:
    host, ticket = held_host()
    host.pass_ms(1_500)
    answer_share_calls(host)
    host.share_waits = True
    host.topics.grow("orders", 5)
    host.change_topics(changed=["orders"])
    epoch = host.answers[ticket].member_epoch
    second = host.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=epoch), 1)
    host.pass_ms(1_999)
    assert host.waits(second)
    host.pass_ms(1)
    assert not host.waits(second)


def test_a_held_heartbeat_of_an_epoch_that_has_passed_meanwhile_has_the_answer_that_it_had() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    host.topics.grow("orders", 5)
    host.change_topics(changed=["orders"])
    host.share_waits = True
    held = host.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=one.epoch), 1)
    assert host.waits(held)
    for topics in (["clicks", "orders"], ["orders"]):
        host.pass_ms(1_000)
        other = host.ask(
            ShareGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=0, subscribed_topic_names=topics),
            1,
        )
        host.send(HeartbeatSuperseded(other))
    answer_share_calls(host)
    assert host.answers[held].error_code == 0
    assert host.answers[held].member_epoch <= host.group().members["one"].previous_epoch


def test_a_new_leader_asks_at_once_for_state_that_the_old_one_was_waiting_for() -> None:
    host = Host()
    host.share_waits = True
    ticket = host.ask(
        ShareGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=0, subscribed_topic_names=["orders"]), 1
    )
    host.restart()
    assert host.answers[ticket].error_code == ErrorCode.NOT_COORDINATOR
    host.share_calls.clear()
    host.share_waits = False
    one = Sharer(host, "one", ["orders"])
    one.beat()
    assert one.assigned == {ORDERS: [0, 1, 2, 3]}


def test_partitions_that_a_topic_gains_are_begun_and_assigned() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders"])
    one.beat()
    host.topics.grow("orders", 6)
    host.change_topics(changed=["orders"])
    settle(host, one)
    assert one.assigned == {ORDERS: [0, 1, 2, 3, 4, 5]}


def test_a_deleted_topic_is_forgotten() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders", "clicks"])
    one.beat()
    host.topics.delete("orders")
    host.change_topics(deleted=[("orders", ORDERS)])
    settle(host, one)
    assert one.assigned == {CLICKS: [0, 1]}
    assert set(host.replayed_group().initialized) == {CLICKS}


def test_what_groups_forget_of_a_deleted_topic_goes_into_batches_of_their_own() -> None:
    host = Host()
    for group_id in ("one", "two"):
        Sharer(host, group_id, ["orders"], group_id).beat()
    host.topics.delete("orders")
    [append] = host.coordinator.step(TopicsChanged(host.topics, deleted=[("orders", ORDERS)]), Now(0, 0))
    assert isinstance(append, Append)
    # However small the batches are that the log takes: one that is too large holds up no other group's.
    assert [len(batch) for batch in append.batches(1)] == [1, 1]


def _alter(host: Host, offsets: dict[str, dict[int, int]], group_id: str = "g") -> Any:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in partitions.items()
            ],
        )
        for name, partitions in offsets.items()
    ]
    return host.call(AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics), 0)


def test_offsets_are_set_while_nobody_reads() -> None:
    host = Host()
    response = _alter(host, {"orders": {1: 70, 9: 1}, "none": {0: 5}})
    results = [(each.partition_index, each.error_code) for topic in response.responses for each in topic.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results == [(0, unknown), (1, 0), (9, unknown)]
    assert host.share_states == {("g", ORDERS, 1): (1, 70)}
    one = Sharer(host, "one", ["orders"])
    one.beat()
    assert _alter(host, {"orders": {1: 80}}).error_code == ErrorCode.NON_EMPTY_GROUP
    assert host.share_states["g", ORDERS, 1] == (1, 70)
    assert host.share_states["g", ORDERS, 0][1] == -1


def test_offsets_are_deleted_topic_by_topic() -> None:
    host = Host()
    one = Sharer(host, "one", ["orders", "clicks"])
    one.beat()
    one.leave()
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("orders", "none")]
    response = host.call(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
    assert [each.error_code for each in response.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert {topic_id for _, topic_id, _ in host.share_states} == {CLICKS}
    again = host.call(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics[:1]), 0)
    assert again.responses[0].error_message == "There is no offset information to delete."
    missing = host.call(DeleteShareGroupOffsetsRequest(group_id="none", topics=topics), 0)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_full_group_takes_nobody_in() -> None:
    host = Host(CoordinatorSettings(group_share_max_size=1))
    Sharer(host, "one", ["orders"]).beat()
    assert Sharer(host, "two", ["orders"]).beat().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_restart_keeps_members_and_their_partitions() -> None:
    host = Host(topics=Topics({"orders": 4, "clicks": 2}))
    one, two = Sharer(host, "one", ["orders"]), Sharer(host, "two", ["clicks", "orders"])
    one.beat()
    two.beat()
    settle(host, one, two)
    before = (one.epoch, one.assigned)
    host.restart()
    one.beat()
    assert (one.epoch, one.assigned) == before


def test_the_assignor_keeps_what_can_stay() -> None:
    topics = {ORDERS: [0, 1, 2, 3]}
    first = assign_simple({"a": [ORDERS], "b": [ORDERS]}, {}, topics)
    second = assign_simple({"a": [ORDERS], "b": [ORDERS], "c": [ORDERS]}, first, topics)
    for member_id in ("a", "b"):
        kept = set(first[member_id][ORDERS]) & set(second[member_id].get(ORDERS, ()))
        assert len(kept) == len(second[member_id].get(ORDERS, ()))
    assert sorted(index for target in second.values() for index in target.get(ORDERS, ())) == [0, 1, 2, 3]


@pytest.mark.parametrize(("more", "shared"), [([], 1), (["none"], 2)])
def test_topics_are_dealt_one_by_one_where_a_name_differs_even_of_no_topic(more: list[str], shared: int) -> None:
    host = Host(topics=Topics({"orders": 1, "clicks": 1}))
    one, two = Sharer(host, "one", ["orders", "clicks"]), Sharer(host, "two", ["orders", "clicks", *more])
    for _ in range(3):
        one.beat()
        two.beat()
        host.pass_ms(6_000)
    assert owners(one, two) == {(ORDERS, 0): shared, (CLICKS, 0): shared}
