"""What a node shows of itself, part by part: in pieces, from few peers at once, and whatever a client's numbers are."""

from __future__ import annotations

import logging
import struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.call.handler import Handler, Times
from ottla.broker.call.reply import Later
from ottla.broker.observe import endpoint, metrics
from ottla.broker.observe.endpoint import Observation, _Peer
from ottla.broker.observe.otlp import encode_field, encode_number, read_points
from ottla.broker.observe.slow import SlowRequests
from ottla.client.connection.otlp import Point
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import API, ApiKey
from tests.broker.test_client_metrics import Scene, pushed, scene
from tests.broker.test_metric_values import ID, part, values

__all__ = ["scene"]


# ---- pieces


def test_a_cluster_of_many_partitions_is_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_STEP", 2)
    parts = tuple(part(leader, "12", "12") for leader in (1, 2, -1, 1, 1))
    node: Any = SimpleNamespace(
        node_id=1,
        quorum=SimpleNamespace(leader=SimpleNamespace(node_id=1)),
        settings=SimpleNamespace(is_controller=True),
        image=SimpleNamespace(topics={"t": metrics_topic(*parts)}, brokers={}),
    )
    pieces = list(metrics._cluster(node))
    assert pieces.count([]) == 2, "after two and after four partitions"
    found = {name.rpartition("_")[2]: value for name, value in values(*pieces).items()}
    assert (found["globalpartitioncount"], found["offlinepartitionscount"]) == (5, 1)
    assert found["preferredreplicaimbalancecount"] == 2


def metrics_topic(*parts: Any) -> Any:
    return SimpleNamespace(name="t", topic_id=ID, partitions=parts)


def test_replicas_in_failed_directories_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_STEP", 2)
    asked: list[tuple[str, int]] = []

    def is_offline(topic: str, index: int, known: Any) -> bool:
        asked.append((topic, index))
        return index != 3

    node: Any = SimpleNamespace(
        image=SimpleNamespace(topics={"t": metrics_topic(*[part(1, "1", "1")] * 5)}),
        hosted={("t", 0): None},
        leadership=SimpleNamespace(is_offline=is_offline),
    )
    pieces = list(metrics._offline(node))
    assert pieces.count([]) == 2
    assert values(*pieces) == {"kafka_server_replicamanager_offlinereplicacount": 3}
    # What is hosted is not offline, and is not asked about.
    assert asked == [("t", index) for index in (1, 2, 3, 4)]


def test_the_replicas_of_a_broker_are_shown_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_STEP", 2)
    monkeypatch.setattr(metrics, "_replication", lambda node: [])
    monkeypatch.setattr(metrics, "_offline", lambda node: iter(()))
    logs = [
        SimpleNamespace(
            closed=number == 1, size=10 + number, start_offset=number, end_offset=20 + number, segments=[0] * 3
        )
        for number in range(5)
    ]
    node: Any = SimpleNamespace(
        hosted={("t", number): SimpleNamespace(log=log) for number, log in enumerate(logs)},
        partitions={},
        image=SimpleNamespace(topics={}),
        failed_directories=["/a", "/b"],
    )
    pieces = list(metrics._replicas(node))
    assert pieces.count([]) == 3, "the empty one in front, after two and after four"
    assert max(map(len, pieces)) <= 3
    found = values(*pieces)
    assert found["kafka_server_replicamanager_partitioncount"] == 5
    assert found["kafka_log_logmanager_offlinelogdirectorycount"] == 2
    ends = {name: value for name, value in found.items() if "endoffset" in name}
    # A closed log has no figures: it may be gone.
    assert sorted(ends.values()) == [20, 22, 23, 24]


# ---- what clients push


def test_a_series_that_is_twice_in_one_push_adds_up_or_is_the_last(scene: Scene) -> None:
    twice = [Point("some.total", (), value, True) for value in (5, 2)]
    scene.push(pushed(*twice))
    scene.push(pushed(*twice))
    assert scene.values("client_some_total") == [14]
    for value in (5.0, 3.0):
        scene.push(pushed(*(Point("all.total", (), value + more, True) for more in (0, 1)), delta=False))
    assert scene.values("client_all_total") == [4]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (encode_field(1, b"word"), "word"),
        (encode_field(1, b"w\xff"), "w\N{REPLACEMENT CHARACTER}"),
        (encode_number(2, 1), "1"),
        (encode_number(3, 77), "77"),
        (encode_field(3, b"x"), ""),
        (struct.pack("<Bd", 4 << 3 | 1, 2.5), "2.5"),
        (encode_field(5, b""), ""),
        (b"", ""),
    ],
)
def test_an_attribute_of_any_kind_is_text(value: bytes, text: str) -> None:
    attribute = encode_field(1, b"name") + encode_field(2, value)
    point = encode_field(7, attribute) + struct.pack("<Bd", 4 << 3 | 1, 1.5)
    metric = encode_field(1, b"m") + encode_field(5, encode_field(1, point))
    data = encode_field(1, encode_field(2, encode_field(2, metric)))
    ((name, attributes, shown),) = [(each.name, each.attributes, each.value) for each in read_points(data) if each]
    assert (name, attributes, shown) == ("m", (("name", text),), 1.5)


