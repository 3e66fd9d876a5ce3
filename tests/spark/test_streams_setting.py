"""What `config` says about internal topics, and what is told of settings without effect."""

import logging

import pytest

import ottla
from ottla.client.admin.client import Admin
from ottla.client.admin.result import ConfigResource, ResourceType
from ottla.flow.setting import replication_factor
from ottla.kernel.error import OttlaError
from ottla.spark.streams.running import prepare
from ottla.spark.streams.setting import warn_unserved
from ottla.streams import Materialized, StreamsBuilder
from ottla.streams.application import Application


def counting(config: dict[str, object]) -> Application:
    builder = StreamsBuilder()
    kept = Materialized.as_("counts").with_logging_enabled({"segment.ms": "60000", "max.message.bytes": "2000000"})
    builder.stream("in").group_by(lambda key, value: value, name="words").count(materialized=kept)
    return builder.build(application_id="set", key_serde="string", value_serde="string", config=config)


def test_internal_topics_have_the_programs_settings_and_each_store_its_own_before_them() -> None:
    config = {"topic.segment.ms": "70000", "topic.min.insync.replicas": 1, "replication.factor": "1"}
    application = counting(config)
    with ottla.Node(settings={"default.replication.factor": "3"}) as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topic("in", 1, 1)
        prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        for topic, wanted in {
            "set-counts-changelog": ("compact", "60000", "1", "2000000"),
            "set-words-repartition": ("delete", "70000", "1", "1048588"),
        }.items():
            found = admin.describe_config(ConfigResource(ResourceType.TOPIC, topic))
            names = ("cleanup.policy", "segment.ms", "min.insync.replicas", "max.message.bytes")
            assert tuple(found[name].value for name in names) == wanted
        assert "set-ottla-plan-changelog" in {each.name for each in admin.list_topics()}


@pytest.mark.parametrize("given", ["two", 0, -2, 1.5, True, None, 32_768])
def test_a_replication_factor_that_is_none_stops_the_start(given: object) -> None:
    with pytest.raises(OttlaError, match=r"replication\.factor: .* \(expected 1 or more"):
        replication_factor({"replication.factor": given})
    assert [replication_factor(each) for each in ({}, {"replication.factor": "3"})] == [-1, 3]


def test_settings_of_kafka_streams_without_effect_are_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    served: dict[str, object] = {
        "processing.guarantee": "at_least_once",
        "topic.segment.ms": 1,
        "replication.factor": 3,
        "my.own": 1,
    }
    served["statestore.cache.max.bytes"] = 0
    with caplog.at_level(logging.WARNING):
        warn_unserved(served)
        assert not caplog.messages
        warn_unserved({"statestore.cache.max.bytes": 5})
        assert caplog.messages[0].startswith("config: statestore.cache.max.bytes: no effect")
        caplog.clear()
        warn_unserved({**served, "num.standby.replicas": 1, "consumer.fetch.min.bytes": 2, "commit.interval.ms": 1})
    assert [each.partition(": no effect")[0] for each in caplog.messages] == [
        "config: commit.interval.ms, consumer.fetch.min.bytes, num.standby.replicas"
    ]


def test_a_setting_that_is_misspelt_is_told(caplog: pytest.LogCaptureFixture) -> None:
    warn_unserved({"procesing.guarantee": "at_least_once", "num.stream.thread": 5, "topic.segment.ms": 1})
    assert caplog.messages == [
        "config: num.stream.thread is not a setting of Kafka Streams; did you mean num.stream.threads?",
        "config: procesing.guarantee is not a setting of Kafka Streams; did you mean processing.guarantee?",
    ]
