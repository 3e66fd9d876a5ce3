"""A server's settings where they meet: each bound from both sides, values of one listener, sources of values."""

from __future__ import annotations

import re

import pytest

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.settings.listener import Listener, VoterAddress, parse_connection_overrides, parse_protocol_map, parse_voters
from ottla.settings.schema import SettingSource, Synonym
from ottla.settings.server.settings import ServerSettings
from tests.settings.test_server_settings import BROKER, COMBINED

CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}


def parsed(given: dict[str, str], base: dict[str, str] = COMBINED) -> ServerSettings:
    return ServerSettings.parse(base | given)


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ({"log.roll.ms": "1"}, {"log.roll.ms": "0"}, "invalid value for log.roll.ms: 0"),
        ({"log.roll.jitter.ms": "0"}, {"log.roll.jitter.ms": "-1"}, "invalid value for log.roll.jitter.ms: -1"),
        ({"log.retention.ms": "1"}, {"log.retention.minutes": "0"}, "invalid value for log.retention.ms: 0"),
        (
            {"replica.fetch.wait.max.ms": "100", "replica.socket.timeout.ms": "100"},
            {"replica.fetch.wait.max.ms": "100", "replica.socket.timeout.ms": "99"},
            "replica.fetch.wait.max.ms=100 is more than replica.socket.timeout.ms=99",
        ),
        (
            {"replica.fetch.wait.max.ms": "100", "replica.lag.time.max.ms": "100"},
            {"replica.fetch.wait.max.ms": "100", "replica.lag.time.max.ms": "99"},
            "replica.fetch.wait.max.ms=100 is more than replica.lag.time.max.ms=99",
        ),
        (
            {"connections.max.idle.ms": "101", "connection.failed.authentication.delay.ms": "100"},
            {"connections.max.idle.ms": "100", "connection.failed.authentication.delay.ms": "100"},
            "connection.failed.authentication.delay.ms=100 must be less than connections.max.idle.ms=100",
        ),
        (
            {"connections.max.idle.ms": "-1", "connection.failed.authentication.delay.ms": "100"},
            {"connections.max.idle.ms": "0", "connection.failed.authentication.delay.ms": "100"},
            "connection.failed.authentication.delay.ms=100 must be less than",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": str(2 * 1048576 + 2), "log.cleaner.threads": "2"},
            {"log.cleaner.dedupe.buffer.size": str(2 * 1048576), "log.cleaner.threads": "2"},
            "invalid value for log.cleaner.dedupe.buffer.size: 2097152",
        ),
        (
            {"queued.max.request.bytes": "5000", "socket.request.max.bytes": "5000"},
            {"queued.max.request.bytes": "4999", "socket.request.max.bytes": "5000"},
            "queued.max.request.bytes=4999 is less than socket.request.max.bytes=5000",
        ),
        (
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.7:5"},
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip=0 rejects every client",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "5"},
            {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"},
            "log.cleaner.min.compaction.lag.ms=6 is more than log.cleaner.max.compaction.lag.ms=5",
        ),
        (
            {"group.streams.num.standby.replicas": "2"},
            {"group.streams.num.standby.replicas": "3"},
            "group.streams.num.standby.replicas=3 is more than group.streams.max.standby.replicas=2",
        ),
        (
            {"group.share.max.size": "1000", "group.share.max.share.sessions": "1000"},
            {"group.share.max.size": "1000", "group.share.max.share.sessions": "999"},
            "group.share.max.size=1000 is more than group.share.max.share.sessions=999",
        ),
        ({"cordoned.log.dirs": "*"}, {"cordoned.log.dirs": "*,/data/a"}, "cordoned.log.dirs: * means all directories"),
        (
            {"cordoned.log.dirs": "/data/b,/data/a"},
            {"cordoned.log.dirs": "/data/a,/data"},
            "cordoned.log.dirs: /data is not one of log.dirs (/data/a, /data/b)",
        ),
        (
            {"controller.quorum.voters": "2@h:1,1@h:2"},
            {"controller.quorum.voters": "2@h:1,3@h:2"},
            "controller.quorum.voters has no entry for this controller; add 1@HOST:PORT",
        ),
        (
            {"listeners": "PLAINTEXT://:9092,SSL://:9094,CONTROLLER://:9093", "inter.broker.listener.name": "ssl",
             "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"},
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name and security.inter.broker.protocol are both given; remove one",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://host:1"},
            {"security.inter.broker.protocol": "SSL"},
            "inter.broker.listener.name: brokers use SSL, which is not advertised; set one of PLAINTEXT",
        ),
        (
            {"log.retention.hours": "1"},
            {"zookeeper.connect": "z:1", "node.id": ""},
            "invalid value for node.id",
        ),
    ],
)  # fmt: skip
def test_a_bound_holds_from_both_sides(right: dict[str, str], wrong: dict[str, str], sentence: str) -> None:
    parsed(right)
    with pytest.raises(OttlaError) as caught:
        parsed(wrong)
    assert str(caught.value).startswith(sentence)


