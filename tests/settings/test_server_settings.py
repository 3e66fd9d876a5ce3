"""A server's settings: typed, worked out from one another, and checked together."""

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.settings.listener import Listener, VoterAddress
from ottla.settings.schema import SettingSource, Synonym
from ottla.settings.server.settings import ServerSettings

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/data/a,/data/b",
}
BROKER = COMBINED | {"process.roles": "broker", "node.id": "4", "listeners": "PLAINTEXT://:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
HOUR_MS = 3_600_000


def settings(**changes: str) -> ServerSettings:
    return ServerSettings.parse(COMBINED | {name.replace("_", "."): text for name, text in changes.items()})


def test_what_is_not_given_is_kafkas_default() -> None:
    found = settings()
    assert (found.num_partitions, found.message_max_bytes, found.log_cleanup_policy) == (1, 1048588, ("delete",))
    assert found.source_of("num.partitions") is SettingSource.DEFAULT
    assert found.text("log.cleaner.io.max.bytes.per.second") == "1.7976931348623157E308"


def test_listeners_are_typed_and_a_controllers_listener_is_plaintext_by_itself() -> None:
    found = settings()
    assert found.listeners == (
        Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),
        Listener("CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT"),
    )
    assert found.advertised_listeners is None
    assert found.text("listeners") == COMBINED["listeners"]


def test_a_protocol_map_gives_listeners_their_protocols() -> None:
    found = settings(
        listeners="inside://:9092,Outside://[::1]:9094,CONTROLLER://:9093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,CONTROLLER:SSL",
        inter_broker_listener_name="inside",
        advertised_listeners="INSIDE://host.example:9092",
    )
    assert found.listeners[1] == Listener("OUTSIDE", "::1", 9094, "SASL_SSL")
    assert found.listeners[2].security_protocol == "SSL"
    assert found.advertised_listeners == (Listener("INSIDE", "host.example", 9092, "PLAINTEXT"),)
    assert found.inter_broker_listener_name == "INSIDE"


