"""What a node says of settings that it does not serve."""

import logging

import pytest

import ottla
from ottla.kernel.error import OttlaError
from ottla.settings.schema import SettingSource
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from ottla.settings.server.unserved import UNSUPPORTED, check_served, is_of_many, notices
from tests.settings.test_server_settings import COMBINED


def settings(**texts: str) -> ServerSettings:
    return ServerSettings.parse(COMBINED | {name.replace("_", "."): value for name, value in texts.items()})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("create.topic.policy.class.name", "a.Policy", "create topics that the policy forbids"),
        ("alter.config.policy.class.name", "a.Policy", "accept settings that the policy forbids"),
        ("client.quota.callback.class", "a.Quota", "other limits"),
        ("remote.log.storage.system.enable", "true", "tiered storage"),
    ],
)
def test_what_would_leave_a_node_less_safe_or_lose_something_stops_its_start(name: str, value: str, words: str) -> None:
    with pytest.raises(OttlaError, match=f"^{name} is set, but this node does not support it: .*{words}"):
        check_served(ServerSettings.parse(COMBINED | {name: value}))
    with pytest.raises(OttlaError, match=f"^{name} is set"), ottla.Node(settings={name: value}):
        pass


@pytest.mark.parametrize("name", ["authorizer.class.name", "remote.log.storage.system.enable"])
def test_the_default_written_down_stops_nothing(name: str) -> None:
    check_served(ServerSettings.parse(COMBINED | {name: ServerSettings.declared()[name].default_text or ""}))


def test_what_stops_a_start_is_described_as_without_effect() -> None:
    """For a client that asks a running node, which has its default."""
    declared = ServerSettings.declared()
    assert [name for name in UNSUPPORTED if name in declared and declared[name].served] == []


def test_a_node_as_it_comes_has_nothing_to_say() -> None:
    assert notices(ServerSettings.parse(single_node("/data", "127.0.0.1", 9092))) == []


def test_sources_are_looked_up_only_for_settings_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def source_of(self: ServerSettings, name: str) -> SettingSource:
        asked.append(name)
        return super(ServerSettings, self).source_of(name)

    monkeypatch.setattr(ServerSettings, "source_of", source_of)
    notices(ServerSettings.parse(COMBINED | {"num.io.threads": "16"}))
    assert asked == ["num.io.threads"]


def test_heartbeats_that_one_delay_makes_too_late_are_named() -> None:
    half = {"broker.heartbeat.interval.ms": "4500"}
    assert notices(ServerSettings.parse(COMBINED | half)) == []
    for more in ({"broker.heartbeat.interval.ms": "4501"}, half | {"broker.session.timeout.ms": "8999"}):
        (line,) = notices(ServerSettings.parse(COMBINED | more))
        assert "is more than half of broker.session.timeout.ms" in line


def test_settings_without_effect_are_named_in_one_line_without_their_values() -> None:
    given = {
        "num.io.threads": "16",
        "num.network.threads": "3",
        "sasl.login.read.timeout.ms": "5000",
        "super.users": "User:a",
        "listener.name.plaintext.ssl.provider": "none",
        "num.partitions": "3",
    }
    named = "listener.name.plaintext.ssl.provider, num.io.threads, sasl.login.read.timeout.ms, super.users"
    assert notices(ServerSettings.parse(COMBINED | given)) == [f"settings that have no effect on this node: {named}"]


def test_a_controller_alone_says_that_clients_push_nothing_to_it() -> None:
    url = {"client.metrics.otlp.url": "http://127.0.0.1:4318/v1/metrics"}
    alone = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}
    assert notices(ServerSettings.parse(alone | url)) == [
        "settings that have no effect on this node: client.metrics.otlp.url"
    ]
    assert notices(ServerSettings.parse(COMBINED | url)) == []


def test_names_that_kafka_does_not_know_are_told_and_not_refused() -> None:
    given = {
        "foo.bar": "1",
        "confluent.support.metrics.enable": "false",
        "num.partition": "3",
        "listener.name.plaintext.foo": "1",
        "rsm.config.bucket": "b",
        "zookeeper.connect": "h:2181",
    }
    one = ServerSettings.parse(COMBINED | given)
    assert one.num_partitions == 1
    removed, unknown = notices(one)
    assert removed.startswith("zookeeper.connect: removed in Kafka 4; ZooKeeper is gone")
    named = "confluent.support.metrics.enable, foo.bar, num.partition (did you mean num.partitions?)"
    assert unknown == f"unknown server settings, ignored: {named}"


def test_a_file_of_a_release_with_zookeeper_says_so() -> None:
    with pytest.raises(OttlaError, match=r"^zookeeper\.connect: removed in Kafka 4; ZooKeeper is gone"):
        ServerSettings.parse({"broker.id": "1", "zookeeper.connect": "h:2181"})


def test_a_node_says_it_at_its_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.broker"), ottla.Node(settings={"foo.bar": 1, "num.io.threads": 16}):
        assert caplog.messages == [
            "unknown server settings, ignored: foo.bar",
            "settings that have no effect on this node: num.io.threads",
        ]


@pytest.mark.parametrize(
    "quorum",
    [
        {"controller.quorum.bootstrap.servers": "one:9093,two:9093"},
        {"controller.quorum.voters": "1@one:9093,2@two:9093"},
    ],
)
def test_several_controllers_do_not_sign_in_at_each_other_by_scram(quorum: dict[str, str]) -> None:
    one = {name: value for name, value in COMBINED.items() if not name.startswith("controller.quorum.")}
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"}
    scram = {**protocols, "sasl.mechanism.controller.protocol": "SCRAM-SHA-512"}
    with pytest.raises(OttlaError, match=r"^sasl\.mechanism\.controller\.protocol=SCRAM-SHA-512: .*; use PLAIN$"):
        check_served(ServerSettings.parse(one | scram | quorum))
    check_served(ServerSettings.parse(one | scram | quorum | {"sasl.mechanism.controller.protocol": "PLAIN"}))
    check_served(ServerSettings.parse(one | scram | {"controller.quorum.bootstrap.servers": "one:9093"}))


@pytest.mark.parametrize(
    ("given", "many"),
    [
        ({}, False),
        ({"controller.quorum.voters": "1@h:9093"}, False),
        ({"controller.quorum.voters": "1@h:9093,2@h:9094"}, True),
        ({"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "h:1"}, False),
        ({"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "h:1,h:2"}, True),
        ({"process.roles": "broker", "listeners": "PLAINTEXT://h:9092", "controller.quorum.voters": "2@h:1"}, True),
    ],
)
def test_settings_that_name_other_nodes_are_those_of_a_cluster(given: dict[str, str], many: bool) -> None:
    assert is_of_many(ServerSettings.parse(COMBINED | given)) is many
