"""Committed offsets: who may commit, what is fetched, transactions, deletion, expiry."""

from typing import Any

import pytest

from ottla.group.offsets.plan import planned
from ottla.group.records.encode import offset_entry
from ottla.group.setting import CoordinatorSettings
from ottla.group.state.offsets import Committed
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.kernel.re2.automaton import drained
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.compile import FEW
from tests.group.client import Classic, commit, commit_request, fetched, stable_group, transactional
from tests.group.host import Host

NONE = ErrorCode.NONE


# -- commit and fetch


def test_who_is_in_no_group_commits_for_a_group_without_members() -> None:
    host = Host()
    assert commit(host, {0: 10, 1: 11}) == [NONE, NONE]
    assert fetched(host, "g", {"orders": [0, 1, 2]}) == {
        ("orders", 0): (10, NONE),
        ("orders", 1): (11, NONE),
        ("orders", 2): (-1, NONE),
    }
    assert fetched(host, "other", {"orders": [0]}) == {("orders", 0): (-1, NONE)}


def test_metadata_and_leader_epoch_come_back_as_they_were_committed() -> None:
    host = Host()
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata="why"
    )
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    host.call(OffsetCommitRequest(group_id="g", topics=topics), 8)
    host.restart()
    asked = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    )
    found = host.call(OffsetFetchRequest(groups=[asked]), 8).groups[0].topics[0].partitions[0]
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 3, "why")


def test_a_member_commits_in_its_generation_and_a_stranger_does_not() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    assert member.commit(0, 7) is NONE
    assert commit(host, {0: 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(host, {0: 1}, generation=1, member_id="ghost") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(host, {0: 1}, generation=0, member_id=member.member_id) == [ErrorCode.ILLEGAL_GENERATION]
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (7, NONE)}


def test_a_fenced_static_member_cannot_commit() -> None:
    host = Host()
    (old,) = stable_group(host, 1, instance_id="a")
    Classic(host, instance_id="a").join()
    assert old.commit(0, 7) is ErrorCode.FENCED_INSTANCE_ID


def test_commits_go_on_through_the_join_phase_and_not_through_the_sync_phase() -> None:
    host = Host()
    leader, follower = stable_group(host, 2)
    third = Classic(host).join()
    assert leader.commit(0, 3) is NONE
    leader.join(), follower.join()
    leader.joined(), follower.joined(), third.joined()
    assert leader.commit(0, 4) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_the_members_session() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    for _ in range(5):
        host.pass_ms(20_000)
        assert member.commit(0, 3) is NONE


def test_a_generation_without_its_group_is_an_error_by_version() -> None:
    host = Host()
    request = commit_request("none", {"orders": {0: 1}}, generation=3, member_id="m")
    for version, error in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        assert host.call(request, version).topics[0].partitions[0].error_code == error


def test_a_partition_fails_alone() -> None:
    host = Host(CoordinatorSettings(offset_metadata_max_bytes=3))
    assert commit(host, {0: 1, 9: 1}) == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(host, {0: 1}, metadata="long") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert commit(host, {0: 1}, metadata="abc") == [NONE], "as long as it may be"
    # As Java counts: neither bytes nor characters.
    assert commit(host, {0: 1}, metadata="äöü") == commit(host, {0: 1}, metadata="a\N{SNOWMAN WITHOUT SNOW}ü") == [NONE]
    assert commit(host, {0: 1}, metadata="a\N{SNAIL}") == [NONE]
    assert commit(host, {0: 1}, metadata="\N{SNAIL}\N{SNAIL}") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert commit(host, {0: 1}, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_by_id_a_topic_is_committed_and_fetched_and_an_unknown_id_is_said() -> None:
    host = Host()
    known, unknown = host.topics.topic_id("orders"), Uuid(b"\xff" * 16)
    assert known is not None
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=5)
    topics = [OffsetCommitRequestTopic(topic_id=one, partitions=[partition]) for one in (known, unknown)]
    answer = host.call(OffsetCommitRequest(group_id="g", topics=topics), 10)
    assert [one.partitions[0].error_code for one in answer.topics] == [NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    asked = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[1]) for one in (unknown, known)]
    group = OffsetFetchRequestGroup(group_id="g", topics=asked)
    answer = host.call(OffsetFetchRequest(groups=[group]), 10).groups[0]
    # As in Apache Kafka's answer, what is unknown is last.
    assert [(one.partitions[0].committed_offset, one.partitions[0].error_code) for one in answer.topics] == [
        (5, NONE),
        (-1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_a_long_request_for_offsets_by_id_is_answered_in_its_own_order() -> None:
    """Nothing is sorted on the loop that may be as long as a client likes."""
    host = Host()
    known, unknown = host.topics.topic_id("orders"), Uuid(b"\xff" * 16)
    assert known is not None
    for count, first in ((FEW, NONE), (FEW + 1, ErrorCode.UNKNOWN_TOPIC_ID)):
        ids = [unknown, *[known] * (count - 1)]
        asked = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[1]) for one in ids]
        group = OffsetFetchRequestGroup(group_id="g", topics=asked)
        answer = host.call(OffsetFetchRequest(groups=[group]), 10).groups[0]
        assert next(iter(answer.topics)).partitions[0].error_code == first


