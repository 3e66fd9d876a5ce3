"""Settings that take effect while the servers run: of brokers, topics, groups and loggers, and what records come to."""

import pytest

from ottla.wire.batch import build
from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_record import data
from tests.interop.scene import NOW_MS

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def alter(side: Side, kind: int, of: str, *changes: Change, validate_only: bool = False, note: bool = True) -> None:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": of, "configs": configs}
    side.ask("IncrementalAlterConfigs", 1, note=note, resources=[resource], validate_only=validate_only)


def describe(side: Side, kind: int, of: str, *keys: str) -> None:
    """Values, sources and synonyms of some settings, once what was altered has arrived."""
    side.settle()
    asked = [{"resource_type": kind, "resource_name": of, "configuration_keys": list(keys) or None}]
    reply = side.ask("DescribeConfigs", 4, note=False, resources=asked, include_synonyms=True)
    for result in reply.results:
        result.configs.sort(key=lambda one: one.name)
    side.note("DescribeConfigs", reply, 4)


def test_a_broker_and_all_brokers_have_dynamic_settings(oracle: Oracle, name: str) -> None:
    keys = ("message.max.bytes", "log.retention.ms", "log.cleaner.threads", "num.io.threads", "max.connections.per.ip")

    def script(side: Side) -> None:
        side.create(name)
        try:
            alter(side, BROKER, "", ("message.max.bytes", SET, "2000000"), ("log.retention.ms", SET, "86400000"))
            describe(side, BROKER, "1", *keys)
            describe(side, BROKER, "", *keys)
            describe(side, TOPIC, name, "max.message.bytes", "retention.ms")
            alter(side, BROKER, "1", ("message.max.bytes", SET, "1500000"), ("max.connections.per.ip", SET, "5000"))
            describe(side, BROKER, "1", *keys)
            describe(side, TOPIC, name, "max.message.bytes", "retention.ms")
            alter(side, TOPIC, name, ("max.message.bytes", SET, "1000"))
            describe(side, TOPIC, name, "max.message.bytes")
        finally:
            for of in ("1", ""):
                gone = [
                    (key, DELETE, None) for key in ("message.max.bytes", "log.retention.ms", "max.connections.per.ip")
                ]
                alter(side, BROKER, of, *gone, note=False)
        describe(side, BROKER, "1", *keys)

    oracle.compare(script)


