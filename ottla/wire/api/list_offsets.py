"""ListOffsets (key 2): the offset for a timestamp, or for one of the special values below 0.

Special values: -1 latest, -2 earliest, -3 max timestamp (version 7, KIP-734), -4 earliest local (8, KIP-405), -5 latest
tiered (9, KIP-1005), -6 earliest pending upload (11, KIP-1023). Version 10: a timeout for remote storage.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, Int64, String


@wire
class ListOffsetsPartition:
    partition_index: Int32 = on("0+", default=0)
    current_leader_epoch: Int32 = on("4+", default=-1, ignorable=True)
    timestamp: Int64 = on("0+", default=0)


@wire
class ListOffsetsTopic:
    name: String = on("0+", default="")
    partitions: list[ListOffsetsPartition] = on("0+", factory=list)


@wire(versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32 = on("0+", default=0)
    isolation_level: Int8 = on("2+", default=0)
    topics: list[ListOffsetsTopic] = on("0+", factory=list)
    timeout_ms: Int32 = on("10+", default=0, ignorable=True)


@wire
class ListOffsetsPartitionResponse:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    timestamp: Int64 = on("1+", default=-1)
    offset: Int64 = on("1+", default=-1)
    leader_epoch: Int32 = on("4+", default=-1)


@wire
class ListOffsetsTopicResponse:
    name: String = on("0+", default="")
    partitions: list[ListOffsetsPartitionResponse] = on("0+", factory=list)


@wire(versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = on("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = on("0+", factory=list)
