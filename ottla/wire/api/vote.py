"""Vote (key 52): a candidate requests a voter's vote (KIP-595).

Version 1: directory ids (KIP-853); 2 pre-votes, which do not raise the epoch (KIP-996).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, Int64, String, Uint16, Uuid


@wire
class RequestPartitionData:
    partition_index: Int32 = on("0+", default=0)
    replica_epoch: Int32 = on("0+", default=0)
    replica_id: Int32 = on("0+", default=0)
    replica_directory_id: Uuid = on("1+", default=NO_UUID, ignorable=True)
    voter_directory_id: Uuid = on("1+", default=NO_UUID, ignorable=True)
    last_offset_epoch: Int32 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    pre_vote: Boolean = on("2+", default=False)


@wire
class RequestTopicData:
    topic_name: String = on("0+", default="")
    partitions: list[RequestPartitionData] = on("0+", factory=list)


@wire(versions="0-2", flexible="0+")
class VoteRequest:
    cluster_id: String | None = on("0+", default=None)
    voter_id: Int32 = on("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = on("0+", factory=list)


@wire
class ResponsePartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    vote_granted: Boolean = on("0+", default=False)


@wire
class ResponseTopicData:
    topic_name: String = on("0+", default="")
    partitions: list[ResponsePartitionData] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("1+", default=0)
    host: String = on("1+", default="")
    port: Uint16 = on("1+", default=0)


@wire(versions="0-2", flexible="0+")
class VoteResponse:
    error_code: Int16 = on("0+", default=0)
    topics: list[ResponseTopicData] = on("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = on("1+", factory=list, tag=0)