def test_broker_settings_that_cannot_be_are_refused(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for of in ("1", ""):
            for key, value in (
                ("message.max.bytes", "x"),
                ("message.max.bytes", "-1"),
                ("log.retention.ms", "0"),
                ("num.partitions", "3"),
                ("log.dirs", "/x"),
                ("node.id", "7"),
                ("max.connections.per.ip", "0"),
                ("max.connections.per.ip.overrides", "nonsense"),
                ("log.cleaner.threads", "100"),
                ("advertised.listeners", "PLAINTEXT://127.0.0.1:1"),
                ("compression.type", "nothing"),
                ("log.cleanup.policy", "compress"),
                ("min.insync.replicas", "0"),
            ):
                alter(side, BROKER, of, (key, SET, value), validate_only=True)
        alter(side, BROKER, "7", ("message.max.bytes", SET, "1000"), validate_only=True)
        alter(side, BROKER, "x", ("message.max.bytes", SET, "1000"), validate_only=True)
        alter(side, BROKER, "1", ("message.max.bytes", APPEND, "1000"), validate_only=True)
        alter(side, BROKER, "1", ("message.max.bytes", SET, None), validate_only=True)

    oracle.compare(script)


def test_lists_are_appended_to_and_subtracted_from(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        policy = "cleanup.policy"
        for change in (
            (policy, APPEND, "compact"),
            (policy, APPEND, "compact"),
            (policy, SUBTRACT, "delete"),
            (policy, SUBTRACT, "nothing"),
            (policy, APPEND, "compress"),
            (policy, SUBTRACT, "compact"),
            ("retention.ms", APPEND, "5"),
            ("nothing.like.it", APPEND, "5"),
        ):
            alter(side, TOPIC, name, change)
        describe(side, TOPIC, name, policy)
        alter(side, TOPIC, name, (policy, SET, "compact"), (policy, APPEND, "delete"))
        alter(side, TOPIC, name, (policy, SET, "compact"), validate_only=True)
        describe(side, TOPIC, name, policy)

    oracle.compare(script)


def test_topic_settings_are_taken_or_refused_by_name(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        for key, value in (
            ("segment.bytes", "1048576"),
            ("segment.bytes", "1000"),
            ("segment.ms", "0"),
            ("segment.jitter.ms", "-1"),
            ("segment.jitter.ms", "1000"),
            ("retention.bytes", "-2"),
            ("min.insync.replicas", "0"),
            ("compression.type", "zip"),
            ("compression.gzip.level", "10"),
            ("compression.zstd.level", "-131073"),
            ("message.timestamp.type", "logappendtime"),
            ("message.timestamp.before.max.ms", "-1"),
            ("message.timestamp.after.max.ms", "0"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("unclean.leader.election.enable", "maybe"),
            ("follower.replication.throttled.replicas", "0:1,1:1"),
            ("follower.replication.throttled.replicas", "x"),
            ("remote.storage.enable", "true"),
            ("retention.ms", " 1000 "),
            ("retention.ms", "1e3"),
            ("retention.ms", ""),
            ("Retention.ms", "5"),
            ("preallocate", "TRUE"),
        ):
            alter(side, TOPIC, name, (key, SET, value), validate_only=True)
        alter(side, TOPIC, name, ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))
        alter(side, TOPIC, "", ("retention.ms", SET, "5"))
        alter(side, TOPIC, name + "-missing", ("retention.ms", SET, "5"))

    oracle.compare(script)


def test_groups_have_settings(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        for changes in (
            [("consumer.session.timeout.ms", SET, "50000")],
            [("consumer.heartbeat.interval.ms", SET, "6000")],
            [("consumer.session.timeout.ms", SET, "1")],
            [("consumer.session.timeout.ms", SET, "5500"), ("consumer.heartbeat.interval.ms", SET, "5500")],
            [("nothing.like.it", SET, "1")],
            [("consumer.session.timeout.ms", APPEND, "1")],
            [("share.auto.offset.reset", SET, "earliest")],
            [("share.auto.offset.reset", SET, "by_duration:PT1H")],
            [("share.auto.offset.reset", SET, "somewhere")],
            [("streams.num.standby.replicas", SET, "1")],
            [("streams.num.standby.replicas", SET, "3")],
        ):
            alter(side, GROUP, name, *changes)
        alter(side, GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
        describe(side, GROUP, name)
        describe(side, GROUP, name + "-other", "consumer.session.timeout.ms")
        describe(side, GROUP, "")

    oracle.compare(script)


def test_loggers_are_described_and_set(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for of in ("1", "", "7"):
            reply = side.ask(
                "DescribeConfigs",
                4,
                note=False,
                resources=[{"resource_type": LOGGER, "resource_name": of}],
            )
            (result,) = reply.results
            # Loggers are each implementation's own but for the root.
            result.configs = [one for one in result.configs if one.name == "root"]
            for one in result.configs:
                one.value = "a level"
            side.note("DescribeConfigs", reply, 4)
        for name, operation, value in (
            ("root", SET, "WARN"),
            ("root", SET, "LOUD"),
            ("root", SET, "info"),
            ("root", APPEND, "WARN"),
            ("root", DELETE, None),
            ("no such logger", SET, "WARN"),
            ("no such logger", DELETE, None),
        ):
            alter(side, LOGGER, "1", (name, operation, value), validate_only=True)
        alter(side, LOGGER, "7", ("root", SET, "WARN"))
        alter(side, LOGGER, "", ("root", SET, "WARN"))

    oracle.compare(script)


def test_resources_with_settings_are_listed(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        alter(side, GROUP, name, ("consumer.session.timeout.ms", SET, "50000"))
        alter(side, CLIENT_METRICS, name, ("interval.ms", SET, "1000"))
        side.settle()
        for version, kinds in (
            (0, []),
            (1, []),
            (1, [TOPIC]),
            (1, [GROUP, CLIENT_METRICS]),
            (1, [BROKER, LOGGER]),
            (1, [7]),
        ):
            reply = side.ask("ListConfigResources", version, note=False, resource_types=kinds)
            # Other scripts have theirs.
            reply.config_resources = sorted(
                (
                    one
                    for one in reply.config_resources
                    if name in one.resource_name or one.resource_type in (BROKER, LOGGER)
                ),
                key=lambda one: (one.resource_type, one.resource_name),
            )
            side.note(f"ListConfigResources {kinds}", reply, version)
        describe(side, CLIENT_METRICS, name)
        describe(side, CLIENT_METRICS, name + "-other")
        describe(side, CLIENT_METRICS, "")
        alter(side, CLIENT_METRICS, name, ("interval.ms", DELETE, None))

    oracle.compare(script)


@pytest.mark.parametrize(
    ("settings", "records"),
    [
        ({"max_message_bytes": "200"}, [(b"k", b"v" * 300)]),
        ({"max_message_bytes": "200"}, [(b"k", b"v")]),
        ({"compression_type": "gzip"}, [(b"k", b"v" * 300)]),
        ({"compression_type": "uncompressed"}, [(b"k", b"v" * 300)]),
        ({"message_timestamp_type": "LogAppendTime"}, [(b"k", b"v")]),
        ({"message_timestamp_before_max_ms": "1000"}, [(b"k", b"v")]),
        ({"min_insync_replicas": "2"}, [(b"k", b"v")]),
        ({"cleanup_policy": "compact"}, [(None, b"v")]),
        ({"cleanup_policy": "compact,delete"}, [(b"k", b"v")]),
    ],
)
def test_a_topics_settings_decide_what_is_taken(
    oracle: Oracle, name: str, settings: dict[str, str], records: list[tuple[bytes | None, bytes]]
) -> None:
    def script(side: Side) -> None:
        side.create(name, 1, **settings)
        body = build([(NOW_MS, key, value, []) for key, value in records])
        side.ask("Produce", 9, acks=-1, timeout_ms=1000, topic_data=data(name, body))
        side.ask(
            "ListOffsets",
            7,
            replica_id=-1,
            topics=[{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )

    oracle.compare(script)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_topics_are_asked_for_by_id_from_version_12_on(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name)
        for topic in ({"name": None, "topic_id": topic_id}, {"name": name, "topic_id": topic_id}):
            if version >= 12 or topic["name"] is not None:
                side.ask("Metadata", version, topics=[topic], allow_auto_topic_creation=False)

    oracle.compare(script)
