"""Which metrics a client is asked for, and what becomes of those that it pushes."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla
from ottla.broker.handlers.telemetry import get_subscriptions, push
from ottla.broker.limits import telemetry
from ottla.broker.limits.telemetry import Client, ClientMetrics, Instance, Telemetry
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid, uuid_text
from ottla.metadata.image import CLIENT_METRICS, Image
from ottla.wire.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.push_telemetry import PushTelemetryRequest
from ottla.wire.codec import Codec, compress
from tests.broker.table_node import called
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

    def ask_interval(self) -> int:
        return self.telemetry._instance(CONNECTION, ME, ID).interval_ms

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


def test_an_id_behind_the_reserved_ones_is_a_clients(scene: Scene) -> None:
    with pytest.raises(KafkaError) as raised:
        scene.telemetry.push(
            CONNECTION, ME, Uuid((2).to_bytes(16, "big")), 0, 0, b"1", terminating=False, bytes_max=9, now_ms=0
        )
    # The client has not asked for its subscription yet.
    assert raised.value.code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


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
    scene.subscribe("wrong", metrics="wrong", match=f"{name}={text[:-1] or 55}")
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


def test_the_instance_that_makes_room_is_the_one_that_was_silent_the_longest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_INSTANCES_MAX", 2)
    scene.subscribe("a", metrics="m.one", interval_ms="1000")
    scene.ask()
    scene.telemetry.ask(object(), ME, Uuid(bytes([7] * 16)), scene.now_ms)
    assert scene.push(b"1") == "NONE"
    scene.telemetry.ask(object(), ME, Uuid(bytes([8] * 16)), scene.now_ms)
    scene.now_ms += 1000
    assert scene.push(b"2") == "NONE"


def test_a_closed_connection_takes_its_instance_with_it(scene: Scene) -> None:
    scene.ask()
    scene.telemetry.forget(CONNECTION)
    scene.ask()  # would come within the interval


def test_a_subscription_pushes_no_more_seldom_than_without_one(scene: Scene) -> None:
    """As in Apache Kafka: the interval is the shortest of those that match and of the default, five minutes."""
    assert scene.ask().interval_ms == 300_000
    scene.subscribe("other", metrics="m", interval_ms="100", match="client_id=other")
    scene.subscribe("seldom", metrics="m.one", interval_ms="3600000")
    assert (scene.ask().metrics, scene.ask_interval()) == (("m.one",), 300_000)
    scene.subscribe("unset", metrics="m.two")
    assert scene.ask_interval() == 300_000
    scene.subscribe("often", metrics="m.three", interval_ms="299999")
    assert scene.ask_interval() == 299_999


def test_a_subscription_is_read_with_white_space_around_its_parts(scene: Scene) -> None:
    scene.subscribe("a", metrics=" m.one ,m.two ", match=" client_id = billing , client_source_port = 5= ")
    assert scene.ask().metrics == ("m.one", "m.two")


def test_the_number_of_a_subscription_tells_instances_metrics_and_intervals_apart() -> None:
    """It is 32 bits with a sign: the client sends it back with each push."""
    changes: list[dict[str, str]] = [
        {"metrics": "m.one"},
        {"metrics": "m.two"},
        {"metrics": "m.one,m.two"},
        {"metrics": "m.one", "interval_ms": "1000"},
    ]
    scene = Scene()
    numbers: list[int] = []
    for change in changes:
        scene.subscribe("a", **{"interval_ms": "300000"} | change)
        ids = [Uuid(number.to_bytes(16, "big")) for number in range(2, 6)]
        numbers += [scene.ask(instance_id=each).subscription_id for each in ids]
    assert len(set(numbers)) == len(numbers)
    assert all(-(1 << 31) <= number < 1 << 31 for number in numbers)
    assert min(numbers) < 0 < max(numbers)


@pytest.mark.parametrize(
    ("codec", "data", "code"),
    [
        # Kafka's numbers of the codecs: none, gzip, snappy, lz4, zstd.
        *((codec, compress(Codec(codec), b"otlp" * 50), "NONE") for codec in range(5)),
        (-1, b"x", "UNSUPPORTED_COMPRESSION_TYPE"),
        (5, b"x", "UNSUPPORTED_COMPRESSION_TYPE"),
        # A bound of 1000 bytes as they come, and of four times as many decompressed.
        (0, b"x" * 1000, "NONE"),
        (0, b"x" * 1001, "TELEMETRY_TOO_LARGE"),
        (4, compress(Codec.ZSTD, b"x" * 4000), "NONE"),
        (4, compress(Codec.ZSTD, b"x" * 4001), "INVALID_RECORD"),
        (1, b"no gzip", "INVALID_RECORD"),
    ],
)
def test_a_push_is_taken_in_every_codec_up_to_its_bounds(scene: Scene, codec: int, data: bytes, code: str) -> None:
    scene.ask()
    assert scene.push(data, codec=codec) == code
    assert len(scene.received) == (code == "NONE")


def test_a_push_tells_how_often_its_client_pushes_and_whether_it_is_the_last(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one", interval_ms="1000")
    scene.ask()
    assert [scene.push(b"1"), scene.push(b"2", terminating=True)] == ["NONE", "NONE"]
    assert [(each.data, each.interval_ms, each.terminating) for each in scene.received] == [
        (b"1", 1000, False),
        (b"2", 1000, True),
    ]


def test_a_push_without_metrics_reaches_no_exporter(scene: Scene) -> None:
    scene.ask()
    assert scene.push(b"") == "NONE"
    assert not scene.received


def test_a_last_push_is_the_last_even_if_it_is_refused(scene: Scene) -> None:
    scene.ask()
    assert scene.push(b"1", codec=5, terminating=True) == "UNSUPPORTED_COMPRESSION_TYPE"
    scene.now_ms += 1_000_000
    assert scene.push(b"2", terminating=True) == "INVALID_REQUEST"
    # As in Apache Kafka, a refusal for that very reason takes the word of the request that it refuses.
    assert scene.push(b"3") == "INVALID_REQUEST"
    assert scene.push(b"4") == "NONE"


@pytest.mark.parametrize("instance_id", [NO_UUID, Uuid((1).to_bytes(16, "big"))])
def test_reserved_ids_are_no_clients_and_keep_no_instance(scene: Scene, instance_id: Uuid) -> None:
    with pytest.raises(KafkaError) as raised:
        scene.telemetry.push(
            CONNECTION, ME, instance_id, 0, 0, b"1", terminating=False, bytes_max=9, now_ms=scene.now_ms
        )
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert not scene.telemetry._instances


def test_metrics_reach_every_exporter(scene: Scene) -> None:
    others: list[ClientMetrics] = []
    scene.telemetry.export_to(others.append)
    scene.ask()
    assert scene.push(b"1") == "NONE"
    assert [each.data for each in others] == [each.data for each in scene.received] == [b"1"]
    alone = Telemetry(scene.cluster.controller._rng)
    alone.export_to(others.append)
    assert alone.exporter is not None
    alone.exporter(others[0])
    assert len(others) == 2


def test_a_change_of_something_else_leaves_clients_alone(scene: Scene) -> None:
    asked = scene.ask()
    scene.telemetry.follow(scene._seen, replace(scene._seen, offset=7))
    with pytest.raises(KafkaError) as raised:
        scene.ask()
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert scene.telemetry._instances[ID] is asked


def test_a_client_is_told_what_to_push_and_how_and_its_pushes_are_taken_as_told(scene: Scene) -> None:
    scene.subscribe("a", metrics="m.one,m.two", interval_ms="1000")
    call = called(
        telemetry=scene.telemetry,
        clock=SimpleNamespace(monotonic_ms=lambda: scene.now_ms),
        settings=SimpleNamespace(telemetry_max_bytes=5),
    )
    call.client_id, call.connection.client_software, call.connection.peer = "me", ("librdkafka", "2.5"), ("::1", 9)
    told = get_subscriptions(call, GetTelemetrySubscriptionsRequest(client_instance_id=ID))
    assert (told.client_instance_id, told.error_code) == (ID, ErrorCode.NONE)
    assert told.subscription_id == scene.telemetry._instances[ID].subscription_id
    # zstd, lz4, gzip, snappy: in Kafka's order, the best first.
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.push_interval_ms, told.telemetry_max_bytes, told.delta_temporality) == (1000, 5, True)
    assert told.requested_metrics == ["m.one", "m.two"]

    def pushed(data: bytes, **more: Any) -> None:
        known: dict[str, Any] = {"client_instance_id": ID, "subscription_id": told.subscription_id}
        assert push(call, PushTelemetryRequest(**known | more, metrics=data)).error_code == 0

    pushed(b"12345")
    scene.now_ms += 1000
    with pytest.raises(KafkaError, match="TELEMETRY_TOO_LARGE"):
        pushed(b"123456")
    with pytest.raises(KafkaError, match="UNKNOWN_SUBSCRIPTION_ID"):
        pushed(b"1", subscription_id=0, terminating=True)
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        pushed(b"1")
    assert [(each.client, each.data) for each in scene.received] == [
        (Client("me", ("librdkafka", "2.5"), ("::1", 9)), b"12345")
    ]


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