def test_only_a_listeners_own_port_must_be_its_alone() -> None:
    # A proxy in front of the node may tell its listeners apart by their names.
    names = {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    found = settings(
        listeners="PLAINTEXT://:1,OTHER://:2,CONTROLLER://:3",
        advertised_listeners="PLAINTEXT://a.example:9092,OTHER://b.example:9092",
        **names,
    )
    assert found.advertised_listeners is not None
    assert [each.port for each in found.advertised_listeners] == [9092, 9092]
    with pytest.raises(OttlaError, match=r"listeners: .* share port 1"):
        settings(listeners="PLAINTEXT://:1,OTHER://:1,CONTROLLER://:3", **names)


def test_a_controllers_listener_is_not_plaintext_by_itself_where_tls_is_in_use() -> None:
    with pytest.raises(OttlaError, match=r"add CONTROLLER:PLAINTEXT .* to listener\.security\.protocol\.map"):
        settings(listeners="SSL://:9092,CONTROLLER://:9093", security_inter_broker_protocol="SSL")


def test_ports_may_repeat_when_they_are_free_ones_or_of_two_kinds_of_address() -> None:
    assert settings(listeners="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0").listeners[1].port == 0
    assert settings(listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092").listeners[1].host == "::1"
    with pytest.raises(OttlaError, match="share port 9092"):
        settings(listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9092")


def test_log_dirs_goes_before_log_dir() -> None:
    assert settings().log_dirs == ("/data/a", "/data/b")
    assert settings().metadata_log_dir == "/data/a"
    only_dir = {name: text for name, text in COMBINED.items() if name != "log.dirs"}
    assert ServerSettings.parse(only_dir | {"log.dir": "/one"}).log_dirs == ("/one",)
    assert ServerSettings.parse(only_dir).log_dirs == ("/tmp/kafka-logs",)


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * 60_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_milliseconds_go_before_minutes_and_minutes_before_hours(given: dict[str, str], retention_ms: int) -> None:
    assert ServerSettings.parse(COMBINED | given).log_retention_ms == retention_ms


def test_what_was_worked_out_does_not_change_what_was_written() -> None:
    found = settings(log_roll_hours="2")
    assert found.log_roll_ms == 2 * HOUR_MS
    assert found.text("log.roll.ms") is None
    assert found.text("log.roll.hours") == "2"


def test_synonyms_tell_every_place_the_one_that_counts_first() -> None:
    found = settings(log_retention_hours="2").with_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "6"})
    assert found.synonyms("log.retention.ms") == [
        Synonym("log.retention.ms", "5", SettingSource.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "6", SettingSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "2", SettingSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", SettingSource.DEFAULT),
    ]
    assert found.source_of("log.retention.ms") is SettingSource.DYNAMIC_BROKER


def test_what_is_set_for_one_node_goes_before_what_is_set_for_all_and_both_before_the_file() -> None:
    file = settings(message_max_bytes="1")
    assert file.with_dynamic({}, {"message.max.bytes": "2"}).message_max_bytes == 2
    assert file.with_dynamic({"message.max.bytes": "3"}, {"message.max.bytes": "2"}).message_max_bytes == 3
    assert file.with_dynamic({"message.max.bytes": "3"}).with_dynamic({}).message_max_bytes == 1
    assert file.message_max_bytes == 1


def test_a_secret_is_told_to_nobody() -> None:
    found = settings(ssl_key_password="hush")
    assert found.ssl_key_password == "hush"
    assert found.text("ssl.key.password") is None
    assert found.synonyms("ssl.key.password") == [Synonym("ssl.key.password", None, SettingSource.STATIC_BROKER)]
    assert "hush" not in repr(found)


def test_a_fixed_quorum_is_typed() -> None:
    assert settings(controller_quorum_voters="1@host:9093,2@[::1]:9094").controller_quorum_voters == (
        VoterAddress(1, "host", 9093),
        VoterAddress(2, "::1", 9094),
    )


def test_broker_id_is_another_name_of_node_id() -> None:
    old = {name: text for name, text in COMBINED.items() if name != "node.id"} | {"broker.id": "7"}
    assert ServerSettings.parse(old).node_id == 7
    with pytest.raises(OttlaError, match="differ"):
        settings(broker_id="7")


def test_roles_say_what_a_node_is() -> None:
    assert (settings().is_broker, settings().is_controller) == (True, True)
    assert not ServerSettings.parse(BROKER).is_controller


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"num.partitions": "none"}, "invalid value for num.partitions: none (expected a whole number, 1 or more)"),
        ({"process.roles": "broker,kontroller"}, "invalid value for process.roles: broker,kontroller (exp"),
        ({"listeners": "PLAINTEXT:9092"}, "listeners: 'PLAINTEXT:9092' is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:9093"}, "listeners: 'PLAINTEXT://:99999' is not NAME"),
        ({"listeners": "INSIDE://:9092,CONTROLLER://:9093"}, "listeners: the listener INSIDE has no protocol"),
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names=CONTROLLER: listeners has no CONTROLLER://"),
        ({"listeners": "CONTROLLER://:9093"}, "listeners: clients have no listener"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"}, "listeners: two listeners are called PLAINT"),
        ({"listener.security.protocol.map": "A=B"}, "listener.security.protocol.map: 'A=B' is not NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners: PLAINTEXT://0.0.0.0:9092 is no"),
        (
            {"advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://0.0.0.0:9093"},
            "advertised.listeners: CONTROLLER://0.0.0.0:9093 is no address",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
            "listeners: PLAINTEXT://0.0.0.0:9092 is no address that clients can reach; set advertised.listeners",
        ),
        ({"advertised.listeners": "SSL://host:9092"}, "advertised.listeners: SSL is not among the names of listeners"),
        ({"controller.quorum.voters": "2@host:9093"}, "controller.quorum.voters has no entry for this controller"),
        (
            {"controller.quorum.voters": "1@0.0.0.0:9093"},
            "controller.quorum.voters: other nodes cannot reach 1@0.0.0.0",
        ),
        ({"controller.quorum.voters": "host:9093"}, "invalid value for controller.quorum.voters: host:9093 (e"),
        ({"inter.broker.listener.name": "OTHER"}, "inter.broker.listener.name=OTHER: not in listener.security.proto"),
        ({"log.retention.ms": "0"}, "invalid value for log.retention.ms: 0 (expected 1 or more, or -1)"),
        ({"cordoned.log.dirs": "/elsewhere"}, "cordoned.log.dirs: /elsewhere is not one of log.dirs"),
        ({"log.cleaner.dedupe.buffer.size": "1024"}, "invalid value for log.cleaner.dedupe.buffer.size: 1024"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.fetch.wait.max.ms=40000 is more than replica.socket"),
        ({"max.connections.per.ip.overrides": "::1:5,localhost:5"}, "max.connections.per.ip.overrides: localhost:5 is"),
        ({"max.connections.per.ip.overrides": "10.0.0.7:many"}, "max.connections.per.ip.overrides: 10.0.0.7:many is"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols: classic"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_that_names_the_setting(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OttlaError) as caught:
        ServerSettings.parse(COMBINED | given)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["process.roles", "node.id", "controller.listener.names"])
def test_a_missing_setting_comes_with_an_example(name: str) -> None:
    with pytest.raises(OttlaError, match=f"^{name} is missing: set {name}="):
        ServerSettings.parse({each: text for each, text in COMBINED.items() if each != name})


def test_a_node_without_a_quorum_says_how_to_give_one() -> None:
    without = {name: text for name, text in COMBINED.items() if name != "controller.quorum.bootstrap.servers"}
    with pytest.raises(OttlaError, match=r"controller\.quorum\.bootstrap\.servers=HOST:PORT"):
        ServerSettings.parse(without)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "listeners: CONTROLLER is a controller listener"),
        ({"controller.quorum.voters": "4@host:9093"}, "controller.quorum.voters has this node"),
        ({"controller.quorum.auto.join.enable": "true"}, "controller.quorum.auto.join.enable=true: only a node with"),
    ],
)
def test_a_broker_alone_has_rules_of_its_own(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OttlaError, match=sentence):
        ServerSettings.parse(BROKER | given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"inter.broker.listener.name": "CONTROLLER"},
            "inter.broker.listener.name=CONTROLLER is a controller listener",
        ),
        (
            {"advertised.listeners": "CONTROLLER://0.0.0.0:9093"},
            "advertised.listeners: CONTROLLER://0.0.0.0:9093 is no",
        ),
        ({"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"}, "listeners: PLAINTEXT has no effect"),
    ],
)
def test_a_controller_alone_has_rules_of_its_own(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OttlaError, match=sentence):
        ServerSettings.parse(CONTROLLER | given)


