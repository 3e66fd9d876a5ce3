"""Which node may be asked now: one request in flight to each, a pause after a failure, and an end to waiting.

Rules:
- A response counts only while its request does: a timeout or a change of role forgets the request.
- A node that looks for the leader asks one bootstrap server at a time, by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Rng


class QuorumPeer(NamedTuple):
    """A node to send to. Bootstrap servers have ids of their own, from -2 downwards, until they say who they are."""

    node_id: int
    host: str
    port: int


class Exchange(NamedTuple):
    """A request that was sent."""

    ticket: int
    peer: QuorumPeer
    request: Any
    sent_ms: int


class Connections:
    """The machine makes it."""

    def __init__(self, bootstrap: Sequence[QuorumPeer], backoff_ms: int, timeout_ms: int, rng: Rng) -> None:
        self._bootstrap = bootstrap
        self._backoff_ms = backoff_ms
        self.timeout_ms = timeout_ms
        self._rng = rng
        self._ticket = 0
        #: Node -> the request that it has not answered.
        self._waiting: dict[int, Exchange] = {}
        #: Node -> when its pause ends.
        self._pauses: dict[int, int] = {}

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        """Has the node left a request unanswered for too long?"""
        exchange = self._waiting.get(node_id)
        return exchange is not None and now_ms >= exchange.sent_ms + self.timeout_ms

    def is_waiting(self, node_id: int, now_ms: int) -> bool:
        """Is a request under way to it?"""
        return node_id in self._waiting and not self.has_timed_out(node_id, now_ms)

    def is_pausing(self, node_id: int, now_ms: int) -> bool:
        """Did a request fail a moment ago?"""
        return now_ms < self._pauses.get(node_id, now_ms)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return not self.is_waiting(node_id, now_ms) and not self.is_pausing(node_id, now_ms)

    def is_any_waiting(self, now_ms: int) -> bool:
        """Is a request under way to any node?"""
        return any(self.is_waiting(node_id, now_ms) for node_id in self._waiting)

    def bootstrap_peer(self, now_ms: int) -> QuorumPeer | None:
        """A server to ask for the leader; None while a request is under way, or all of them pause."""
        count = len(self._bootstrap)
        if not count or self.is_any_waiting(now_ms):
            return None
        first = self._rng.randrange(count) if count > 1 else 0
        peers = (self._bootstrap[(first + step) % count] for step in range(count))
        return next((peer for peer in peers if self.is_ready(peer.node_id, now_ms)), None)

    def begin(self, peer: QuorumPeer, request: Any, now_ms: int) -> int:
        """Note a request; its ticket."""
        self._ticket += 1
        self._pauses.pop(peer.node_id, None)
        self._waiting[peer.node_id] = Exchange(self._ticket, peer, request, now_ms)
        return self._ticket

    def find(self, ticket: int) -> Exchange | None:
        """The request of a response that came; None if it counts no more."""
        return next((exchange for exchange in self._waiting.values() if exchange.ticket == ticket), None)

    def finish(self, exchange: Exchange, now_ms: int, *, succeeded: bool) -> None:
        """The response was taken; after a failure the node is left alone for a while."""
        node_id = exchange.peer.node_id
        if self._waiting.get(node_id) is not exchange:
            return
        del self._waiting[node_id]
        if not succeeded:
            self.pause(node_id, now_ms)

    def pause(self, node_id: int, now_ms: int) -> None:
        """Leave a node alone for a while."""
        self._pauses[node_id] = now_ms + self._backoff_ms

    def reset(self, node_id: int) -> None:
        """Forget what is known of a node."""
        self._waiting.pop(node_id, None)
        self._pauses.pop(node_id, None)

    def reset_all(self) -> None:
        """The role has changed: what was asked in the old one counts no more."""
        self._waiting.clear()
        self._pauses.clear()

    def deadline_ms(self, now_ms: int) -> int | None:
        """When the next timeout or the end of a pause comes that is not past."""
        ends = [exchange.sent_ms + self.timeout_ms for exchange in self._waiting.values()]
        return min((end for end in [*ends, *self._pauses.values()] if end > now_ms), default=None)
