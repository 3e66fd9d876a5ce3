"""Which metrics a client is asked for, and what becomes of those that it pushes."""

import threading
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla
from ottla.broker.limits import telemetry
from ottla.broker.limits.telemetry import Client, ClientMetrics, Instance, Telemetry
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid, uuid_text
from ottla.metadata.image import CLIENT_METRICS, Image
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.codec import Codec, compress
from tests.broker.wire_client import WireClient
from tests.controller.scene import Cluster

ME = Client("billing", ("apache-kafka-java", "4.3.1"), ("127.0.0.1", 5))
CONNECTION = object()
ID = Uuid(bytes(range(16)))


class Scene:
    """A telemetry over a cluster whose subscriptions change."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.telemetry = Telemetry(self.cluster.controller._rng)
        self.received: list[ClientMetrics] = []
        self.telemetry.exporter = self.received.append
        self.now_ms = 1_000_000
        self._seen = Image.empty()

    def subscribe(self, name: str, **values: str) -> None:
        configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
        assert not self.cluster.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
        self.telemetry.follow(self._seen, self.cluster.image)
        self._seen = self.cluster.image

    def ask(self, client: Client = ME, instance_id: Uuid = ID) -> Instance:
        return self.telemetry.ask(CONNECTION, client, instance_id, self.now_ms)

    def push(self, data: bytes, *, subscription: int | None = None, codec: int = 0, terminating: bool = False) -> str:
        wanted = self.telemetry._instances[ID].subscription_id if subscription is None else subscription
        try:
            self.telemetry.push(
                CONNECTION, ME, ID, wanted, codec, data, terminating=terminating, bytes_max=1000, now_ms=self.now_ms
            )
        except KafkaError as error:
            return error.code.name
        return "NONE"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_client_has_the_metrics_of_all_that_match_and_the_shortest_interval(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one,m.two", interval_ms="5000", match="client_id=bill.*")
    scene.subscribe("b", metrics="m.two,m.three", interval_ms="2000")
    scene.subscribe("c", metrics="m.four", interval_ms="100", match="client_id=bill")
    asked = scene.ask()
    assert asked.metrics == ("m.one", "m.three", "m.two")
    assert asked.interval_ms == 2000


def test_a_client_is_matched_by_its_instance_id(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", match=f"client_instance_id={uuid_text(ID)}")
    assert scene.ask().metrics == ("m.one",)


def test_a_connection_has_one_instance_whatever_ids_its_client_invents(scene: Scene) -> None:
    for number in range(20):
        scene.ask(instance_id=Uuid(number.to_bytes(16, "big")) if number > 1 else NO_UUID)
    assert len(scene.telemetry._instances) == 1
    scene.telemetry.forget(CONNECTION)
    assert not scene.telemetry._instances


def test_a_star_is_all_metrics(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one")
    scene.subscribe("b", metrics="*", match="client_software_name=apache.*,client_source_port=5")
    assert scene.ask().metrics == ("*",)


def test_who_has_no_id_gets_one(scene: Scene) -> None:
    assert scene.ask(instance_id=NO_UUID).instance_id != NO_UUID


def test_pushed_metrics_are_decompressed_and_handed_on(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", interval_ms="1000")
    scene.ask()
    assert scene.push(compress(Codec.ZSTD, b"otlp" * 50), codec=Codec.ZSTD) == "NONE"
    [metrics] = scene.received
    assert (metrics.instance_id, metrics.client, metrics.data) == (ID, ME, b"otlp" * 50)


def test_what_comes_within_the_interval_is_refused(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", interval_ms="1000")
    scene.ask()
    with pytest.raises(KafkaError) as raised:
        scene.ask()
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert scene.push(b"1") == "NONE"
    assert scene.push(b"2") == "THROTTLING_QUOTA_EXCEEDED"
    scene.now_ms += 1000
    assert scene.push(b"3") == "NONE"
    assert [each.data for each in scene.received] == [b"1", b"3"]


def test_a_changed_subscription_makes_the_client_ask_again_at_once(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", interval_ms="60000")
    old = scene.ask().subscription_id
    assert scene.push(b"1") == "NONE"
    scene.subscribe("a", metrics="m.two")
    assert scene.push(b"2", subscription=old) == "UNKNOWN_SUBSCRIPTION_ID"
    assert scene.ask().metrics == ("m.two",)


def test_after_the_last_push_nothing_is_taken(scene: Scene) -> None:
    scene.ask()
    assert scene.push(b"1") == "NONE"
    assert scene.push(b"2", terminating=True) == "NONE"
    scene.now_ms += 1_000_000
    assert scene.push(b"3") == "INVALID_REQUEST"


def test_what_is_too_large_or_no_stream_of_its_codec_is_refused(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", interval_ms="100")
    scene.ask()
    assert scene.push(b"x" * 1001) == "TELEMETRY_TOO_LARGE"
    scene.now_ms += 100
    assert scene.push(b"xyz", codec=Codec.GZIP) == "INVALID_RECORD"
    scene.now_ms += 100
    assert scene.push(b"xyz", codec=5) == "UNSUPPORTED_COMPRESSION_TYPE"
    assert not scene.received


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("client_instance_id", uuid_text(ID)),
        ("client_id", "billing"),
        ("client_software_name", "apache-kafka-java"),
        ("client_software_version", "4.3.1"),
        ("client_source_address", "127.0.0.1"),
        ("client_source_port", "5"),
    ],
)
def test_a_client_is_matched_by_whole_texts_of_each_kind(scene: Scene, name: str, text: str) -> None:
    scene.subscribe("right", metrics="right", match=f"{name}={text}")
    scene.subscribe("wrong", metrics="wrong", match=f"{name}={text[:-1]}")
    scene.subscribe("one of two", metrics="neither", match=f"{name}={text},client_id=other")
    assert scene.ask().metrics == ("right",)


def test_an_error_lets_a_client_ask_again_once(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", interval_ms="1000")

    def asks() -> str:
        try:
            return str(scene.ask().error.name)
        except KafkaError as error:
            return error.code.name

    for error, again in (
        ("UNKNOWN_SUBSCRIPTION_ID", True),
        ("UNSUPPORTED_COMPRESSION_TYPE", True),
        ("TELEMETRY_TOO_LARGE", False),
        ("NONE", False),
    ):
        scene.now_ms += 1000
        assert asks() == "NONE"
        pushed: dict[str, Any] = {
            "UNKNOWN_SUBSCRIPTION_ID": {"subscription": 1},
            "UNSUPPORTED_COMPRESSION_TYPE": {"codec": 5},
        }.get(error, {})
        assert scene.push(b"x" * (1001 if error == "TELEMETRY_TOO_LARGE" else 1), **pushed) == error
        assert asks() == ("NONE" if again else "THROTTLING_QUOTA_EXCEEDED")
        assert asks() == "THROTTLING_QUOTA_EXCEEDED"
    # A push that succeeds takes back the leave to ask.
    scene.now_ms += 1000
    assert scene.push(b"1", subscription=1) == "UNKNOWN_SUBSCRIPTION_ID"
    scene.now_ms += 1000
    assert scene.push(b"1") == "NONE"
    assert asks() == "THROTTLING_QUOTA_EXCEEDED"


def test_a_client_whose_instance_made_room_for_others_has_one_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_INSTANCES_MAX", 2)
    others = [(object(), Uuid(bytes([number]) * 16)) for number in (7, 8)]
    first = scene.ask()
    for connection, instance_id in others:
        scene.telemetry.ask(connection, ME, instance_id, scene.now_ms)
    assert scene.ask() is not first
    # It counts from now on, like any other.
    with pytest.raises(KafkaError) as raised:
        scene.ask()
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert len(scene.telemetry._instances) == 2


def test_a_closed_connection_takes_its_instance_with_it(scene: Scene) -> None:
    scene.ask()
    scene.telemetry.forget(CONNECTION)
    scene.ask()  # would come within the interval


def test_librdkafka_pushes_what_it_is_asked_for() -> None:
    came = threading.Event()
    received: list[ClientMetrics] = []

    def take(metrics: ClientMetrics) -> None:
        received.append(metrics)
        came.set()

    with ottla.Node(client_metrics=take) as node:
        configs = [AlterableConfig(name="metrics", value="*"), AlterableConfig(name="interval.ms", value="100")]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=configs)
        with WireClient(node.bootstrap_servers) as client:
            answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        producer = Producer({"bootstrap.servers": node.bootstrap_servers, "client.id": "pushes"})
        producer.produce("pushed", b"x")
        producer.flush(30)
        assert came.wait(30)
    assert received[0].client.client_id == "pushes"
    assert received[0].client.software[0] == "confluent-kafka-python"
    assert b"org.apache.kafka" in received[0].data
