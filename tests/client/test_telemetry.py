"""What clients push of their metrics (KIP-714), as a node's receiver gets it."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

import ottla
from ottla.broker.limits.telemetry import ClientMetrics
from ottla.client import Admin, ConfigResource, Consumer, Producer, ResourceType, ShareConsumer
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.otlp import Point, metrics_data
from ottla.client.connection.telemetry import TelemetryPush
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.wire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

_INTERVAL_MS = "100"


class Pushed(NamedTuple):
    """A metric as it was pushed."""

    attributes: dict[str, str]
    value: float
    #: 1: since the last push, 2: of all time; None of a gauge.
    temporality: int | None
    #: When a sum began, in ns since 1970; 0 of a gauge.
    began_ns: int


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, content) of a protobuf message's fields."""

    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 1:
            yield tag >> 3, data[at : at + 8]
            at += 8
        else:
            assert tag & 7 == 2, tag
            size = varint()
            yield tag >> 3, data[at : at + size]
            at += size
    assert at == len(data)


def _attributes(pairs: list[bytes]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        parts = dict(_fields(pair))
        found[parts[1].decode()] = dict(_fields(parts[2]))[1].decode()
    return found


def decode(data: bytes) -> tuple[dict[str, str], list[tuple[str, Pushed]]]:
    """(what the resource is called by, the metrics) of a MetricsData."""
    resource: dict[str, str] = {}
    found = []
    for number, content in _fields(dict(_fields(data))[1]):
        if number == 1:
            resource = _attributes([pair for _, pair in _fields(content)])
            continue
        for _, metric in _fields(content):
            parts = dict(_fields(metric))
            body = dict(_fields(parts.get(5) or parts[7]))
            labels = _attributes([content for number, content in _fields(body[1]) if number == 7])
            point = dict(_fields(body[1]))
            (value,) = struct.unpack("<d", point[4])
            began_ns = int.from_bytes(point.get(2, b""), "little")
            assert 5 in parts or body[3] == 1, "a sum only rises"
            found.append((parts[1].decode(), Pushed(labels, value, body.get(2), began_ns)))
    return resource, found


class Receiver:
    """What a node's clients push."""

    def __init__(self) -> None:
        self.pushes: list[ClientMetrics] = []
        self._came = threading.Condition()

    def take(self, pushed: ClientMetrics) -> None:
        with self._came:
            self.pushes.append(pushed)
            self._came.notify_all()

    def wait_for(self, wanted: Any) -> Any:
        """The first of the pushes that come, or have come, of which `wanted` says something."""
        with self._came:
            assert self._came.wait_for(lambda: any(map(wanted, self.pushes)), 60)
            return next(filter(None, map(wanted, self.pushes)))

    def named(self, name: str) -> list[Pushed]:
        return [each for push in self.pushes for one, each in decode(push.data)[1] if one == name]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def node(receiver: Receiver) -> Iterator[ottla.Node]:
    with ottla.Node(client_metrics=receiver.take) as node:
        yield node


def _subscribe(node: ottla.Node, metrics: str) -> None:
    with Admin(node.bootstrap_servers) as admin:
        admin.alter_configs(
            {ConfigResource(ResourceType.CLIENT_METRICS, "all"): {"metrics": metrics, "interval.ms": _INTERVAL_MS}}
        )


def test_points_are_written_as_opentelemetry_has_them() -> None:
    points = [Point("a.rate", (("node_id", "node-1"),), 1.5, False), Point("a.total", (), 300.0, True, 1 << 60)]
    for delta in (True, False):
        data = metrics_data({"group_id": "g" * 200}, points, now_ns=2 << 60, delta=delta)
        assert decode(data) == (
            {"group_id": "g" * 200},
            [
                ("a.rate", Pushed({"node_id": "node-1"}, 1.5, None, 0)),
                ("a.total", Pushed({}, 300.0, 1 if delta else 2, 1 << 60)),
            ],
        )


def test_a_producer_pushes_what_is_asked_for(node: ottla.Node, receiver: Receiver) -> None:
    _subscribe(node, "*")
    total = "org.apache.kafka.producer.record.send.total"
    with Producer(node.bootstrap_servers, transactional_id="billing", client_rack="a") as producer:
        with producer.transaction():
            for _ in range(7):
                producer.send("pushed", b"v")
        receiver.wait_for(lambda push: sum(each.value for each in receiver.named(total)) == 7)
        with producer.transaction():
            producer.send("pushed", b"v")
        assert not any(push.terminating for push in receiver.pushes)
    assert [push.terminating for push in receiver.pushes][-1:] == [True]
    # Sums are since the last push, so they add up, and the last push tells the rest.
    assert sum(each.value for each in receiver.named(total)) == 8
    assert {each.temporality for each in receiver.named(total)} == {1}
    resource, metrics = decode(receiver.pushes[-1].data)
    assert resource == {"client_rack": "a", "transactional_id": "billing"}
    assert len({push.instance_id for push in receiver.pushes}) == 1
    said = dict(metrics)
    assert said["org.apache.kafka.producer.topic.byte.rate"].attributes == {"topic": "pushed"}
    latency = said["org.apache.kafka.producer.node.request.latency.max"]
    assert latency.attributes == {"node_id": "node-1"}
    assert latency.temporality is None
    assert sum(each.value for each in receiver.named("org.apache.kafka.producer.connection.creation.total")) > 0
    assert all(name.startswith("org.apache.kafka.producer.") for name, _ in metrics)


def test_a_consumer_pushes_in_kafkas_groups(node: ottla.Node, receiver: Receiver) -> None:
    _subscribe(node, "org.apache.kafka.consumer.")
    with Producer(node.bootstrap_servers) as producer:
        producer.send("read", b"v")
    with Consumer(node.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["read"])
        assert next(iter(consumer)).value == b"v"
        receiver.wait_for(lambda push: receiver.named("org.apache.kafka.consumer.fetch.manager.records.lag.max"))
    resource, metrics = decode(receiver.pushes[-1].data)
    assert resource["group_id"] == "g"
    said = dict(metrics)
    assert receiver.pushes[-1].terminating
    assert "org.apache.kafka.consumer.coordinator.rebalance.total" in said
    assert "org.apache.kafka.consumer.last.poll.seconds.ago" in said
    topics = [each.attributes for each in receiver.named("org.apache.kafka.consumer.fetch.manager.records.lag")]
    assert {"topic": "read", "partition": "0"} in topics
    # A producer was there, too, and was asked for nothing of its own.
    assert all(
        name.startswith("org.apache.kafka.consumer.") for push in receiver.pushes for name, _ in decode(push.data)[1]
    )


def test_a_share_consumer_pushes_its_connections(node: ottla.Node, receiver: Receiver) -> None:
    _subscribe(node, "*")
    with ShareConsumer(node.bootstrap_servers, group_id="workers") as consumer:
        consumer.subscribe(["queue"])
        consumer.poll(0.1)
        receiver.wait_for(lambda push: receiver.named("org.apache.kafka.consumer.node.request.total"))
    assert decode(receiver.pushes[-1].data)[0] == {"group_id": "workers"}


def test_another_subscription_is_followed(node: ottla.Node, receiver: Receiver) -> None:
    _subscribe(node, "org.apache.kafka.producer.connection.")
    with Producer(node.bootstrap_servers) as producer:
        producer.send("followed", b"v").result()
        receiver.wait_for(lambda push: receiver.named("org.apache.kafka.producer.connection.creation.rate"))
        assert not receiver.named("org.apache.kafka.producer.batch.size.max")
        _subscribe(node, "org.apache.kafka.producer.batch.")
        receiver.wait_for(lambda push: receiver.named("org.apache.kafka.producer.batch.size.max"))


@pytest.mark.parametrize(("metrics", "push"), [("*", False), ("", True)])
def test_who_is_not_asked_or_does_not_want_to_pushes_nothing(
    node: ottla.Node, receiver: Receiver, metrics: str, push: bool
) -> None:
    if metrics:
        _subscribe(node, metrics)
    with Producer(node.bootstrap_servers, enable_metrics_push=push) as producer:
        producer.send("quiet", b"v").result()
    assert not receiver.pushes


class Broker:
    """A cluster of one broker that asks for every metric, and answers a push as it is told to."""

    def __init__(self, *answers: ErrorCode | OttlaError | None, **subscription: Any) -> None:
        """`answers` to the pushes in their order, None for one that never comes; any more succeed."""
        self.asked = 0
        self.settings = SimpleNamespace(request_timeout_ms=30_000)
        self.on_update: list[Callable[[], None]] = []
        self.totals: list[float] = []
        self.pushed = asyncio.Event()
        self._answers = iter(answers)
        usual: dict[str, Any] = {"requested_metrics": ["*"], "push_interval_ms": 1, "telemetry_max_bytes": 1 << 20}
        self._subscription = usual | {"delta_temporality": True} | subscription

    async def any(self) -> Broker:
        return self

    async def call(self, request: Any, _answer: Any, *, timeout_ms: int) -> Any:
        if isinstance(request, GetTelemetrySubscriptionsRequest):
            self.asked += 1
            return GetTelemetrySubscriptionsResponse(**self._subscription)
        assert isinstance(request, PushTelemetryRequest)
        self.totals += [point.value for _, point in decode(request.metrics)[1]]
        self.pushed.set()
        code = next(self._answers, ErrorCode.NONE)
        if code is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(code, OttlaError):
            raise code
        return PushTelemetryResponse(error_code=cast(ErrorCode, code))


@pytest.mark.parametrize(
    ("first", "totals"),
    [
        pytest.param(None, [5, 0], id="a push whose answer the close does not wait for is not told again"),
        pytest.param(ErrorCode.THROTTLING_QUOTA_EXCEEDED, [5, 5], id="a push that was refused is told again"),
    ],
)
def test_a_sum_is_counted_once(first: ErrorCode | None, totals: list[float]) -> None:
    async def run() -> list[float]:
        broker = Broker(first)
        push = TelemetryPush(
            cast(Cluster, broker), lambda: iter([Point("sent.total", (), 5.0, True)]), dict, enabled=True
        )
        broker.on_update[0]()
        await broker.pushed.wait()
        await push.close()
        return broker.totals

    assert asyncio.run(run())[:2] == totals


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        pytest.param(OttlaError("the connection is gone"), 2, id="another broker may want other metrics"),
        pytest.param(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 2, id="the subscription has changed"),
        pytest.param(ErrorCode.UNKNOWN_SERVER_ERROR, 2, id="something else"),
        pytest.param(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1, id="too early"),
    ],
)
def test_a_push_that_fails_asks_for_the_subscription_again(answer: ErrorCode | OttlaError, asked: int) -> None:
    async def run() -> int:
        broker = Broker(answer)
        push = TelemetryPush(
            cast(Cluster, broker), lambda: iter([Point("sent.total", (), 5.0, True)]), dict, enabled=True
        )
        broker.on_update[0]()
        while len(broker.totals) < 2:
            broker.pushed.clear()
            await broker.pushed.wait()
        await push.close()
        return broker.asked

    assert asyncio.run(run()) == asked


