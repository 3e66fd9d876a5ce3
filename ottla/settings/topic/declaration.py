"""A topic's settings (34), each with the server setting it falls back to."""

from ottla.kernel.validators import (
    CLEANUP,
    CODECS,
    EVERY_REPLICA,
    LONG_MAX,
    NOT_NEGATIVE,
    POSITIVE,
    TIMESTAMP,
    AtLeast,
    Between,
)
from ottla.settings.schema import boolean, double, integer, listing, long, string


class TopicDeclaration:
    """A topic's settings (34), each with the server setting it falls back to."""

    cleanup_policy = listing(
        "cleanup.policy",
        ("delete",),
        "What happens to old segments: delete, compact, both, or nothing when empty.",
        CLEANUP,
        broker="log.cleanup.policy",
    )
    compression_type = string(
        "compression.type",
        "producer",
        "How batches are stored: producer keeps them as they came, a codec's name compresses them again.",
        CODECS,
        broker="compression.type",
    )
    compression_gzip_level = integer(
        "compression.gzip.level",
        -1,
        "The level for gzip when the node compresses; -1 is the library's own.",
        Between(1, 9, other=-1),
        broker="compression.gzip.level",
    )
    compression_lz4_level = integer(
        "compression.lz4.level",
        9,
        "The level for lz4 when the node compresses.",
        Between(1, 17),
        broker="compression.lz4.level",
    )
    compression_zstd_level = integer(
        "compression.zstd.level",
        3,
        "The level for zstd when the node compresses.",
        Between(-131_072, 22),
        broker="compression.zstd.level",
    )
    retention_ms = long(
        "retention.ms", 604_800_000, "How long segments are kept; -1 forever.", AtLeast(-1), broker="log.retention.ms"
    )
    retention_bytes = long(
        "retention.bytes",
        -1,
        "How many bytes of each partition are kept; -1 does not count them.",
        broker="log.retention.bytes",
    )
    segment_bytes = integer(
        "segment.bytes",
        1_073_741_824,
        "The size at which a partition starts a new segment.",
        AtLeast(1_048_576),
        broker="log.segment.bytes",
    )
    segment_ms = long(
        "segment.ms", 604_800_000, "The age at which a partition starts a new segment.", POSITIVE, broker="log.roll.ms"
    )
    segment_jitter_ms = long(
        "segment.jitter.ms",
        0,
        "How much earlier at random a segment may end.",
        NOT_NEGATIVE,
        broker="log.roll.jitter.ms",
    )
    segment_index_bytes = integer(
        "segment.index.bytes",
        10_485_760,
        "The most bytes of one index file; a full index starts a new segment.",
        AtLeast(4),
        broker="log.index.size.max.bytes",
    )
    index_interval_bytes = integer(
        "index.interval.bytes",
        4096,
        "How many bytes of batches lie between two index entries.",
        NOT_NEGATIVE,
        broker="log.index.interval.bytes",
    )
    internal_segment_bytes = integer(
        "internal.segment.bytes",
        None,
        "The segment size in Apache Kafka's own tests; goes before segment.bytes.",
        internal=True,
    )
    file_delete_delay_ms = long(
        "file.delete.delay.ms",
        60_000,
        "How long a deleted segment's files stay on the disk, so that readers can finish.",
        NOT_NEGATIVE,
        broker="log.segment.delete.delay.ms",
    )
    flush_messages = long(
        "flush.messages",
        LONG_MAX,
        "How many records may lie in the page cache before the partition is flushed.",
        POSITIVE,
        broker="log.flush.interval.messages",
    )
    flush_ms = long(
        "flush.ms",
        LONG_MAX,
        "How long records may lie in the page cache before the partition is flushed.",
        NOT_NEGATIVE,
        broker="log.flush.interval.ms",
    )
    max_message_bytes = integer(
        "max.message.bytes",
        1_048_588,
        "The largest record batch in bytes, as it is stored.",
        NOT_NEGATIVE,
        broker="message.max.bytes",
    )
    message_timestamp_type = string(
        "message.timestamp.type",
        "CreateTime",
        "Whose time a record has: CreateTime the producer's, LogAppendTime the node's.",
        TIMESTAMP,
        broker="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms = long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's time may lie behind the node's.",
        NOT_NEGATIVE,
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms = long(
        "message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's time may lie ahead of the node's.",
        NOT_NEGATIVE,
        broker="log.message.timestamp.after.max.ms",
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "How many replicas must have a record before acks=all is answered.",
        POSITIVE,
        broker="min.insync.replicas",
    )
    preallocate = boolean(
        "preallocate",
        False,
        "Whether a new segment's file is made at its full size.",
        broker="log.preallocate",
        served=False,
    )
    delete_retention_ms = long(
        "delete.retention.ms",
        86_400_000,
        "How long a compacted topic keeps the marks of deleted keys.",
        NOT_NEGATIVE,
        broker="log.cleaner.delete.retention.ms",
    )
    min_cleanable_dirty_ratio = double(
        "min.cleanable.dirty.ratio",
        0.5,
        "Which part of a partition must be new before it is compacted.",
        Between(0, 1),
        broker="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms = long(
        "min.compaction.lag.ms",
        0,
        "How long a record is safe from compaction.",
        NOT_NEGATIVE,
        broker="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms = long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "How long a record may wait for compaction.",
        POSITIVE,
        broker="log.cleaner.max.compaction.lag.ms",
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead when no other can: records may be lost.",
        broker="unclean.leader.election.enable",
    )
    leader_replication_throttled_replicas = listing(
        "leader.replication.throttled.replicas",
        (),
        "Replicas whose leader sends slowly, as partition:node, or * for all.",
        EVERY_REPLICA,
        served=False,
    )
    follower_replication_throttled_replicas = listing(
        "follower.replication.throttled.replicas",
        (),
        "Replicas whose follower copies slowly, as partition:node, or * for all.",
        EVERY_REPLICA,
        served=False,
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
        -2,
        "How many bytes of a tiered partition stay on the disk; -2 follows retention.bytes.",
        AtLeast(-2),
        broker="log.local.retention.bytes",
        served=False,
    )
    local_retention_ms = long(
        "local.retention.ms",
        -2,
        "How long segments of a tiered partition stay on the disk; -2 follows retention.ms.",
        AtLeast(-2),
        broker="log.local.retention.ms",
        served=False,
    )
