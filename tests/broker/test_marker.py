"""The end of a transaction over partitions that cannot take their marker: not one of them is forgotten."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.broker.handlers import list_offsets as handler
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TRANSACTION_TOPIC, TopicPartition
from ottla.log.log import Log
from ottla.replica.leader import MetadataFollowed, PartitionState
from ottla.replica.partition import Partition
from ottla.wire.api import delete_records, list_offsets, write_txn_markers
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.broker.disk_scene import TOPIC, Scene
from tests.broker.test_replicated_produce import Pair, code

NAME = "tx"


class TransactionScene(Scene):
    """Two directories, and a producer with an open transaction over a partition in each."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, transaction_state_log_num_partitions="1")
        self.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME]), 4)
        self.machine.settle()
        # Where the metadata is, and with it the node.
        assert self.node.store.directory_of(TopicPartition(TRANSACTION_TOPIC, 0)) == "/a"
        self.create()
        self.lost, self.kept = self.in_b()
        begun = self.ask(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 4)
        assert begun.error_code == 0
        self.id, self.epoch = begun.producer_id, begun.producer_epoch

    def transact(self) -> None:
        both = [self.lost, self.kept]
        joined = self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=both)],
            ),
            3,
        )
        codes = [each.partition_error_code for each in joined.results_by_topic_v3_and_below[0].results_by_partition]
        assert codes == [0, 0]
        for index in both:
            records = build(
                [(self.machine.clock.now_ms(), b"k", b"v", ())],
                producer_id=self.id,
                producer_epoch=self.epoch,
                base_sequence=0,
                transactional=True,
            )
            data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=records)])
            request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=1000, topic_data=[data])
            assert self.ask(request, 9).responses[0].partition_responses[0].error_code == 0

    def end(self) -> str:
        request = EndTxnRequest(transactional_id=NAME, producer_id=self.id, producer_epoch=self.epoch, committed=True)
        return ErrorCode(self.ask(request, 4).error_code).name

    @property
    def state(self) -> str:
        name: str = self.node.transactions.driver_of(NAME).machine.transactions[NAME].state.name
        return name

    def is_open(self, partition: int) -> bool:
        log = self.node.partitions[TOPIC, partition].log
        open_: bool = log.last_stable_offset < log.end_offset
        return open_

    def mend(self) -> None:
        self.machine.stop()
        self.machine.disk.mend_directory("/b")
        self.machine.start()
        self.machine.settle()


@pytest.mark.parametrize("fails", ["before the end", "at the marker"])
def test_a_transaction_waits_for_the_marker_of_an_offline_partition(fails: str) -> None:
    scene = TransactionScene()
    scene.transact()
    scene.machine.disk.break_directory("/b")
    if fails == "before the end":
        assert scene.write(scene.lost, b"x") == "KAFKA_STORAGE_ERROR"
    assert scene.end() == "NONE"
    scene.machine.settle()
    assert (TOPIC, scene.lost) not in scene.node.partitions
    assert scene.state == "PREPARE_COMMIT"
    assert not scene.is_open(scene.kept)
    assert scene.end() == "CONCURRENT_TRANSACTIONS"
    scene.mend()
    assert scene.state == "COMPLETE_COMMIT"
    assert not scene.is_open(scene.lost)


@pytest.mark.parametrize("stops", ["stop", "kill"])
def test_a_start_with_a_failed_directory_forgets_no_marker(stops: str) -> None:
    scene = TransactionScene()
    scene.transact()
    scene.machine.disk.break_directory("/b")
    assert scene.end() == "NONE"
    getattr(scene.machine, stops)()
    scene.machine.start()
    scene.machine.settle()
    assert scene.state == "PREPARE_COMMIT"
    scene.mend()
    assert scene.state == "COMPLETE_COMMIT"
    assert not scene.is_open(scene.lost)


def test_a_transaction_is_through_when_the_offline_partitions_topic_is_deleted() -> None:
    scene = TransactionScene()
    scene.transact()
    scene.machine.disk.break_directory("/b")
    assert scene.end() == "NONE"
    assert scene.state == "PREPARE_COMMIT"
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    assert scene.state == "COMPLETE_COMMIT"