@pytest.mark.parametrize("answer", [ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION])
def test_a_broker_that_takes_no_metrics_gets_none_at_the_close(answer: ErrorCode) -> None:
    async def run() -> list[float]:
        broker = Broker(answer)
        push = TelemetryPush(
            cast(Cluster, broker), lambda: iter([Point("sent.total", (), 5.0, True)]), dict, enabled=True
        )
        broker.on_update[0]()
        await broker.pushed.wait()
        while push._task is not None and not push._task.done():
            await asyncio.wait([push._task])
        await push.close()
        return broker.totals

    assert asyncio.run(run()) == [5]


def _push_to(broker: Broker, points: Callable[[], Iterator[Point]]) -> TelemetryPush:
    return TelemetryPush(cast(Cluster, broker), points, dict, enabled=True)


@pytest.mark.parametrize("metrics", [[], ["*"]])
@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_that_is_none_is_kafkas_default(metrics: list[str], interval_ms: int) -> None:
    """Otherwise the client would ask, or push, without a pause."""

    async def run() -> list[float | None]:
        push = _push_to(Broker(push_interval_ms=interval_ms, requested_metrics=metrics), lambda: iter(()))
        return [await push._step() for _ in range(2)]

    assert all(pause_ms is not None and pause_ms >= 150_000 for pause_ms in asyncio.run(run()))


