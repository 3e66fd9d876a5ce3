"""What clients push (KIP-714), handed on as OTLP: whole, with the client's name, bounded, and off the loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest

import ottla
from ottla.broker.limits.telemetry import Client, ClientMetrics
from ottla.broker.observe.otlp import NotOtlp, read_points, with_attributes
from ottla.broker.observe.otlp_export import OtlpExport
from ottla.client import Admin, ConfigResource, Producer, ResourceType
from ottla.client.connection.otlp import Point, metrics_data
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid
from tests.broker.test_observe import scraped, value
from tests.client.conftest import eventually


class Receiver(HTTPServer):
    """A receiver of OTLP: keeps what is posted, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: Queue[tuple[str, str, bytes]] = Queue()
        self.status = 200
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/metrics"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.put((self.path, self.headers["Content-Type"], body))
        self.server.may_answer.wait(30)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a thread."""
    with Receiver() as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield one
        one.may_answer.set()
        one.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def export(receiver: Receiver) -> Iterator[OtlpExport]:
    one = OtlpExport(receiver.url)
    yield one
    one.close()


def push(
    data: bytes, client_id: str = "billing", software: tuple[str, str] = ("apache-kafka-java", "4.3.1")
) -> ClientMetrics:
    client = Client(client_id, software, ("127.0.0.1", 5))
    return ClientMetrics(Uuid(bytes(15) + b"\7"), client, False, data, 1000)


def measured(**resource: str) -> bytes:
    points = [Point("a.rate", (("topic", "orders"),), 1.5, False)]
    return metrics_data(resource, points, now_ns=2, delta=True)


def test_a_producers_metrics_arrive_with_its_name(receiver: Receiver) -> None:
    settings = {"client.metrics.otlp.url": receiver.url, "metrics.listener": "127.0.0.1:0"}
    with ottla.Node(settings=settings) as node:
        with Admin(node.bootstrap_servers) as admin:
            resource = ConfigResource(ResourceType.CLIENT_METRICS, "all")
            admin.alter_configs({resource: {"metrics": "*", "interval.ms": "100"}}).check()
        with Producer(node.bootstrap_servers, client_id="billing", transactional_id="t") as producer:
            with producer.transaction():
                producer.send("orders", b"v")
            path, kind, body = receiver.posted.get(timeout=30)
        eventually(lambda: value(scraped(node), "ottla_client_metrics_otlp_sent_total") >= 1)
    assert (path, kind) == ("/v1/metrics", "application/x-protobuf")
    points = [point for point in read_points(body) if point is not None]
    assert any(point.name == "org.apache.kafka.producer.record.send.total" for point in points)
    said = dict(points[0].resource)
    assert (said["client_id"], said["client_software_name"], said["transactional_id"]) == ("billing", "ottla", "t")
    assert len(said["client_instance_id"]) == 22


def test_what_the_client_says_of_itself_stays(receiver: Receiver, export: OtlpExport) -> None:
    export.take(push(measured(group_id="g")))
    (point,) = read_points(receiver.posted.get(timeout=30)[2])
    assert point is not None
    assert dict(point.resource) == {
        "group_id": "g",
        "client_id": "billing",
        "client_instance_id": "AAAAAAAAAAAAAAAAAAAABw",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.3.1",
    }
    eventually(lambda: "ottla_client_metrics_otlp_sent_total 1" in export.lines())


def test_what_a_client_is_called_is_handed_on_as_far_as_80_characters(export: OtlpExport) -> None:
    pushed = push(measured(group_id="g"), "c" * 90, ("s" * 90, "v" * 80))
    (point,) = read_points(export.body([pushed]))
    assert point is not None
    said = dict(point.resource)
    names = ("client_id", "client_software_name", "client_software_version")
    assert [said[name] for name in names] == ["c" * 80, "s" * 80, "v" * 80]


def test_a_receiver_that_refuses_costs_a_counted_drop(receiver: Receiver, export: OtlpExport) -> None:
    receiver.status = 503
    export.take(push(measured()))
    eventually(lambda: export.dropped["refused"] == 1)
    receiver.status = 307
    export.take(push(measured()))
    eventually(lambda: export.dropped["refused"] == 2)
    export.take(push(b"\xff\xff"))
    eventually(lambda: export.dropped["unreadable"] == 1)
    receiver.status = 200
    export.take(push(measured()))
    eventually(lambda: export.sent == 1)
    assert 'ottla_client_metrics_otlp_dropped_total{reason="refused"} 2' in export.lines()


def test_a_receiver_that_is_not_there_costs_a_counted_drop(receiver: Receiver) -> None:
    with HTTPServer(("127.0.0.1", 0), _Handler) as gone:
        url = f"http://127.0.0.1:{gone.server_port}/"
    export = OtlpExport(url)
    export.take(push(measured()))
    eventually(lambda: export.dropped["unreachable"] == 1)
    export.close()


def test_what_waits_for_a_receiver_that_does_not_answer_is_bounded(receiver: Receiver, export: OtlpExport) -> None:
    receiver.may_answer.clear()
    export.take(push(measured()))
    receiver.posted.get(timeout=30)
    big = push(bytes(1 << 20))
    for _ in range(10):
        export.take(big)
    assert export.dropped["busy"] == 2


def test_a_push_of_many_parts_is_handed_on_within_a_bound() -> None:
    assert with_attributes(b"\x0a\x00" * 1000, {"client_id": "x"})
    with pytest.raises(NotOtlp, match="in each part"):
        with_attributes(b"\x0a\x00" * 1_000_000, {"client_id": "x"})


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector/", "http://"])
def test_an_address_that_is_none_is_refused_at_the_start(url: str) -> None:
    with (
        pytest.raises(OttlaError, match=r"client.metrics.otlp.url: expected http\(s\)://HOST:PORT/v1/metrics"),
        ottla.Node(settings={"client.metrics.otlp.url": url}),
    ):
        pass


def test_an_address_with_a_password_is_refused_and_not_told() -> None:
    with (
        pytest.raises(OttlaError, match=r"client.metrics.otlp.url has a user or password") as refused,
        ottla.Node(settings={"client.metrics.otlp.url": "http://ann:secret@collector:4318/v1/metrics"}),
    ):
        pass
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("path", [[1], [1, 2], [1, 2, 2], [1, 2, 2, 1]], ids=len)
def test_a_number_where_a_message_is_expected_is_no_otlp(path: list[int]) -> None:
    """ResourceMetrics, ScopeMetrics, Metric and its name, each in turn."""
    data = bytes([path[-1] << 3, 7])
    for number in reversed(path[:-1]):
        data = bytes([number << 3 | 2, len(data)]) + data
    with pytest.raises(NotOtlp, match="a number where bytes are expected"):
        list(read_points(data))