# ---- peers


class _Transport:
    def __init__(self) -> None:
        self.is_aborted = self.is_closed = False
        self.written = b""

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_closed

    def write(self, data: bytes) -> None:
        self.written += data


class _Peers:
    """An endpoint without its socket."""

    def __init__(self) -> None:
        self.soon: list[Any] = []
        self.timers: list[Mock] = []
        self.observation = Observation.__new__(Observation)
        self.observation._peers = {}
        self.observation._server = self.observation._starting = None
        self.observation._sock = Mock()
        loop = SimpleNamespace(call_soon=self.soon.append, call_later=self._later)
        self.observation.node = SimpleNamespace(loop=loop)  # type: ignore[assignment]

    def _later(self, seconds: float, call: Any) -> Mock:
        self.timers.append(Mock(seconds=seconds, call=call))
        return self.timers[-1]

    def connect(self) -> tuple[Any, _Transport]:
        peer, transport = _Peer(self.observation), _Transport()
        peer.connection_made(transport)  # type: ignore[arg-type]
        return peer, transport


def test_a_further_peer_takes_the_place_of_a_silent_one_or_of_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_CONNECTIONS_MAX", 3)
    peers = _Peers()
    (first, _), _, (third, _) = made = [peers.connect() for _ in range(3)]
    first.is_answered = third.is_answered = True
    fourth, _ = peers.connect()
    assert [transport.is_aborted for _, transport in made] == [False, True, False]
    fourth.is_answered = True
    peers.connect()
    assert [transport.is_aborted for _, transport in made] == [True, True, False]
    assert len(peers.observation._peers) == 3


def test_the_end_of_a_node_ends_every_peer_and_its_timer() -> None:
    peers = _Peers()
    made = [peers.connect() for _ in range(2)]
    assert [timer.seconds for timer in peers.timers] == [10, 10]
    peers.observation.close()
    assert [transport.is_aborted for _, transport in made] == [True, True]
    assert peers.observation._sock.close.called  # type: ignore[attr-defined]
    for peer, _ in made:
        peer.connection_lost(None)
    assert all(timer.cancel.called for timer in peers.timers)
    assert peers.observation._peers == {}


def test_a_request_is_read_to_its_end_and_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_REQUEST_BYTES_MAX", 30)
    peers = _Peers()
    peer, transport = peers.connect()
    for data in (b"GET /no", b"where?a=b HTTP/1.1\r", b"\n\r\n"):
        assert transport.written == b""
        peer.data_received(data)
    while peers.soon:
        peers.soon.pop(0)()
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert body == b"there are /metrics, /health and /ready here\n"
    assert transport.is_closed
    peer.data_received(b"GET /nowhere HTTP/1.1\r\n\r\n")
    assert not peers.soon
    # One that goes on and on is cut off; 30 bytes are still read.
    peer, transport = peers.connect()
    peer.data_received(b"x" * 30)
    assert not transport.is_aborted
    peer.data_received(b"x")
    assert transport.is_aborted


def test_an_answer_that_nobody_waits_for_is_not_built() -> None:
    peers, built = _Peers(), list[str]()

    def pieces() -> Any:
        try:
            for number in range(9):
                built.append(str(number))
                yield [str(number)]
        finally:
            built.append("closed")

    peers.observation.answer = lambda path: (200, "text/plain", pieces())  # type: ignore[method-assign]
    peer, transport = peers.connect()
    peer.data_received(b"GET /metrics HTTP/1.1\n\n")
    peers.soon.pop(0)()
    transport.abort()
    peers.soon.pop(0)()
    assert built == ["0", "1", "closed"]
    assert (peers.soon, transport.written) == ([], b"")


# ---- slow requests


