"""What clients push (KIP-714) at a node's `/metrics`: figures add up, names are the client's, and all is bounded."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer as TheirProducer
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import ottla
from ottla.broker.limits.telemetry import Client, ClientMetrics
from ottla.broker.observe import client_metrics
from ottla.broker.observe.client_metrics import PushedClientMetrics
from ottla.broker.observe.otlp import FIELDS_MAX, NotOtlp, read_points
from ottla.client import Admin, ConfigResource, Producer, ResourceType
from ottla.client.connection.otlp import Point, metrics_data
from ottla.kernel.ids import Uuid, uuid_text
from tests.broker.test_observe import SETTINGS, Samples, scraped
from tests.client.conftest import eventually

_SENT = "client_org_apache_kafka_producer_record_send_total"


class Loop:
    """Calls what is called soon, one by one."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.steps = 0

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()
            self.steps += 1


class Scene:
    def __init__(self) -> None:
        self.loop = Loop()
        self.now_ms = 5
        self.figures = PushedClientMetrics(self.loop, self)  # type: ignore[arg-type]

    def monotonic_ms(self) -> int:
        return self.now_ms

    def push(self, data: bytes, client_id: str = "billing", number: int = 7, interval_ms: int = 1000) -> None:
        self.take(data, client_id, number, interval_ms)
        self.loop.run()

    def take(self, data: bytes, client_id: str = "billing", number: int = 7, interval_ms: int = 1000) -> None:
        client = Client(client_id, ("apache-kafka-java", "4.3.1"), ("127.0.0.1", 5))
        self.figures.take(ClientMetrics(Uuid(number.to_bytes(16, "big")), client, False, data, interval_ms))

    def found(self) -> Samples:
        text = "\n".join(line for piece in self.figures.lines() for line in piece) + "\n"
        return {
            (each.name, tuple(sorted(each.labels.items()))): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
        }

    def values(self, name: str) -> list[float]:
        return [value for (found, _), value in self.found().items() if found == name]


def pushed(*points: Point, delta: bool = True, **resource: str) -> bytes:
    return metrics_data(resource, points, now_ns=2, delta=delta)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_sums_since_the_last_push_add_up_and_gauges_are_the_last(scene: Scene) -> None:
    total, rate = "org.apache.kafka.producer.record.send.total", "org.apache.kafka.producer.record.send.rate"
    scene.push(pushed(Point(total, (("topic", "a"),), 5, True), Point(rate, (), 1.5, False), group_id="g"))
    scene.push(pushed(Point(total, (("topic", "a"),), 2, True), Point(rate, (), 2.5, False), group_id="g"))
    assert scene.values(_SENT) == [7]
    scene.push(pushed(Point(rate, (), float("nan"), False)))
    assert scene.values(_SENT) == [7], "a sum that was not pushed again goes on"
    assert scene.values("client_org_apache_kafka_producer_record_send_rate") == [], "a gauge that is not pushed is over"
    [(_, where)] = [series for series in scene.found() if series[0] == _SENT]
    assert dict(where) == {
        "client_id": "billing",
        "client_instance_id": uuid_text((7).to_bytes(16, "big")),
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.3.1",
        "group_id": "g",
        "topic": "a",
    }


def test_a_sum_of_all_time_is_taken_as_it_is(scene: Scene) -> None:
    for value in (5, 9):
        scene.push(pushed(Point("all.total", (), value, True), delta=False))
    assert scene.values("client_all_total") == [9]


def test_a_client_is_forgotten_when_it_is_silent(scene: Scene) -> None:
    scene.push(pushed(Point("some.rate", (), 1, False)))
    scene.now_ms += 60_000
    assert scene.values("client_some_rate") == [1]
    scene.now_ms += 1
    assert scene.values("client_some_rate") == []
    assert scene.values("ottla_client_metrics_clients") == [0]
    assert scene.figures._points == 0


def test_a_client_cannot_write_what_is_not_its_own(scene: Scene) -> None:
    """Neither figures of the node nor another client's, and nothing that breaks the format."""
    evil = '"} 1\nkafka_server_brokertopicmetrics_bytesin_total 9\nx{a="'
    scene.push(
        pushed(
            Point("kafka.server.brokertopicmetrics.bytesin.total", (), 9, True),
            Point(evil, ((evil, evil), ("client_id", "ann"), ("9", "x"), ("", "y")), 1, False),
        ),
        client_id=evil,
    )
    found = {name for name, _ in scene.found()}
    assert all(name.startswith(("client_", "ottla_client_metrics_")) for name in found)
    assert {dict(where).get("client_id", evil) for _, where in scene.found()} == {evil}


def test_one_name_is_of_one_kind(scene: Scene) -> None:
    scene.push(pushed(Point("a.b", (), 1, True)), number=1)
    scene.push(pushed(Point("a.b", (), 2, False)), number=2)
    assert scene.values("client_a_b_total") == [1]
    assert scene.figures.dropped["kinds"] == 1


