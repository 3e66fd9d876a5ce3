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
        "What happens to old segments: delete, compact, both, or nothing when empty.",
        CLEANUP,
    )
    compression_type = string(
        "compression.type",
        StorageDeclaration.compression_type,
        "How batches are stored: producer keeps them as they came, a codec's name compresses them again.",
        CODECS,
    )
    compression_gzip_level = integer(
        "compression.gzip.level",
        StorageDeclaration.compression_gzip_level,
        "The level for gzip when the node compresses; -1 is the library's own.",
        Between(1, 9, other=-1),
    )
    compression_lz4_level = integer(
        "compression.lz4.level",
        StorageDeclaration.compression_lz4_level,
        "The level for lz4 when the node compresses.",
        Between(1, 17),
    )
    compression_zstd_level = integer(
        "compression.zstd.level",
        StorageDeclaration.compression_zstd_level,
        "The level for zstd when the node compresses.",
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
        "How many bytes of each partition are kept; -1 does not count them.",
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
        "How much earlier at random a segment may end.",
        NOT_NEGATIVE,
        broker="log.roll.jitter.ms",
    )
    segment_index_bytes = integer(
        "segment.index.bytes",
        StorageDeclaration.log_index_size_max_bytes,
        "The most bytes of one index file; a full index starts a new segment.",
        AtLeast(4),
    )
    index_interval_bytes = integer(
        "index.interval.bytes",
        StorageDeclaration.log_index_interval_bytes,
        "How many bytes of batches lie between two index entries.",
        NOT_NEGATIVE,
    )
    internal_segment_bytes = integer(
        "internal.segment.bytes",
        None,
        "The segment size in Apache Kafka's own tests; goes before segment.bytes.",
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
        "How many records may lie in the page cache before the partition is flushed.",
        POSITIVE,
    )
    flush_ms = long(
        "flush.ms",
        StorageDeclaration.log_flush_scheduler_interval_ms.default,
        "How long records may lie in the page cache before the partition is flushed.",
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
        "Whose time a record has: CreateTime the producer's, LogAppendTime the node's.",
        TIMESTAMP,
    )
    message_timestamp_before_max_ms = long(
        "message.timestamp.before.max.ms",
        StorageDeclaration.log_message_timestamp_before_max_ms,
        "How far a record's time may lie behind the node's.",
        NOT_NEGATIVE,
    )
    message_timestamp_after_max_ms = long(
        "message.timestamp.after.max.ms",
        StorageDeclaration.log_message_timestamp_after_max_ms,
        "How far a record's time may lie ahead of the node's.",
        NOT_NEGATIVE,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        StorageDeclaration.min_insync_replicas,
        "How many replicas must have a record before acks=all is answered.",
        POSITIVE,
    )
    preallocate = boolean(
        "preallocate",
        StorageDeclaration.log_preallocate,
        "Whether a new segment's file is made at its full size.",
        served=False,
    )
    delete_retention_ms = long(
        "delete.retention.ms",
        StorageDeclaration.log_cleaner_delete_retention_ms,
        "How long a compacted topic keeps the marks of deleted keys.",
        NOT_NEGATIVE,
    )
    min_cleanable_dirty_ratio = double(
        "min.cleanable.dirty.ratio",
        StorageDeclaration.log_cleaner_min_cleanable_ratio,
        "Which part of a partition must be new before it is compacted.",
        Between(0, 1),
    )
    min_compaction_lag_ms = long(
        "min.compaction.lag.ms",
        StorageDeclaration.log_cleaner_min_compaction_lag_ms,
        "How long a record is safe from compaction.",
        NOT_NEGATIVE,
    )
    max_compaction_lag_ms = long(
        "max.compaction.lag.ms",
        StorageDeclaration.log_cleaner_max_compaction_lag_ms,
        "How long a record may wait for compaction.",
        POSITIVE,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        ReplicationDeclaration.unclean_leader_election_enable,
        "Whether a replica that is not in sync may lead when no other can: records may be lost.",
    )
    leader_replication_throttled_replicas = listing(
        "leader.replication.throttled.replicas",
        (),
        "Replicas whose leader sends slowly, as partition:node, or * for all.",
        EVERY_REPLICA,
    )
    follower_replication_throttled_replicas = listing(
        "follower.replication.throttled.replicas",
        (),
        "Replicas whose follower copies slowly, as partition:node, or * for all.",
        EVERY_REPLICA,
    )
    remote_storage_enable = boolean(
        "remote.storage.enable", False, "Whether this topic's segments are moved to remote storage.", served=False
    )
    remote_log_copy_disable = boolean(
        "remote.log.copy.disable",
        False,
        "Whether moving to remote storage stops while what is there can still be read.",
        served=False,
    )
    remote_log_delete_on_disable = boolean(
        "remote.log.delete.on.disable",
        False,
        "Whether the remote segments go when remote storage is switched off.",
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