class _Slow:
    def __init__(self, over_ms: float = 10) -> None:
        self.now = 100.0
        self.sent: list[Any] = []
        connection: Any = SimpleNamespace(
            turns=SimpleNamespace(now=lambda: self.now),
            received_at=99.998,
            closed=False,
            peer=("::1", 5),
            listener_name="L",
            when_sent=self.sent.append,
        )
        self.call: Any = SimpleNamespace(
            times=Times(connection, 77),
            connection=connection,
            version=1,
            client_id="c" * 90,
            principal="User:" + "p" * 90,
            correlation_id=3,
        )
        self.slot: Any = SimpleNamespace(on_queued=None, parts=(b"abc", b"de"))
        self.log = SlowRequests(Mock(), over_ms)

    def handler(self, function: Any, key: ApiKey = ApiKey.METADATA) -> Handler:
        return self.log.around(Handler(API[key], function, None))

    def takes(self, seconds: float, reply: Any = None) -> Any:
        def function(call: Any, request: Any) -> Any:
            self.now += seconds
            if isinstance(reply, KafkaError):
                raise reply
            return reply

        return function


def _fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(each)["fields"] for each in caplog.records if hasattr(each, "fields")]


def test_each_part_of_a_slow_request_has_its_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    slow, waits = _Slow(), Later()
    handler = slow.handler(slow.takes(0.004, waits))
    reply = handler.function(slow.call, None)
    slow.now += 0.008
    waits.resolve(SimpleNamespace(error_code=ErrorCode.NOT_CONTROLLER, throttle_time_ms=9))
    slow.log.answered(slow.call, handler, slow.call.times, None, reply.value, slow.slot)
    slow.slot.on_queued()
    slow.now += 0.016
    assert _fields(caplog) == []
    slow.sent[0]()
    (found,) = _fields(caplog)
    assert {name: found[name] for name in found if name.endswith("_ms")} == {
        "took_ms": 30.0,
        "queue_ms": 2.0,
        "handle_ms": 4.0,
        "wait_ms": 8.0,
        "send_ms": 16.0,
        "throttle_ms": 9,
    }
    assert (found["reply_bytes"], found["request_bytes"], found["error"]) == (5, 77, "NOT_CONTROLLER")
    assert (len(found["client_id"]), len(found["principal"]), found["client"]) == (80, 80, "::1:5")


@pytest.mark.parametrize(
    ("key", "wanted_ms", "logged"),
    [
        (ApiKey.FETCH, 500, False),
        (ApiKey.SHARE_FETCH, 500, False),
        (ApiKey.FETCH, -1, True),
        (ApiKey.FETCH, 485, True),
        (ApiKey.METADATA, 500, True),
    ],
)
def test_only_the_wait_that_was_asked_for_is_no_delay(
    key: ApiKey, wanted_ms: int, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    slow, waits = _Slow(), Later()
    handler = slow.handler(slow.takes(0, waits), key)
    request = SimpleNamespace(max_wait_ms=wanted_ms)
    reply = handler.function(slow.call, request)
    slow.now += 0.5
    waits.resolve(SimpleNamespace())
    slow.log.answered(slow.call, handler, slow.call.times, request, reply.value, slow.slot)
    slow.slot.on_queued()
    slow.sent[0]()
    assert bool(_fields(caplog)) is logged


def test_a_handler_that_fails_has_its_time_too() -> None:
    slow = _Slow()
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    with pytest.raises(KafkaError):
        slow.handler(slow.takes(0.25, error)).function(slow.call, None)
    assert slow.call.times.handled_at == slow.call.times.answered_at == 100.25


def test_a_request_of_before_the_setting_is_not_timed() -> None:
    slow = _Slow()
    slow.call.times = None
    waits = Later()
    assert slow.handler(slow.takes(0, waits)).function(slow.call, None) is waits


def test_so_many_lines_a_second_and_then_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.observe.slow._LINES_PER_SECOND", 3)
    made = _Slow(over_ms=0)
    log: Any = made.log

    def lines(count: int) -> int:
        before = len(_fields(caplog))
        for _ in range(count):
            log.answered(made.call, made.handler(None), made.call.times, None, SimpleNamespace(), made.slot)
            made.slot.on_queued()
            made.sent.pop()()
        return len(_fields(caplog)) - before

    assert [lines(2), lines(2), lines(2)] == [2, 1, 0]
    ((seconds, second),) = [given.args for given in log._loop.call_later.call_args_list]
    assert seconds == 1.0
    second()
    assert [vars(each)["left_out"] for each in caplog.records if hasattr(each, "left_out")] == [3]
    assert lines(5) == 3
    # The end of a log tells the rest, and nothing where nothing was left out.
    log.close()
    log.close()
    assert [vars(each)["left_out"] for each in caplog.records if hasattr(each, "left_out")] == [3, 2]
    assert log._loop.call_later.return_value.cancel.called
