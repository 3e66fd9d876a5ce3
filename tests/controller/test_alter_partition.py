"""What a leader may make of its ISR, and what it is told when it may not."""

import pytest

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.alter_partition import AlterPartitionRequest, BrokerState, RequestPartitionData, RequestTopicData
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.controller.fleet import Fleet


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet(4)
    made.topic("flights", [1, 2, 3], configs={"min.insync.replicas": "2"})
    return made


@pytest.mark.parametrize("version", [2, 3])
def test_an_isr_shrinks_and_grows_without_a_new_leader_epoch(fleet: Fleet, version: int) -> None:
    answer = fleet.alter("flights", [1, 2], version=version)
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, [1, 2], 0, 1)
    assert (answer.leader_id, answer.leader_recovery_state) == (1, 0)
    assert fleet.log[-1].leader == -2
    answer = fleet.alter("flights", [1, 2, 3], version=version)
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2, 3], 2)


@pytest.mark.parametrize(("version", "isr"), [(2, [1, 2]), (3, [1, 3])])
def test_a_version_has_its_own_field_for_the_isr(fleet: Fleet, version: int, isr: list[int]) -> None:
    brokers = fleet.image.brokers
    epochs = [BrokerState(broker_id=each, broker_epoch=brokers[each].epoch) for each in (1, 3)]
    assert fleet.alter("flights", [1, 2], version=version, new_isr_with_epochs=epochs).isr == isr


def test_until_3_5_a_shrink_begins_a_leader_epoch() -> None:
    fleet = Fleet(2, features={"metadata.version": 11})
    fleet.topic("flights", [1, 2])
    assert fleet.alter("flights", [1]).leader_epoch == 1
    assert fleet.alter("flights", [1, 2]).leader_epoch == 1


def test_the_same_isr_writes_nothing(fleet: Fleet) -> None:
    written = len(fleet.log)
    answer = fleet.alter("flights", [1, 2, 3])
    assert (answer.error_code, answer.partition_epoch, len(fleet.log)) == (0, 0, written)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ({"asks": 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_contradicts_the_metadata_is_refused(fleet: Fleet, fields: dict[str, int], code: ErrorCode) -> None:
    fleet.append([PartitionChangeRecord(topic_id=fleet.image.topics["flights"].topic_id, partition_id=0, leader=1)] * 2)
    written = len(fleet.log)
    assert fleet.alter("flights", [1, 2], **fields).error_code == code
    assert len(fleet.log) == written


@pytest.mark.parametrize("isr", [[2, 3], [1, 1], [1, 4], [1, 9], [], [1, -1]])
def test_an_isr_is_of_replicas_with_the_leader_each_once(fleet: Fleet, isr: list[int]) -> None:
    assert fleet.alter("flights", isr).error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_topic_is_named_by_its_id(fleet: Fleet) -> None:
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=fleet.image.brokers[1].epoch,
        topics=[RequestTopicData(topic_id=Uuid(bytes(15) + b"\x09"), partitions=[RequestPartitionData()])],
    )
    assert fleet.ask(request).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request.broker_epoch += 1
    assert fleet.refused(request) is ErrorCode.STALE_BROKER_EPOCH


def test_a_replica_of_another_incarnation_does_not_come_into_the_isr(fleet: Fleet) -> None:
    old = fleet.image.brokers[3].epoch
    fleet.silence(3)
    assert fleet.partition("flights").isr == (1, 2)
    assert fleet.alter("flights", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA, "it is fenced"
    fleet.start(3)
    new_isr = [BrokerState(broker_id=1, broker_epoch=-1), BrokerState(broker_id=3, broker_epoch=old)]
    answer = fleet.alter("flights", [1, 3], new_isr_with_epochs=new_isr)
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert fleet.alter("flights", [1, 2, 3]).error_code == ErrorCode.NONE


def test_a_leader_that_recovers_is_alone_until_it_says_so(fleet: Fleet) -> None:
    fleet.append([PartitionChangeRecord(
        topic_id=fleet.image.topics["flights"].topic_id, partition_id=0, leader=1, isr=[1], leader_recovery_state=1,
    )])  # fmt: skip
    assert fleet.alter("flights", [1, 2]).error_code == ErrorCode.INVALID_REQUEST
    answer = fleet.alter("flights", [1], leader_recovery_state=0)
    assert (answer.error_code, answer.leader_recovery_state, answer.leader_epoch) == (0, 0, 1)
    assert fleet.alter("flights", [1, 2]).error_code == ErrorCode.NONE
    assert fleet.alter("flights", [1], leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST


def test_who_leaves_below_the_least_isr_stays_eligible_until_it_is_reached_again(fleet: Fleet) -> None:
    fleet.alter("flights", [1, 2])
    assert fleet.partition("flights").eligible_leader_replicas == ()
    fleet.alter("flights", [1])
    assert fleet.partition("flights").eligible_leader_replicas == (2,)
    assert fleet.alter("flights", [1, 3]).error_code == ErrorCode.NONE
    assert fleet.partition("flights").eligible_leader_replicas == ()


def test_an_eligible_leader_is_asked_when_the_isr_is_gone(fleet: Fleet) -> None:
    fleet.alter("flights", [1])
    assert fleet.partition("flights").eligible_leader_replicas == (2, 3)
    fleet.silence(1)
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, (2,), (1, 3))
    assert partition.leader_recovery_state == 0


def test_the_least_isr_is_no_more_than_the_replicas() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2], configs={"min.insync.replicas": "5"})
    assert fleet.partition("flights").eligible_leader_replicas == ()
    fleet.alter("flights", [1])
    assert fleet.partition("flights").eligible_leader_replicas == (2,)
    fleet.alter("flights", [1, 2])
    assert fleet.partition("flights").eligible_leader_replicas == ()


def test_the_replicas_of_partition_0_bound_the_least_isr() -> None:
    fleet = Fleet(2)
    topic_id = fleet.topic("flights", [1, 2], [1, 2], configs={"min.insync.replicas": "5"})
    fleet.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], directories=[])])
    fleet.alter("flights", [1], index=1)
    assert fleet.partition("flights", 1).eligible_leader_replicas == ()


def test_two_changes_of_one_partition_in_a_request_follow_each_other(fleet: Fleet) -> None:
    partition = RequestPartitionData(
        new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=-1)], leader_epoch=0, partition_epoch=0
    )
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=fleet.image.brokers[1].epoch,
        topics=[RequestTopicData(topic_id=fleet.image.topics["flights"].topic_id, partitions=[partition] * 2)],
    )
    answers = fleet.ask(request).topics[0].partitions
    assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]


def test_an_unclean_leader_is_elected_where_the_topic_allows_it() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2], configs={"unclean.leader.election.enable": "true"})
    fleet.alter("flights", [1])
    fleet.silence(1)
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
