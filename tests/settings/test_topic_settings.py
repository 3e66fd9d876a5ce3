"""A topic's and a group's settings, with the server's behind them."""

import re

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.group.settings import GroupSettings
from ottla.settings.schema import SettingSource, Synonym
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings
from tests.settings.test_server_settings import settings as server


def test_a_topic_has_what_the_server_has_until_it_says_otherwise() -> None:
    topic = TopicSettings.resolve(
        {"retention.ms": "1000", "cleanup.policy": "compact,delete"},
        server(log_segment_bytes="2097152", log_roll_hours="2", message_max_bytes="77", compression_type="zstd"),
    )
    assert (topic.retention_ms, topic.cleanup_policy) == (1000, ("compact", "delete"))
    assert (topic.segment_bytes, topic.segment_ms, topic.max_message_bytes) == (2097152, 7_200_000, 77)
    assert topic.compression_type == "zstd"


def test_a_topic_follows_a_change_of_the_server() -> None:
    changed = server().with_dynamic({}, {"log.retention.ms": "9"})
    assert TopicSettings.resolve({}, changed).retention_ms == 9


def test_every_default_of_a_topic_is_kafkas_under_a_server_without_settings_of_its_own() -> None:
    topic = TopicSettings.resolve({}, server())
    for name, setting in TopicSettings.declared().items():
        assert topic.text(name) == setting.default_text, name


