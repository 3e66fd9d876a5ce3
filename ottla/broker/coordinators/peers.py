"""The ways to the other brokers for the requests of one kind that coordinators send: a connection to each.

Rules:
- A connection is made with the first request to a broker, and closed when the metadata says that the broker is gone,
  fenced or somewhere else: the requests on it end with `Disconnected` then, and their owners ask where the partition is
  led now. A broker that hangs is fenced at the end of its session.
- Each kind has connections of its own: answers come in the order of the questions, and a marker that waits for
  replicas must not hold back the verification of a producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.metadata.broker_view import peer_of
from ottla.net.peer import Disconnected, Done, Peer

if TYPE_CHECKING:
    from ottla.broker.runtime import Dial, Runtime
    from ottla.net.outbound import Outbound


class BrokerPeers:
    """A part of the node makes it, has it follow the brokers of the metadata, and closes it."""

    def __init__(self, runtime: Runtime, dial: Dial) -> None:
        self._runtime = runtime
        self._dial = dial
        self._ways: dict[int, tuple[Peer, Outbound]] = {}
        self._closed = False

    def ask(self, broker_id: int, request: Any, done: Done, *, at_least: int = 0) -> None:
        """Ask a broker; `done` gets the response or an `Unanswered`, never from within this call."""
        way = self._ways.get(broker_id)
        if way is None:
            peer = None if self._closed else self._find(broker_id)
            if peer is None:
                why = Disconnected(f"the metadata does not say where broker {broker_id} is", was_sent=False)
                self._runtime.loop.call_soon(done, why)
                return
            way = self._ways[broker_id] = peer, self._dial(peer)
        way[1].ask(request, done, timeout_ms=self._runtime.settings.request_timeout_ms, at_least=at_least)

    def follow(self) -> None:
        """The metadata says something new of the brokers."""
        for broker_id, (peer, outbound) in list(self._ways.items()):
            if self._find(broker_id) != peer:
                del self._ways[broker_id]
                outbound.close()

    def close(self) -> None:
        """End the connections, and make no other."""
        self._closed = True
        for _, outbound in self._ways.values():
            outbound.close()
        self._ways.clear()

    def _find(self, broker_id: int) -> Peer | None:
        broker = self._runtime.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return peer_of(self._runtime.image, broker_id, self._runtime.settings.inter_broker_listener_name)
