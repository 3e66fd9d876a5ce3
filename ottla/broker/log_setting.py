"""From a topic's settings to the plain numbers of its logs."""

from ottla.kernel.topic_settings import TopicSettings
from ottla.log.setting import LogSettings
from ottla.wire.codec import Codec

_KEEP = "producer"


def log_settings(topic: TopicSettings) -> LogSettings:
    """What a log needs to know, resolved from the topic and behind it the server."""
    codec = None
    if topic.compression_type != _KEEP:
        name = topic.compression_type.upper()
        codec = Codec.NONE if name == "UNCOMPRESSED" else Codec[name]
    return LogSettings(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
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
        min_insync_replicas=topic.min_insync_replicas,
        codec=codec,
        gzip_level=topic.compression_gzip_level,
        lz4_level=topic.compression_lz4_level,
        zstd_level=topic.compression_zstd_level,
        log_append_time=topic.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
    )