def test_the_synonyms_of_a_topics_setting_go_on_into_the_servers() -> None:
    topic = TopicSettings.resolve({"retention.ms": "1"}, server(log_retention_ms="2"))
    assert topic.synonyms("retention.ms") == [
        Synonym("retention.ms", "1", SettingSource.TOPIC),
        Synonym("log.retention.ms", "2", SettingSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", SettingSource.DEFAULT),
    ]


def test_a_topics_source_is_the_default_where_only_another_name_has_a_value() -> None:
    topic = TopicSettings.resolve({}, server(log_retention_hours="2"))
    assert topic.retention_ms == 7_200_000
    # Apache Kafka answers so: log.retention.hours has the value, and the topic's name stands for log.retention.ms.
    assert topic.synonyms("retention.ms") == []
    assert topic.source_of("segment.bytes") is SettingSource.DEFAULT
    assert topic.source_of("follower.replication.throttled.replicas") is SettingSource.DEFAULT


def test_what_a_later_release_has_set_is_passed_over() -> None:
    assert TopicSettings.resolve({"from.the.future": "1"}, server()).retention_ms == 604_800_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("segment.bytes", "1"),
        ("cleanup.policy", "keep"),
        ("compression.type", "gzip2"),
        ("min.insync.replicas", "0"),
        ("retention.mss", "1"),
        ("leader.replication.throttled.replicas", "all"),
    ],
)
def test_what_a_topic_cannot_have_is_an_invalid_config(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as caught:
        TopicSettings.check(name, value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert name in caught.value.message


@pytest.mark.parametrize(
    "overrides",
    [{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, {"remote.storage.enable": "true"}],
)
def test_what_does_not_fit_together_is_an_invalid_config(overrides: dict[str, str]) -> None:
    for name, value in overrides.items():
        TopicSettings.check(name, value)
    with pytest.raises(KafkaError) as caught:
        TopicSettings.check_together(overrides, server())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_what_fits_together_is_taken() -> None:
    TopicSettings.check_together({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, server())
    tiered = server(remote_log_storage_system_enable="true")
    TopicSettings.check_together({"remote.storage.enable": "true"}, tiered)
    TopicSettings.check_together({"remote.storage.enable": "false"}, server())


def test_a_group_has_what_the_server_has_until_it_says_otherwise() -> None:
    base = server().with_dynamic({}, {"group.consumer.assignment.interval.ms": "7"})
    group = GroupSettings.resolve({"consumer.session.timeout.ms": "50000"}, base)
    assert group.consumer_session_timeout_ms == 50_000
    assert group.consumer_heartbeat_interval_ms == 5_000
    assert group.consumer_assignment_interval_ms == 7
    assert group.share_auto_offset_reset == "latest"
    assert [each.source for each in group.synonyms("consumer.session.timeout.ms")] == [
        SettingSource.GROUP,
        SettingSource.DEFAULT,
    ]


def test_a_groups_setting_lies_between_the_servers_bounds() -> None:
    overrides = {"consumer.session.timeout.ms": "1000000"}
    assert GroupSettings.resolve(overrides, server()).consumer_session_timeout_ms == 60_000
    low = GroupSettings.resolve({"consumer.session.timeout.ms": "1000"}, server())
    assert low.consumer_session_timeout_ms == 45_000, "set when the server took less"
    with pytest.raises(KafkaError, match="this cluster takes 45000 to 60000"):
        GroupSettings.check_together(overrides, server())
    for kind in ("consumer", "share", "streams"):
        name, bounds = f"{kind}.session.timeout.ms", f"group.{kind}"
        for value, words in (
            ("1", f"{name} must be greater than or equal to {bounds}.min.session.timeout.ms"),
            ("1000000", f"{name} must be less than or equal to {bounds}.max.session.timeout.ms"),
        ):
            with pytest.raises(KafkaError, match=f"^INVALID_CONFIG: {re.escape(words)}; "):
                GroupSettings.check_together({name: value}, server())
    GroupSettings.check_together({"consumer.session.timeout.ms": "60000"}, server())


def test_a_session_outlasts_a_heartbeat() -> None:
    bounds = {"group.consumer.max.heartbeat.interval.ms": "45000"}
    base = ServerSettings.parse({**_texts(), **bounds})
    with pytest.raises(KafkaError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        GroupSettings.check_together(
            {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "45000"}, base
        )


def _texts() -> dict[str, str]:
    from tests.settings.test_server_settings import COMBINED

    return COMBINED


def test_a_group_has_no_more_standbys_than_the_server_allows() -> None:
    base = ServerSettings.parse({**_texts(), "group.streams.max.standby.replicas": "2"})
    name = "streams.num.standby.replicas"
    assert GroupSettings.resolve({name: "9"}, base).streams_num_standby_replicas == 2
    assert GroupSettings.resolve({name: "1"}, base).streams_num_standby_replicas == 1
    GroupSettings.check_together({name: "2"}, base)
    with pytest.raises(KafkaError) as caught:
        GroupSettings.check_together({name: "3"}, base)
    assert caught.value.message == (
        f"{name} must be less than or equal to group.streams.max.standby.replicas; it is 3, and this cluster takes 0 "
        "to 2"
    )


def test_a_groups_setting_is_shown_as_it_is_in_effect_and_where_it_is_from() -> None:
    group = GroupSettings.resolve(
        {"consumer.session.timeout.ms": "1000000", "share.auto.offset.reset": "earliest"},
        server(group_consumer_heartbeat_interval_ms="6000"),
    )
    assert group.text("consumer.session.timeout.ms") == "60000", "clamped to what the server takes"
    assert group.text("consumer.heartbeat.interval.ms") == "6000"
    assert group.text("share.auto.offset.reset") == "earliest"
    assert group.synonyms("share.auto.offset.reset") == [
        Synonym("share.auto.offset.reset", "earliest", SettingSource.GROUP),
        Synonym("share.auto.offset.reset", "latest", SettingSource.DEFAULT),
    ]
    assert group.synonyms("share.isolation.level") == [
        Synonym("share.isolation.level", "read_uncommitted", SettingSource.DEFAULT)
    ]
    assert group.synonyms("consumer.heartbeat.interval.ms")[0] == Synonym(
        "group.consumer.heartbeat.interval.ms", "6000", SettingSource.STATIC_BROKER
    )


def test_an_interval_between_assignments_lies_between_the_servers_bounds() -> None:
    overrides = {"consumer.assignment.interval.ms": "20000"}
    assert GroupSettings.resolve(overrides, server()).consumer_assignment_interval_ms == 15_000
    with pytest.raises(KafkaError, match=r"consumer\.assignment\.interval\.ms must be less than or equal to group"):
        GroupSettings.check_together(overrides, server())
