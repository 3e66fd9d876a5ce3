"""OffsetForLeaderEpoch (key 23): the end of a leader epoch, to find where logs diverge (KIP-101, KIP-320).

Replica id -1 is a consumer, -2 a debugger.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, String


@wire
class OffsetForLeaderPartition:
    partition: Int32 = on("0+", default=0)
    current_leader_epoch: Int32 = on("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class OffsetForLeaderTopic:
    topic: String = on("0+", default="")
    partitions: list[OffsetForLeaderPartition] = on("0+", factory=list)


@wire(versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = on("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = on("0+", factory=list)


@wire
class EpochEndOffset:
    error_code: Int16 = on("0+", default=0)
    partition: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("1+", default=-1, ignorable=True)
    end_offset: Int64 = on("0+", default=-1)


@wire
class OffsetForLeaderTopicResult:
    topic: String = on("0+", default="")
    partitions: list[EpochEndOffset] = on("0+", factory=list)


@wire(versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = on("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = on("0+", factory=list)
