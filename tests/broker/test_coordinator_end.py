"""A coordinator whose partition is led elsewhere now: it writes nothing, asks nothing of others, and answers nobody."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.coordinators import driver, marker_queue
from ottla.broker.coordinators.marker_queue import MarkerQueue
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import end_txn, init_producer_id, offset_commit
from tests.broker.disk_scene import TOPIC
from tests.broker.test_replicated_produce import _FOLLOWER, Pair


def commit_of(offset: int, metadata: str = "") -> offset_commit.OffsetCommitRequest:
    part = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
    return offset_commit.OffsetCommitRequest(group_id="g", topics=topics)


def replicated(topic: str, **settings: Any) -> Pair:
    pair = Pair(topic, **settings)
    pair.scene.machine.create_topic(TOPIC, 1)
    pair.scene.machine.settle()
    return pair


def answered(pair: Pair, request: Any, version: int) -> Any:
    """The answer, when the follower has what it waits for."""
    answers = pair.send(request, version)
    if not answers:
        pair.follower_has(pair.partition.log.end_offset)
    return answers[0]


def test_an_ended_coordinator_takes_no_request_that_found_it_before() -> None:
    pair = replicated(OFFSETS_TOPIC, offsets_topic_num_partitions="1")
    found = pair.scene.node.groups.find(0)
    log = pair.partition.log
    pair.change(leader=_FOLLOWER)
    end_offset = log.end_offset
    told: list[Any] = []
    found.ask(commit_of(7), 8, told.append)
    pair.scene.machine.settle()
    assert [each.code for each in told if isinstance(each, KafkaError)] == [ErrorCode.NOT_COORDINATOR]
    assert log.end_offset == end_offset, "a follower's log was written to"


def test_a_group_coordinator_goes_on_in_the_next_epoch_of_its_leader() -> None:
    """At the end of a reassignment, for example. It is not loaded again, and what waits for the follower waits on."""
    pair = replicated(OFFSETS_TOPIC, offsets_topic_num_partitions="1")
    groups, ended = pair.scene.node.groups, pair.partition
    coordinator = groups.find(0)
    waits = pair.send(commit_of(7), 8)
    pair.change(leader=1)
    assert pair.partition is not ended and pair.partition.leader_epoch > ended.leader_epoch
    assert groups.find(0) is coordinator and not groups.loading() and not coordinator.failed
    assert not waits
    pair.follower_has(pair.partition.log.end_offset)
    assert waits[0].topics[0].partitions[0].error_code == 0
    assert answered(pair, commit_of(8), 8).topics[0].partitions[0].error_code == 0
    assert pair.partition.log.epochs.latest == pair.partition.leader_epoch
    pair.change(leader=_FOLLOWER)
    assert groups.find(0) is None and coordinator.failed


def test_a_transaction_coordinator_is_loaded_again_in_the_next_epoch_of_its_leader() -> None:
    """As in Apache Kafka: its markers carry the epoch."""
    pair = replicated(TRANSACTION_TOPIC, transaction_state_log_num_partitions="1")
    coordinator = pair.scene.node.transactions.find(0)
    pair.change(leader=1)
    assert coordinator.failed and pair.scene.node.transactions.find(0) not in (None, coordinator)


def test_a_coordinator_that_was_being_loaded_does_not_answer_after_its_end() -> None:
    pair = replicated(OFFSETS_TOPIC, offsets_topic_num_partitions="1")
    for number in range(12):
        assert answered(pair, commit_of(number, "x" * 4000), 8).topics[0].partitions[0].error_code == 0
    groups = pair.scene.node.groups
    groups.resign(0)
    groups.lead(pair.partition)
    assert groups.loading(), "the log is read in one piece: this shows nothing"
    groups.resign(0)
    pair.scene.machine.settle()
    assert groups.find(0) is None and not groups.loading()


def test_the_failure_of_an_ended_coordinator_does_not_end_its_successor() -> None:
    pair = replicated(OFFSETS_TOPIC, offsets_topic_num_partitions="1")
    groups = pair.scene.node.groups
    ended = groups.find(0)
    groups.resign(0)
    groups.lead(pair.partition)
    pair.scene.machine.settle()
    successor = groups.find(0)
    assert successor is not None and successor is not ended
    groups._replace(ended)
    assert groups.find(0) is successor
    groups._replace(successor)
    assert groups.find(0) is None


def test_a_log_of_transactions_is_replayed_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = replicated(TRANSACTION_TOPIC, transaction_state_log_num_partitions="1")
    for name in ("a", "b", "c"):
        init = init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        assert answered(pair, init, 4).error_code == 0
    monkeypatch.setattr(driver, "LOAD_BYTES", 1)
    fresh = pair.scene.node.transactions.make(pair.partition)
    assert len(list(fresh.pieces())) == 3
    assert len(list(fresh.load())) == 2, "others had their turn between two pieces"


def test_a_node_that_closes_leaves_no_timer_of_its_markers() -> None:
    pair = replicated(TRANSACTION_TOPIC, transaction_state_log_num_partitions="1")
    transactions = pair.scene.node.transactions
    markers = transactions.markers
    markers._retry(TopicPartition(TOPIC, 0), 60.0)
    (retry,) = markers._retries.values()
    transactions.close()
    assert retry.cancelled()


class _Planned:
    """A loop on which the test runs what was planned; no marker is wanted, and no request goes out."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self.works.append(work)

    def wants(self, *_: object) -> bool:
        return False


def test_markers_that_nothing_waits_for_any_more_are_passed_over_and_plan_no_further_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marker_queue, "_BATCH_MAX", 2)
    loop = _Planned()
    queue = MarkerQueue(cast(Any, loop), cast(Any, loop), cast(Any, None), _FOLLOWER)
    for index in range(3):
        ending = SimpleNamespace(effect=SimpleNamespace(transactional_id="t"))
        queue.add(TopicPartition(TOPIC, index), cast(Any, ending))
    assert (len(loop.works), len(queue)) == (1, 4)
    loop.works.pop()()
    assert (len(loop.works), len(queue)) == (1, 2)
    loop.works.pop()()
    assert (loop.works, len(queue)) == ([], 0)


class OpenTransaction:
    """A transaction over TOPIC, whose coordinator has a follower."""

    def __init__(self) -> None:
        self.pair = replicated(TRANSACTION_TOPIC, transaction_state_log_num_partitions="1")
        init = init_producer_id.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        self.producer = answered(self.pair, init, 4)
        assert self.producer.error_code == 0
        joins = add.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=[add.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        joined = answered(self.pair, joins, 3)
        assert joined.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        self.data = self.pair.scene.node.partitions[TopicPartition(TOPIC, 0)].log
        assert not self.data.end_offset

    def end(self) -> end_txn.EndTxnRequest:
        producer = self.producer
        return end_txn.EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )


def test_an_end_of_a_transaction_that_is_not_committed_writes_no_marker() -> None:
    open_one = OpenTransaction()
    answers = open_one.pair.send(open_one.end(), 3)
    assert not answers, "the end is answered before a replica has it"
    open_one.pair.change(leader=_FOLLOWER)
    assert ErrorCode(answers[0].error_code).name == "NOT_COORDINATOR"
    # The new leader may not have it, and may abort what this one would have committed.
    assert not open_one.data.end_offset


def test_an_end_of_a_transaction_that_is_committed_writes_its_marker() -> None:
    open_one = OpenTransaction()
    assert answered(open_one.pair, open_one.end(), 3).error_code == 0
    open_one.pair.scene.machine.settle()
    assert open_one.data.end_offset == 1
