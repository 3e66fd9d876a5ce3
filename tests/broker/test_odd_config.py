"""Values of settings that are no numbers, or numbers of thousands of digits: the node goes on, and starts again."""

import pytest

from ottla.kernel.error import ErrorCode
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.record.metadata import ClientQuotaRecord, ConfigRecord, EntityData
from tests.broker.disk_scene import Scene

#: `int` converts no text of so many digits.
NINES = "9" * 5000
RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"


def alter(scene: Scene, kind: int, name: str, key: str, value: str) -> ErrorCode:
    config = incremental.AlterableConfig(name=key, config_operation=0, value=value)
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (answer,) = scene.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "code"),
    [
        (BROKER, "1", RATE, "abc", "INVALID_REQUEST"),
        (BROKER, "", RATE, "-1", "INVALID_REQUEST"),
        (BROKER, "", "follower.replication.throttled.rate", "1.5", "INVALID_REQUEST"),
        (BROKER, "1", "replica.alter.log.dirs.io.max.bytes.per.second", NINES, "INVALID_REQUEST"),
        (BROKER, "1", RATE, "0" * 5000 + "1", "NONE"),
        (BROKER, "1", "log.cleaner.threads", NINES, "INVALID_REQUEST"),
        (BROKER, "1", "listener.name.plaintext.max.connections", NINES, "INVALID_REQUEST"),
        (BROKER, "1", "listeners", f"PLAINTEXT://127.0.0.1:{NINES}", "INVALID_REQUEST"),
        (BROKER, "", "max.connections.per.ip.overrides", f"127.0.0.1:{NINES}", "INVALID_REQUEST"),
        (BROKER, NINES, "log.cleaner.threads", "1", "INVALID_REQUEST"),
        (TOPIC, "t", "retention.ms", NINES, "INVALID_CONFIG"),
        (TOPIC, "t", REPLICAS, f"{NINES}:1", "NONE"),
        (TOPIC, "t", REPLICAS, f"0:{NINES}", "NONE"),
        (TOPIC, "t", "follower.replication.throttled.replicas", f"0:{1 << 31}", "NONE"),
        (GROUP, "g", "consumer.session.timeout.ms", NINES, "INVALID_CONFIG"),
        (GROUP, "g", "share.auto.offset.reset", f"by_duration:P{NINES}D", "INVALID_CONFIG"),
        (CLIENT_METRICS, "m", "interval.ms", NINES, "INVALID_CONFIG"),
    ],
)
def test_an_odd_value_stops_no_node(kind: int, name: str, key: str, value: str, code: str) -> None:
    scene = Scene()
    scene.create()
    assert alter(scene, kind, name, key, value).name == code
    for index in range(2):
        assert alter(scene, TOPIC, "t", "retention.ms", f"{index + 1000}") is ErrorCode.NONE
        scene.machine.stop()
        scene.machine.start()
        scene.machine.settle()
        assert scene.machine.failure is None


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("1", "cordoned.log.dirs", "/c"), ("", "log.cleaner.threads", "2"), ("", "log.cleaner.threads", "many")],
)
def test_a_config_that_does_not_fit_this_nodes_file_has_no_effect_and_stops_nothing(
    name: str, key: str, value: str
) -> None:
    scene = Scene(log_cleaner_dedupe_buffer_size="2097152")
    # As a controller with another file, or one of Apache Kafka, may write it.
    configs = {key: value, "num.io.threads": "9"}
    scene.node.quorum.append(
        [ConfigRecord(resource_type=BROKER, resource_name=name, name=each, value=configs[each]) for each in configs]
    )
    scene.machine.settle()
    assert scene.node.settings.num_io_threads == 9
    scene.create()
    assert scene.write(0, b"a") == "NONE"
    scene.machine.stop()
    scene.machine.start()
    scene.machine.settle()
    assert scene.machine.failure is None
    assert scene.node.settings.num_io_threads == 9
    assert scene.read(0) == [b"a"]
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="")
    [everyones] = scene.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    shown = {each.name: each.value for each in everyones.configs}
    assert [each for each in configs if shown.get(each) == configs[each]] == ([] if name else list(configs))
    assert alter(scene, BROKER, name, "num.io.threads", "10") is ErrorCode.INVALID_REQUEST
    config = incremental.AlterableConfig(name=key, config_operation=1, value=None)
    gone = incremental.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[config])
    [answer] = scene.ask(incremental.IncrementalAlterConfigsRequest(resources=[gone]), 1).responses
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", [TOPIC, GROUP])
def test_a_stored_value_that_another_release_took_has_no_effect_and_stops_nothing(
    kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka 3 took segments of any size; a node of Apache Kafka 4 does not start with them."""
    name, key, default, good = {
        TOPIC: ("t", "segment.bytes", "1048576", "2097152"),
        GROUP: ("g", "consumer.session.timeout.ms", "45000", "50000"),
    }[kind]
    other = {TOPIC: "retention.ms", GROUP: "consumer.heartbeat.interval.ms"}[kind]
    scene = Scene()
    scene.create()
    value = {TOPIC: "1000", GROUP: "soon"}[kind]
    records = [ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)]
    records.append(ConfigRecord(resource_type=kind, resource_name=name, name=other, value="5001"))
    scene.node.quorum.append(records)
    scene.machine.settle()

    def shown() -> dict[str, str | None]:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name)
        [found] = scene.ask(DescribeConfigsRequest(resources=[resource]), 4).results
        return {each.name: each.value for each in found.configs}

    for _ in range(2):
        assert scene.write(0, b"a") == "NONE"
        assert (shown()[key], shown()[other]) == (default, "5001")
        scene.machine.stop()
        scene.machine.start()
        scene.machine.settle()
        assert scene.machine.failure is None
    assert ("a config of the topic t has no effect: invalid value for segment.bytes: 1000" in caplog.text) is (
        kind == TOPIC
    )
    assert alter(scene, kind, name, other, "5002") is ErrorCode.INVALID_CONFIG, "as in Apache Kafka, until it is mended"
    assert alter(scene, kind, name, key, good) is ErrorCode.NONE
    assert alter(scene, kind, name, other, "5002") is ErrorCode.NONE
    assert (shown()[key], shown()[other]) == (good, "5002")


@pytest.mark.parametrize(
    "record",
    [
        ClientQuotaRecord(
            entity=[EntityData(entity_type="ip", entity_name="db.example")], key="connection_creation_rate", value=1.0
        ),
        ConfigRecord(resource_type=CLIENT_METRICS, resource_name="m", name="interval.ms", value="soon"),
    ],
)
def test_what_another_controller_took_and_this_node_cannot_use_stops_nothing(record: object) -> None:
    """Apache Kafka's controllers take the names of hosts for addresses (decision 0140)."""
    scene = Scene()
    scene.create()
    scene.node.quorum.append([record])
    scene.machine.settle()
    for _ in range(2):
        assert scene.write(0, b"a") == "NONE"
        scene.machine.stop()
        scene.machine.start()
        scene.machine.settle()
        assert scene.machine.failure is None
