"""The quorum's messages on the network: requests to other nodes, and responses to their requests.

Rules:
- A node has one connection to each peer, opened with the first request. A peer whose address changes gets a new
  connection.
- The machine has at most one request in flight to each peer and gives it up after its own timeout; the connection's
  timeout is the same.
- A received request waits under a ticket until the machine answers it, or its client disconnects.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.broker.call.handler import Call
from ottla.broker.call.reply import Later
from ottla.kernel.error import ErrorCode
from ottla.net.part import NO_REQUEST
from ottla.net.peer import NotOffered, PeerRefused, Unanswered
from ottla.raft.effect import Send
from ottla.raft.event import Event, RequestDropped, RequestFailed, RequestReceived, ResponseReceived

if TYPE_CHECKING:
    from ottla.net.outbound import Outbound

Dial = Callable[[str, int], "Outbound"]


class RaftNetwork:
    """The quorum's network. The raft driver creates it, with `dial` to open connections, and closes it."""

    def __init__(self, dial: Dial, step: Callable[[Event], None]) -> None:
        self._dial = dial
        self._step = step
        #: Peer id -> connection.
        self._peers: dict[int, Outbound] = {}
        #: The number of requests in flight, and the callback for when there is none.
        self._pending = 0
        self._idle: Callable[[], None] | None = None
        self._tickets = count()
        #: Ticket -> received request that is not answered yet.
        self._received: dict[int, Later] = {}
        #: Called with the address of a node that reports that it belongs to another cluster.
        self.on_stranger: Callable[[str], None] = lambda address: None
        self.closed = False

    # ---- outgoing

    def send(self, effect: Send) -> None:
        """Send a request to a peer, and report the result to the machine."""
        peer, ticket = effect.peer, effect.ticket
        outbound = self._peers.get(peer.node_id)
        if outbound is None or (outbound.host, outbound.port) != (peer.host, peer.port):
            if outbound is not None:
                outbound.close()
            outbound = self._peers[peer.node_id] = self._dial(peer.host, peer.port)

        def done(answer: Any) -> None:
            self._pending -= 1
            if self.closed:
                return
            if getattr(answer, "error_code", 0) == ErrorCode.INCONSISTENT_CLUSTER_ID:
                self.on_stranger(f"{peer.host}:{peer.port}")
            if isinstance(answer, NotOffered):
                self._step(RequestFailed(ticket, ErrorCode.UNSUPPORTED_VERSION))
            elif isinstance(answer, Unanswered):
                self._step(RequestFailed(ticket, is_refused=isinstance(answer, PeerRefused)))
            else:
                self._step(ResponseReceived(ticket, answer))
            self._check_idle()

        self._pending += 1
        outbound.ask(effect.request, done, timeout_ms=effect.timeout_ms)

    def when_idle(self, done: Callable[[], None]) -> None:
        """Call `done` once no request is in flight; at once if none is."""
        self._idle = done
        self._check_idle()

    def _check_idle(self) -> None:
        done = self._idle
        if done is not None and not self._pending:
            self._idle = None
            done()

    @property
    def failures(self) -> list[str]:
        """Why peers cannot be reached, each as `HOST:PORT reason`."""
        return [
            f"{peer.host}:{peer.port} {peer.last_failure}"
            for peer in self._peers.values()
            if peer.last_failure and not peer.is_connected
        ]

    # ---- incoming

    def receive(self, call: Call, request: Any) -> Later:
        """Pass a request from a controllers' listener to the machine, which answers now or later."""
        ticket = next(self._tickets)

        def superseded(key: int) -> None:
            # A further request on the connection changes nothing, but after a disconnect there is no client to answer.
            if key == NO_REQUEST and self._received.pop(ticket, None) is not None:
                self._step(RequestDropped(ticket))

        later = self._received[ticket] = Later(superseded)
        self._step(RequestReceived(ticket, call.connection.listener_name, request, call.version))
        return later

    def answer(self, ticket: int, response: Any) -> None:
        """Send the machine's response."""
        later = self._received.pop(ticket, None)
        if later is not None:
            later.resolve(response)

    def close(self) -> None:
        """Close the connections; no more events go to the machine."""
        self.closed = True
        for outbound in self._peers.values():
            outbound.close()
        self._peers.clear()
        self._received.clear()