def test_a_node_may_listen_at_all_addresses() -> None:
    """Others get the advertised address, or this host's name."""
    everywhere = "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093"
    assert settings(listeners=everywhere, advertised_listeners="PLAINTEXT://h:9092").listeners[0].host == "0.0.0.0"
    assert settings(listeners="PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093").listeners[1].host == "0.0.0.0"
    assert ServerSettings.parse(CONTROLLER | {"listeners": "CONTROLLER://0.0.0.0:9093"}).listeners[0].port == 9093


def test_settings_of_plug_ins_and_single_listeners_are_let_through() -> None:
    given = {"super.users": "User:a", "listener.name.plaintext.ssl.client.auth": "none", "rsm.config.bucket": "b"}
    assert ServerSettings.parse(COMBINED | given).node_id == 1


def test_a_listeners_own_setting_is_checked_as_the_one_that_it_stands_for() -> None:
    with pytest.raises(OttlaError, match=r"^invalid value for listener\.name\.plaintext\.max\.connections: -1 "):
        ServerSettings.parse(COMBINED | {"listener.name.plaintext.max.connections": "-1"})


def test_a_listeners_own_limit_goes_before_that_of_all_wherever_each_was_given() -> None:
    own = "listener.name.plaintext.max.connections"
    settings = ServerSettings.parse(COMBINED | {own: "3"}).with_dynamic({"max.connections": "5"})
    assert settings.connection_limits["PLAINTEXT"].max_connections == 3
    assert settings.max_connections == 5
    assert settings.with_dynamic({}, {own: "4"}).connection_limits["PLAINTEXT"].max_connections == 4
    assert settings.with_dynamic({"max.connections": "5"}).connection_limits.keys() == {"PLAINTEXT", "CONTROLLER"}


