"""The placement of new replicas on brokers and in directories.

Rules:
- Only active brokers lead; fenced brokers may get replicas if there are too few active ones.
- Without a manual assignment, replicas are spread over racks and brokers (`Racks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.controller.racks import Racks
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.ports import Rng
from ottla.metadata.feature import DIRECTORIES_FROM
from ottla.metadata.image import BrokerImage, Image, PartitionImage
from ottla.wire.record.metadata import PartitionRecord

#: Directory ids that do not identify a directory (KIP-858): Uuid(0, 0) from before directories had ids, and Uuid(0, 1)
#: for any directory that the broker chooses.
MIGRATING_DIRECTORY = Uuid(bytes(16))
UNASSIGNED_DIRECTORY = Uuid(bytes(15) + b"\x01")
#: Uuid(0, 2): the directory was lost.
LOST_DIRECTORY = Uuid(bytes(15) + b"\x02")
#: Ids of an unknown directory, which counts as online.
_UNKNOWN = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


def place(image: Image, rng: Rng, count: int, replication_factor: int) -> list[list[int]]:
    """Place the replicas of `count` partitions, leaders first. Raise INVALID_REPLICATION_FACTOR if impossible."""
    usable = [
        broker
        for broker_id, broker in sorted(image.brokers.items())
        if not _is_cordoned(broker) and (broker.fenced or not broker.in_controlled_shutdown)
    ]
    if all(broker.fenced for broker in usable):
        raise _unplaceable("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(usable):
        raise _unplaceable(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    racks = Racks(usable, rng)
    return [racks.place(replication_factor) for _ in range(count)]


def _is_cordoned(broker: BrokerImage) -> bool:
    """Return True if all directories of the broker are cordoned."""
    if not broker.log_dirs or broker.cordoned_log_dirs is None:
        return False
    return set(broker.log_dirs) <= set(broker.cordoned_log_dirs)


def check_assignment(image: Image, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Check a manual assignment; raise INVALID_REPLICA_ASSIGNMENT if it is invalid."""
    if not replicas:
        raise _misplaced("The manual partition assignment includes an empty replica list.")
    before = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _misplaced(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id == before:
            raise _misplaced(f"The manual partition assignment includes the broker {broker_id} more than once.")
        before = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _misplaced(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def active_of(image: Image, replicas: Sequence[int]) -> list[int]:
    """Return the active brokers of `replicas`."""
    return [broker_id for broker_id in replicas if image.brokers[broker_id].is_active]


def partition_record(image: Image, topic_id: Uuid, index: int, replicas: Sequence[int], isr: Sequence[int]) -> Any:
    """Return the record of a new partition, led by the first broker in `isr`."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=directories_of(image, replicas),
    )


def directories_of(image: Image, replicas: Sequence[int]) -> list[Uuid]:
    """Return the default directory of each new replica; empty at a metadata.version without directories."""
    if image.metadata_version < DIRECTORIES_FROM:
        return []
    return [default_directory(image, broker_id) for broker_id in replicas]


def default_directory(image: Image, broker_id: int) -> Uuid:
    """Return the directory of a new replica: the broker's only directory, or UNASSIGNED if it has several."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED_DIRECTORY
    log_dirs = broker.log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY if log_dirs else MIGRATING_DIRECTORY


def may_lead(image: Image, partition: PartitionImage, broker_id: int, moved_to: Uuid | None = None) -> bool:
    """Return True if the broker is active and its replica's directory, or the one it moves to, is online."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active:
        return False
    directory = directory_of(partition, broker_id)
    return any(
        each is None or directory_is_online(each, broker.log_dirs) for each in (directory, moved_to or directory)
    )


def is_offline(image: Image, partition: PartitionImage, broker_id: int) -> bool:
    """Return True if this replica is in a directory that its broker does not have."""
    broker = image.brokers.get(broker_id)
    return broker is not None and is_outside_directories(partition, broker_id, broker.log_dirs)


def is_outside_directories(partition: PartitionImage, broker_id: int, directories: Sequence[Uuid]) -> bool:
    """Return True if the broker's replica is in none of these directories.

    A broker that registered before directories had ids has none; its replicas count as online.
    """
    directory = directory_of(partition, broker_id)
    return directory is not None and not directory_is_online(directory, directories)


def directory_is_online(directory: Uuid, directories: Sequence[Uuid]) -> bool:
    """Return True if, as far as the controller knows, a broker with these directories serves this directory."""
    if directory == LOST_DIRECTORY:
        return False
    return directory in _UNKNOWN or not directories or directory in directories


def directory_of(partition: PartitionImage, broker_id: int) -> Uuid | None:
    """Return the directory of a broker's replica; None if the metadata does not identify it."""
    if not partition.directories or broker_id not in partition.replicas:
        return None
    directory = partition.directories[partition.replicas.index(broker_id)]
    return None if directory in _UNKNOWN else directory


def _unplaceable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)


def _misplaced(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
