"""What the group coordinator asks of the share coordinator, how often, and what it tells of its answers."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.group.event import DeleteShareState, InitializeShareState
from ottla.group.setting import CoordinatorSettings
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
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
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.compile import FEW, Deferred
from tests.group.client import commit
from tests.group.host import Host
from tests.group.test_share_group import CLICKS, ORDERS, Sharer

_RETRY_MS = 30_000


def _begins(host: Host) -> list[dict[object, list[int]]]:
    """The partitions whose state the group coordinator has asked to begin, by call."""
    return [
        {topic_id: list(partitions) for topic_id, partitions in call.offsets.items()}
        for call in host.share_calls
        if isinstance(call, InitializeShareState)
    ]


def test_state_that_is_being_begun_is_asked_for_once_in_a_retry_interval() -> None:
    host = Host(
        CoordinatorSettings(
            group_share_initialize_retry_interval_ms=_RETRY_MS, group_share_session_timeout_ms=2 * _RETRY_MS
        )
    )
    host.share_waits = True
    first, second = Sharer(host, "one", ["orders"]), Sharer(host, "two", ["orders", "clicks"])
    for member in (first, second):
        host.ask(_heartbeat(member), 1)
    whole = {ORDERS: [0, 1, 2, 3]}
    # The second member's topic is new; the state of the first one's is under way.
    assert _begins(host) == [whole, {CLICKS: [0, 1]}]
    host.pass_ms(_RETRY_MS - 1)
    first.epoch = host.group().members["one"].epoch
    host.ask(_heartbeat(first), 1)
    assert len(_begins(host)) == 2
    host.pass_ms(1)
    host.ask(_heartbeat(first), 1)
    assert _begins(host)[2:] == [whole | {CLICKS: [0, 1]}]


def _heartbeat(member: Sharer) -> object:
    topics = member.topics if member.epoch == 0 else None
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member.member_id, member_epoch=member.epoch, subscribed_topic_names=topics
    )


@pytest.mark.parametrize("message", ["the log is offline", None])
def test_offsets_that_could_not_be_set_say_why(message: str | None) -> None:
    host = Host()
    host.share_waits = True
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=7) for index in (0, 1)]
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=partitions)
    ticket = host.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message or "")
    host.answer_share_calls({(ORDERS, 1): error})
    host.change_topics()
    (answer,) = host.answers[ticket].responses
    said = [(each.partition_index, each.error_code, each.error_message) for each in answer.partitions]
    assert said == [(0, 0, None), (1, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)]
    assert host.replayed_group().initialized == {}


def test_a_member_that_joins_while_offsets_are_being_set_does_not_set_them_back() -> None:
    host = Host()
    host.share_waits = True
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=7) for index in range(4)]
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=partitions)
    host.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)
    one = Sharer(host, "one", ["orders"])
    assert one.beat().error_code == 0
    host.share_waits = False
    host.answer_share_calls()
    host.change_topics()
    one.beat()
    assert one.assigned == {ORDERS: [0, 1, 2, 3]}
    assert {start for _, start in host.share_states.values()} == {7}
    assert host.coordinator.shard.share_requested_ms == {}, "an answered call is kept for good"


def _altered(*topics: tuple[str, tuple[int, ...]], group_id: str = "g") -> AlterShareGroupOffsetsRequest:
    """Start offsets of 7 for these partitions."""
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=i, start_offset=7) for i in indexes],
            )
            for name, indexes in topics
        ],
    )


def _deleted(*topics: str, group_id: str = "g") -> DeleteShareGroupOffsetsRequest:
    asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group_id, topics=asked)


def _emptied(host: Host, *topics: str) -> None:
    """A group that has the state of these topics and no members."""
    one = Sharer(host, "one", list(topics))
    one.beat()
    one.leave()


def _answered(host: Host, errors: dict[tuple[Uuid, int], KafkaError] | None = None) -> None:
    """The share coordinator answers what it was asked."""
    host.answer_share_calls(errors)
    host.change_topics()


def test_offsets_are_neither_set_nor_deleted_without_a_group_of_this_kind() -> None:
    host = Host()
    commit(host, {0: 1}, topic="orders")
    classic = host.group()
    before = len(host.log)
    refused = {"": ErrorCode.INVALID_GROUP_ID, "g": ErrorCode.GROUP_ID_NOT_FOUND}
    for group_id, code in refused.items():
        assert host.call(_altered(("orders", (0,)), group_id=group_id), 0).error_code == code
        assert host.call(_deleted("orders", group_id=group_id), 0).error_code == code
    said = host.call(_altered(("orders", (0,))), 0).error_message
    assert said == "Group g is not a share group."
    assert host.call(_deleted("orders", group_id="none"), 0).error_message == "Group none not found."
    assert (len(host.log), host.group(), host.share_calls) == (before, classic, [])


@pytest.mark.parametrize("times", [2, FEW])
def test_the_answer_about_many_topics_is_made_while_it_is_written(times: int) -> None:
    host = Host()
    unknown = [(f"none-{number}", (0,)) for number in range(times)]
    said = host.call(_altered(*unknown, ("empty", ()), ("orders", (1, 9)), ("clicks", (0,))), 0).responses
    assert isinstance(said, Deferred) == (times == FEW)
    unknown_topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [(each.topic_name, [(part.partition_index, part.error_code) for part in each.partitions]) for each in said]
    assert codes == [(name, [(0, unknown_topic)]) for name, _ in reversed(unknown)] + [
        ("orders", [(1, 0), (9, unknown_topic)]),
        ("clicks", [(0, 0)]),
    ]
    assert [each.topic_id for each in said][-3:] == [NO_UUID, ORDERS, CLICKS]


def test_offsets_are_not_deleted_while_the_group_has_members() -> None:
    host = Host()
    Sharer(host, "one", ["orders"]).beat()
    before = dict(host.share_states)
    assert host.call(_deleted("orders"), 0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert host.share_states == before and len(before) == 4


def test_setting_offsets_of_unknown_topics_writes_nothing_and_is_answered_at_once() -> None:
    host = Host()
    host.share_waits = True
    (answer,) = host.call(_altered(("none", (0,)), ("nothing", ())), 0).responses
    assert (answer.topic_name, answer.topic_id) == ("none", NO_UUID)
    assert (host.log, host.group(), host.share_calls) == ([], None, [])


def test_setting_offsets_of_a_topic_without_partitions_makes_the_group() -> None:
    host = Host()
    host.call(_altered(("orders", ())), 0)
    assert (host.group().epoch, host.group().initializing, host.share_calls) == (1, {}, [])


def test_setting_offsets_of_partitions_that_are_not_there_makes_the_group_and_is_answered_at_once() -> None:
    host = Host()
    host.share_waits = True
    answer = host.call(_altered(("none", (0,)), ("orders", (9, -1)), ("nothing", ())), 0)
    said = [
        (topic.topic_name, topic.topic_id, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in answer.responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert said == [("none", NO_UUID, [(0, unknown)]), ("orders", ORDERS, [(9, unknown), (-1, unknown)])]
    words = {one.error_message for topic in answer.responses for one in topic.partitions}
    assert words == {"This server does not host this topic-partition."}
    assert (host.group().epoch, host.group().initializing, host.share_calls) == (1, {}, [])
    host.call(_altered(("orders", ())), 0)
    assert len(host.log) == 1, "the group is there already"


def test_an_error_of_one_partition_does_not_replace_that_of_another() -> None:
    host = Host()
    host.share_waits = True
    ticket = host.ask(_altered(("orders", (0, 9))), 0)
    assert host.group().initializing[ORDERS].partitions == {0}
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    _answered(host, {(ORDERS, 0): error, (ORDERS, 9): error})
    (answer,) = host.answers[ticket].responses
    assert [one.error_code for one in answer.partitions] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert host.group().initializing == host.group().initialized == {}


def test_set_offsets_make_a_group_that_its_log_remembers() -> None:
    host = Host()
    assert host.call(_altered(("orders", (0, 2))), 0).error_code == 0
    for group in (host.group(), host.replayed_group()):
        assert {topic_id: held.partitions for topic_id, held in group.initialized.items()} == {ORDERS: {0, 2}}
        assert group.initializing == {} and group.is_empty
    host.call(_altered(("orders", (1,)), ("clicks", (0,))), 0)
    held = {topic_id: named.partitions for topic_id, named in host.replayed_group().initialized.items()}
    assert held == {ORDERS: {0, 1, 2}, CLICKS: {0}}


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: (_heartbeat(Sharer(Host(), "two", ["clicks"])), 1),
        lambda: (_altered(("clicks", (0,))), 0),
        lambda: (_deleted("orders"), 0),
    ],
    ids=["join", "alter", "delete"],
)
def test_nobody_waits_for_a_call_that_a_refused_step_did_not_make(request_of: Callable[[], tuple[Any, int]]) -> None:
    host = Host()
    _emptied(host, "orders")
    host.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    request, version = request_of()
    host.call(request, version)
    assert host.share_calls == [] and host.coordinator.shard.share_calls == {}
    host.refuses = None
    host.call(request, version)
    changed = {topic_id for _, topic_id, _ in host.share_states}
    assert changed == (set() if isinstance(request, DeleteShareGroupOffsetsRequest) else {ORDERS, CLICKS})


def test_deleting_offsets_of_nothing_that_there_is_writes_nothing_and_is_answered_at_once() -> None:
    host = Host()
    _emptied(host, "orders")
    host.share_waits, before = True, len(host.log)
    answer = host.call(_deleted("clicks", "none"), 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(topic.topic_name, topic.error_code, topic.topic_id) for topic in answer.responses] == [
        ("clicks", unknown, NO_UUID),
        ("none", unknown, NO_UUID),
    ]
    assert answer.responses[1].error_message == "This server does not host this topic-partition."
    assert (len(host.log), host.share_calls) == (before, [])


def test_a_deletion_of_offsets_that_failed_is_done_by_the_next_one_with_all_its_partitions() -> None:
    host = Host()
    _emptied(host, "orders", "clicks")
    host.share_waits = True
    ticket = host.ask(_deleted("orders", "clicks"), 0)
    assert host.waits(ticket)
    assert host.replayed_group().deleting == {ORDERS, CLICKS} and host.replayed_group().initialized == {}
    (call,) = host.share_calls
    assert isinstance(call, DeleteShareState) and call.partitions == {ORDERS: [0, 1, 2, 3], CLICKS: [0, 1]}
    _answered(host, {(ORDERS, 3): KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves")})
    assert [(one.topic_id, one.error_code, one.error_message) for one in host.answers[ticket].responses] == [
        (ORDERS, ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves"),
        (CLICKS, 0, None),
    ]
    assert host.group().deleting == host.replayed_group().deleting == {ORDERS}
    ticket = host.ask(_deleted("orders"), 0)
    (call,) = host.share_calls
    assert isinstance(call, DeleteShareState) and call.partitions == {ORDERS: range(4)}
    _answered(host)
    assert [one.error_code for one in host.answers[ticket].responses] == [0]
    assert host.group().deleting == host.replayed_group().deleting == frozenset()


def test_a_group_whose_state_is_begun_again_while_it_is_deleted_stays() -> None:
    host = Host()
    _emptied(host, "orders")
    host.share_waits = True
    ticket = host.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    altered = host.ask(_altered(("orders", (0,))), 0)
    delete_call, alter_call = host.share_calls
    host.share_calls[:] = [delete_call]
    _answered(host)
    assert host.answers[ticket].results[0].error_code == ErrorCode.GROUP_DELETION_FAILED
    host.share_calls[:] = [alter_call]
    _answered(host)
    assert host.answers[altered].responses[0].partitions[0].error_code == 0
    assert set(host.replayed_group().initialized) == {ORDERS}


def test_a_group_without_state_is_deleted_at_once() -> None:
    host = Host()
    _emptied(host, "orders")
    host.call(_deleted("orders"), 0)
    host.share_waits = True
    assert host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == 0
    assert host.share_calls == [] and host.group() is host.replayed_group() is None


def test_every_group_that_a_request_names_is_answered() -> None:
    host = Host()
    _emptied(host, "orders")
    host.call(_deleted("orders"), 0)
    results = host.call(DeleteGroupsRequest(groups_names=["g", "none"]), 2).results
    assert [each.group_id for each in results] == ["g", "none"]
    assert results[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_is_deleted_takes_along_what_was_left_of_an_earlier_deletion() -> None:
    host = Host()
    _emptied(host, "orders", "clicks")
    host.share_waits = True
    host.ask(_deleted("orders"), 0)
    _answered(host, {(ORDERS, 0): KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)})
    host.topics.grow("orders", 5)
    ticket = host.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    (call,) = host.share_calls
    assert isinstance(call, DeleteShareState)
    assert call.partitions == {CLICKS: [0, 1], ORDERS: range(5)}
    _answered(host)
    assert host.answers[ticket].results[0].error_code == 0 and host.replayed_group() is None


def test_an_answer_for_a_group_that_is_gone_changes_nothing() -> None:
    host = Host()
    host.share_waits = True
    host.ask(_altered(("orders", (0,))), 0)
    (late,) = host.share_calls
    host.share_calls.clear()
    host.share_waits = False
    assert host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == 0
    before = len(host.log)
    host.share_calls.append(late)
    _answered(host)
    assert len(host.log) == before and host.group() is host.replayed_group() is None


def test_a_topic_that_was_deleted_between_two_leaders_does_not_raise_the_epoch_forever() -> None:
    host = Host()
    member = Sharer(host, "m", ["orders", "clicks"])
    for _ in range(3):
        member.beat()
    assert set(member.assigned) == {ORDERS, CLICKS}
    host.topics.delete("orders")
    host.restart()
    for _ in range(3):
        member.beat()
    written = len(host.log)
    for _ in range(3):
        member.beat()
    assert len(host.log) == written and set(member.assigned) == {CLICKS}