@pytest.mark.parametrize("version", [2, 9, 10])
def test_an_offset_of_a_topic_that_was_made_anew_is_not_given_to_who_asks_by_id(version: int) -> None:
    host = Host()
    old = host.topics.topic_id("orders")
    assert old is not None
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=5)
    named = {"topic_id": old} if version >= 10 else {"name": "orders"}
    topics = [OffsetCommitRequestTopic(**named, partitions=[partition])]
    host.call(OffsetCommitRequest(group_id="g", topics=topics), version)
    host.restart()
    host.topics.delete("orders")
    host.topics.create("orders", 4)
    new = host.topics.topic_id("orders")
    assert new is not None
    group = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(topic_id=new, partition_indexes=[1])]
    )
    answer = host.call(OffsetFetchRequest(groups=[group]), 10)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch_is_answered_in_its_form(version: int) -> None:
    host = Host()
    commit(host, {0: 10})
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        answer = host.call(OffsetFetchRequest(group_id="g", topics=topics), version)
        assert answer.topics[0].partitions[0].committed_offset == 10
    else:
        some = [OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=name, topics=some) for name in ("g", "h")]
        answer = host.call(OffsetFetchRequest(groups=groups), version)
        offsets = [group.topics[0].partitions[0].committed_offset for group in answer.groups]
        assert offsets == [10, -1]


def test_null_topics_ask_for_everything() -> None:
    host = Host()
    commit(host, {0: 10})
    commit(host, {1: 20}, topic="clicks")
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = host.call(OffsetFetchRequest(groups=[group]), 8).groups[0]
    assert {
        (topic.name, one.partition_index): one.committed_offset for topic in answer.topics for one in topic.partitions
    } == {
        ("orders", 0): 10,
        ("clicks", 1): 20,
    }
    by_id = host.call(OffsetFetchRequest(groups=[group]), 10).groups[0]
    assert [topic.topic_id for topic in by_id.topics] == [
        host.topics.topic_id("orders"),
        host.topics.topic_id("clicks"),
    ]
    empty = host.call(OffsetFetchRequest(group_id="none", topics=None), 2)
    assert empty.topics == [] and empty.error_code == NONE


@pytest.mark.parametrize("version", [7, 8, 10])
@pytest.mark.parametrize("stable", [False, True])
def test_a_long_answer_has_the_offsets_of_the_moment_of_its_request(version: int, stable: bool) -> None:
    host = Host()
    indexes = [0, 1, 2] * 400
    commit(host, {0: 10})
    transactional(host, {1: 11}, 7)
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    topics = [OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=indexes)]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    one = [OffsetFetchRequestTopic(name="orders", partition_indexes=indexes)]
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    if version < 8:
        request = OffsetFetchRequest(group_id="g", topics=one, require_stable=stable)
    answer = host.call(request, version)
    commit(host, {0: 20, 2: 20})
    host.end_transaction(7, committed=True)
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    pending = ErrorCode.UNSTABLE_OFFSET_COMMIT if stable else NONE
    found = [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions]
    assert found == [(0, 10, NONE), (1, -1, pending), (2, -1, NONE)] * 400


@pytest.mark.parametrize("transaction", [False, True])
def test_a_topic_that_goes_while_a_commit_is_worked_out_keeps_no_offsets(transaction: bool) -> None:
    host = Host()
    request: Any = commit_request("g", {"orders": {0: 10, 9: 1}, "clicks": {0: 20}})
    if transaction:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=each.partition_index, committed_offset=10)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        request = TxnOffsetCommitRequest(group_id="g", producer_id=7, producer_epoch=0, topics=topics)
    host.prepared = drained(planned(request, 3, host.topics, 0, 100))
    host.topics.delete("clicks")
    host.change_topics()
    answer = host.call(request, 3)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[each.error_code for each in topic.partitions] for topic in answer.topics] == [[NONE, unknown], [unknown]]
    assert len(host.log) == 1


@pytest.mark.parametrize(("member", "code"), [({}, ErrorCode.UNKNOWN_SERVER_ERROR), ({"generation": 3}, None)])
def test_a_commit_that_is_larger_than_a_batch_is_refused_whole(member: Any, code: ErrorCode | None) -> None:
    host = Host()
    request = commit_request("g", {"orders": {0: 10, 1: 11, 9: 1}}, **member)
    committed = Committed(10, -1, "", 0, topic_id=host.topics.topic_id("orders") or NO_UUID)
    record = sum(map(len, filter(None, offset_entry("g", "orders", 0, committed))))
    for bytes_max, refused in ((2 * record, False), (2 * record - 1, True)):
        host.prepared = drained(planned(request, 8, host.topics, 0, 100, bytes_max))
        answer = host.call(request, 8)
        codes = [each.error_code for each in answer.topics[0].partitions]
        wrong, unknown = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is None:
            assert codes == [wrong, wrong, unknown], "that the member may not commit is said first"
        else:
            assert codes == ([code] * 3 if refused else [NONE, NONE, unknown])
    assert len(host.log) == (0 if code is None else 2)