def test_points_clients_names_and_bytes_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.push(pushed(*(Point("p", (("n", str(each)),), each, False) for each in range(900))))
    assert len(scene.values("client_p")) == 500
    assert scene.figures.dropped["points"] == 400
    scene.push(pushed(Point("x" * 121, (), 1, False), Point("y", (("n", "v" * 10_000),), 1, False)), number=8)
    assert scene.figures.dropped["names"] == 1
    assert scene.values("client_y") == [], "a point that is too long is passed over"
    monkeypatch.setattr(client_metrics, "_CLIENTS_MAX", 50)
    monkeypatch.setattr(client_metrics, "_POINTS_MAX", 1000)
    for number in range(100, 160):
        points = [Point("r", (("n", str(each)),), 1, False) for each in range(30)]
        scene.push(pushed(Point("q", (), 1, False), *points), number=number)
    assert scene.values("ottla_client_metrics_clients") == [50]
    assert scene.figures.dropped["clients"] == 12
    assert scene.figures._points == 1000
    assert scene.figures._points == sum(len(each.points) for each in scene.figures._clients.values())
    for _ in range(9):
        scene.figures.take(ClientMetrics(Uuid(bytes(16)), Client("", ("", ""), ("", 0)), False, bytes(1 << 20), 1000))
    assert scene.figures.dropped["busy"] == 1


def _numbered(count: int) -> bytes:
    return pushed(*(Point("p", (("n", str(each)),), each, False) for each in range(count)))


def test_every_bound_takes_what_just_fits(scene: Scene) -> None:
    dropped = scene.figures.dropped
    scene.push(pushed(Point("x" * 120, (), 1, False)))
    assert scene.values("client_" + "x" * 120) == [1] and not dropped
    for client in range(1, 1000):
        scene.push(b"", number=100 + client)
    assert scene.values("ottla_client_metrics_clients") == [1000] and not dropped
    scene.push(b"", number=99)
    assert dropped == {"clients": 1}
    scene.push(_numbered(500))
    assert len(scene.values("client_p")) == 500 and dropped == {"clients": 1}
    # 20 000 of all clients: 39 times 500 more, and a last client with 499.
    for client in range(1, 40):
        scene.push(_numbered(500 if client < 39 else 499), number=100 + client)
    assert dropped == {"clients": 1}
    scene.push(_numbered(1), number=140)
    assert (len(scene.values("client_p")), dropped) == (20_000, {"clients": 1})
    scene.push(_numbered(1), number=141)
    assert (len(scene.values("client_p")), dropped) == (20_000, {"clients": 1, "points": 1})
    # A client that has room of its own may say it again.
    scene.push(_numbered(1), number=140)
    assert dropped == {"clients": 1, "points": 1}


def test_pushes_wait_up_to_their_bytes(scene: Scene) -> None:
    for size in ((8 << 20) - 7, 7, 1, 0):
        scene.take(bytes(size))
    assert scene.figures.dropped["busy"] == 1
    scene.loop.run()
    scene.take(bytes(8 << 20))
    assert scene.figures.dropped["busy"] == 1, "what was read waits no more"
    assert scene.values("ottla_client_metrics_pushes_total") == [5]


def test_a_push_that_comes_while_another_is_read_waits_for_its_end(scene: Scene) -> None:
    scene.take(_numbered(400), number=1)
    for _ in range(3):
        scene.loop.soon.pop(0)()
    scene.take(_numbered(1), number=2)
    assert len(scene.loop.soon) == 1
    scene.loop.run()
    assert len(scene.values("client_p")) == 401


@pytest.mark.parametrize(("interval_ms", "kept_ms"), [(1, 60_000), (20_000, 60_000), (20_001, 60_003)])
def test_a_client_is_kept_for_three_intervals_and_a_minute_at_least(
    scene: Scene, interval_ms: int, kept_ms: int
) -> None:
    scene.push(_numbered(1), interval_ms=interval_ms)
    scene.now_ms += kept_ms
    assert scene.values("ottla_client_metrics_clients") == [1]
    scene.now_ms += 1
    assert scene.values("ottla_client_metrics_clients") == [0]


def test_a_silent_client_makes_room_for_a_new_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "_CLIENTS_MAX", 1)
    scene.push(_numbered(1), number=1)
    scene.now_ms += 60_000
    scene.push(_numbered(1), number=2)
    assert scene.figures.dropped == {"clients": 1}
    scene.now_ms += 1
    scene.push(_numbered(1), number=2)
    assert scene.figures.dropped == {"clients": 1}
    [(_, where)] = [series for series in scene.found() if series[0] == "client_p"]
    assert dict(where)["client_instance_id"] == uuid_text((2).to_bytes(16, "big"))


