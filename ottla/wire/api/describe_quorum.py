"""DescribeQuorum (key 55): leader, voters and observers of the metadata quorum, with their progress (KIP-595).

Version 1: when each last fetched and caught up (KIP-836); 2 directory ids, endpoints, messages (KIP-853).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uint16, Uuid


@wire
class RequestPartitionData:
    partition_index: Int32 = on("0+", default=0)


@wire
class RequestTopicData:
    topic_name: String = on("0+", default="")
    partitions: list[RequestPartitionData] = on("0+", factory=list)


@wire(versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[RequestTopicData] = on("0+", factory=list)


@wire
class ReplicaState:
    replica_id: Int32 = on("0+", default=0)
    replica_directory_id: Uuid = on("2+", default=NO_UUID)
    log_end_offset: Int64 = on("0+", default=0)
    last_fetch_timestamp: Int64 = on("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = on("1+", default=-1, ignorable=True)


@wire
class ResponsePartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("2+", default="", ignorable=True)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    high_watermark: Int64 = on("0+", default=0)
    current_voters: list[ReplicaState] = on("0+", factory=list)
    observers: list[ReplicaState] = on("0+", factory=list)


@wire
class ResponseTopicData:
    topic_name: String = on("0+", default="")
    partitions: list[ResponsePartitionData] = on("0+", factory=list)


@wire
class Listener:
    name: String = on("2+", default="")
    host: String = on("2+", default="")
    port: Uint16 = on("2+", default=0)


@wire
class Node:
    node_id: Int32 = on("2+", default=0)
    listeners: list[Listener] = on("2+", factory=list)


@wire(versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("2+", default="", ignorable=True)
    topics: list[ResponseTopicData] = on("0+", factory=list)
    nodes: list[Node] = on("2+", factory=list)
