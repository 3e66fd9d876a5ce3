"""Topics, partitions, settings and records' deletion: what an admin client asks, good and bad."""

from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def _bad_topics(name: str) -> list[dict[str, Any]]:
    good = {"num_partitions": 1, "replication_factor": 1}
    return [
        {"name": name + "-ok", **good},
        {"name": name + "-defaults", "num_partitions": -1, "replication_factor": -1},
        {"name": "", **good},
        {"name": ".", **good},
        {"name": "bad name", **good},
        {"name": "x" * 250, **good},
        {"name": name + "-none", "num_partitions": 0, "replication_factor": 1},
        {"name": name + "-less", "num_partitions": -5, "replication_factor": 1},
        {"name": name + "-factor", "num_partitions": 1, "replication_factor": 3},
        {"name": name + "-zero", "num_partitions": 1, "replication_factor": 0},
        {"name": name + "-config", **good, "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"name": name + "-unknown", **good, "configs": [{"name": "no.such.setting", "value": "1"}]},
        {"name": name + "-null", **good, "configs": [{"name": "retention.ms", "value": None}]},
        {
            "name": name + "-assigned",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 1, "broker_ids": [1]}],
        },
        {
            "name": name + "-nobody",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [9]}],
        },
        {
            "name": name + "-gap",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 1, "broker_ids": [1]}],
        },
        {
            "name": name + "-both",
            "num_partitions": 2,
            "replication_factor": 1,
            "assignments": [{"partition_index": 0, "broker_ids": [1]}],
        },
    ]


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        for topic in _bad_topics(name):
            reply = side.ask("CreateTopics", version, note=False, topics=[topic], timeout_ms=15_000)
            for made in reply.topics:
                (made.configs or []).sort(key=lambda one: one.name)
            side.note(f"CreateTopics v{version} {topic['name'].removeprefix(name)[:20]}", reply, version)

    oracle.compare(script)


def test_a_topic_is_created_once(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
        for validate_only in (True, False, True, False):
            reply = side.ask("CreateTopics", 7, note=False, topics=[topic], validate_only=validate_only)
            made = reply.topics[0]
            side.note(
                f"only validate: {validate_only}", (made.error_code, made.num_partitions, made.replication_factor)
            )
        reply = side.ask("CreateTopics", 7, note=False, topics=[{**topic, "name": name + "2"}] * 2)
        side.note("twice in one request", [(one.name, one.error_code) for one in reply.topics])

    oracle.compare(script)


def test_names_that_differ_in_dot_and_underscore_collide(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name + ".a_b")
        topic = {"name": name + "_a.b", "num_partitions": 1, "replication_factor": 1}
        side.ask("CreateTopics", 5, note=False, topics=[topic])
        reply = side.ask("CreateTopics", 5, note=False, topics=[topic])
        side.note("collision", reply.topics[0].error_code)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name)
        if version < 6:
            side.ask("DeleteTopics", version, topic_names=[name + "-missing"], timeout_ms=15_000)
            side.ask("DeleteTopics", version, topic_names=[name], timeout_ms=15_000)
            side.ask("DeleteTopics", version, topic_names=[name], timeout_ms=15_000)
            return
        side.ask("DeleteTopics", version, topics=[{"name": name + "-missing"}], timeout_ms=15_000)
        side.ask("DeleteTopics", version, topics=[{"topic_id": b"\1" * 16}], timeout_ms=15_000)
        side.ask("DeleteTopics", version, topics=[{"topic_id": topic_id, "name": name}], timeout_ms=15_000)
        side.ask("DeleteTopics", version, topics=[{"topic_id": topic_id}], timeout_ms=15_000)
        side.ask("DeleteTopics", version, topics=[{"topic_id": topic_id}], timeout_ms=15_000)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)

        def add(count: int, assignments: list[dict[str, Any]] | None = None, topic: str = name, **more: Any) -> None:
            asked = {"name": topic, "count": count, "assignments": assignments}
            side.ask("CreatePartitions", version, topics=[asked], timeout_ms=15_000, **more)

        add(1)
        add(2)
        add(0)
        add(-1)
        add(4, validate_only=True)
        add(3)
        add(5, [{"broker_ids": [1]}, {"broker_ids": [1]}])
        add(7, [{"broker_ids": [1]}])
        add(6, [{"broker_ids": [9]}])
        add(6, [{"broker_ids": [1, 1]}])
        add(3, topic=name + "-missing")

    oracle.compare(script)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings_are_described(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, retention_ms="1000000", cleanup_policy="compact,delete")
        options: dict[str, Any] = {
            "include_synonyms": True,
            **({"include_documentation": False} if version >= 3 else {}),
        }

        def describe(kind: int, of: str, keys: list[str] | None) -> None:
            asked = [{"resource_type": kind, "resource_name": of, "configuration_keys": keys}]
            reply = side.ask("DescribeConfigs", version, note=False, resources=asked, **options)
            for result in reply.results:
                result.configs.sort(key=lambda one: one.name)
            side.note(f"DescribeConfigs v{version} {kind}", reply, version)

        describe(TOPIC, name, None)
        describe(TOPIC, name, ["retention.ms", "no.such.setting"])
        describe(TOPIC, name + "-missing", None)
        describe(TOPIC, "bad name", None)
        describe(BROKER, "1", ["log.retention.hours", "message.max.bytes", "node.id", "log.dirs"])
        describe(BROKER, "", ["message.max.bytes"])
        describe(BROKER, "9", None)
        describe(BROKER, "one", None)
        describe(GROUP, name, None)
        describe(99, name, None)

    oracle.compare(script)


