"""The plain numbers a log needs, resolved from topic and broker settings by its opener."""

from typing import TYPE_CHECKING

from ottla.kernel.frozen import frozen
from ottla.wire.codec import CODEC_BY_NAME, Codec

if TYPE_CHECKING:
    from ottla.settings.topic.settings import TopicSettings

#: Java's Long.MAX_VALUE: Kafka's way to say "no limit".
UNLIMITED = (1 << 63) - 1


@frozen
class LogSettings:
    """Defaults are Kafka 4.3.1's. Names are the topic settings' with `_` for `.`, the unit last."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    #: Any of `delete` and `compact`.
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    #: What the cleaner goes by.
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    #: Not used by the log itself: the produce handler asks it of the log's topic.
    min_insync_replicas: int = 1
    #: None is `compression.type=producer`: batches stay as they came.
    codec: Codec | None = None
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3
    #: `message.timestamp.type=LogAppendTime`.
    log_append_time: bool = False
    timestamp_before_max_ms: int = UNLIMITED
    timestamp_after_max_ms: int = 3_600_000
    producer_expiration_ms: int = 86_400_000

    @classmethod
    def of(cls, topic: "TopicSettings", producer_expiration_ms: int = 86_400_000) -> "LogSettings":
        """What a log needs of a topic's resolved settings."""
        compression = topic.compression_type
        segment_ms = topic.segment_ms
        if "compact" in topic.cleanup_policy:
            # What lies in the active segment cannot be cleaned in time (KIP-354).
            segment_ms = min(segment_ms, topic.max_compaction_lag_ms)
        return cls(
            segment_bytes=topic.segment_bytes if topic.internal_segment_bytes is None else topic.internal_segment_bytes,
            segment_ms=segment_ms,
            segment_jitter_ms=topic.segment_jitter_ms,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            max_message_bytes=topic.max_message_bytes,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            file_delete_delay_ms=topic.file_delete_delay_ms,
            flush_messages=topic.flush_messages,
            flush_ms=topic.flush_ms,
            cleanup_policy=frozenset(topic.cleanup_policy),
            delete_retention_ms=topic.delete_retention_ms,
            min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=topic.min_compaction_lag_ms,
            max_compaction_lag_ms=topic.max_compaction_lag_ms,
            min_insync_replicas=topic.min_insync_replicas,
            codec=None if compression == "producer" else CODEC_BY_NAME[compression],
            gzip_level=topic.compression_gzip_level,
            lz4_level=topic.compression_lz4_level,
            zstd_level=topic.compression_zstd_level,
            log_append_time=topic.message_timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
            timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
            producer_expiration_ms=producer_expiration_ms,
        )

    def level(self, codec: Codec) -> int | None:
        """The level at which this topic compresses with `codec`."""
        return {Codec.GZIP: self.gzip_level, Codec.LZ4: self.lz4_level, Codec.ZSTD: self.zstd_level}.get(codec)