def test_a_subscription_that_is_unknown_when_it_is_asked_for_is_not_asked_for_without_a_pause() -> None:
    async def run() -> float | None:
        return await _push_to(Broker(error_code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID), lambda: iter(()))._step()

    assert asyncio.run(run()) == 300_000


def _pushes(delta: bool, *rounds: list[tuple[str, float]]) -> tuple[int, list[dict[str, tuple[float, int]]]]:
    """(when the client began, each push's sums with their beginnings); push number n is at n, in ns."""

    async def run() -> tuple[int, list[dict[str, tuple[float, int]]]]:
        left = iter(rounds)
        push = _push_to(Broker(), lambda: (Point(name, (), value, True) for name, value in next(left)))
        wanted = GetTelemetrySubscriptionsResponse(requested_metrics=["*"], delta_temporality=delta)
        told = []
        for number in range(1, len(rounds) + 1):
            data, push._pushed = push._data(wanted, number)
            told.append({name: (each.value, each.began_ns) for name, each in decode(data)[1]})
        return push._began_ns, told

    return asyncio.run(run())


def test_a_cumulative_sum_keeps_its_beginning() -> None:
    """A receiver takes a new beginning for a restart, and adds the whole sum again."""
    began, told = _pushes(False, [("a.total", 5)], [("a.total", 7)])
    assert told == [{"a.total": (5, began)}, {"a.total": (7, began)}]


def test_a_sum_that_is_missing_for_a_time_is_counted_once() -> None:
    """The metrics of a broker are missing while it is out of the metadata, and its meter goes on."""
    began, told = _pushes(True, [("a.total", 5)], [], [("a.total", 7)])
    assert told == [{"a.total": (5, began)}, {}, {"a.total": (2, 1)}]


def test_a_sum_that_starts_again_is_no_negative_delta() -> None:
    began, told = _pushes(True, [("a.total", 5)], [("a.total", 3)])
    assert told == [{"a.total": (5, began)}, {"a.total": (3, 1)}]


def test_metrics_that_are_too_large_are_not_sent_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[float]:
        broker = Broker(telemetry_max_bytes=10)
        push = _push_to(broker, lambda: iter([Point("sent.total", (), 5.0, True)]))
        for _ in range(3):
            await push._step()
        return broker.totals

    assert asyncio.run(run()) == []
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.client"]
    assert "telemetry.max.bytes=10" in line


def test_metrics_that_cannot_be_read_end_the_pushes_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[Point]:
        raise RuntimeError("dictionary changed size during iteration")

    async def run() -> list[float]:
        broker = Broker()
        push = _push_to(broker, broken)
        broker.on_update[0]()
        assert push._task is not None
        await asyncio.wait([push._task])
        await push.close()
        return broker.totals

    assert asyncio.run(run()) == []
    assert "metrics are no longer pushed" in caplog.text
