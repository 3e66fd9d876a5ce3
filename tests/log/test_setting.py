"""Each setting of a topic reaches its log."""

from __future__ import annotations

import pytest

from ottla.log.setting import LogSettings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings
from ottla.wire.codec import Codec

SERVER = ServerSettings.parse(
    {
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "process.roles": "broker,controller",
        "controller.listener.names": "C",
        "listeners": "PLAINTEXT://:9092,C://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,C:PLAINTEXT",
    }
)
#: Topic setting and value -> field of the log's settings and its value.
REACHES = {
    ("segment.bytes", "1048577"): ("segment_bytes", 1_048_577),
    ("internal.segment.bytes", "4242"): ("segment_bytes", 4242),
    ("segment.ms", "4243"): ("segment_ms", 4243),
    ("segment.jitter.ms", "4244"): ("segment_jitter_ms", 4244),
    ("segment.index.bytes", "4248"): ("segment_index_bytes", 4248),
    ("index.interval.bytes", "4246"): ("index_interval_bytes", 4246),
    ("max.message.bytes", "4247"): ("max_message_bytes", 4247),
    ("retention.ms", "4248"): ("retention_ms", 4248),
    ("retention.bytes", "4249"): ("retention_bytes", 4249),
    ("file.delete.delay.ms", "4250"): ("file_delete_delay_ms", 4250),
    ("flush.messages", "4251"): ("flush_messages", 4251),
    ("flush.ms", "4252"): ("flush_ms", 4252),
    ("cleanup.policy", "compact,delete"): ("cleanup_policy", frozenset({"compact", "delete"})),
    ("delete.retention.ms", "4253"): ("delete_retention_ms", 4253),
    ("min.cleanable.dirty.ratio", "0.25"): ("min_cleanable_dirty_ratio", 0.25),
    ("min.compaction.lag.ms", "4254"): ("min_compaction_lag_ms", 4254),
    ("max.compaction.lag.ms", "4255"): ("max_compaction_lag_ms", 4255),
    ("min.insync.replicas", "3"): ("min_insync_replicas", 3),
    ("compression.type", "producer"): ("codec", None),
    ("compression.type", "lz4"): ("codec", Codec.LZ4),
    ("compression.type", "uncompressed"): ("codec", Codec.NONE),
    ("compression.gzip.level", "3"): ("gzip_level", 3),
    ("compression.lz4.level", "4"): ("lz4_level", 4),
    ("compression.zstd.level", "5"): ("zstd_level", 5),
    ("message.timestamp.type", "LogAppendTime"): ("log_append_time", True),
    ("message.timestamp.type", "CreateTime"): ("log_append_time", False),
    ("message.timestamp.before.max.ms", "4256"): ("timestamp_before_max_ms", 4256),
    ("message.timestamp.after.max.ms", "4257"): ("timestamp_after_max_ms", 4257),
}


@pytest.mark.parametrize(("setting", "reached"), REACHES.items(), ids=[f"{name}={text}" for name, text in REACHES])
def test_a_setting_of_a_topic_reaches_its_log(setting: tuple[str, str], reached: tuple[str, object]) -> None:
    name, text = setting
    settings = LogSettings.of(TopicSettings.resolve({name: text}, SERVER), 77)
    field, value = reached
    assert getattr(settings, field) == value
    assert settings.producer_expiration_ms == 77


def test_every_setting_of_a_log_is_tested() -> None:
    assert {field for field, _ in REACHES.values()} | {"producer_expiration_ms"} == set(LogSettings.__annotations__)
