"""What consumers say to each other through a classic group: the blobs in JoinGroup and SyncGroup.

An int16 version stands before each. A reader takes newer versions as the newest that it knows. Version 1 has the owned
partitions (KIP-429), 2 the generation (KIP-792), 3 the rack (KIP-881). Never flexible.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int32, String


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