# -- transactions


def test_a_transactional_offset_counts_when_its_marker_is_written() -> None:
    host = Host()
    commit(host, {0: 1})
    assert transactional(host, {0: 5, 1: 6}, 77) == [NONE, NONE]
    assert fetched(host, "g", {"orders": [0, 1]}) == {("orders", 0): (1, NONE), ("orders", 1): (-1, NONE)}
    assert fetched(host, "g", {"orders": [0, 1]}, stable=True) == {
        ("orders", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        ("orders", 1): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    }
    host.end_transaction(77, committed=True)
    expected = {("orders", 0): (5, NONE), ("orders", 1): (6, NONE)}
    assert fetched(host, "g", {"orders": [0, 1]}, stable=True) == expected
    host.restart()
    assert fetched(host, "g", {"orders": [0, 1]}, stable=True) == expected


def test_an_aborted_transaction_leaves_the_offset_as_it_was() -> None:
    host = Host()
    commit(host, {0: 1})
    transactional(host, {0: 5}, 77)
    host.end_transaction(77, committed=False)
    assert fetched(host, "g", {"orders": [0]}, stable=True) == {("orders", 0): (1, NONE)}


def test_a_plain_commit_after_a_transactional_one_wins_whenever_the_transaction_ends() -> None:
    host = Host()
    transactional(host, {0: 5}, 77)
    commit(host, {0: 9})
    host.end_transaction(77, committed=True)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (9, NONE)}


def test_a_transaction_that_is_open_at_a_restart_still_holds_its_offsets() -> None:
    host = Host()
    transactional(host, {0: 5}, 77)
    host.restart()
    assert fetched(host, "g", {"orders": [0]}, stable=True)["orders", 0][1] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    host.end_transaction(77, committed=True)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}


def test_a_transactional_commit_is_fenced_like_a_plain_one() -> None:
    host = Host()
    assert transactional(host, {0: 5}, 77, generation_id_or_member_epoch=1) == [ErrorCode.ILLEGAL_GENERATION]
    (member,) = stable_group(host, 1)
    good = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    assert transactional(host, {0: 5}, 77, **good) == [NONE]
    assert transactional(host, {0: 5}, 77) == [NONE]
    stale = {**good, "generation_id_or_member_epoch": 0}
    assert transactional(host, {0: 5}, 77, **stale) == [ErrorCode.ILLEGAL_GENERATION]
    ghost = {**good, "member_id": "ghost"}
    assert transactional(host, {0: 5}, 77, **ghost) == [ErrorCode.UNKNOWN_MEMBER_ID]
    fenced = {**good, "group_instance_id": "none"}
    assert transactional(host, {0: 5}, 77, **fenced) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_transactional_commit_may_name_topics_by_id() -> None:
    host = Host()
    known, unknown = host.topics.topic_id("orders"), Uuid(b"\xff" * 16)
    assert known is not None
    partition = TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=5)
    topics = [TxnOffsetCommitRequestTopic(topic_id=one, partitions=[partition]) for one in (known, unknown)]
    request = TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=7, topics=topics)
    answer = host.call(request, 6)
    assert [one.partitions[0].error_code for one in answer.topics] == [NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    host.end_transaction(7, committed=True)
    assert fetched(host, "g", {"orders": [1]}) == {("orders", 1): (5, NONE)}


def test_a_transactional_commit_of_which_nothing_is_accepted_has_the_errors_of_its_partitions() -> None:
    """Nothing is appended then: a batch of records is never empty."""
    host = Host()
    assert transactional(host, {99: 5}, 77) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_transactional_records_are_appended_under_their_producer() -> None:
    host = Host()
    transactional(host, {0: 5}, 77)
    assert [entry[2] for entry in host.log] == [77]


def test_an_offset_that_a_client_keeps_for_longer_than_time_lasts_is_kept() -> None:
    host = Host()
    request = commit_request("g", {"orders": {0: 5}}, -1, "", None)
    request.retention_time_ms = (1 << 63) - 1
    assert host.call(request, 4).topics[0].partitions[0].error_code == NONE
    host.pass_ms(2 * host.settings.offsets_retention_ms)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, -1), (-1, 0), (77, -1)])
def test_a_transactional_commit_without_a_producer_is_refused(producer_id: int, producer_epoch: int) -> None:
    host = Host()
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    answer = host.call(request, 3)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert host.log == []
