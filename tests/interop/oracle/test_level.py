"""A cluster of an older level with a fixed quorum, and groups that a setting switches off.

Both sides are servers of their own: metadata.version 3.8, kraft.version 0, every other feature at 0.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.batch import build
from tests.broker.wire_client import TRANSACTION, make_coordinators
from tests.interop import server as servers
from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_setting import BROKER, DELETE, GROUP, SET, TOPIC, alter
from tests.interop.oracle.test_switch import ask_all, begin, update
from tests.interop.oracle.wander.catalogue import SETTINGS
from tests.interop.server import Server

_METADATA: dict[str, Any] = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}

#: While a coordinator is loaded.
_COMING = (14, 15, 16)


class OldServer(Server):
    """A server whose settings name its one voter."""

    def _properties(self, controller_port: int) -> str:
        text = super()._properties(controller_port).replace("controller.quorum.bootstrap.servers=", "#")
        return f"{text}controller.quorum.voters=1@127.0.0.1:{controller_port}\n"


def old(kind: servers.Kind, directory: Path, release: str = "3.8") -> Server:
    """A server that is formatted at an older release."""
    command = (*(part for part in kind.format if part != "--standalone"), "--release-version", release)
    settings = {
        **SETTINGS,
        "group.coordinator.rebalance.protocols": "classic",
        "unstable.api.versions.enable": "true",
        "unstable.feature.versions.enable": "true",
    }
    return OldServer(replace(kind, format=command), directory, settings)


@pytest.fixture(scope="module")
def old_oracle_servers(subject: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    made = [old(kind, tmp_path_factory.mktemp("old")) for kind in (servers.apache(), servers.kind(subject.name))]
    for one in made:
        one.start()
    yield made[0], made[1]
    for one in made:
        one.stop()


@pytest.fixture
def old_oracle(old_oracle_servers: tuple[Server, Server]) -> Iterator[Oracle]:
    one = Oracle(*old_oracle_servers)
    yield one
    one.close()


def test_what_is_asked_before_the_coordinators_are_there(old_oracle: Oracle) -> None:
    """Nobody has asked for a coordinator yet: this comes first in the module."""

    def script(side: Side) -> None:
        ask_all(side)
        side.ask("OffsetFetch", 7, group_id="early", topics=None, require_stable=False)
        side.ask("OffsetCommit", 8, group_id="early", topics=[])
        topics = side.ask("Metadata", 12, note=False, topics=None).topics
        side.note("topics", sorted(each.name for each in topics))

    old_oracle.compare(script)


def test_the_voters_of_a_fixed_quorum_are_described(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for version in range(3):
            reply = side.ask("DescribeQuorum", version, note=False, **_METADATA)
            (partition,) = reply.topics[0].partitions
            partition.high_watermark = partition.leader_epoch = 0
            for voter in partition.current_voters:
                voter.log_end_offset = voter.last_fetch_timestamp = voter.last_caught_up_timestamp = 0
            for node in reply.nodes:
                for listener in node.listeners:
                    listener.port = 0
            side.note(f"DescribeQuorum v{version}", reply, version)

    old_oracle.compare(script)


def test_groups_that_nothing_switches_on_are_refused(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        begin(side)
        ask_all(side)
        for feature in ("group.version", "streams.version"):
            update(side, feature, 1, 1)
        side.settle()
        ask_all(side)
        for feature in ("group.version", "streams.version"):
            update(side, feature, 0, 2)

    old_oracle.compare(script)


def test_cordoned_directories_need_their_level(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        directory = str(side.server.log_dir)
        for of, value in (("1", directory), ("", directory), ("1", "*"), ("1", ""), ("1", "/nowhere")):
            side.note("cordons", value and "something")
            alter(side, BROKER, of, ("cordoned.log.dirs", SET, value))
        alter(side, BROKER, "1", ("cordoned.log.dirs", DELETE, None))
        side.settle()
        reply = side.ask("DescribeLogDirs", 5, note=False, topics=[])
        side.note("cordoned", [each.is_cordoned for each in reply.results])

    old_oracle.compare(script)


def test_settings_of_listeners(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for of in ("1", ""):
            for name, value in (
                ("ssl.keystore.location", "/tmp/none"),
                ("ssl.keystore.password", "secret"),
                ("ssl.keystore.type", "PKCS12"),
                ("ssl.keystore.key", "x"),
                ("ssl.key.password", "secret"),
                ("ssl.truststore.location", "/tmp/none"),
                ("ssl.truststore.certificates", "x"),
                ("ssl.client.auth", "none"),
                ("ssl.cipher.suites", "x"),
                ("sasl.jaas.config", "x"),
                ("listener.name.plaintext.ssl.keystore.location", "/tmp/none"),
                ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
                ("listener.name.plaintext.max.connections", "1000"),
                ("listener.name.plaintext.max.connection.creation.rate", "1000"),
                ("listener.name.plaintext.num.network.threads", "4"),
                ("listener.name.plaintext.connections.max.idle.ms", "4"),
                ("listener.name.plaintext.foo", "4"),
                ("listener.name.nobody.max.connections", "4"),
                ("foo.bar", "1"),
                ("confluent.balancer", "1"),
            ):
                side.note("of", [of, name])
                answers = side.ask(
                    "IncrementalAlterConfigs",
                    1,
                    note=False,
                    resources=[_resource(BROKER, of, name, value)],
                    validate_only=True,
                )
                side.note("code", answers.responses[0].error_code)
                side.note("words", (answers.responses[0].error_message or "")[:30])

    old_oracle.compare(script)


def _beginning(words: str | None) -> str | None:
    """What a script looks for: behind it Apache and we each say in our own way what would be right (0201)."""
    return (
        words
        and words.partition(";")[0].partition(": expected")[0].partition(": Value must")[0].partition(": Not a")[0]
    )


def _resource(kind: int, of: str, name: str, value: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": of,
        "configs": [{"name": name, "config_operation": SET, "value": value}],
    }


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_group_settings_that_cannot_be(old_oracle: Oracle, kind: str) -> None:
    def script(side: Side) -> None:
        for name in (
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "assignment.interval.ms",
            "num.standby.replicas",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        ):
            for value in ("-1", "1", "2147483647", "x"):
                setting = f"{kind}.{name}"
                side.note("of", [setting, value])
                answer = side.ask(
                    "IncrementalAlterConfigs",
                    1,
                    note=False,
                    resources=[_resource(GROUP, "g", setting, value)],
                    validate_only=True,
                )
                side.note("code", answer.responses[0].error_code)
                side.note("words", _beginning(answer.responses[0].error_message))

    old_oracle.compare(script)


def test_a_broker_is_no_controller(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for endpoint_type in (0, 1, 2, 3):
            reply = side.ask("DescribeCluster", 2, note=False, endpoint_type=endpoint_type)
            side.note("error", [reply.error_code, reply.error_message])

    old_oracle.compare(script)


def test_what_is_still_designed_is_served(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        reply = side.ask("ApiVersions", 4, note=False, client_software_name="o", client_software_version="1")
        side.note("keys", sorted((each.api_key, each.min_version, each.max_version) for each in reply.api_keys))
        features = reply.supported_features
        side.note("features", sorted((each.name, each.min_version, each.max_version) for each in features))
        make_coordinators(side.connect(), TRANSACTION)
        side.producer_id()
        asked: dict[str, Any] = {"transactional_id": "two", "transaction_timeout_ms": 1000}
        while side.ask("InitProducerId", 6, note=False, **asked).error_code in _COMING:
            pass
        for two_phase, kept in ((False, False), (True, False), (False, True), (True, True)):
            side.ask("InitProducerId", 6, **asked, enable2_pc=two_phase, keep_prepared_txn=kept)
        side.ask("InitProducerId", 6, transactional_id=None, enable2_pc=True)
        side.ask("InitProducerId", 6, transactional_id="", enable2_pc=True)

    old_oracle.compare(script)


def test_internal_settings_of_topics_are_described_and_hold(old_oracle: Oracle) -> None:
    def script(side: Side) -> None:
        side.create("internal", internal_segment_bytes="100", flush_ms="1000")
        side.create("external")
        for of in ("internal", "external"):
            resource = {"resource_type": TOPIC, "resource_name": of, "configuration_keys": None}
            reply = side.ask("DescribeConfigs", 4, note=False, resources=[resource], include_synonyms=True)
            found = sorted((each.name, each.value, each.config_source) for each in reply.results[0].configs)
            side.note(of, found)
        for value in ("13", "14", "0", "x", "1000"):
            changed = [_resource(TOPIC, "external", "internal.segment.bytes", value)]
            answer = side.ask("IncrementalAlterConfigs", 1, note=False, resources=changed)
            side.note(f"set to {value}", answer.responses[0].error_code)
        codes = []
        for size in (10, 200, 10):
            part = {"index": 0, "records": build([(1, None, b"x" * size, ())])}
            data = [{"name": "internal", "partition_data": [part]}]
            produced = side.ask("Produce", 9, note=False, acks=-1, timeout_ms=5000, topic_data=data)
            codes.append(produced.responses[0].partition_responses[0].error_code)
        side.note("produced", codes)
        side.note("segments", sorted(path.name for path in (side.server.log_dir / "internal-0").glob("*.log")))

    old_oracle.compare(script)


def test_kraft_version_goes_up(old_oracle: Oracle) -> None:
    """The last of the module: it does not go down again."""

    def script(side: Side) -> None:
        for level, upgrade_type in ((0, 1), (0, 2), (1, 2), (2, 1), (1, 1), (1, 1), (0, 2), (0, 3), (1, 2)):
            update(side, "kraft.version", level, upgrade_type)
        for level, upgrade_type in ((19, 2), (18, 3), (6, 1), (31, 1), (30, 1), (20, 3)):
            update(side, "metadata.version", level, upgrade_type)
        reply = side.ask("DescribeQuorum", 2, note=False, **_METADATA)
        side.note("voters", [len(each.current_voters) for each in reply.topics[0].partitions])
        side.note("nodes", [[one.name for one in each.listeners] for each in reply.nodes])

    old_oracle.compare(script)