def ending() -> Pair:
    """A transaction that is to be committed; its marker is on the leader of its only partition."""
    pair = Pair(min_insync_replicas="2", transaction_state_log_num_partitions="1")
    pair.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME]), 4)
    (begun,) = pair.send(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 4)
    ids = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    joins = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    assert pair.send(joins, 3)
    records = build([(pair.scene.machine.clock.now_ms(), b"k", b"v", ())], base_sequence=0, transactional=True, **ids)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
    sent = pair.send(ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    pair.follower_has(1)
    assert code(sent) == "NONE"
    assert pair.send(EndTxnRequest(transactional_id=NAME, committed=True, **ids), 4)[0].error_code == 0
    return pair


def in_sync(pair: Pair, partition: Partition, epoch: int, *isr: int) -> None:
    """Replicas that are in sync, of two that must be."""
    partition.step(MetadataFollowed(PartitionState(partition.leader_epoch, epoch, (1, 2), isr), 2))
    pair.scene.machine.settle()


def test_a_transaction_completes_when_its_coordinator_has_replicas_enough_again() -> None:
    pair = ending()
    node = pair.scene.node
    driver = node.transactions.driver_of(NAME)
    topic_id = node.image.topics[TRANSACTION_TOPIC].topic_id
    node.quorum.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, replicas=[1, 2], isr=[1])])
    pair.scene.machine.settle()
    in_sync(pair, driver.partition, 99, 1)
    end_offset = driver.partition.log.end_offset
    pair.follower_has(2)
    assert driver.machine.transactions[NAME].state.name == "PREPARE_COMMIT"
    assert node.transactions.driver_of(NAME) is driver and driver.partition.log.end_offset == end_offset
    in_sync(pair, driver.partition, 100, 1, 2)
    pair.scene.machine.run(lambda: driver.partition.log.end_offset > end_offset)
    assert driver.machine.transactions[NAME].state.name == "COMPLETE_COMMIT"


def test_a_marker_that_too_few_replicas_have_is_written_again() -> None:
    pair = ending()
    partition, coordinator = pair.partition, pair.scene.node.transactions.driver_of(NAME).machine

    def ended() -> bool:
        return bool(coordinator.transactions[NAME].state.name == "COMPLETE_COMMIT")

    # The high watermark passes the marker and the ISR shrinks in one turn of the loop.
    assert partition.log.end_offset == 2
    partition.fetched(2, -1, 2, 0)
    in_sync(pair, partition, 99, 1)
    assert partition.high_watermark == 2 and not ended()
    passed: list[bool] = []
    pair.scene.machine.loop.call_later(10, passed.append, True)
    pair.scene.machine.run(lambda: bool(passed))
    assert partition.log.end_offset == 2 and not ended()
    in_sync(pair, partition, 100, 1, 2)
    pair.scene.machine.run(lambda: partition.log.end_offset == 3)
    assert not ended()
    pair.follower_has(3)
    assert ended()


def test_another_brokers_marker_is_refused_while_too_few_replicas_are_in_sync() -> None:
    pair = Pair(min_insync_replicas="2")
    pair.change(isr=[1])
    topic = write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, topics=[topic]
    )
    (answer,) = pair.send(write_txn_markers.WriteTxnMarkersRequest(markers=[marker]), 1)
    found = answer.markers[0].topics[0].partitions[0].error_code
    assert ErrorCode(found) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert pair.partition.log.end_offset == 0


def refusing(monkeypatch: pytest.MonkeyPatch, scene: TransactionScene, number: int) -> list[TopicPartition]:
    """The log of the partition in /b refuses appends with this error."""
    refused: list[TopicPartition] = []
    append = Partition.append

    def fails(partition: Partition, *args: Any, **more: Any) -> Any:
        if partition.tp == (TOPIC, scene.lost):
            refused.append(partition.tp)
            raise OSError(number, "the disk says no", partition.log.path)
        return append(partition, *args, **more)

    monkeypatch.setattr(Partition, "append", fails)
    return refused


def test_a_marker_that_a_full_disk_refused_is_written_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = TransactionScene()
    scene.transact()
    with monkeypatch.context() as patch:
        refused = refusing(patch, scene, errno.ENOSPC)
        assert scene.end() == "NONE"
        scene.machine.settle()
        driver = scene.node.transactions.driver_of(NAME)
        assert (scene.state, len(refused)) == ("PREPARE_COMMIT", 1)
        # The coordinator itself goes on: nothing of this is a fault of its own log.
        later = scene.machine.clock.monotonic_ms() + 2500
        scene.machine.run(lambda: scene.machine.clock.monotonic_ms() >= later)
        assert scene.node.transactions.driver_of(NAME) is driver
        assert (scene.state, len(refused)) == ("PREPARE_COMMIT", 3)
    later = scene.machine.clock.monotonic_ms() + 2500
    scene.machine.run(lambda: scene.machine.clock.monotonic_ms() >= later)
    assert scene.state == "COMPLETE_COMMIT"
    assert not scene.is_open(scene.lost)


