"""Requests in flight to other nodes: at most one for each node, with a timeout, and a backoff after a failure.

Rules:
- A response is accepted only while its request is tracked: a timeout or a change of role forgets the request.
- A node that looks for the leader asks one bootstrap server at a time, chosen at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Rng


class QuorumPeer(NamedTuple):
    """A node to send requests to. Bootstrap servers have ids from -2 downwards until their real id is known."""

    node_id: int
    host: str
    port: int


class Exchange(NamedTuple):
    """A request in flight."""

    ticket: int
    peer: QuorumPeer
    request: Any
    sent_ms: int


class Connections:
    """The requests in flight and the backoffs of one node. The machine creates it."""

    def __init__(self, bootstrap: Sequence[QuorumPeer], backoff_ms: int, timeout_ms: int, rng: Rng) -> None:
        self._bootstrap = bootstrap
        self._backoff_ms = backoff_ms
        self.timeout_ms = timeout_ms
        self._rng = rng
        self._ticket = 0
        #: Node -> its unanswered request.
        self._waiting: dict[int, Exchange] = {}
        #: Node -> the end of its backoff.
        self._pauses: dict[int, int] = {}
        #: The end of the pause of all nodes.
        self._pause_of_all = 0

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        """Return True if the request to this node has timed out."""
        exchange = self._waiting.get(node_id)
        return exchange is not None and now_ms >= exchange.sent_ms + self.timeout_ms

    def is_waiting(self, node_id: int, now_ms: int) -> bool:
        """Return True if a request to this node is in flight."""
        return node_id in self._waiting and not self.has_timed_out(node_id, now_ms)

    def is_pausing(self, node_id: int, now_ms: int) -> bool:
        """Return True if this node is in backoff after a failed request, or all nodes are."""
        return now_ms < max(self._pause_of_all, self._pauses.get(node_id, now_ms))

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return not self.is_waiting(node_id, now_ms) and not self.is_pausing(node_id, now_ms)

    def is_any_waiting(self, now_ms: int) -> bool:
        """Return True if a request to any node is in flight."""
        return any(self.is_waiting(node_id, now_ms) for node_id in self._waiting)

    def bootstrap_peer(self, now_ms: int) -> QuorumPeer | None:
        """Return a server to ask for the leader; None while a request is in flight or all servers are in backoff."""
        count = len(self._bootstrap)
        if not count or self.is_any_waiting(now_ms):
            return None
        first = self._rng.randrange(count) if count > 1 else 0
        peers = (self._bootstrap[(first + step) % count] for step in range(count))
        return next((peer for peer in peers if self.is_ready(peer.node_id, now_ms)), None)

    def begin(self, peer: QuorumPeer, request: Any, now_ms: int) -> int:
        """Track a request and return its ticket."""
        self._ticket += 1
        self._pauses.pop(peer.node_id, None)
        self._waiting[peer.node_id] = Exchange(self._ticket, peer, request, now_ms)
        return self._ticket

    def find(self, ticket: int) -> Exchange | None:
        """Return the request that a response answers; None if it is no longer tracked."""
        return next((exchange for exchange in self._waiting.values() if exchange.ticket == ticket), None)

    def finish(self, exchange: Exchange, now_ms: int, *, succeeded: bool) -> None:
        """Stop tracking a request; after a failure, start the node's backoff."""
        node_id = exchange.peer.node_id
        if self._waiting.get(node_id) is not exchange:
            return
        del self._waiting[node_id]
        if not succeeded:
            self.pause(node_id, now_ms)

    def pause(self, node_id: int, now_ms: int) -> None:
        """Start the node's backoff."""
        self._pauses[node_id] = now_ms + self._backoff_ms

    def pause_all(self, end_ms: int) -> None:
        """Send no request before `end_ms`, unless the role changes."""
        self._pause_of_all = end_ms

    def reset(self, node_id: int) -> None:
        """Forget the request to a node and its backoff."""
        self._waiting.pop(node_id, None)
        self._pauses.pop(node_id, None)

    def reset_all(self) -> None:
        """Forget all requests and backoffs: the role changed, and the old role's responses are no longer valid."""
        self._waiting.clear()
        self._pauses.clear()
        self._pause_of_all = 0

    def deadline_ms(self, now_ms: int) -> int | None:
        """Return the next future timeout or end of a backoff; None if there is none."""
        ends = [exchange.sent_ms + self.timeout_ms for exchange in self._waiting.values()]
        ends += [*self._pauses.values(), self._pause_of_all]
        return min([end for end in ends if end > now_ms], default=None)
