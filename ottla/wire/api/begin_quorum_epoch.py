"""BeginQuorumEpoch (key 53): a new quorum leader announces itself to a voter (KIP-595).

Version 1: directory ids and endpoints, flexible (KIP-853).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uint16, Uuid


@wire
class RequestPartitionData:
    partition_index: Int32 = on("0+", default=0)
    voter_directory_id: Uuid = on("1+", default=NO_UUID, ignorable=True)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class RequestTopicData:
    topic_name: String = on("0+", default="")
    partitions: list[RequestPartitionData] = on("0+", factory=list)


@wire
class LeaderEndpoint:
    name: String = on("1+", default="")
    host: String = on("1+", default="")
    port: Uint16 = on("1+", default=0)


@wire(versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    cluster_id: String | None = on("0+", default=None)
    voter_id: Int32 = on("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = on("0+", factory=list)
    leader_endpoints: list[LeaderEndpoint] = on("1+", factory=list, ignorable=True)


@wire
class ResponsePartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class ResponseTopicData:
    topic_name: String = on("0+", default="")
    partitions: list[ResponsePartitionData] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("1+", default=0)
    host: String = on("1+", default="")
    port: Uint16 = on("1+", default=0)


@wire(versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: Int16 = on("0+", default=0)
    topics: list[ResponseTopicData] = on("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = on("1+", factory=list, tag=0)
