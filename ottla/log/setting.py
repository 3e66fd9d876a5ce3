"""The settings that a log needs, as plain numbers, resolved from topic and broker settings."""

from typing import TYPE_CHECKING

from ottla.kernel.frozen import frozen
from ottla.settings.server.transaction import TransactionDeclaration
from ottla.settings.topic.declaration import TopicDeclaration
from ottla.wire.codec import CODEC_BY_NAME, Codec

if TYPE_CHECKING:
    from ottla.settings.topic.settings import TopicSettings

#: Java's Long.MAX_VALUE: Kafka's way to say "no limit".
UNLIMITED = (1 << 63) - 1


@frozen
class LogSettings:
    """The resolved settings. Each name is the topic setting's with `_` for `.`, the unit last."""

    segment_bytes: int = TopicDeclaration.segment_bytes.default
    segment_ms: int = TopicDeclaration.segment_ms.default
    segment_jitter_ms: int = TopicDeclaration.segment_jitter_ms.default
    segment_index_bytes: int = TopicDeclaration.segment_index_bytes.default
    index_interval_bytes: int = TopicDeclaration.index_interval_bytes.default
    max_message_bytes: int = TopicDeclaration.max_message_bytes.default
    retention_ms: int = TopicDeclaration.retention_ms.default
    retention_bytes: int = TopicDeclaration.retention_bytes.default
    file_delete_delay_ms: int = TopicDeclaration.file_delete_delay_ms.default
    flush_messages: int = TopicDeclaration.flush_messages.default
    flush_ms: int = TopicDeclaration.flush_ms.default
    #: Any of `delete` and `compact`.
    cleanup_policy: frozenset[str] = frozenset(TopicDeclaration.cleanup_policy.default)
    #: The cleaner's settings.
    delete_retention_ms: int = TopicDeclaration.delete_retention_ms.default
    min_cleanable_dirty_ratio: float = TopicDeclaration.min_cleanable_dirty_ratio.default
    min_compaction_lag_ms: int = TopicDeclaration.min_compaction_lag_ms.default
    max_compaction_lag_ms: int = TopicDeclaration.max_compaction_lag_ms.default
    #: Used by the produce handler, not by the log.
    min_insync_replicas: int = TopicDeclaration.min_insync_replicas.default
    #: None for `compression.type=producer`: batches keep their codec.
    codec: Codec | None = None
    gzip_level: int = TopicDeclaration.compression_gzip_level.default
    lz4_level: int = TopicDeclaration.compression_lz4_level.default
    zstd_level: int = TopicDeclaration.compression_zstd_level.default
    #: `message.timestamp.type=LogAppendTime`.
    log_append_time: bool = False
    timestamp_before_max_ms: int = TopicDeclaration.message_timestamp_before_max_ms.default
    timestamp_after_max_ms: int = TopicDeclaration.message_timestamp_after_max_ms.default
    producer_expiration_ms: int = TransactionDeclaration.producer_id_expiration_ms.default

    @classmethod
    def of(cls, topic: "TopicSettings", producer_expiration_ms: int) -> "LogSettings":
        """Extract a log's settings from a topic's resolved settings."""
        compression = topic.compression_type
        segment_ms = topic.segment_ms
        if "compact" in topic.cleanup_policy:
            # Roll early enough: the cleaner cannot clean the active segment (KIP-354).
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
        """The compression level of this topic for `codec`."""
        return {Codec.GZIP: self.gzip_level, Codec.LZ4: self.lz4_level, Codec.ZSTD: self.zstd_level}.get(codec)
