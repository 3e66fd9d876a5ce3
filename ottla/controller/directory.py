"""Where replicas lie: AssignReplicasToDirs (key 73), and directories that are gone (KIP-858).

Rules:
- A broker with several directories says after the fact where it put a replica; a partition in a directory that its
  broker does not have (any more) is offline there.
- A partition whose only replica is offline has no leader, and keeps its in-sync set: its records are still the truth
  when the directory comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.controller.broker import check_broker_epoch
from ottla.controller.decision import Decision
from ottla.controller.draft import Draft
from ottla.controller.placement import MIGRATING_DIRECTORY, lies_elsewhere
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM, DIRECTORIES_FROM
from ottla.metadata.image import NO_LEADER, BrokerImage, Image
from ottla.wire.api import assign_replicas_to_dirs as assign
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord


def assign_replicas(image: Image, request: assign.AssignReplicasToDirsRequest) -> Decision:
    """Note where a broker has put its replicas."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Any] = []
    response = assign.AssignReplicasToDirsResponse()
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            parts = []
            for each in topic.partitions:
                code = _assign(
                    image, request.broker_id, Uuid(directory.id), Uuid(topic.topic_id), each.partition_index, records
                )
                parts.append(assign.ResponsePartitionData(partition_index=each.partition_index, error_code=code))
            topics.append(assign.ResponseTopicData(topic_id=topic.topic_id, partitions=parts))
        response.directories.append(assign.ResponseDirectoryData(id=directory.id, topics=topics))
    return Decision(records, response)


def _assign(image: Image, broker_id: int, directory: Uuid, topic_id: Uuid, index: int, records: list[Any]) -> ErrorCode:
    topic = image.topic(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[index]
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    directories = list(partition.directories) or [MIGRATING_DIRECTORY] * len(partition.replicas)
    place = partition.replicas.index(broker_id)
    change = PartitionChangeRecord(topic_id=topic_id, partition_id=index)
    if directories[place] != directory:
        directories[place] = directory
        change.directories = directories
    if partition.leader == broker_id and directory not in image.brokers[broker_id].log_dirs:
        # It was put into a directory that has failed since.
        change.leader = NO_LEADER
    if change != PartitionChangeRecord(topic_id=topic_id, partition_id=index):
        records.append(change)
    return ErrorCode.NONE


def directories_offline(draft: Draft, broker: BrokerImage, offline: Sequence[Uuid]) -> None:
    """These directories of a broker have failed: it leaves the ISR of what lies in them."""
    failed = [directory for directory in broker.log_dirs if directory in offline]
    if not failed or draft.image.metadata_version < DIRECTORIES_FROM:
        return
    for directory in failed:
        draft.update(draft.index.in_directory(directory), gone=broker.broker_id)
    left = [directory for directory in broker.log_dirs if directory not in offline]
    draft.records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left)
    )


def directories_cordoned(draft: Draft, broker: BrokerImage, directories: Sequence[Uuid] | None) -> None:
    """These directories of a broker, and no others, get no new replicas (KIP-1066); None says nothing."""
    if directories is None or draft.image.metadata_version < CORDONED_DIRECTORIES_FROM:
        return
    if broker.cordoned_log_dirs is None or set(broker.cordoned_log_dirs) != set(directories):
        draft.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(directories)
            )
        )


def directories_left(image: Image, broker_id: int, online: Sequence[Uuid]) -> list[Any]:
    """A broker has only these directories left: what it led in the others has no leader."""
    broker = image.brokers[broker_id]
    records: list[Any] = []
    if tuple(online) != broker.log_dirs:
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=list(online))
        )
    records += [
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, leader=NO_LEADER)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == broker_id and lies_elsewhere(partition, broker_id, online)
    ]
    return records


def cordoned(image: Image, broker_id: int, directories: Sequence[Uuid]) -> list[Any]:
    """These directories of a broker, and no others, get no new replicas (KIP-1066)."""
    broker = image.brokers[broker_id]
    if image.metadata_version < CORDONED_DIRECTORIES_FROM or tuple(directories) == (broker.cordoned_log_dirs or ()):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(directories)
        )
    ]
