"""How offsets and groups go: DeleteGroups, OffsetDelete, deleted topics, expiry."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ottla.coordinator.contract import Answer, Append, Called
from ottla.group.event import TopicsChanged
from ottla.group.setting import CoordinatorSettings
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.kernel.now import Now
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.group.client import Consumer, commit, commit_request, fetched, stable_group, transactional
from tests.group.host import Host, Topics

DAY_MS = 24 * 3600 * 1000
NONE = ErrorCode.NONE


def delete_groups(host: Host, *names: str) -> list[ErrorCode]:
    answer = host.call(DeleteGroupsRequest(groups_names=list(names)), 2)
    return [ErrorCode(result.error_code) for result in answer.results]


def delete_offsets(host: Host, topic: str, indexes: list[int], group_id: str = "g") -> object:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )
    answer = host.call(request, 0)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]


def test_a_group_without_members_is_deleted_with_all_its_offsets() -> None:
    host = Host()
    commit(host, {0: 1, 1: 2})
    transactional(host, {1: 5, 2: 6}, 77)
    assert delete_groups(host, "g", "none") == [NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    host.end_transaction(77, committed=True)
    assert host.group() is None and host.replayed().shard.groups == {}
    assert fetched(host, "g", {"orders": [0, 1, 2]}) == {("orders", index): (-1, NONE) for index in range(3)}


def test_a_group_with_members_is_not_deleted() -> None:
    host = Host()
    stable_group(host, 1)
    assert delete_groups(host, "g") == [ErrorCode.NON_EMPTY_GROUP]


def test_offsets_of_topics_that_nobody_subscribes_to_can_be_deleted() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    member.commit(0, 5)
    member.commit(0, 6, topic="clicks")
    assert delete_offsets(host, "orders", [0]) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert delete_offsets(host, "clicks", [0, 1]) == [NONE, NONE]
    assert delete_offsets(host, "nothing", [0]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete_offsets(host, "orders", [0], "none") is ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_offsets(host, "orders", [0], "") is ErrorCode.INVALID_GROUP_ID
    assert fetched(host, "g", {"orders": [0], "clicks": [0]}) == {("orders", 0): (5, NONE), ("clicks", 0): (-1, NONE)}


def test_a_partition_that_is_named_twice_is_answered_twice_and_its_offset_deleted_once() -> None:
    host = Host()
    commit(host, {0: 5})
    records, unknown = len(host.log), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offsets(host, "orders", [0, 7, 0, 7]) == [NONE, unknown, NONE, unknown]
    assert len(host.log) == records + 1


def test_deleting_a_pending_offset_ends_its_claim() -> None:
    host = Host()
    transactional(host, {0: 5}, 77)
    assert delete_offsets(host, "orders", [0]) == [NONE]
    host.end_transaction(77, committed=True)
    assert fetched(host, "g", {"orders": [0]}, stable=True) == {("orders", 0): (-1, NONE)}


def test_the_offsets_of_a_deleted_topic_go_with_it() -> None:
    host = Host()
    commit(host, {0: 1})
    commit(host, {0: 2}, topic="clicks")
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    host.topics.delete("orders")
    host.change_topics(deleted=[("orders", topic_id)])
    assert fetched(host, "g", {"orders": [0], "clicks": [0]}) == {("orders", 0): (-1, NONE), ("clicks", 0): (2, NONE)}


def test_the_offsets_of_a_deleted_topic_that_a_transaction_holds_go_with_it() -> None:
    host = Host()
    host.call(commit_request("other", {"orders": {0: 1}}), 8)
    transactional(host, {0: 5}, 77)
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    host.topics.delete("orders")
    host.change_topics(deleted=[("orders", topic_id)])
    host.end_transaction(77, committed=True)
    for group_id in ("g", "other"):
        assert fetched(host, group_id, {"orders": [0]}, stable=True) == {("orders", 0): (-1, NONE)}


def test_the_offsets_of_a_later_topic_of_the_same_name_stay() -> None:
    host = Host()
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=5)
    topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])]
    host.call(OffsetCommitRequest(group_id="g", topics=topics), 10)
    host.change_topics(deleted=[("orders", Uuid(b"\xff" * 16))])
    assert fetched(host, "g", {"orders": [1]}) == {("orders", 1): (5, NONE)}


def test_groups_are_told_of_a_deleted_topic_in_parts_in_which_one_may_be_gone_by_then() -> None:
    host = Host()
    for name in ("a", "g"):
        host.call(commit_request(name, {"orders": {0: 1}}), 9)
    deleted = [("orders", host.topics.topic_id("orders") or Uuid(b""))]
    host.send(TopicsChanged(host.topics, deleted=deleted, groups=["gone", "a"]))
    assert fetched(host, "a", {"orders": [0]}) == {("orders", 0): (-1, NONE)}
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (1, NONE)}
    # A later topic of the same name; a transaction's commit does not say by id which one it means.
    log_end = len(host.log)
    assert transactional(host, {1: 5, 2: 6}, 7) == [NONE, NONE]
    host.end_transaction(7, committed=True)
    assert transactional(host, {3: 7}, 8) == [NONE]
    host.send(TopicsChanged(host.topics, deleted=deleted, groups=["g"], log_end=log_end))
    host.end_transaction(8, committed=True)
    left = fetched(host, "g", {"orders": [0, 1, 2, 3]})
    assert left == {("orders", index): (each, NONE) for index, each in enumerate((-1, 5, 6, 7))}


# -- expiry


def test_offsets_of_who_is_in_no_group_expire_after_their_commit() -> None:
    host = Host(CoordinatorSettings(offsets_retention_minutes=60))
    commit(host, {0: 1})
    host.pass_ms(50 * 60_000)
    commit(host, {1: 1})
    host.pass_ms(20 * 60_000)
    assert fetched(host, "g", {"orders": [0, 1]}) == {("orders", 0): (-1, NONE), ("orders", 1): (1, NONE)}
    host.pass_ms(60 * 60_000)
    assert host.group() is None


def test_offsets_of_a_living_group_do_not_expire_while_it_subscribes_to_their_topic() -> None:
    host = Host(CoordinatorSettings(offsets_retention_minutes=60))
    (member,) = stable_group(host, 1)
    member.commit(0, 5)
    member.commit(0, 6, topic="clicks")
    for _ in range(12 * 24):
        host.pass_ms(20_000)
        member.heartbeat()
    assert fetched(host, "g", {"orders": [0], "clicks": [0]}) == {("orders", 0): (5, NONE), ("clicks", 0): (-1, NONE)}


def test_offsets_of_a_group_expire_after_its_last_member_has_left() -> None:
    host = Host(CoordinatorSettings(offsets_retention_minutes=60))
    (member,) = stable_group(host, 1)
    member.commit(0, 5)
    for _ in range(12 * 24):
        host.pass_ms(20_000)
        member.heartbeat()
    member.leave()
    host.pass_ms(50 * 60_000)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}
    host.pass_ms(20 * 60_000)
    assert host.group() is None


def test_an_expiry_that_an_old_client_asked_for_is_kept() -> None:
    host = Host()
    request = commit_request("g", {"orders": {0: 1}})
    request.retention_time_ms = DAY_MS
    host.call(request, 4)
    host.pass_ms(DAY_MS // 2)
    host.restart()
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (1, NONE)}
    host.pass_ms(DAY_MS)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (-1, NONE)}


def test_an_offset_that_a_transaction_holds_back_does_not_expire() -> None:
    host = Host(CoordinatorSettings(offsets_retention_minutes=60))
    commit(host, {0: 1})
    transactional(host, {0: 5}, 77)
    host.pass_ms(DAY_MS)
    assert host.group() is not None
    host.end_transaction(77, committed=False)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (1, NONE)}
    host.pass_ms(DAY_MS)
    assert host.group() is None


def test_a_group_with_many_offsets_goes_in_batches_that_a_log_accepts() -> None:
    host, group_id = Host(topics=Topics({"orders": 60})), "x" * 16_000
    host.call(commit_request(group_id, {"orders": dict.fromkeys(range(60), 1)}), 8)
    request = DeleteGroupsRequest(groups_names=[group_id])
    effects = host.coordinator.step(Called(10_000, request, 2), Now(host.now_ms, host.now_ms))
    batches = [batch for effect in effects if isinstance(effect, Append) for batch in effect.batches(1 << 20)]
    assert len(batches) > 1 and sum(len(entries) for entries in batches) == 61
    assert all(sum(len(key) for key, _ in entries) < 300_000 for entries in batches)
    assert isinstance(effects[-1], Answer)


class _Read(tuple[str, ...]):
    """A subscription that counts how often it is read."""

    reads: ClassVar[int] = 0
    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        _Read.reads += 1
        return super().__iter__()


def test_a_check_for_expired_offsets_reads_each_subscription_once() -> None:
    names = [f"t{number}" for number in range(10)]
    host = Host(topics=Topics(dict.fromkeys(names, 1)))
    members = [Consumer(host, name, topics=names) for name in ("a", "b")]
    for member in members:
        member.join()
    a = members[0]
    host.call(commit_request("g", {name: {0: 5} for name in names}, a.beat().member_epoch, "a"), 9)
    group = host.group()
    for member_id, each in list(group.members.items()):
        group.members[member_id] = replace(each, topics=_Read(each.topics))
    _Read.reads = 0
    host.coordinator._expire(Now(host.now_ms, host.now_ms))
    assert _Read.reads == len(members)
    _Read.reads = 0
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in names
    ]
    answer = host.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert {topic.partitions[0].error_code for topic in answer.topics} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert _Read.reads == len(members)
