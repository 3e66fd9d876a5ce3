"""The quorum's messages: connections to peers, what the machine hears of its requests, and requests of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metadata.raft_network import RaftNetwork
from ottla.kernel.error import ErrorCode
from ottla.net.part import NO_REQUEST
from ottla.net.peer import Disconnected, Expired, NotOffered, PeerRefused
from ottla.raft.connections import QuorumPeer
from ottla.raft.effect import Send
from ottla.raft.event import RequestDropped, RequestFailed, RequestReceived, ResponseReceived


class _Scene:
    """A network whose connections the test answers."""

    def __init__(self) -> None:
        self.dialled: list[Any] = []
        self.asked: list[tuple[str, Any, Any, int]] = []
        self.events: list[Any] = []
        self.network = RaftNetwork(self._dial, self.events.append)

    def _dial(self, host: str, port: int) -> Any:
        def ask(request: Any, done: Any, timeout_ms: int) -> None:
            self.asked.append((f"{host}:{port}", request, done, timeout_ms))

        outbound = SimpleNamespace(host=host, port=port, ask=ask, closed=False, last_failure="", is_connected=True)
        outbound.close = lambda: setattr(outbound, "closed", True)
        self.dialled.append(outbound)
        return outbound

    def send(self, ticket: int, port: int = 9093, host: str = "h", node_id: int = 2) -> Any:
        """Send a request; what gives its answer."""
        self.network.send(Send(ticket, QuorumPeer(node_id, host, port), f"request {ticket}", 777))
        return self.asked[-1][2]


def test_a_peer_has_one_connection_until_its_address_changes() -> None:
    scene = _Scene()
    scene.send(1)
    scene.send(2)
    assert [(where, request, limit) for where, request, _, limit in scene.asked] == [
        ("h:9093", "request 1", 777),
        ("h:9093", "request 2", 777),
    ]
    assert len(scene.dialled) == 1
    scene.send(3, port=9094)
    scene.send(4, port=9094, host="i")
    assert [(each.host, each.port, each.closed) for each in scene.dialled] == [
        ("h", 9093, True),
        ("h", 9094, True),
        ("i", 9094, False),
    ]
    scene.send(5, node_id=3)
    assert [each.closed for each in scene.dialled] == [True, True, False, False]
    scene.network.close()
    assert all(each.closed for each in scene.dialled)


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        ("the answer", ResponseReceived(8, "the answer")),
        (NotOffered("no version", was_sent=False), RequestFailed(8, ErrorCode.UNSUPPORTED_VERSION)),
        (PeerRefused("refused", was_sent=False), RequestFailed(8, is_refused=True)),
        (Disconnected("gone", was_sent=True), RequestFailed(8)),
        (Expired("too late", was_sent=True), RequestFailed(8)),
    ],
)
def test_the_machine_hears_what_became_of_a_request(answer: Any, event: Any) -> None:
    scene = _Scene()
    scene.send(8)(answer)
    assert scene.events == [event]
    late = scene.send(9)
    scene.network.close()
    late(answer)
    assert scene.events == [event], "after the end nothing is heard"


def test_a_node_of_another_cluster_is_told_by_its_address() -> None:
    scene, strangers = _Scene(), list[str]()
    scene.network.on_stranger = strangers.append
    scene.send(1)(SimpleNamespace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert strangers == []
    scene.send(2, port=9095)(SimpleNamespace(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert strangers == ["h:9095"]


def test_the_network_is_idle_once_its_last_request_is_answered() -> None:
    scene, told = _Scene(), list[str]()
    scene.network.when_idle(lambda: told.append("nothing was sent"))
    assert told == ["nothing was sent"]
    first, second = scene.send(1), scene.send(2, node_id=3)
    scene.network.when_idle(lambda: told.append("both are answered"))
    first("yes")
    assert told == ["nothing was sent"]
    second(Disconnected("gone", was_sent=True))
    assert told == ["nothing was sent", "both are answered"]
    scene.send(3)("yes")
    assert len(told) == 2, "told once"


def test_peers_that_cannot_be_reached_are_told_with_the_reason() -> None:
    scene = _Scene()
    for ticket, (failure, connected) in enumerate((("", True), ("refused", False), ("was slow", True), ("", False))):
        scene.send(ticket, node_id=ticket, port=9000 + ticket)
        scene.dialled[-1].last_failure, scene.dialled[-1].is_connected = failure, connected
    assert scene.network.failures == ["h:9001 refused"]


def test_a_received_request_is_answered_by_its_ticket_or_dropped_with_its_client() -> None:
    scene = _Scene()
    call: Any = SimpleNamespace(connection=SimpleNamespace(listener_name="CONTROLLER"), version=17)
    first, second = (scene.network.receive(call, request) for request in ("one", "two"))
    one, two = scene.events
    assert one == RequestReceived(one.ticket, "CONTROLLER", "one", 17)
    assert two == RequestReceived(two.ticket, "CONTROLLER", "two", 17) and two.ticket != one.ticket
    scene.network.answer(two.ticket, "the second")
    assert (first.resolved, second.value) == (False, "the second")
    # The client's next request does not take the place of this one; its end does.
    superseded: Any = first.superseded
    superseded(1)
    assert len(scene.events) == 2
    superseded(NO_REQUEST)
    superseded(NO_REQUEST)
    assert scene.events[2:] == [RequestDropped(one.ticket)]
    scene.network.answer(one.ticket, "too late")
    assert not first.resolved
