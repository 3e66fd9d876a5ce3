"""Fetch (key 1): read record batches, as a consumer, a follower or an observer of the metadata log.

Versions: 4 isolation level; 5 log start offset; 7 sessions (KIP-227); 9 leader epochs (KIP-320); 10 zstd; 11 rack, and
a preferred read replica (KIP-392); 12 flexible, the last fetched epoch and the diverging epoch (KIP-595); 13 topic ids
(KIP-516); 15 the replica's state with its epoch (KIP-903); 16 endpoints of new leaders (KIP-951); 17 the replica's
directory id (KIP-853); 18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


@wire
class ReplicaState:
    replica_id: Int32 = on("15+", default=-1)
    replica_epoch: Int64 = on("15+", default=-1)


@wire
class FetchPartition:
    partition: Int32 = on("0+", default=0)
    current_leader_epoch: Int32 = on("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = on("0+", default=0)
    last_fetched_epoch: Int32 = on("12+", default=-1)
    log_start_offset: Int64 = on("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = on("0+", default=0)
    replica_directory_id: Uuid = on("17+", default=NO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = on("18+", default=9223372036854775807, tag=1, ignorable=True)


@wire
class FetchTopic:
    topic: String = on("0-12", default="", ignorable=True)
    topic_id: Uuid = on("13+", default=NO_UUID, ignorable=True)
    partitions: list[FetchPartition] = on("0+", factory=list)


@wire
class ForgottenTopic:
    topic: String = on("7-12", default="", ignorable=True)
    topic_id: Uuid = on("13+", default=NO_UUID, ignorable=True)
    partitions: list[Int32] = on("7+", factory=list)


@wire(versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: String | None = on("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = on("0-14", default=-1)
    replica_state: ReplicaState = on("15+", factory=ReplicaState, tag=1)
    max_wait_ms: Int32 = on("0+", default=0)
    min_bytes: Int32 = on("0+", default=0)
    max_bytes: Int32 = on("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = on("4+", default=0, ignorable=True)
    session_id: Int32 = on("7+", default=0, ignorable=True)
    session_epoch: Int32 = on("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = on("0+", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = on("7+", factory=list)
    rack_id: String = on("11+", default="", ignorable=True)


@wire
class EpochEndOffset:
    epoch: Int32 = on("12+", default=-1)
    end_offset: Int64 = on("12+", default=-1)


@wire
class LeaderIdAndEpoch:
    leader_id: Int32 = on("12+", default=-1)
    leader_epoch: Int32 = on("12+", default=-1)


@wire
class SnapshotId:
    end_offset: Int64 = on("0+", default=-1)
    epoch: Int32 = on("0+", default=-1)


@wire
class AbortedTransaction:
    producer_id: Int64 = on("4+", default=0)
    first_offset: Int64 = on("4+", default=0)


@wire
class PartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    high_watermark: Int64 = on("0+", default=0)
    last_stable_offset: Int64 = on("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = on("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = on("12+", factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = on("12+", factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = on("12+", factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = on("4+", factory=list, ignorable=True)
    preferred_read_replica: Int32 = on("11+", default=-1)
    records: Records | None = on("0+", default=None)


@wire
class FetchableTopicResponse:
    topic: String = on("0-12", default="", ignorable=True)
    topic_id: Uuid = on("13+", default=NO_UUID, ignorable=True)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("16+", default=0)
    host: String = on("16+", default="")
    port: Int32 = on("16+", default=0)
    rack: String | None = on("16+", default=None)


@wire(versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    error_code: Int16 = on("7+", default=0, ignorable=True)
    session_id: Int32 = on("7+", default=0)
    responses: list[FetchableTopicResponse] = on("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = on("16+", factory=list, tag=0)
