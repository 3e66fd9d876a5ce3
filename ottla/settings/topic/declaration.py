"""A topic's settings (34), each with the server setting it falls back to."""

from ottla.kernel.validators import (
    CLEANUP,
    CODECS,
    EVERY_REPLICA,
    NOT_NEGATIVE,
    POSITIVE,
    TIMESTAMP,
    AtLeast,
    Between,
)
from ottla.settings.schema import boolean, double, integer, listing, long, string
from ottla.settings.server.remote import RemoteDeclaration
from ottla.settings.server.replication import ReplicationDeclaration
from ottla.settings.server.storage import StorageDeclaration

_HOUR_MS = 3_600_000


class TopicDeclaration:
    """A topic's settings (34), each with the server setting it falls back to."""

    cleanup_policy = listing(
        "cleanup.policy",
        StorageDeclaration.log_cleanup_policy,
        "The cleanup of old segments: delete, compact, both, or none if empty.",
        CLEANUP,
    )
    compression_type = string(
        "compression.type",
        StorageDeclaration.compression_type,
        "The compression of stored batches: producer keeps the producer's, a codec recompresses them.",
        CODECS,
    )
    compression_gzip_level = integer(
        "compression.gzip.level",
        StorageDeclaration.compression_gzip_level,
        "The gzip level when the node compresses; -1 is the library's default.",
        Between(1, 9, other=-1),
    )
    compression_lz4_level = integer(
        "compression.lz4.level",
        StorageDeclaration.compression_lz4_level,
        "The lz4 level when the node compresses.",
        Between(1, 17),
    )
    compression_zstd_level = integer(
        "compression.zstd.level",
        StorageDeclaration.compression_zstd_level,
        "The zstd level when the node compresses.",
        Between(-131_072, 22),
    )
    retention_ms = long(
        "retention.ms",
        StorageDeclaration.log_retention_hours.default * _HOUR_MS,
        "How long segments are kept; -1 forever.",
        AtLeast(-1),
        broker="log.retention.ms",
    )
    retention_bytes = long(
        "retention.bytes",
        StorageDeclaration.log_retention_bytes,
        "How many bytes of each partition are kept; -1 means no limit.",
    )
    segment_bytes = integer(
        "segment.bytes",
        StorageDeclaration.log_segment_bytes,
        "The size at which a partition starts a new segment.",
        AtLeast(1_048_576),
    )
    segment_ms = long(
        "segment.ms",
        StorageDeclaration.log_roll_hours.default * _HOUR_MS,
        "The age at which a partition starts a new segment.",
        POSITIVE,
        broker="log.roll.ms",
    )
    segment_jitter_ms = long(
        "segment.jitter.ms",
        StorageDeclaration.log_roll_jitter_hours.default * _HOUR_MS,
        "The maximum random jitter subtracted from segment.ms.",
        NOT_NEGATIVE,
        broker="log.roll.jitter.ms",
    )
    segment_index_bytes = integer(
        "segment.index.bytes",
        StorageDeclaration.log_index_size_max_bytes,
        "The maximum size of an index file; a full index starts a new segment.",
        AtLeast(4),
    )
    index_interval_bytes = integer(
        "index.interval.bytes",
        StorageDeclaration.log_index_interval_bytes,
        "The bytes of batches between two index entries.",
        NOT_NEGATIVE,
    )
    internal_segment_bytes = integer(
        "internal.segment.bytes",
        None,
        "The segment size in Apache Kafka's own tests; overrides segment.bytes.",
        internal=True,
    )
    file_delete_delay_ms = long(
        "file.delete.delay.ms",
        StorageDeclaration.log_segment_delete_delay_ms,
        "How long a deleted segment's files stay on the disk, so that readers can finish.",
        NOT_NEGATIVE,
    )
    flush_messages = long(
        "flush.messages",
        StorageDeclaration.log_flush_interval_messages,
        "The number of unflushed records after which the partition is flushed.",
        POSITIVE,
    )
    flush_ms = long(
        "flush.ms",
        StorageDeclaration.log_flush_scheduler_interval_ms.default,
        "How long records may stay unflushed.",
        NOT_NEGATIVE,
        broker="log.flush.interval.ms",
    )
    max_message_bytes = integer(
        "max.message.bytes",
        StorageDeclaration.message_max_bytes,
        "The largest record batch in bytes, as it is stored.",
        NOT_NEGATIVE,
    )
    message_timestamp_type = string(
        "message.timestamp.type",
        StorageDeclaration.log_message_timestamp_type,
        "The timestamp of records: CreateTime is the producer's, LogAppendTime the node's.",
        TIMESTAMP,
    )
    message_timestamp_before_max_ms = long(
        "message.timestamp.before.max.ms",
        StorageDeclaration.log_message_timestamp_before_max_ms,
        "How far a record's timestamp may be behind the node's clock.",
        NOT_NEGATIVE,
    )
    message_timestamp_after_max_ms = long(
        "message.timestamp.after.max.ms",
        StorageDeclaration.log_message_timestamp_after_max_ms,
        "How far a record's timestamp may be ahead of the node's clock.",
        NOT_NEGATIVE,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        StorageDeclaration.min_insync_replicas,
        "The minimum size of the ISR to accept a write with acks=all.",
        POSITIVE,
    )
    preallocate = boolean(
        "preallocate",
        StorageDeclaration.log_preallocate,
        "Whether new segment files are preallocated.",
        served=False,
    )
    delete_retention_ms = long(
        "delete.retention.ms",
        StorageDeclaration.log_cleaner_delete_retention_ms,
        "How long a compacted topic keeps tombstones.",
        NOT_NEGATIVE,
    )
    min_cleanable_dirty_ratio = double(
        "min.cleanable.dirty.ratio",
        StorageDeclaration.log_cleaner_min_cleanable_ratio,
        "The minimum fraction of uncompacted bytes for a compaction.",
        Between(0, 1),
    )
    min_compaction_lag_ms = long(
        "min.compaction.lag.ms",
        StorageDeclaration.log_cleaner_min_compaction_lag_ms,
        "The minimum age of a record for compaction.",
        NOT_NEGATIVE,
    )
    max_compaction_lag_ms = long(
        "max.compaction.lag.ms",
        StorageDeclaration.log_cleaner_max_compaction_lag_ms,
        "The maximum time that a record may stay uncompacted.",
        POSITIVE,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        ReplicationDeclaration.unclean_leader_election_enable,
        "Whether an out-of-sync replica may become the leader if no other can; records may be lost.",
    )
    leader_replication_throttled_replicas = listing(
        "leader.replication.throttled.replicas",
        (),
        "Replicas throttled on the leader, as partition:node, or * for all.",
        EVERY_REPLICA,
    )
    follower_replication_throttled_replicas = listing(
        "follower.replication.throttled.replicas",
        (),
        "Replicas throttled on the follower, as partition:node, or * for all.",
        EVERY_REPLICA,
    )
    remote_storage_enable = boolean(
        "remote.storage.enable", False, "Whether this topic's segments are moved to remote storage.", served=False
    )
    remote_log_copy_disable = boolean(
        "remote.log.copy.disable",
        False,
        "Whether copying to remote storage stops while existing remote segments stay readable.",
        served=False,
    )
    remote_log_delete_on_disable = boolean(
        "remote.log.delete.on.disable",
        False,
        "Whether remote segments are deleted when remote storage is disabled.",
        served=False,
    )
    local_retention_bytes = long(
        "local.retention.bytes",
        RemoteDeclaration.log_local_retention_bytes,
        "How many bytes of a tiered partition stay on the disk; -2 follows retention.bytes.",
        AtLeast(-2),
        served=False,
    )
    local_retention_ms = long(
        "local.retention.ms",
        RemoteDeclaration.log_local_retention_ms,
        "How long segments of a tiered partition stay on the disk; -2 follows retention.ms.",
        AtLeast(-2),
        served=False,
    )
