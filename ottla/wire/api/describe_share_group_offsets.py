"""DescribeShareGroupOffsets (key 90): start offsets of share groups (KIP-932). Version 1: their lag (KIP-1226)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uuid


@wire
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class DescribeShareGroupOffsetsRequestGroup:
    group_id: String = on("0+", default="")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = on("0+", factory=list)


@wire
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    lag: Int64 = on("1+", default=-1, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: String = on("0+", default="")
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = on("0+", factory=list)


@wire
class DescribeShareGroupOffsetsResponseGroup:
    group_id: String = on("0+", default="")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = on("0+", factory=list)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire(versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = on("0+", factory=list)
