"""FetchSnapshot (key 59): a chunk of a snapshot of the metadata log (KIP-630).

Version 1: the replica's directory id, endpoints in the response (KIP-853).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, Records, String, Uint16, Uuid


@wire
class SnapshotId:
    end_offset: Int64 = on("0+", default=0)
    epoch: Int32 = on("0+", default=0)


@wire
class RequestPartitionSnapshot:
    partition: Int32 = on("0+", default=0)
    current_leader_epoch: Int32 = on("0+", default=0)
    snapshot_id: SnapshotId = on("0+", factory=SnapshotId)
    position: Int64 = on("0+", default=0)
    replica_directory_id: Uuid = on("1+", default=NO_UUID, tag=0, ignorable=True)


@wire
class RequestTopicSnapshot:
    name: String = on("0+", default="")
    partitions: list[RequestPartitionSnapshot] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    cluster_id: String | None = on("0+", default=None, tag=0)
    replica_id: Int32 = on("0+", default=-1)
    max_bytes: Int32 = on("0+", default=0x7FFFFFFF)
    topics: list[RequestTopicSnapshot] = on("0+", factory=list)


@wire
class LeaderIdAndEpoch:
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class ResponsePartitionSnapshot:
    index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    snapshot_id: SnapshotId = on("0+", factory=SnapshotId)
    current_leader: LeaderIdAndEpoch = on("0+", factory=LeaderIdAndEpoch, tag=0)
    size: Int64 = on("0+", default=0)
    position: Int64 = on("0+", default=0)
    unaligned_records: Records = on("0+", default=None)


@wire
class ResponseTopicSnapshot:
    name: String = on("0+", default="")
    partitions: list[ResponsePartitionSnapshot] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("1+", default=0)
    host: String = on("1+", default="")
    port: Uint16 = on("1+", default=0)


@wire(versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = on("0+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    topics: list[ResponseTopicSnapshot] = on("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = on("1+", factory=list, tag=0)
