"""Coordinators whose log takes smaller batches than before: what belongs together fails alone, the rest is written."""

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.replica.partition import Partition
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.record.metadata import RemoveTopicRecord
from tests.broker.disk_scene import TOPIC, Scene
from tests.broker.test_coordinator_log import NAME, commit, coordinated


def limit(scene: Scene, topic: str, bytes_max: int) -> None:
    """Set a topic's max.message.bytes."""
    config = AlterableConfig(name="max.message.bytes", value=str(bytes_max))
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    [answer] = scene.ask(AlterConfigsRequest(resources=[resource]), 2).responses
    assert answer.error_code == 0
    scene.machine.settle()


def test_tombstones_fit_a_log_with_a_smaller_max_message_bytes() -> None:
    scene = coordinated(300)
    driver = scene.node.groups.driver_of(NAME)
    assert commit(scene, 1, partitions=300) == commit(scene, 1, "other") == {"NONE"}
    limit(scene, OFFSETS_TOPIC, 500)
    end_offset = driver.partition.log.end_offset
    [answer] = scene.ask(DeleteGroupsRequest(groups_names=[NAME]), 2).results
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    assert [*driver.machine.shard.groups] == ["other"]
    batches = [batch for piece in driver.pieces() for batch in piece if batch.header.base_offset >= end_offset]
    assert sum(len(list(batch.records())) for batch in batches) == 301
    assert 300 < max(len(batch.data) for batch in batches) <= 500


def test_a_tombstone_that_is_too_large_holds_up_no_other_group() -> None:
    scene = coordinated(2)
    driver = scene.node.groups.driver_of(NAME)
    long = "l" * 400
    for group_id in (long, NAME):
        assert commit(scene, 1, group_id) == {"NONE"}
    limit(scene, OFFSETS_TOPIC, 300)
    scene.node.quorum.append([RemoveTopicRecord(topic_id=scene.node.image.topics[TOPIC].topic_id)])
    scene.machine.settle()
    offsets = driver.machine.shard.offsets
    assert [len(list(offsets.all_partitions(group_id))) for group_id in (long, NAME)] == [1, 0]
    assert scene.node.groups.driver_of(NAME) is driver


def begin(scene: Scene, transactional_id: str, partitions: int) -> None:
    """Begin a transaction that lasts a second."""
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
    producer: Any = scene.ask(init, 5)
    topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=[*range(partitions)])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[topic],
    )
    [answer] = scene.ask(request, 3).results_by_topic_v3_and_below
    assert {each.partition_error_code for each in answer.results_by_partition} == {0}


def test_a_transaction_that_cannot_be_aborted_holds_up_no_other() -> None:
    scene = coordinated(100)
    driver = scene.node.transactions.driver_of(NAME)

    for transactional_id, partitions in (("large", 100), ("small", 1)):
        begin(scene, transactional_id, partitions)
    limit(scene, TRANSACTION_TOPIC, 300)
    known = driver.machine.transactions
    scene.machine.run(lambda: known["small"].state.name == "COMPLETE_ABORT")
    assert known["large"].state.name == "ONGOING"
    # It is aborted as soon as the log takes it.
    limit(scene, TRANSACTION_TOPIC, 100_000)
    scene.machine.run(lambda: known["large"].state.name == "COMPLETE_ABORT")
    assert scene.node.transactions.driver_of(NAME) is driver


def test_a_transaction_whose_end_the_log_refuses_for_now_ends_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = coordinated(1)
    driver = scene.node.transactions.driver_of(NAME)
    begin(scene, NAME, 1)
    append, appends = Partition.append, list[bool]()

    def refuse_second(self: Partition, *args: Any, **more: Any) -> Any:
        """The first append prepares the end, the second one comes when the markers are written."""
        if self is driver.partition:
            appends.append(len(appends) == 1)
            if appends[-1]:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return append(self, *args, **more)

    monkeypatch.setattr(Partition, "append", refuse_second)
    scene.machine.run(lambda: driver.machine.transactions[NAME].state.name == "COMPLETE_ABORT")
    assert appends == [False, True, False]
    assert scene.node.transactions.driver_of(NAME) is driver
