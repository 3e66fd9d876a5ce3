"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46) (KIP-455, KIP-860).

Rules:
- A reassignment adds the new replicas and keeps the old ones until the new ones are in sync; AlterPartition then
  removes the old ones (`PartitionChange`). A reassignment that needs no copying completes at once.
- Each partition stands alone, so a large request is several batches of records. Apache Kafka refuses all partitions
  after the first 10,000 (UNKNOWN_SERVER_ERROR).
- Cancelling a reassignment removes the replicas that it added. If only those are in sync, records would be lost: this
  is an unclean election, and is rejected unless the topic allows it.
"""

from __future__ import annotations

from ottla.controller.decision import Decision, message_or_none
from ottla.controller.draft import Draft
from ottla.controller.partition_change import PartitionChange, allowed_election
from ottla.controller.placement import check_assignment
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.wire.api import alter_partition_reassignments as alter
from ottla.wire.api import list_partition_reassignments as listing


def alter_reassignments(draft: Draft, request: alter.AlterPartitionReassignmentsRequest) -> Decision:
    """Start or cancel the reassignment of each partition of the request."""
    response = alter.AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=not request.topics or request.allow_replication_factor_change,
    )
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = alter.ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
            try:
                _alter(draft, topic.name, partition, request.allow_replication_factor_change)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, message_or_none(error)
            answers.append(answer)
        response.responses.append(alter.ReassignableTopicResponse(name=topic.name, partitions=answers))
    return Decision(draft.records, response, atomic=False)


def _alter(draft: Draft, name: str, requested: alter.ReassignablePartition, may_change_factor: bool) -> None:
    topic = draft.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    index = requested.partition_index
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    partition, change = draft.partition(topic, index), draft.change(topic, index)
    if requested.replicas is None:
        _revert(draft, topic, index, partition, change)
    else:
        _move(draft.image, partition, list(requested.replicas), may_change_factor, change)
    draft.add(topic, index, change.build())


def _move(
    image: Image, partition: PartitionImage, target: list[int], may_change_factor: bool, change: PartitionChange
) -> None:
    check_assignment(image, target, None)
    current = {*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas}
    factor = len(current) if partition.is_reassigning else len(partition.replicas)
    if not may_change_factor and len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )
    removing = sorted(set(partition.replicas) - set(target))
    adding = sorted(set(target) - set(partition.replicas))
    change.replicas = target + removing
    change.removing = removing or change.removing
    change.adding = adding or change.adding


def _revert(draft: Draft, topic: TopicImage, index: int, partition: PartitionImage, change: PartitionChange) -> None:
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
    if not isr:
        if not replicas:
            why = "Invalid replica assignment: addingReplicas contains all replicas."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        if not draft.rules(topic).may_be_unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        isr = replicas[:1]
    change.election = allowed_election(draft.rules(topic))
    change.isr, change.replicas, change.removing, change.adding = isr, replicas, [], []


def list_reassignments(image: Image, request: listing.ListPartitionReassignmentsRequest) -> Decision:
    """List the ongoing reassignments, of all partitions or of the requested ones."""
    response = listing.ListPartitionReassignmentsResponse(error_message=None)
    requested: dict[str, set[int] | None] = (
        dict.fromkeys(image.topics)
        if request.topics is None
        # A client may name any number of topics that there are not.
        else {topic.name: set(topic.partition_indexes) for topic in request.topics if topic.name in image.topics}
    )
    for name, indexes in requested.items():
        topic = image.topics[name]
        moving = [
            listing.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index, partition in enumerate(topic.partitions)
            if partition.is_reassigning and (indexes is None or index in indexes)
        ]
        if moving:
            response.topics.append(listing.OngoingTopicReassignment(name=name, partitions=moving))
    return Decision([], response)