def test_names_and_values_are_cut_and_what_is_too_much_is_left_out(scene: Scene) -> None:
    many = tuple((f"a{number}", "v" * 99) for number in range(6))
    scene.push(pushed(Point("p", many, 1, False), client_id="another", client_rack="r"), client_id="c" * 99)
    [(_, where)] = [series for series in scene.found() if series[0] == "client_p"]
    assert dict(where) == {
        "client_id": "c" * 80,
        "client_instance_id": uuid_text((7).to_bytes(16, "big")),
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.3.1",
        "client_rack": "r",
        **{f"a{number}": "v" * 80 for number in range(4)},
    }


def test_a_push_is_read_and_shown_in_steps(scene: Scene) -> None:
    for points, steps in ((0, 2), (49, 2), (50, 3), (99, 3), (100, 4)):
        before = scene.loop.steps
        scene.push(_numbered(points))
        assert scene.loop.steps - before == steps, points
    pieces = list(scene.figures.lines())
    # Two lines of help and type, and a hundred samples.
    assert [len(each) for each in pieces] == [102, 6]
    for number in range(5):
        scene.push(pushed(*(Point(f"q{each}", (), 1, False) for each in range(20))), number=number)
    pieces = list(scene.figures.lines())
    assert [len(each) for each in pieces if not each] == [0, 0], "five clients, and twenty families"
    scene.push(_numbered(500))
    pieces = list(scene.figures.lines())
    assert [len(each) for each in pieces if len(each) > 100] == [200, 200, 102]


def test_a_push_of_many_small_fields_ends_soon_and_in_steps(scene: Scene) -> None:
    scene.push(b"\x08\x01" * (1 << 20))
    assert scene.figures.dropped["unreadable"] == 1
    assert 10 < scene.loop.steps < 100
    assert sum(each is None for each in read_points(b"\x10\x01" * (FIELDS_MAX - 1))) == 39
    # The same one level deeper: an attribute list without an end, in one point.
    point = b"\x3a\x00" * (1 << 20)
    data = point
    for tag in (0x0A, 0x2A, 0x12, 0x12, 0x0A):
        size, length = bytearray(), len(data)
        while length > 127:
            size.append(length & 127 | 128)
            length >>= 7
        data = bytes([tag, *size, length]) + data
    assert list(read_points(data)) == []


@given(st.binary(max_size=200))
def test_noise_is_no_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(NotOtlp, struct.error):
        assert all(point is None or isinstance(point.value, float) for point in read_points(data))


@given(st.data())
def test_a_push_that_is_damaged_is_no_error_of_ours(data: st.DataObject) -> None:
    whole = bytearray(pushed(Point("a.total", (("topic", "t"),), 1, True), Point("b", (), 2, False), group_id="g"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    scene = Scene()
    scene.push(bytes(whole))
    scene.found()


@pytest.fixture
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SETTINGS) as node, Admin(node.bootstrap_servers) as admin:
        admin.alter_configs({ConfigResource(ResourceType.CLIENT_METRICS, "all"): {"metrics": "*", "interval.ms": 100}})
        yield node


@pytest.mark.parametrize("kind", ["ours", "librdkafka"])
def test_clients_push_and_their_records_are_counted(node: ottla.Node, kind: str) -> None:
    def sent() -> float:
        return sum(
            value
            for (name, where), value in scraped(node).items()
            if name.startswith("client_org_apache_kafka_producer_") and ("client_id", "pushes") in where
        )

    assert sent() == 0
    if kind == "ours":
        with Producer(node.bootstrap_servers, client_id="pushes") as producer:
            producer.send("pushed", b"x").result()
            eventually(lambda: sent() > 0)
            eventually(lambda: any(value for (name, _), value in scraped(node).items() if name == _SENT))
    else:
        theirs = TheirProducer({"bootstrap.servers": node.bootstrap_servers, "client.id": "pushes"})
        theirs.produce("pushed", b"x")
        theirs.flush(30)
        eventually(lambda: sent() > 0)
    if kind == "ours":
        # A topic that is new may have no leader yet: what is sent again counts again.
        assert sum(value for (name, _), value in scraped(node).items() if name == _SENT) >= 1


def test_what_the_operator_collects_in_the_process_is_still_told() -> None:
    received: list[ClientMetrics] = []
    with ottla.Node(settings=SETTINGS, client_metrics=received.append) as node, Admin(node.bootstrap_servers) as admin:
        admin.alter_configs({ConfigResource(ResourceType.CLIENT_METRICS, "a"): {"metrics": "*", "interval.ms": 100}})
        with Producer(node.bootstrap_servers) as producer:
            producer.send("pushed", b"x").result()
            eventually(lambda: bool(received))
        assert node._running().observation is not None
        eventually(
            lambda: any(name == "ottla_client_metrics_pushes_total" and v for (name, _), v in scraped(node).items())
        )
