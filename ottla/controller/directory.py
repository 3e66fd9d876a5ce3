"""The log directories of replicas: AssignReplicasToDirs (key 73), and failed directories (KIP-858).

Rules:
- A broker with several directories reports afterwards where it placed a replica. A replica in a directory that its
  broker does not have, or has lost, is offline.
- A partition whose only replica is offline has no leader and keeps its ISR: its records are still valid when the
  directory comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.controller.broker import check_broker_epoch
from ottla.controller.decision import Decision
from ottla.controller.draft import Draft
from ottla.controller.placement import directory_is_online, is_outside_directories
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.lazy import LazyModule
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM, DIRECTORIES_FROM
from ottla.metadata.image import NO_LEADER, BrokerImage, Image
from ottla.metadata.index import PartitionKey
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.wire.api import assign_replicas_to_dirs as assign
else:
    assign = LazyModule("ottla.wire.api.assign_replicas_to_dirs")


def assign_replicas(draft: Draft, request: assign.AssignReplicasToDirsRequest) -> Decision:
    """Record the directories in which a broker placed its replicas."""
    if draft.image.metadata_version < DIRECTORIES_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    check_broker_epoch(draft.image, request.broker_id, request.broker_epoch)
    response = assign.AssignReplicasToDirsResponse()
    offline: dict[PartitionKey, None] = {}
    log_dirs = draft.image.brokers[request.broker_id].log_dirs
    for directory in request.directories:
        is_online = directory_is_online(Uuid(directory.id), log_dirs)
        topics = []
        for topic in directory.topics:
            partitions = []
            for partition in topic.partitions:
                key = PartitionKey(Uuid(topic.topic_id), partition.partition_index)
                code = _assign(draft, request.broker_id, Uuid(directory.id), key)
                if not is_online and not code:
                    offline[key] = None
                partitions.append(
                    assign.ResponsePartitionData(partition_index=partition.partition_index, error_code=code)
                )
            topics.append(assign.ResponseTopicData(topic_id=topic.topic_id, partitions=partitions))
        response.directories.append(assign.ResponseDirectoryData(id=directory.id, topics=topics))
    # A replica in a directory that has failed since is offline.
    draft.update(list(offline), gone=request.broker_id)
    return Decision(draft.records, response, atomic=False)


def _assign(draft: Draft, broker_id: int, directory: Uuid, key: PartitionKey) -> ErrorCode:
    topic = draft.image.topic(key.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= key.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in draft.partition(topic, key.partition).replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    change = draft.change(topic, key.partition)
    change.directories[broker_id] = directory
    draft.add(topic, key.partition, change.build())
    return ErrorCode.NONE


def directories_offline(draft: Draft, broker: BrokerImage, offline: Sequence[Uuid]) -> None:
    """Remove a broker from the ISRs of the replicas in its failed directories."""
    failed = [directory for directory in broker.log_dirs if directory in offline]
    if not failed or draft.image.metadata_version < DIRECTORIES_FROM:
        return
    for directory in failed:
        draft.update(draft.index.in_directory(directory), gone=broker.broker_id)
    remaining = [directory for directory in broker.log_dirs if directory not in offline]
    draft.records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=remaining)
    )


def directories_cordoned(draft: Draft, broker: BrokerImage, directories: Sequence[Uuid] | None) -> None:
    """Set a broker's cordoned directories, which get no new replicas (KIP-1066); None leaves them unchanged."""
    if directories is None or draft.image.metadata_version < CORDONED_DIRECTORIES_FROM:
        return
    if broker.cordoned_log_dirs is None or set(broker.cordoned_log_dirs) != set(directories):
        draft.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(directories)
            )
        )


def directories_left(image: Image, broker_id: int, online: Sequence[Uuid]) -> list[Any]:
    """Return the records after which a broker has only these directories, and leads nothing in any other.

    Empty at a metadata.version without directories.
    """
    if image.metadata_version < DIRECTORIES_FROM:
        return []
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
        if partition.leader == broker_id and is_outside_directories(partition, broker_id, online)
    ]
    return records