def test_a_marker_that_finds_a_broken_disk_takes_the_directory_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = TransactionScene()
    scene.transact()
    driver = scene.node.transactions.driver_of(NAME)
    refusing(monkeypatch, scene, errno.EIO)
    assert scene.end() == "NONE"
    scene.machine.settle()
    assert list(scene.node.store.failed_directories) == ["/b"]
    assert scene.node.transactions.driver_of(NAME) is driver
    assert scene.state == "PREPARE_COMMIT"


@pytest.mark.parametrize(("number", "failed"), [(errno.EIO, ["/b"]), (errno.ENOSPC, [])])
def test_one_markers_disk_error_fails_that_partition_alone(
    monkeypatch: pytest.MonkeyPatch, number: int, failed: list[str]
) -> None:
    scene = TransactionScene()
    scene.transact()
    refusing(monkeypatch, scene, number)
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=scene.id,
        producer_epoch=scene.epoch,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[scene.lost, scene.kept])],
        coordinator_epoch=0,
    )
    (result,) = scene.ask(write_txn_markers.WriteTxnMarkersRequest(markers=[marker]), 1).markers
    codes = {each.partition_index: ErrorCode(each.error_code) for each in result.topics[0].partitions}
    assert codes == {scene.lost: ErrorCode.KAFKA_STORAGE_ERROR, scene.kept: ErrorCode.NONE}
    assert list(scene.node.store.failed_directories) == failed


def test_a_disk_error_of_the_coordinators_own_log_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = TransactionScene()
    checked: list[str] = []
    monkeypatch.setattr(scene.node.log_dirs, "check", lambda log, _: checked.append(log.path))

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "the disk says no")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", fails)
        reply = scene.ask(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 4)
    assert reply.error_code != 0
    assert checked == [f"/a/{TRANSACTION_TOPIC}-0"]


def test_the_coordinators_epoch_is_the_leader_epoch_of_its_partition() -> None:
    scene = TransactionScene()
    scene.machine.kill()
    scene.machine.start()
    scene.machine.settle()
    partition = scene.node.partitions[TRANSACTION_TOPIC, 0]
    assert partition.leader_epoch > 0
    scene.transact()
    assert scene.end() == "NONE"
    known = scene.node.partitions[TOPIC, scene.kept].log.producers.by_id[scene.id]
    assert known.coordinator_epoch == partition.leader_epoch


@pytest.mark.parametrize("request_name", ["list_offsets", "delete_records"])
def test_one_partitions_disk_error_fails_that_partition_alone(
    monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    scene = TransactionScene()
    for index in (scene.lost, scene.kept):
        scene.write(index, b"x")
    broken = scene.node.partitions[TOPIC, scene.lost].log

    def failing(owner: Any, name: str) -> None:
        works = getattr(owner, name)

        def fails(log: Log, *args: Any) -> Any:
            if log is broken:
                raise OSError(errno.EIO, "the disk says no", log.path)
            return works(log, *args)

        monkeypatch.setattr(owner, name, fails)

    both = (scene.lost, scene.kept)
    if request_name == "list_offsets":
        failing(handler, "offset_for_timestamp")
        asked = [list_offsets.ListOffsetsPartition(partition_index=index, timestamp=1) for index in both]
        topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=asked)]
        found = scene.ask(list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics), 4)
    else:
        failing(Log, "advance_start_offset")
        deleted = [delete_records.DeleteRecordsPartition(partition_index=index, offset=1) for index in both]
        wanted = [delete_records.DeleteRecordsTopic(name=TOPIC, partitions=deleted)]
        found = scene.ask(delete_records.DeleteRecordsRequest(topics=wanted, timeout_ms=1000), 2)
    codes = {each.partition_index: ErrorCode(each.error_code) for each in found.topics[0].partitions}
    assert codes == {scene.lost: ErrorCode.KAFKA_STORAGE_ERROR, scene.kept: ErrorCode.NONE}
    assert list(scene.node.store.failed_directories) == ["/b"]


def test_a_marker_whose_sync_fails_fails_its_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = TransactionScene()
    scene.transact()
    driver = scene.node.transactions.driver_of(NAME)
    broken, flush = scene.node.partitions[TOPIC, scene.lost].log, Log.flush

    def fails(log: Log, now_ms: int | None = None) -> None:
        if log is broken:
            raise OSError(errno.EIO, "the disk says no")
        flush(log, now_ms)

    monkeypatch.setattr(Log, "flush", fails)
    assert scene.end() == "NONE"
    scene.machine.settle()
    assert scene.machine.failure is None
    assert list(scene.node.store.failed_directories) == ["/b"]
    assert scene.node.transactions.driver_of(NAME) is driver
    assert scene.state == "PREPARE_COMMIT"
