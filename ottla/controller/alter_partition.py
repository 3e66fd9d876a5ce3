"""AlterPartition (key 56): the leader of a partition changes its ISR (KIP-497, KIP-704, KIP-841, KIP-903).

Rules:
- A leader with stale metadata gets FENCED_LEADER_EPOCH or INVALID_UPDATE_VERSION. A leader with newer metadata than
  the controller has reached a controller that is no longer active (NOT_CONTROLLER).
- Only registered, unfenced brokers that are not shutting down, in the incarnation that fetched, may join the ISR.
- A leader that is recovering from an unclean election is alone in the ISR.
- A change can complete a reassignment and thereby replace the leader: NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from ottla.controller.broker import check_broker_epoch
from ottla.controller.decision import Decision
from ottla.controller.draft import Draft
from ottla.controller.partition_change import RECOVERED, RECOVERING, allowed_election
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.partition_change import NO_LEADER_CHANGE
from ottla.wire.api import alter_partition as api

_EPOCHS_FROM = 3


def alter_partition(draft: Draft, request: api.AlterPartitionRequest, version: int) -> Decision:
    """Decide each partition of the request separately."""
    check_broker_epoch(draft.image, request.broker_id, request.broker_epoch)
    response = api.AlterPartitionResponse()
    for requested_topic in request.topics:
        topic = draft.image.topic(Uuid(requested_topic.topic_id))
        answers = []
        for requested in requested_topic.partitions:
            answer = api.ResponsePartitionData(partition_index=requested.partition_index)
            if topic is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                _alter(draft, topic, request.broker_id, requested, _isr(requested, version), answer)
            answers.append(answer)
        response.topics.append(api.ResponseTopicData(topic_id=requested_topic.topic_id, partitions=answers))
    return Decision(draft.records, response, atomic=False)


def _isr(requested: api.RequestPartitionData, version: int) -> list[tuple[int, int]]:
    """Return the requested ISR as (broker, its epoch or -1)."""
    if version < _EPOCHS_FROM:
        return [(broker_id, -1) for broker_id in requested.new_isr]
    return [(member.broker_id, member.broker_epoch) for member in requested.new_isr_with_epochs]


def _alter(
    draft: Draft,
    topic: TopicImage,
    broker_id: int,
    requested: api.RequestPartitionData,
    isr: list[tuple[int, int]],
    answer: api.ResponsePartitionData,
) -> None:
    index = requested.partition_index
    if not 0 <= index < len(topic.partitions):
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    answer.error_code = _check(draft, draft.partition(topic, index), broker_id, requested, isr)
    if answer.error_code:
        return
    change = draft.change(topic, index)
    change.election = allowed_election(draft.rules(topic))
    change.isr = [replica for replica, _ in isr]
    change.recovery = requested.leader_recovery_state
    record = change.build()
    draft.add(topic, index, record)
    partition = draft.partition(topic, index)
    if record is not None and record.leader not in (broker_id, NO_LEADER_CHANGE):
        answer.error_code = ErrorCode.NEW_LEADER_ELECTED
        return
    answer.leader_id, answer.leader_epoch = partition.leader, partition.leader_epoch
    answer.isr, answer.partition_epoch = list(partition.isr), partition.partition_epoch
    answer.leader_recovery_state = partition.leader_recovery_state


def _check(
    draft: Draft,
    partition: PartitionImage,
    broker_id: int,
    requested: api.RequestPartitionData,
    isr: list[tuple[int, int]],
) -> ErrorCode:
    if requested.leader_epoch > partition.leader_epoch or requested.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if requested.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if requested.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    replicas = [replica for replica, _ in isr]
    recovery = requested.leader_recovery_state
    if (
        len(set(replicas)) != len(replicas)
        or not set(replicas) <= set(partition.replicas)
        or partition.leader not in replicas
        or recovery not in (RECOVERED, RECOVERING)
        or (recovery == RECOVERING and len(replicas) > 1)
        or (recovery == RECOVERING and partition.leader_recovery_state == RECOVERED)
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_may_be_in_sync(draft, replica, epoch) for replica, epoch in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _may_be_in_sync(draft: Draft, broker_id: int, epoch: int) -> bool:
    broker = draft.image.brokers.get(broker_id)
    return broker is not None and broker.is_active and epoch in (-1, broker.epoch)