#: A setting of groups, its default's bounds, and the names of the settings that are these bounds.
GROUPS = [
    (f"group.{kind}.{name}", *bounds, f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    for kind in ("consumer", "share", "streams")
    for name, bounds in {
        "heartbeat.interval.ms": (5_000, 15_000),
        "session.timeout.ms": (45_000, 60_000),
        "assignment.interval.ms": (0, 15_000),
    }.items()
] + [
    (f"group.share.{name}", *bounds, f"group.share.min.{name}", f"group.share.max.{name}")
    for name, bounds in {
        "record.lock.duration.ms": (15_000, 60_000),
        "delivery.count.limit": (2, 10),
        "partition.max.record.locks": (100, 4_000),
    }.items()
]


@pytest.mark.parametrize(("name", "low", "high", "minimum", "maximum"), GROUPS)
def test_what_groups_get_is_within_what_they_may_set(
    name: str, low: int, high: int, minimum: str, maximum: str
) -> None:
    """As in Apache Kafka, which does not start with others, and refuses to change an interval to them."""
    for value in (low, high):
        assert parsed({name: str(value)}).text(name) == str(value)
    for bound, value, why in (
        ({maximum: str(high - 1)}, high, f"{name}={high} is more than {maximum}={high - 1}"),
        ({minimum: str(low + 1)}, low, f"{minimum}={low + 1} is more than {name}={low}"),
    ):
        with pytest.raises(OttlaError, match=f"^{re.escape(why)}$"):
            parsed(bound | {name: str(value)})
        between = parsed(bound | {name: str((low + high) // 2)})
        with pytest.raises(OttlaError, match=f"^{re.escape(why)}$"):
            between.with_dynamic({}, {name: str(value)})


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_session_of_a_group_outlasts_its_heartbeats(kind: str) -> None:
    beat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
    given = {session: "15000", f"group.{kind}.min.session.timeout.ms": "15000"}
    parsed(given | {beat: "14999"})
    with pytest.raises(OttlaError, match=f"^{beat}=15000 must be less than {session}=15000$"):
        parsed(given | {beat: "15000"})


@pytest.mark.parametrize(
    ("protocol", "given", "fits"),
    [
        ("SASL_PLAINTEXT", {}, True),
        ("SASL_SSL", {"sasl.mechanism.inter.broker.protocol": "PLAIN"}, False),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}, False),
        ("PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, True),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN"},
            True,
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism.inter.broker.protocol": "PLAIN", "listener.name.own.sasl.enabled.mechanisms": "PLAIN"},
            True,
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl.enabled.mechanisms": "GSSAPI", "listener.name.own.sasl.enabled.mechanisms": "PLAIN"},
            False,
        ),
    ],
)
def test_brokers_sign_in_by_a_mechanism_that_their_listener_offers(
    protocol: str, given: dict[str, str], fits: bool
) -> None:
    """As in Apache Kafka, where GSSAPI is both settings' default."""
    listeners = {
        "listeners": "OWN://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": f"OWN:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OWN",
    }
    if fits:
        assert parsed(listeners | given).inter_broker_listener_name == "OWN"
        return
    with pytest.raises(OttlaError, match=r"^sasl\.mechanism\.inter\.broker\.protocol=.* is not one of sasl\.ena"):
        parsed(listeners | given)


def test_a_controller_alone_has_no_listener_for_clients() -> None:
    alone = parsed({}, CONTROLLER)
    assert (alone.is_broker, alone.is_controller) == (False, True)
    assert alone.outbound_listeners() == {"CONTROLLER"}
    with pytest.raises(OttlaError, match="listeners: PLAINTEXT has no effect on a controller-only node; remove it"):
        parsed({"listeners": COMBINED["listeners"]}, CONTROLLER)


def test_a_broker_alone_knows_the_protocol_of_its_controllers() -> None:
    alone = parsed({}, BROKER)
    assert alone.outbound_listeners() == {"PLAINTEXT", "CONTROLLER"}
    assert alone.protocols_in_use() == {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    with pytest.raises(OttlaError, match=r"controller\.listener\.names=CONTROLLER: add CONTROLLER:PLAINTEXT"):
        parsed({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, BROKER)
    parsed({"controller.quorum.voters": "5@h:1"}, BROKER)


def test_a_node_of_zookeepers_time_is_told_what_became_of_it() -> None:
    old = {name: text for name, text in COMBINED.items() if name != "process.roles"}
    with pytest.raises(OttlaError, match=r"^zookeeper\.connect: removed in Kafka 4; "):
        ServerSettings.parse(old | {"zookeeper.connect": "z:2181"})


def test_what_follows_from_the_number_of_directories() -> None:
    assert parsed({}).num_replica_alter_log_dirs_threads == 2
    assert parsed({"num.replica.alter.log.dirs.threads": "7"}).num_replica_alter_log_dirs_threads == 7
    assert parsed({"metadata.log.dir": "/m"}).metadata_log_dir == "/m"
    assert parsed({"log.roll.jitter.hours": "2"}).log_roll_jitter_ms == 7_200_000
    assert parsed({"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "5"}).log_roll_jitter_ms == 5
    assert parsed({"log.flush.scheduler.interval.ms": "9"}).log_flush_interval_ms == 9
    assert parsed({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}).log_flush_interval_ms == 8
    assert parsed({"log.retention.ms": "-7"}).log_retention_ms == -1


@pytest.mark.parametrize(
    ("given", "directories"),
    [
        ({"log.dirs": "/a,/b"}, ["/a", "/b"]),
        ({"log.dirs": "/a/,/b", "metadata.log.dir": "/a"}, ["/a", "/b"]),
        ({"log.dirs": "/a", "metadata.log.dir": "/m//"}, ["/a", "/m"]),
        ({"log.dirs": "/"}, ["/"]),
    ],
)
def test_a_directory_is_the_same_with_a_slash_behind_it(given: dict[str, str], directories: list[str]) -> None:
    assert parsed(given).directories == directories


def test_free_ports_take_the_place_of_0_and_no_others() -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://[::1]:9093"
    settings = parsed({"listeners": listeners, "advertised.listeners": "PLAINTEXT://host:1"})
    bound = settings.with_dynamic({"log.retention.ms": "5"}).with_ports({"PLAINTEXT": 4711, "CONTROLLER": 9093})
    assert [str(each) for each in bound.listeners] == ["PLAINTEXT://127.0.0.1:4711", "CONTROLLER://[::1]:9093"]
    assert bound.log_retention_ms == 5
    assert [each.port for each in settings.with_ports({"PLAINTEXT": 1}).listeners] == [1, 9093]


# -- one listener, one mechanism


def test_a_value_of_one_mechanism_goes_before_that_of_its_listener_and_of_the_node() -> None:
    name = "connections.max.reauth.ms"
    node = {name: "1"}
    listener = node | {f"listener.name.plaintext.{name}": "2"}
    mechanism = listener | {f"listener.name.plaintext.plain.{name}": "3"}
    for given, expected in (({}, 0), (node, 1), (listener, 2), (mechanism, 3)):
        assert parsed(given).for_mechanism("PLAINTEXT", "PLAIN", name) == expected
    settings = parsed(mechanism)
    assert settings.for_mechanism("PLAINTEXT", "SCRAM-SHA-256", name) == 2
    assert settings.for_mechanism("CONTROLLER", "PLAIN", name) == 1
    dynamic = settings.with_dynamic({f"listener.name.plaintext.plain.{name}": "4"}, {name: "5"})
    assert dynamic.for_mechanism("PLAINTEXT", "PLAIN", name) == 4
    assert dynamic.for_mechanism("CONTROLLER", "PLAIN", name) == 5


def test_a_listener_has_a_value_of_its_own_only_where_it_was_given() -> None:
    own = "listener.name.plaintext.ssl.client.auth"
    settings = parsed({own: "required"})
    assert settings.has_listener_value("PLAINTEXT", "ssl.client.auth")
    assert not settings.has_listener_value("CONTROLLER", "ssl.client.auth")
    assert not settings.has_listener_value("PLAINTEXT", "ssl.protocol")
    assert settings.for_listener("PLAINTEXT", "ssl.client.auth") == "required"
    assert settings.for_listener("CONTROLLER", "ssl.client.auth") == "none"
    dynamic = settings.with_dynamic({}, {"listener.name.controller.ssl.client.auth": "requested"})
    assert dynamic.has_listener_value("CONTROLLER", "ssl.client.auth")


def test_a_listeners_limits_are_checked_in_every_layer() -> None:
    name = "listener.name.plaintext.max.connection.creation.rate"
    with pytest.raises(OttlaError, match=r"^invalid value for listener\.name\.plaintext\.max\.connection"):
        parsed({}).with_dynamic({}, {name: "many"})
    with pytest.raises(OttlaError, match=r"^invalid value for listener\.name\.plaintext\.max\.connection"):
        parsed({name: "many"}).with_dynamic({name: "5"})
    assert parsed({name: "5"}).connection_limits["PLAINTEXT"].max_connection_creation_rate == 5


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.x.max.connections", "max.connections"),
        ("listener.name.x.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.x.scram-sha-256.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("num.partitions", "num.partitions"),
    ],
)
def test_a_listeners_setting_is_that_of_the_node_behind_its_prefix(name: str, base: str) -> None:
    found = ServerSettings.base_setting(name)
    assert found is not None and found.name == base
    assert ServerSettings.known(name) is found


@pytest.mark.parametrize("name", ["listener.name.x.acme", "acme", "listener.name.x"])
def test_a_setting_that_is_not_declared_may_be_a_plug_ins(name: str) -> None:
    assert ServerSettings.base_setting(name) is ServerSettings.known(name) is None


def test_given_names_that_nobody_declares_are_told_apart() -> None:
    given = {
        "super.users": "User:a",
        "rsm.config.bucket": "b",
        "listener.name.plaintext.acme": "1",
        "num.partition": "3",
        "ssl.protocols": "x",
        "acme.prefix": "y",
    }
    settings = parsed(given).with_dynamic({"acme.dynamic": "z"})
    assert settings.undeclared() == sorted([*given, "acme.dynamic"])
    assert settings.unknown() == ["acme.dynamic", "acme.prefix", "num.partition", "ssl.protocols"]
    assert settings.plain_text("super.users") == "User:a" and settings.plain_text("none") is None
    assert settings.with_dynamic({"super.users": "User:b"}).plain_text("super.users") == "User:b"


def test_plug_ins_get_what_the_file_says() -> None:
    settings = parsed({"acme": "1"}).with_dynamic({"acme": "2"})
    assert settings.file_texts()["acme"] == "1"
    assert settings.file_texts()["node.id"] == settings.file_texts()["broker.id"] == "1"


# -- where a value is from


def test_the_name_of_a_flush_interval_has_another_behind_it() -> None:
    settings = parsed({"log.flush.scheduler.interval.ms": "9"})
    assert settings.synonyms("log.flush.interval.ms") == []
    assert settings.synonyms("log.flush.scheduler.interval.ms")[0] == Synonym(
        "log.flush.scheduler.interval.ms", "9", SettingSource.STATIC_BROKER
    )
    both = parsed({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"})
    assert [synonym.text for synonym in both.synonyms("log.flush.interval.ms")[:2]] == ["8", "9"]


def test_a_listeners_value_has_the_nodes_behind_it() -> None:
    own = "listener.name.plaintext.max.connections"
    settings = parsed({own: "3"}).with_dynamic({"max.connections": "5"})
    assert [(each.name, each.text, each.source) for each in settings.synonyms(own)][:1] == [
        (own, "3", SettingSource.STATIC_BROKER)
    ]
    assert settings.synonyms("listener.name.controller.max.connections") == []


def test_values_of_plug_ins_and_secrets_are_shown_to_nobody_and_a_rate_is() -> None:
    rate = "leader.replication.throttled.rate"
    settings = parsed({"acme": "1", "listener.name.plaintext.ssl.key.password": "hush"}).with_dynamic({rate: "5"})
    assert settings.synonyms("acme") == [Synonym("acme", None, SettingSource.STATIC_BROKER)]
    assert settings.synonyms("listener.name.plaintext.ssl.key.password")[0].text is None
    assert settings.synonyms(rate) == [Synonym(rate, "5", SettingSource.DYNAMIC_BROKER)]
    assert settings.source_of(rate) is SettingSource.DYNAMIC_BROKER


def test_what_is_given_is_told_from_a_default_of_the_same_value() -> None:
    settings = parsed({"num.partitions": "1"})
    assert settings.given("num.partitions") and not settings.given("default.replication.factor")
    assert settings.text("num.partitions") == settings.text("default.replication.factor") == "1"
    assert settings.source_of("num.partitions") is SettingSource.STATIC_BROKER


@pytest.mark.parametrize(
    ("name", "value", "per_broker", "words"),
    [
        ("listener.name.x.ssl.keystore.location", "/k", False, "Cannot update these configs at default cluster level"),
        ("listener.name.x.num.network.threads", "4", False, ""),
        ("listener.name.x.max.connections", "4", False, ""),
        ("listener.name.x.ssl.keystore.location", "/k", True, ""),
        ("ssl.keystore.location", "/k", True, "These security configs can be dynamically updated only per-listener"),
        ("ssl.client.auth", "none", False, "Cannot update these configs at default cluster level"),
        ("ssl.client.auth", "none", True, ""),
        ("listeners", "PLAINTEXT://h:1", True, "Cannot update these configs dynamically: [listeners]"),
        ("acme.prefix", "x", False, ""),
        ("num.partitions", "2", True, "Cannot update these configs dynamically: [num.partitions]"),
        ("listener.name.x.num.network.threads", "none", True, "Invalid value none for configuration num.network"),
        ("follower.replication.throttled.rate", "none", False, "Invalid value none for configuration follower"),
    ],
)
def test_what_may_change_while_a_node_runs_and_where(name: str, value: str, per_broker: bool, words: str) -> None:
    if not words:
        ServerSettings.check(name, value, per_broker=per_broker)
        return
    with pytest.raises(KafkaError) as caught:
        ServerSettings.check(name, value, per_broker=per_broker)
    assert caught.value.message.startswith(words)
    bad_value = words.startswith("Invalid")
    assert caught.value.code is (ErrorCode.INVALID_CONFIG if bad_value else ErrorCode.INVALID_REQUEST)


# -- listeners, voters, addresses


def test_a_map_of_protocols_is_read_without_regard_to_case() -> None:
    assert parse_protocol_map(" in:ssl , Out:SASL_plaintext,", given=True, names=[], controllers=["C"]) == {
        "IN": "SSL",
        "OUT": "SASL_PLAINTEXT",
    }
    for bad in ("in", ":SSL", "in:TLS", "in:"):
        with pytest.raises(OttlaError, match="is not NAME:PROTOCOL"):
            parse_protocol_map(bad, given=True, names=[], controllers=[])


@pytest.mark.parametrize(
    ("names", "given", "added"),
    [
        (["PLAINTEXT"], False, True),
        (["plaintext", "ssl"], False, False),
        (["SASL_PLAINTEXT"], False, False),
        (["PLAINTEXT"], True, False),
    ],
)
def test_a_controllers_listener_is_plaintext_where_nothing_else_is_said(
    names: list[str], given: bool, added: bool
) -> None:
    found = parse_protocol_map("PLAINTEXT:PLAINTEXT", given=given, names=names, controllers=["ctl"])
    assert found == {"PLAINTEXT": "PLAINTEXT"} | ({"CTL": "PLAINTEXT"} if added else {})


def test_a_listener_is_written_as_it_is_read() -> None:
    assert str(Listener("A", "::1", 1, "SSL")) == "A://[::1]:1"
    assert str(Listener("A", "host", 1, "SSL")) == "A://host:1"
    assert str(Listener("A", "", 0, "SSL")) == "A://:0"
    assert parse_voters(["1@[::1]:9", "22@host:10"]) == (VoterAddress(1, "::1", 9), VoterAddress(22, "host", 10))


def test_limits_of_addresses_are_by_their_one_spelling() -> None:
    found = parse_connection_overrides(" 10.0.0.7 : 5, [0:0::1]:6 ,")
    assert found == {"10.0.0.7": 5, "::1": 6} and parse_connection_overrides("") == {}
    for bad in ("10.0.0.7", "10.0.0.7:", "10.0.0.7:-1", ":5", "10.0.0.7:2147483648"):
        with pytest.raises(OttlaError, match=r"^max\.connections\.per\.ip\.overrides: "):
            parse_connection_overrides(bad)
