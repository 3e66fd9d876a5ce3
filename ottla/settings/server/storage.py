"""Logs on disk: directories, segments, retention, flushing and compaction."""

from ottla.kernel.validators import (
    CLEANUP,
    CODECS,
    DOUBLE_MAX,
    FULL_LIST,
    FULL_LIST_OR_NULL,
    LIST_OR_NULL,
    LONG_MAX,
    NOT_NEGATIVE,
    POSITIVE,
    TIMESTAMP,
    AtLeast,
    Between,
)
from ottla.settings.schema import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    PER_BROKER,
    Setting,
    boolean,
    derived,
    double,
    integer,
    listing,
    long,
    string,
)


class StorageDeclaration:
    """Logs on disk: directories, segments, retention, flushing and compaction."""

    log_dir = listing(
        "log.dir", ("/tmp/kafka-logs",), "The directory of the logs if log.dirs is not set.", FULL_LIST, HIGH
    )
    log_dirs: Setting[tuple[str, ...]] = derived(
        listing("log.dirs", None, "The directories of the logs, comma-separated.", FULL_LIST_OR_NULL, HIGH)
    )
    cordoned_log_dirs = listing(
        "cordoned.log.dirs", (), "Directories that get no new partitions; * means all.", LIST_OR_NULL, mode=PER_BROKER
    )
    num_recovery_threads_per_data_dir = integer(
        "num.recovery.threads.per.data.dir",
        2,
        "The number of logs in a directory that are recovered concurrently after a crash.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
    )
    log_dir_failure_timeout_ms = long(
        "log.dir.failure.timeout.ms",
        30_000,
        "A broker that cannot report a failed directory to the controller for this long stops.",
        POSITIVE,
        LOW,
    )
    log_initial_task_delay_ms = long(
        "log.initial.task.delay.ms",
        30_000,
        "The delay of the first log housekeeping after startup.",
        NOT_NEGATIVE,
        LOW,
        internal=True,
        served=False,
    )
    auto_create_topics_enable = boolean(
        "auto.create.topics.enable",
        True,
        "Whether requests for an unknown topic create it.",
        importance=HIGH,
    )
    delete_topic_enable = boolean("delete.topic.enable", True, "Whether topics may be deleted.", importance=HIGH)
    num_partitions = integer("num.partitions", 1, "The default partition count of new topics.", POSITIVE)
    default_replication_factor = integer(
        "default.replication.factor", 1, "The default replication factor of new topics."
    )
    message_max_bytes = integer(
        "message.max.bytes",
        1_048_588,
        "The largest record batch in bytes, as it is stored.",
        NOT_NEGATIVE,
        HIGH,
        CLUSTER_WIDE,
    )
    compression_type = string(
        "compression.type",
        "producer",
        "The compression of stored batches: producer keeps the producer's, a codec recompresses them.",
        CODECS,
        HIGH,
        CLUSTER_WIDE,
    )
    compression_gzip_level = integer(
        "compression.gzip.level",
        -1,
        "The gzip level when this node compresses; -1 is the library's default.",
        Between(1, 9, other=-1),
        mode=CLUSTER_WIDE,
    )
    compression_lz4_level = integer(
        "compression.lz4.level", 9, "The lz4 level when this node compresses.", Between(1, 17), mode=CLUSTER_WIDE
    )
    compression_zstd_level = integer(
        "compression.zstd.level",
        3,
        "The zstd level when this node compresses.",
        Between(-131_072, 22),
        mode=CLUSTER_WIDE,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "The minimum size of the ISR to accept a write with acks=all.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
    )
    log_segment_bytes = integer(
        "log.segment.bytes",
        1_073_741_824,
        "The size at which a log starts a new segment.",
        AtLeast(1_048_576),
        HIGH,
        CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms = long(
        "log.segment.delete.delay.ms",
        60_000,
        "How long a deleted segment's files stay on the disk, so that readers can finish.",
        NOT_NEGATIVE,
        HIGH,
        CLUSTER_WIDE,
    )
    log_roll_hours = integer(
        "log.roll.hours", 168, "The age at which a log starts a new segment, in hours.", POSITIVE, HIGH
    )
    log_roll_ms: Setting[int] = derived(
        long(
            "log.roll.ms",
            None,
            "The age at which a log starts a new segment; overrides log.roll.hours.",
            importance=HIGH,
            mode=CLUSTER_WIDE,
        )
    )
    log_roll_jitter_hours = integer(
        "log.roll.jitter.hours", 0, "The maximum random jitter subtracted from log.roll.hours.", NOT_NEGATIVE, HIGH
    )
    log_roll_jitter_ms: Setting[int] = derived(
        long(
            "log.roll.jitter.ms",
            None,
            "The maximum random jitter subtracted from log.roll.ms; overrides log.roll.jitter.hours.",
            importance=HIGH,
            mode=CLUSTER_WIDE,
        )
    )
    log_retention_hours = integer(
        "log.retention.hours", 168, "How long segments are kept, in hours; -1 forever.", importance=HIGH
    )
    log_retention_minutes = integer(
        "log.retention.minutes",
        None,
        "How long segments are kept, in minutes; overrides log.retention.hours.",
        importance=HIGH,
    )
    log_retention_ms: Setting[int] = derived(
        long(
            "log.retention.ms",
            None,
            "How long segments are kept; overrides log.retention.minutes; -1 forever.",
            importance=HIGH,
            mode=CLUSTER_WIDE,
        )
    )
    log_retention_bytes = long(
        "log.retention.bytes",
        -1,
        "How many bytes of a partition are kept; -1 means no limit.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    log_retention_check_interval_ms = long(
        "log.retention.check.interval.ms",
        300_000,
        "How often the logs are checked for segments to delete.",
        POSITIVE,
    )
    log_cleanup_policy = listing(
        "log.cleanup.policy",
        ("delete",),
        "The cleanup of old segments: delete, compact, both, or none if empty.",
        CLEANUP,
        mode=CLUSTER_WIDE,
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes",
        4096,
        "The bytes of batches between two index entries.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes",
        10_485_760,
        "The maximum size of an index file; a full index starts a new segment.",
        AtLeast(4),
        mode=CLUSTER_WIDE,
    )
    log_flush_interval_messages = long(
        "log.flush.interval.messages",
        LONG_MAX,
        "The number of unflushed records after which a log is flushed.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
    )
    log_flush_interval_ms: Setting[int] = derived(
        long(
            "log.flush.interval.ms",
            None,
            "How long records may stay unflushed.",
            importance=HIGH,
            mode=CLUSTER_WIDE,
        )
    )
    log_flush_scheduler_interval_ms = long(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "How often the logs are checked for records to flush.",
        importance=HIGH,
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often the recovery points are written to the disk.",
        NOT_NEGATIVE,
        HIGH,
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often changed log start offsets are written to the disk. The recovery points' interval writes them, too.",
        NOT_NEGATIVE,
        HIGH,
    )
    log_message_timestamp_type = string(
        "log.message.timestamp.type",
        "CreateTime",
        "The timestamp of records: CreateTime is the producer's, LogAppendTime this node's.",
        TIMESTAMP,
        mode=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms = long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's timestamp may be behind this node's clock.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms = long(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's timestamp may be ahead of this node's clock.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_preallocate = boolean(
        "log.preallocate",
        False,
        "Whether new segment files are preallocated.",
        mode=CLUSTER_WIDE,
        served=False,
    )
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Whether compacted topics are compacted.")
    log_cleaner_threads = integer(
        "log.cleaner.threads", 1, "The number of logs compacted concurrently.", NOT_NEGATIVE, mode=CLUSTER_WIDE
    )
    log_cleaner_backoff_ms = long(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner sleeps when there is nothing to compact.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size = long(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "The memory of the cleaner for deduplicating keys.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms = long(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a compacted log keeps tombstones.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor = double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        "The maximum load factor of the cleaner's key table.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size = integer(
        "log.cleaner.io.buffer.size",
        524_288,
        "The memory of the cleaner for I/O.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second = double(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        "The maximum I/O of the cleaner in bytes per second.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_min_cleanable_ratio = double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "The minimum fraction of uncompacted bytes for a compaction.",
        Between(0, 1),
        mode=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "The minimum age of a record for compaction.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    log_cleaner_max_compaction_lag_ms = long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "The maximum time that a record may stay uncompacted.",
        POSITIVE,
        mode=CLUSTER_WIDE,
    )
