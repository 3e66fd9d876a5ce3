"""Who may commit, fetch and delete offsets in groups of each kind, and what is refused with nothing written."""

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from tests.group.client import (
    Classic,
    Consumer,
    commit,
    commit_request,
    fetched,
    rounds,
    settle,
    settled,
    stable_group,
    transactional,
)
from tests.group.host import Host
from tests.group.streams import QUICK, Streamer
from tests.group.streams import rounds as streams_rounds
from tests.group.streams import settled as streams_settled
from tests.group.test_share_group import Sharer

NONE = ErrorCode.NONE


def delete(host: Host, *topics: str, partitions: tuple[int, ...] = (0,), group_id: str = "g") -> Any:
    asked = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        )
        for name in topics
    ]
    return host.call(OffsetDeleteRequest(group_id=group_id, topics=asked), 0)


def taken_from_the_first(host: Host) -> tuple[Consumer, int, int, int]:
    """A member, the epoch in which it had everything, and a partition that it kept and one that it lost since."""
    (one,) = settled(host, "one")
    since = one.epoch
    two = Consumer(host, "two")
    two.join()
    rounds([one, two], 8)
    return one, since, one.partitions()[0], two.partitions()[0]


def test_a_transaction_commits_in_an_older_epoch_what_its_member_has_had_since() -> None:
    host = Host()
    one, since, kept, lost = taken_from_the_first(host)
    member = {"member_id": "one", "generation_id_or_member_epoch": since}
    assert since < one.epoch
    assert transactional(host, {kept: 5}, 7, **member) == [NONE]
    before = len(host.log)
    assert transactional(host, {kept: 6, lost: 6}, 7, **member) == [ErrorCode.ILLEGAL_GENERATION] * 2
    newer = {"member_id": "one", "generation_id_or_member_epoch": one.epoch + 1}
    assert transactional(host, {kept: 6}, 7, **newer) == [ErrorCode.ILLEGAL_GENERATION]
    assert len(host.log) == before, "nothing of a refused request is written"
    host.end_transaction(7, committed=True)
    assert fetched(host, "g", {"orders": [kept, lost]}, member_id="one", member_epoch=one.epoch) == {
        ("orders", kept): (5, NONE),
        ("orders", lost): (-1, NONE),
    }


