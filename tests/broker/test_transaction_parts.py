"""What the node tells its transaction coordinators: passed on to the markers and verifications that there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.peers import BrokerPeers
from ottla.broker.coordinators.transactions import TransactionCoordinators
from ottla.kernel.ids import TopicPartition
from ottla.net.peer import Disconnected

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class _Part:
    """Notes what it is told."""

    def __init__(self, name: str, told: list[tuple[Any, ...]]) -> None:
        self._name, self._told = name, told

    def __getattr__(self, what: str) -> Any:
        return lambda *given: self._told.append((self._name, what, *given))


@pytest.mark.parametrize(
    ("tell", "told"),
    [
        (lambda one: TransactionCoordinators.led(one, _T1), [("markers", "look_again", _T1)]),
        (lambda one: TransactionCoordinators.follow(one, ["t"]), [("markers", "follow", ["t"])]),
        (lambda one: TransactionCoordinators.follow_brokers(one), [("markers", "follow_brokers"), ("peers", "follow")]),
        (
            lambda one: TransactionCoordinators.drop(one, SimpleNamespace(name="t", partitions=[0, 1])),  # type: ignore[arg-type]
            [("markers", "look_again", _T0), ("markers", "look_again", _T1)],
        ),
    ],
    ids=["a partition is led here", "topics have changed", "brokers have changed", "a topic is gone"],
)
def test_what_the_metadata_says_reaches_those_that_were_needed_so_far(tell: Any, told: list[tuple[Any, ...]]) -> None:
    found: list[tuple[Any, ...]] = []
    markers, verification = _Part("markers", found), SimpleNamespace(peers=_Part("peers", found))
    node: Any = SimpleNamespace(markers=markers, verification=verification)
    node.led = lambda tp: TransactionCoordinators.led(node, tp)
    tell(node)
    assert found == told
    # Neither is made only to be told something.
    idle: Any = SimpleNamespace()
    idle.led = lambda tp: TransactionCoordinators.led(idle, tp)
    tell(idle)
    assert vars(idle).keys() == {"led"}
    assert found == told


class _Node:
    """Brokers by id: (where, fenced); connections that note their end."""

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[str, bool]] = {2: ("here", False), 3: ("there", False)}
        self.image = self
        self.settings = SimpleNamespace(request_timeout_ms=1234, inter_broker_listener_name="PLAINTEXT")
        self.loop = SimpleNamespace(call_soon=lambda done, *given: done(*given))
        self.dialled: list[str] = []
        self.closed: list[str] = []
        self.asked: list[tuple[str, object, int, int]] = []

    def dial(self, where: str) -> Any:
        self.dialled.append(where)
        return SimpleNamespace(
            ask=lambda request, done, timeout_ms, at_least: self.asked.append((where, request, timeout_ms, at_least)),
            close=lambda: self.closed.append(where),
        )


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> _Node:
    made = _Node()
    images = {id(made): made}
    monkeypatch.setattr(made, "image", SimpleNamespace(brokers=_Brokers(made)))
    monkeypatch.setattr(
        "ottla.broker.coordinators.peers.peer_of",
        lambda image, broker_id, listener: images[id(made)].brokers[broker_id][0] if listener == "PLAINTEXT" else None,
    )
    return made


class _Brokers:
    """As the image of the metadata has them."""

    def __init__(self, node: _Node) -> None:
        self._node = node

    def get(self, broker_id: int) -> Any:
        found = self._node.brokers.get(broker_id)
        return None if found is None else SimpleNamespace(fenced=found[1])


def test_a_broker_is_dialled_with_its_first_request_and_stays(node: _Node) -> None:
    peers = BrokerPeers(node, node.dial)  # type: ignore[arg-type]
    assert node.dialled == []
    peers.ask(2, "one", lambda _: None)
    peers.ask(2, "two", lambda _: None, at_least=3)
    peers.follow()
    assert (node.dialled, node.closed) == (["here"], [])
    assert node.asked == [("here", "one", 1234, 0), ("here", "two", 1234, 3)]


@pytest.mark.parametrize("becomes", [None, ("here", True), ("elsewhere", False)], ids=["gone", "fenced", "elsewhere"])
def test_the_way_to_a_broker_ends_when_it_is_gone_fenced_or_elsewhere(
    node: _Node, becomes: tuple[str, bool] | None
) -> None:
    peers = BrokerPeers(node, node.dial)  # type: ignore[arg-type]
    for broker_id in (2, 3):
        peers.ask(broker_id, "one", lambda _: None)
    if becomes is None:
        del node.brokers[2]
    else:
        node.brokers[2] = becomes
    peers.follow()
    assert node.closed == ["here"]
    told: list[Any] = []
    peers.ask(2, "two", told.append)
    if becomes == ("elsewhere", False):
        assert node.asked[-1] == ("elsewhere", "two", 1234, 0)
    else:
        (why,) = told
        assert isinstance(why, Disconnected) and not why.was_sent
        assert node.dialled == ["here", "there"]


def test_nothing_is_dialled_any_more_once_the_ways_are_closed(node: _Node) -> None:
    peers = BrokerPeers(node, node.dial)  # type: ignore[arg-type]
    for broker_id in (2, 3):
        peers.ask(broker_id, "one", lambda _: None)
    peers.close()
    assert node.closed == ["here", "there"]
    told: list[Any] = []
    peers.ask(2, "two", told.append)
    assert isinstance(told[0], Disconnected) and node.dialled == ["here", "there"]
    peers.close()
    assert node.closed == ["here", "there"]
