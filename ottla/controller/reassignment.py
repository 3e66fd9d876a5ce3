"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46) (KIP-455, KIP-860).

Rules:
- Only changes that need no copying are made: to reorder replicas, or to drop some while one in the ISR stays. Whatever
  names a broker that does not carry the partition yet waits for replication, and there is no other broker that could.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.decision import Decision, message_or_none
from ottla.controller.placement import check_assignment, may_lead
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.image import NO_LEADER, Image, PartitionImage
from ottla.wire.api import alter_partition_reassignments as alter
from ottla.wire.api import list_partition_reassignments as listing
from ottla.wire.record.metadata import PartitionChangeRecord


def alter_reassignments(image: Image, request: alter.AlterPartitionReassignmentsRequest) -> Decision:
    """Each partition of the request."""
    records: list[Any] = []
    response = alter.AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=not request.topics or request.allow_replication_factor_change,
    )
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            answer = alter.ReassignablePartitionResponse(partition_index=each.partition_index, error_message=None)
            try:
                records += _alter(image, topic.name, each, request.allow_replication_factor_change)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, message_or_none(error)
            answers.append(answer)
        response.responses.append(alter.ReassignableTopicResponse(name=topic.name, partitions=answers))
    return Decision(records, response)


def _alter(image: Image, name: str, wanted: alter.ReassignablePartition, may_change_factor: bool) -> list[Any]:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    index = wanted.partition_index
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    partition = topic.partitions[index]
    if wanted.replicas is None:
        if not partition.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return _revert(image, topic.topic_id, index, partition)
    target = list(wanted.replicas)
    check_assignment(image, target, None)
    current = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    if not may_change_factor and len(target) != len(current):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(target)}",
        )
    return _move(image, topic.topic_id, index, partition, target)


def _move(image: Image, topic_id: Uuid, index: int, partition: PartitionImage, target: list[int]) -> list[Any]:
    if target == list(partition.replicas) and not partition.is_reassigning:
        return []
    isr = [replica for replica in target if replica in partition.isr]
    if not set(target) <= set(partition.replicas) or not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The new replicas would have to be copied to other brokers, and this node has no others to copy to.",
        )
    return [_change(image, topic_id, index, partition, target, isr)]


def _revert(image: Image, topic_id: Uuid, index: int, partition: PartitionImage) -> list[Any]:
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    isr = [replica for replica in replicas if replica in partition.isr]
    if not replicas or not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unable to revert the partition assignment because it would require an unclean leader election.",
        )
    return [_change(image, topic_id, index, partition, replicas, isr)]


def _change(
    image: Image, topic_id: Uuid, index: int, partition: PartitionImage, replicas: list[int], isr: list[int]
) -> PartitionChangeRecord:
    places = dict(zip(partition.replicas, partition.directories, strict=False))
    record = PartitionChangeRecord(
        topic_id=topic_id, partition_id=index, replicas=replicas, isr=isr, removing_replicas=[], adding_replicas=[]
    )
    if places:
        record.directories = [places[replica] for replica in replicas]
    if partition.leader not in isr:
        able = (replica for replica in isr if may_lead(image, partition, replica))
        record.leader = next(able, NO_LEADER)
    elif not set(partition.replicas) <= set(replicas):
        # A replica that leaves may not be counted by the leader any more: it begins a new leader epoch.
        record.leader = partition.leader
    return record


def list_reassignments(image: Image, request: listing.ListPartitionReassignmentsRequest) -> Decision:
    """The partitions that are being moved, all or those named."""
    response = listing.ListPartitionReassignmentsResponse(error_message=None)
    wanted: dict[str, list[int] | None] = (
        dict.fromkeys(image.topics)
        if request.topics is None
        else {topic.name: list(topic.partition_indexes) for topic in request.topics}
    )
    for name, indexes in wanted.items():
        topic = image.topics.get(name)
        if topic is None:
            continue
        moving = [
            listing.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding_replicas),
                removing_replicas=list(each.removing_replicas),
            )
            for index, each in enumerate(topic.partitions)
            if each.is_reassigning and (indexes is None or index in indexes)
        ]
        if moving:
            response.topics.append(listing.OngoingTopicReassignment(name=name, partitions=moving))
    return Decision([], response)
