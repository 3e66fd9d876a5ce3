"""The consumer protocol of classic groups: the blobs in JoinGroup and SyncGroup.

An int16 version precedes each. A reader decodes a newer version as the newest that it knows. Version 1 adds the owned
partitions (KIP-429), 2 the generation (KIP-792), 3 the rack (KIP-881). Never flexible.
"""

from __future__ import annotations

from ottla.kernel.ports import Buffer
from ottla.wire.compile import decode, encode
from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int32, Malformed, String

#: The newest known version.
NEWEST = 3


@wire
class TopicPartition:
    topic: String = on("1+", default="")
    partitions: list[Int32] = on("1+", factory=list)


@wire(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: list[String] = on("0+", factory=list)
    user_data: Bytes | None = on("0+", default=None)
    owned_partitions: list[TopicPartition] = on("1+", factory=list, ignorable=True)
    generation_id: Int32 = on("2+", default=-1, ignorable=True)
    rack_id: String | None = on("3+", default=None, ignorable=True)


@wire
class AssignedTopicPartition:
    topic: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: list[AssignedTopicPartition] = on("0+", factory=list)
    user_data: Bytes | None = on("0+", default=None)


def pack(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int = NEWEST) -> bytes:
    """Encode the version and the message."""
    return version.to_bytes(2, "big") + encode(message, version)


def parse_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Decode a member's subscription. Malformed if it is not one; other protocol types have their own blobs."""
    return decode(ConsumerProtocolSubscription, _version(data), data, 2)[0]


def parse_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Decode a member's assignment. Malformed if it is not one."""
    return decode(ConsumerProtocolAssignment, _version(data), data, 2)[0]


def _version(data: Buffer) -> int:
    if len(data) < 2:
        raise Malformed(f"{len(data)} bytes, where a version should be")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise Malformed(f"version {version} of a consumer protocol")
    return min(version, NEWEST)