def test_a_plain_commit_of_one_lost_partition_refuses_the_whole_request() -> None:
    host = Host()
    _, since, kept, lost = taken_from_the_first(host)
    before = len(host.log)
    request = commit_request("g", {"orders": {kept: 5, lost: 6}, "none": {0: 1}}, since, "one")
    answer = host.call(request, 9)
    assert [(topic.name, [one.error_code for one in topic.partitions]) for topic in answer.topics] == [
        ("orders", [ErrorCode.STALE_MEMBER_EPOCH] * 2),
        ("none", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ]
    assert len(host.log) == before


def test_what_fails_for_its_own_reasons_is_not_asked_whose_it_is() -> None:
    """A partition whose commit is refused anyway does not refuse those that are the member's."""
    host = Host()
    _, since, kept, lost = taken_from_the_first(host)
    partitions = [
        OffsetCommitRequestPartition(partition_index=kept, committed_offset=5),
        OffsetCommitRequestPartition(partition_index=lost, committed_offset=5, committed_metadata="x" * 5_000),
    ]
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=since,
        member_id="one",
        topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)],
    )
    answer = host.call(request, 9).topics[0]
    assert [(one.partition_index, one.error_code) for one in answer.partitions] == [
        (kept, NONE),
        (lost, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ]


def test_a_consumer_group_that_nobody_is_in_takes_commits_of_anyone_without_an_epoch() -> None:
    host = Host()
    (one,) = settled(host, "one")
    assert commit(host, {0: 3}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    one.leave()
    assert host.group() is not None and host.group().is_empty
    assert commit(host, {0: 3}) == [NONE]
    assert commit(host, {0: 4}, member_id="one", generation=2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert transactional(host, {1: 4}, 7) == [NONE]
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (3, NONE)}


def test_a_streams_group_that_nobody_is_in_takes_commits_of_anyone_without_an_epoch() -> None:
    host = Host(QUICK)
    (one,) = streams_settled(host, "one")
    assert commit(host, {0: 3}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    one.leave()
    assert commit(host, {0: 3}) == [NONE]
    assert commit(host, {0: 4}, member_id="one", generation=2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (3, NONE)}


@pytest.mark.parametrize("streams", [False, True])
def test_a_producer_that_names_no_member_commits_beside_the_members(streams: bool) -> None:
    host = Host(QUICK)
    member: Any = streams_settled(host, "one")[0] if streams else settled(host, "one")[0]
    assert transactional(host, {0: 5}, 7) == [NONE]
    refused: list[dict[str, Any]] = [
        {"member_id": "ghost"},
        {"generation_id_or_member_epoch": member.epoch},
        {"group_instance_id": "i"},
    ]
    for change in refused:
        assert transactional(host, {0: 6}, 7, **change) == [ErrorCode.UNKNOWN_MEMBER_ID], change
    host.end_transaction(7, committed=True)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}


def test_an_application_commits_in_a_transaction_what_its_member_has_had_since() -> None:
    host = Host(QUICK)
    (one,) = streams_settled(host, "one")
    since = one.epoch
    two = Streamer(host, "two")
    two.join()
    streams_rounds([one, two])
    kept, lost = one.active["0"][0], two.active["0"][0]
    member = {"member_id": "one", "generation_id_or_member_epoch": since}
    assert since < one.epoch
    assert transactional(host, {kept: 5}, 7, **member) == [NONE]
    assert transactional(host, {lost: 6}, 7, **member) == [ErrorCode.ILLEGAL_GENERATION]
    newer = {"member_id": "one", "generation_id_or_member_epoch": one.epoch + 1}
    assert transactional(host, {kept: 6}, 7, **newer) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_share_group_has_no_offsets_of_this_kind() -> None:
    host = Host()
    sharer = Sharer(host, "one", ["orders"])
    sharer.beat()
    before = len(host.log)
    assert commit(host, {0: 3}) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert transactional(host, {0: 3}, 7) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert delete(host, "orders").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    sharer.leave()
    left = len(host.log)
    assert left > before
    assert commit(host, {0: 3}) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert len(host.log) == left


def test_a_group_without_a_name_has_no_offsets() -> None:
    host = Host()
    request = TxnOffsetCommitRequest(transactional_id="t", group_id="", producer_id=7)
    request.topics = commit_request("", {"orders": {0: 1}}).topics  # type: ignore[assignment]
    answer = host.call(request, 5)
    assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.INVALID_GROUP_ID]
    assert delete(host, "orders", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert delete(host, "orders", group_id="none").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert host.log == []


def test_a_topic_without_partitions_is_answered_only_if_it_does_not_exist() -> None:
    host = Host()
    topics = [OffsetCommitRequestTopic(name=name) for name in ("orders", "none")]
    assert [topic.name for topic in host.call(OffsetCommitRequest(group_id="g", topics=topics), 8).topics] == ["none"]
    answer = host.call(OffsetCommitRequest(group_id="g", topics=topics[:1]), 8)
    assert answer.topics == []
    known, unknown = host.topics.topic_id("orders"), Uuid(b"\xff" * 16)
    assert known is not None
    by_id = [OffsetCommitRequestTopic(topic_id=one) for one in (known, unknown)]
    assert [topic.topic_id for topic in host.call(OffsetCommitRequest(group_id="g", topics=by_id), 10).topics] == [
        unknown
    ]
    assert host.group() is None and host.log == []


def test_a_commit_of_nothing_but_unknown_topics_asks_for_no_member() -> None:
    host = Host()
    stable_group(host, 1)
    answer = host.call(commit_request("g", {"none": {0: 1, 1: 1}}, 9, "ghost"), 8)
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_an_expiry_that_a_client_asks_for_counts_from_its_commit() -> None:
    host = Host()
    request = commit_request("g", {"orders": {0: 1}})
    request.retention_time_ms = 5_000
    host.call(request, 3)
    committed = host.coordinator.shard.offsets.get("g", "orders", 0)
    assert committed is not None
    assert (committed.commit_timestamp_ms, committed.expire_timestamp_ms) == (host.now_ms, host.now_ms + 5_000)


def test_offsets_of_a_group_of_another_protocol_type_are_not_deleted_while_it_has_members() -> None:
    host = Host()
    worker = Classic(host)
    request = worker.join_request()
    request.protocol_type, request.group_instance_id = "connect", "worker"
    worker.ticket = host.ask(request, 9)
    host.pass_ms(7_000)
    worker.joined()
    assert commit(host, {0: 3}, generation=worker.generation, member_id=worker.member_id, instance_id="worker") == [
        ErrorCode.REBALANCE_IN_PROGRESS
    ]
    assert delete(host, "orders").error_code == ErrorCode.NON_EMPTY_GROUP
    worker.instance_id = "worker"
    worker.leave()
    assert commit(host, {0: 3}) == [NONE]
    answer = delete(host, "orders")
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (NONE, NONE)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (-1, NONE)}


def test_deleting_offsets_says_for_each_partition_how_it_went() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    member.commit(0, 5), member.commit(1, 6, "clicks"), member.commit(0, 7, "clicks")
    before = len(host.log)
    answer = delete(host, "orders", "clicks", "none", partitions=(0, 1, 1, 2, -1))
    codes = {topic.name: {one.partition_index: one.error_code for one in topic.partitions} for topic in answer.topics}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reads = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert codes == {
        "orders": {0: reads, 1: reads, 2: reads, -1: unknown},
        "clicks": {0: NONE, 1: NONE, 2: unknown, -1: unknown},
        "none": {0: unknown, 1: unknown, 2: unknown, -1: unknown},
    }
    assert [len(topic.partitions) for topic in answer.topics] == [5, 5, 5], "each as often as it was named"
    assert len(host.log) == before + 2, "only what is there gets a tombstone"
    assert fetched(host, "g", {"orders": [0], "clicks": [0, 1]}) == {
        ("orders", 0): (5, NONE),
        ("clicks", 0): (-1, NONE),
        ("clicks", 1): (-1, NONE),
    }


def test_offsets_of_deleted_topics_are_left_out_of_an_answer_by_id_and_the_others_stay() -> None:
    host = Host()
    commit(host, {0: 10})
    commit(host, {0: 20}, topic="clicks")
    host.topics.delete("orders")
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    by_id = host.call(OffsetFetchRequest(groups=[group]), 10).groups[0].topics
    assert [(topic.topic_id, topic.partitions[0].committed_offset) for topic in by_id] == [
        (host.topics.topic_id("clicks"), 20)
    ]
    by_name = host.call(OffsetFetchRequest(groups=[group]), 9).groups[0].topics
    assert [(topic.name, topic.partitions[0].committed_offset) for topic in by_name] == [("orders", 10), ("clicks", 20)]


def test_a_member_of_another_epoch_reads_no_offsets_and_who_names_none_reads() -> None:
    host = Host()
    (one,) = settled(host, "one")

    def told(**member: Any) -> Any:
        group = OffsetFetchRequestGroup(group_id="g", topics=None, **member)
        answer = host.call(OffsetFetchRequest(groups=[group]), 9).groups[0]
        return ErrorCode(answer.error_code), len(answer.topics)

    host.call(commit_request("g", {"orders": {0: 5}}, one.epoch, "one"), 9)
    assert told() == (NONE, 1)
    assert told(member_id="one", member_epoch=one.epoch) == (NONE, 1)
    for epoch in (one.epoch - 1, one.epoch + 1, -1):
        assert told(member_id="one", member_epoch=epoch) == (ErrorCode.STALE_MEMBER_EPOCH, 0)
    assert told(member_id=None, member_epoch=one.epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, 0)
    assert told(member_id="ghost", member_epoch=one.epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, 0)


def test_a_classic_member_of_a_consumer_group_that_reads_in_another_generation_is_told_so_in_its_words() -> None:
    host = Host()
    settled(host, "new")
    old = Classic(host).join()
    assert old.joined().error_code == NONE
    member = host.group().members[old.member_id]
    asked = {"orders": [0]}
    group = OffsetFetchRequestGroup(group_id="g", topics=[], member_id=old.member_id, member_epoch=member.epoch + 1)
    assert host.call(OffsetFetchRequest(groups=[group]), 9).groups[0].error_code == ErrorCode.ILLEGAL_GENERATION
    assert fetched(host, "g", asked, member_id=old.member_id, member_epoch=member.epoch) == {("orders", 0): (-1, NONE)}
    stale = commit_request("g", {"orders": {0: 5}}, member.epoch + 1, old.member_id)
    assert host.call(stale, 8).topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_commit_during_a_rebalance_counts_as_a_sign_of_life() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    third = Classic(host).join()
    for _ in range(2):
        host.pass_ms(20_000)
        assert first.commit(0, 3) is NONE
        second.heartbeat()
    settle(host, [third, first.join(), second.join()])
    assert set(host.group().members) == {first.member_id, second.member_id, third.member_id}
