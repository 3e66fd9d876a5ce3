"""The connections to other brokers for one kind of coordinator request, one connection per broker.

Rules:
- The first request to a broker opens its connection. The connection is closed when the metadata says that the broker is
  gone, fenced or at another address: its requests end with `Disconnected`, and their owners look up the partition's
  current leader. A broker that hangs is fenced at the end of its session.
- Each kind of request has its own connections: responses come in request order, and a marker that waits for replicas
  must not delay the verification of a producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.metadata.broker_view import peer_of
from ottla.net.peer import Disconnected, Done, Peer

if TYPE_CHECKING:
    from ottla.broker.runtime import Dial, Runtime
    from ottla.net.outbound import Outbound


class BrokerPeers:
    """Connections to brokers. The component that creates it passes it changes of the brokers, and closes it."""

    def __init__(self, runtime: Runtime, dial: Dial) -> None:
        self._runtime = runtime
        self._dial = dial
        self._connections: dict[int, tuple[Peer, Outbound]] = {}
        self._closed = False

    def ask(self, broker_id: int, request: Any, done: Done, *, at_least: int = 0) -> None:
        """Send a request to a broker; `done` gets the response or an `Unanswered`, never from within this call."""
        entry = self._connections.get(broker_id)
        if entry is None:
            peer = None if self._closed else self._find(broker_id)
            if peer is None:
                why = Disconnected(f"the metadata has no address for broker {broker_id}", was_sent=False)
                self._runtime.loop.call_soon(done, why)
                return
            entry = self._connections[broker_id] = peer, self._dial(peer)
        entry[1].ask(request, done, timeout_ms=self._runtime.settings.request_timeout_ms, at_least=at_least)

    def follow(self) -> None:
        """Close the connections to brokers whose address has changed."""
        for broker_id, (peer, outbound) in list(self._connections.items()):
            if self._find(broker_id) != peer:
                del self._connections[broker_id]
                outbound.close()

    def close(self) -> None:
        """Close all connections and open no more."""
        self._closed = True
        for _, outbound in self._connections.values():
            outbound.close()
        self._connections.clear()

    def _find(self, broker_id: int) -> Peer | None:
        broker = self._runtime.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return peer_of(self._runtime.image, broker_id, self._runtime.settings.inter_broker_listener_name)
