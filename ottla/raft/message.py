"""The requests and responses of the quorum, all about its only partition: `__cluster_metadata-0`.

A response includes the leader's address on the listener that received the request (KIP-853).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.raft.checkpoint import BOOTSTRAP_ID, SnapshotId, VoterEndpoint
from ottla.raft.connections import QuorumPeer
from ottla.raft.log_view import EpochEnd
from ottla.raft.role import NO_NODE, UNKNOWN, Voter

if TYPE_CHECKING:
    from ottla.wire.api import fetch, fetch_snapshot
else:
    fetch = LazyModule("ottla.wire.api.fetch")
    fetch_snapshot = LazyModule("ottla.wire.api.fetch_snapshot")

#: The first versions of Fetch that name the leader and that have its address.
_FETCH_LEADER_FROM = 12
_FETCH_ENDPOINTS_FROM = 17
_ENDPOINTS_FROM = 1
_PARTITION = 0


class LeaderSeen(NamedTuple):
    """The leader that a message names."""

    epoch: int
    #: NO_NODE if the message names none.
    leader_id: int
    #: Empty if the message has none.
    endpoints: tuple[VoterEndpoint, ...] = ()


def address(endpoints: Sequence[VoterEndpoint], listener: str) -> VoterEndpoint | None:
    """Return the endpoint on this listener; None if there is none."""
    return next((endpoint for endpoint in endpoints if endpoint.name == listener), None)


def peer_of(node_id: int, endpoints: Sequence[VoterEndpoint], listener: str) -> QuorumPeer | None:
    """Return the node at its address on this listener; None if it has none."""
    endpoint = address(endpoints, listener)
    return None if endpoint is None else QuorumPeer(node_id, endpoint.host, endpoint.port)


def node_endpoints(kind: Any, leader: LeaderSeen, listener: str, *, is_supported: bool) -> list[Any]:
    """Return the field `node_endpoints` of a response; `kind` is its class. Empty if the version does not have it."""
    endpoint = address(leader.endpoints, listener)
    if not is_supported or endpoint is None or leader.leader_id == NO_NODE:
        return []
    return [kind(node_id=leader.leader_id, host=endpoint.host, port=endpoint.port)]


def seen_endpoints(leader_id: int, nodes: Sequence[Any], listener: str) -> tuple[VoterEndpoint, ...]:
    """Return the leader's address from `node_endpoints`, under the name of our own listener."""
    return tuple(VoterEndpoint(listener, node.host, node.port) for node in nodes if node.node_id == leader_id)


def only_partition(topics: Sequence[Any], *, topic: str = "topic_name", index: str = "partition_index") -> Any:
    """Return a message's metadata partition; None if the message has another partition, or several."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    if getattr(topics[0], topic) != METADATA_TOPIC or getattr(partition, index) != _PARTITION:
        return None
    return partition


# ---- Fetch


def fetched_partition(topics: Sequence[Any], *, index: str = "partition") -> Any:
    """Return the metadata partition of a Fetch or its response, whose topic has a name or an id; None if absent."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    is_metadata = topics[0].topic_id == METADATA_TOPIC_ID or topics[0].topic == METADATA_TOPIC
    return partition if is_metadata and getattr(partition, index) == _PARTITION else None


def replica_id(request: fetch.FetchRequest) -> int:
    """Return the id of the fetching replica, wherever the version has it."""
    return request.replica_state.replica_id if request.replica_id == NO_NODE else request.replica_id


def fetch_request(
    cluster_id: str,
    me: Voter,
    *,
    epoch: int,
    offset: int,
    last_epoch: int,
    high_watermark: int,
    max_bytes: int,
    max_wait_ms: int,
) -> fetch.FetchRequest:
    """Build a follower's Fetch from `offset` on; `last_epoch` is the epoch of its last record."""
    partition = fetch.FetchPartition(
        partition=_PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=me.node_id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_response(
    leader: LeaderSeen,
    listener: str,
    version: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    start_offset: int = UNKNOWN,
    high_watermark: int = UNKNOWN,
    redirect: EpochEnd | SnapshotId | None = None,
) -> fetch.FetchResponse:
    """Build a Fetch response without records. `other` is the diverging epoch or the snapshot to fetch."""
    partition = fetch.PartitionData(
        partition_index=_PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=start_offset,
        records=b"",
    )
    if version >= _FETCH_LEADER_FROM:
        partition.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch)
    if isinstance(redirect, EpochEnd):
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=redirect.epoch, end_offset=redirect.end_offset)
    elif redirect is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=redirect.end_offset, epoch=redirect.epoch)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    nodes = node_endpoints(fetch.NodeEndpoint, leader, listener, is_supported=version >= _FETCH_ENDPOINTS_FROM)
    return fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


# ---- FetchSnapshot


def snapshot_request(
    cluster_id: str, me: Voter, *, epoch: int, snapshot: SnapshotId, position: int, max_bytes: int
) -> fetch_snapshot.FetchSnapshotRequest:
    """Build a follower's request for the next chunk of a snapshot."""
    partition = fetch_snapshot.RequestPartitionSnapshot(
        partition=_PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=me.node_id, max_bytes=max_bytes, topics=[topic]
    )


def snapshot_response(
    leader: LeaderSeen,
    listener: str,
    version: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    snapshot: SnapshotId = BOOTSTRAP_ID,
    size: int = 0,
    position: int = 0,
) -> fetch_snapshot.FetchSnapshotResponse:
    """Build a FetchSnapshot response without the snapshot's bytes."""
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=_PARTITION,
        error_code=error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch),
        size=size,
        position=position,
        unaligned_records=b"",
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    nodes = node_endpoints(fetch_snapshot.NodeEndpoint, leader, listener, is_supported=version >= _ENDPOINTS_FROM)
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=nodes)