def test_a_brokers_settings_are_described(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        asked = [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}]
        (result,) = side.ask("DescribeConfigs", 4, note=False, resources=asked, include_synonyms=True).results
        for one in sorted(result.configs, key=lambda each: str(each.name)):
            side.note(f"setting {one.name}", one, 4)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(2))
def test_settings_are_altered_one_by_one_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, retention_ms="1000000")

        def alter(*configs: tuple[str, int, str | None], kind: int = TOPIC, of: str = name, **more: Any) -> None:
            entries = [{"name": key, "config_operation": how, "value": value} for key, how, value in configs]
            resource = {"resource_type": kind, "resource_name": of, "configs": entries}
            side.ask("IncrementalAlterConfigs", version, resources=[resource], **more)
            if of == name and kind == TOPIC:
                side.settle()
                asked = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
                (told,) = side.ask("DescribeConfigs", 4, note=False, resources=asked).results
                side.note("now", sorted((one.name, one.value) for one in told.configs if one.config_source == 1))

        alter(("retention.ms", SET, "2000000"), ("segment.bytes", SET, "1048576"))
        alter(("retention.ms", SET, "for ever"))
        alter(("retention.ms", SET, None))
        alter(("no.such.setting", SET, "1"))
        alter(("retention.ms", DELETE, None))
        alter(("cleanup.policy", APPEND, "compact"))
        alter(("cleanup.policy", SUBTRACT, "delete"))
        alter(("retention.ms", APPEND, "1"))
        alter(("retention.ms", 9, "1"))
        alter(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        alter(("retention.ms", SET, "77"), validate_only=True)
        alter(("retention.ms", SET, "1"), of=name + "-missing")
        alter(("message.max.bytes", SET, "many"), kind=BROKER, of="1")
        alter(("node.id", SET, "5"), kind=BROKER, of="1")
        alter(("message.max.bytes", SET, "2000000"), kind=BROKER, of="")
        alter(("message.max.bytes", DELETE, None), kind=BROKER, of="")
        alter(("retention.ms", SET, "1"), kind=99)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(3))
def test_settings_are_replaced_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, retention_ms="1000000")
        for configs in (
            [{"name": "segment.bytes", "value": "1048576"}],
            [{"name": "segment.bytes", "value": "few"}],
            [{"name": "no.such.setting", "value": "1"}],
            [{"name": "segment.bytes", "value": None}],
            [],
        ):
            resource = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
            side.ask("AlterConfigs", version, resources=[resource])
            side.settle()
            asked = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
            (told,) = side.ask("DescribeConfigs", 4, note=False, resources=asked).results
            side.note("now", sorted((one.name, one.value) for one in told.configs if one.config_source == 1))

    oracle.compare(script)


def test_topic_partitions_are_described_page_by_page(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name + "-a", 3)
        side.create(name + "-b", 2)
        topics = [{"name": name + "-b"}, {"name": name + "-a"}, {"name": name + "-missing"}]
        side.ask("DescribeTopicPartitions", 0, topics=topics)
        side.ask("DescribeTopicPartitions", 0, topics=topics, response_partition_limit=2)
        cursor = {"topic_name": name + "-a", "partition_index": 2}
        side.ask("DescribeTopicPartitions", 0, topics=topics, response_partition_limit=2, cursor=cursor)
        side.ask("DescribeTopicPartitions", 0, topics=topics, cursor={"topic_name": name, "partition_index": -1})

    oracle.compare(script)