@pytest.mark.parametrize(
    ("name", "value", "per_broker", "code"),
    [
        ("node.id", "2", True, ErrorCode.INVALID_REQUEST),
        ("listeners", "PLAINTEXT://:1", True, ErrorCode.INVALID_REQUEST),
        ("log.retention.ms", "soon", True, ErrorCode.INVALID_CONFIG),
        ("principal.builder.class", "acme", True, ErrorCode.INVALID_REQUEST),
        ("listener.name.sasl_ssl.principal.builder.class", "acme", True, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_may_not_change_while_nodes_run_is_refused_with_kafkas_code(
    name: str, value: str, per_broker: bool, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        ServerSettings.check(name, value, per_broker=per_broker)
    assert caught.value.code is code


def test_what_may_change_while_nodes_run_is_taken() -> None:
    ServerSettings.check("log.retention.ms", "1", per_broker=False)
    ServerSettings.check("leader.replication.throttled.rate", "1000", per_broker=False)


def test_dynamic_settings_that_only_the_file_decides_are_known() -> None:
    own = "listener.name.sasl_ssl.principal.builder.class"
    assert ServerSettings.only_in_file(["log.retention.ms", own, "acme.prefix", "listeners"]) == [own, "listeners"]


def test_dynamic_settings_that_do_not_fit_are_left_out_one_by_one() -> None:
    file = settings(log_cleaner_dedupe_buffer_size="2097152")
    # The threads fit only with the larger buffer, which comes after them.
    own = {"cordoned.log.dirs": "/other", "max.connections": "7"}
    everyones = {"log.cleaner.threads": "2", "max.connections.per.ip": "many", "num.io.threads": "3"}
    found, errors = file.with_fitting(own | {"log.cleaner.dedupe.buffer.size": "4194304"}, everyones)
    assert (found.log_cleaner_threads, found.max_connections, found.num_io_threads) == (2, 7, 3)
    assert [str(error).split(":")[0] for error in errors] == [
        "invalid value for max.connections.per.ip",
        "cordoned.log.dirs",
    ]
    found, errors = file.with_fitting({}, everyones)
    assert (found.log_cleaner_threads, found.num_io_threads, len(errors)) == (1, 3, 2)
    assert file.with_fitting({"max.connections": "7"}, {})[1] == []


def test_what_does_not_fit_is_found_among_many_in_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in may have thousands of settings, and a try reads all of them."""
    file, tries = settings(), 0
    with_dynamic = ServerSettings.with_dynamic

    def counted(*arguments: Any) -> ServerSettings:
        nonlocal tries
        tries += 1
        return with_dynamic(*arguments)

    monkeypatch.setattr(ServerSettings, "with_dynamic", counted)
    names = {f"a.plugins.{number}": "1" for number in range(500)}
    found, errors = file.with_fitting(names | {"log.cleaner.threads": "many"}, names | {"num.io.threads": "9"})
    assert found.num_io_threads == 9
    assert set(names) <= set(found.undeclared())
    assert len(errors) == 1
    assert tries < 50
