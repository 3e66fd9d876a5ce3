"""The records of `__cluster_metadata`, and their framing.

The log record's key is null. Its value is a frame version (1), the API key of the record and its version, each an
unsigned varint, then the message. All are flexible. Records of brokers and controllers are in `registration`, those of
security in `security`; all can be imported from here. Keys 6, 13 and 16 are unused.
"""

from __future__ import annotations

from typing import Any

from ottla.kernel.ports import Buffer
from ottla.wire.compile import decode, encode
from ottla.wire.reader import varint_rest
from ottla.wire.record.registration import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.wire.record.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.wire.schema import on, wire
from ottla.wire.type import (
    NO_UUID,
    Boolean,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Malformed,
    String,
    UnsupportedVersion,
    Uuid,
)
from ottla.wire.writer import varint

__all__ = [
    "RegisterBrokerRecord",
    "UnregisterBrokerRecord",
    "TopicRecord",
    "PartitionRecord",
    "ConfigRecord",
    "PartitionChangeRecord",
    "FenceBrokerRecord",
    "UnfenceBrokerRecord",
    "RemoveTopicRecord",
    "DelegationTokenRecord",
    "UserScramCredentialRecord",
    "FeatureLevelRecord",
    "ClientQuotaRecord",
    "ProducerIdsRecord",
    "BrokerRegistrationChangeRecord",
    "AccessControlEntryRecord",
    "RemoveAccessControlEntryRecord",
    "NoOpRecord",
    "ZkMigrationStateRecord",
    "RemoveUserScramCredentialRecord",
    "BeginTransactionRecord",
    "EndTransactionRecord",
    "AbortTransactionRecord",
    "RemoveDelegationTokenRecord",
    "RegisterControllerRecord",
    "ClearElrRecord",
    "UnregisterControllerRecord",
    "RECORDS",
    "pack",
    "parse",
]


@wire(versions="0", flexible="0+")
class TopicRecord:
    """A topic and its id; its partitions follow."""

    name: String = on("0+", default="")
    topic_id: Uuid = on("0+", default=NO_UUID)


@wire(versions="0-2", flexible="0+")
class PartitionRecord:
    """The complete state of a partition."""

    partition_id: Int32 = on("0+", default=-1)
    topic_id: Uuid = on("0+", default=NO_UUID)
    replicas: list[Int32] = on("0+", factory=list)
    isr: list[Int32] = on("0+", factory=list)
    removing_replicas: list[Int32] = on("0+", factory=list)
    adding_replicas: list[Int32] = on("0+", factory=list)
    leader: Int32 = on("0+", default=-1)
    leader_recovery_state: Int8 = on("0+", default=0, tag=0)
    leader_epoch: Int32 = on("0+", default=-1)
    partition_epoch: Int32 = on("0+", default=-1)
    directories: list[Uuid] = on("1+", factory=list)
    eligible_leader_replicas: list[Int32] | None = on("2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = on("2+", default=None, tag=2)


@wire(versions="0", flexible="0+")
class ConfigRecord:
    """A setting of one resource; a null value removes it."""

    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    name: String = on("0+", default="")
    value: String | None = on("0+", default="")


@wire(versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """A change of the given fields of a partition. `leader` -2 means no change, -1 no leader."""

    partition_id: Int32 = on("0+", default=-1)
    topic_id: Uuid = on("0+", default=NO_UUID)
    isr: list[Int32] | None = on("0+", default=None, tag=0)
    leader: Int32 = on("0+", default=-2, tag=1)
    replicas: list[Int32] | None = on("0+", default=None, tag=2)
    removing_replicas: list[Int32] | None = on("0+", default=None, tag=3)
    adding_replicas: list[Int32] | None = on("0+", default=None, tag=4)
    leader_recovery_state: Int8 = on("0+", default=-1, tag=5)
    directories: list[Uuid] | None = on("1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = on("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = on("2+", default=None, tag=7)


@wire(versions="0", flexible="0+")
class RemoveTopicRecord:
    """The deletion of a topic, with its partitions and settings."""

    topic_id: Uuid = on("0+", default=NO_UUID)


@wire(versions="0", flexible="0+")
class FeatureLevelRecord:
    """A finalized feature; level 0 removes it."""

    name: String = on("0+", default="")
    feature_level: Int16 = on("0+", default=0)


@wire
class EntityData:
    entity_type: String = on("0+", default="")
    entity_name: String | None = on("0+", default="")


@wire(versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota of one entity; a null name is the default entity."""

    entity: list[EntityData] = on("0+", factory=list)
    key: String = on("0+", default="")
    value: Float64 = on("0+", default=0.0)
    remove: Boolean = on("0+", default=False)


@wire(versions="0", flexible="0+")
class ProducerIdsRecord:
    """The next producer id to allocate."""

    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=-1)
    next_producer_id: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class NoOpRecord:
    """An empty record, written to advance the high watermark."""


@wire(versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """The state of a migration from ZooKeeper. Historical, but still replayed."""

    zk_migration_state: Int8 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class BeginTransactionRecord:
    """The start of a metadata transaction: the next records take effect with the end record (KIP-868)."""

    name: String | None = on("0+", default=None, tag=0)


@wire(versions="0", flexible="0+")
class EndTransactionRecord:
    """The commit of a metadata transaction (KIP-868)."""


@wire(versions="0", flexible="0+")
class AbortTransactionRecord:
    """The abort of a metadata transaction (KIP-868)."""

    reason: String | None = on("0+", default=None, tag=0)


@wire(versions="0", flexible="0+")
class ClearElrRecord:
    """Clears the eligible leader replicas of a topic, or of all topics if the name is empty (KIP-966)."""

    topic_name: String = on("0+", default="")


#: All metadata records by key.
RECORDS: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
    29: UnregisterControllerRecord,
}
_KEYS = {cls: key for key, cls in RECORDS.items()}
_FRAME_VERSION = 1


def pack(record: Any, version: int = 0) -> bytes:
    """Encode the value of a log record that contains `record`."""
    return b"".join((varint(_FRAME_VERSION), varint(_KEYS[type(record)]), varint(version), encode(record, version)))


def parse(value: Buffer) -> tuple[Any, int]:
    """Decode (record, its version) from a log record's value. Malformed if it is unknown or incomplete."""
    data = bytes(value)
    frame_version, position = _varint(data, 0)
    key, position = _varint(data, position)
    version, position = _varint(data, position)
    if frame_version != _FRAME_VERSION:
        raise Malformed(f"a metadata record with frame version {frame_version}")
    cls = RECORDS.get(key)
    if cls is None:
        raise Malformed(f"unknown metadata record {key}")
    record: Any
    try:
        record, end = decode(cls, version, data, position)
    except UnsupportedVersion as error:
        raise Malformed(str(error)) from None
    if end != len(data):
        raise Malformed(f"{cls.__name__} leaves {len(data) - end} bytes")
    return record, version


def _varint(data: bytes, position: int) -> tuple[int, int]:
    try:
        byte = data[position]
        return (byte, position + 1) if byte < 128 else varint_rest(data, byte, position + 1)
    except IndexError:
        raise Malformed("a metadata record ends inside its frame") from None
