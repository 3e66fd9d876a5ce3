"""Access to the active controller; callers need not know whether it is this node.

    node.controllers.ask(AllocateProducerIdsRequest(...), done)      # the broker's own request
    node.controllers.forward(call, request, done)                    # a client's request

Rules:
- `done` gets the response, or a KafkaError when the whole request failed; it may be called before `ask` returns.
- Another node gets the broker's own requests as they are, and a client's request in an Envelope that identifies the
  client (KIP-590). This node's own controller gets both by a call.
- Each purpose has its own channel: heartbeats wait neither for clients nor for ISR changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.call.handler import Call
from ottla.broker.controllers.channel import Answered, ControllerChannel, LocalController, Question
from ottla.controller.controller import NEWEST
from ottla.controller.decision import MutationQuota, unlimited
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.ports import Rng
from ottla.net.peer import OutboundOptions, Peer
from ottla.net.request import api_of
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.broker.controllers import envelope
    from ottla.net.outbound import Outbound
else:
    envelope = LazyModule("ottla.broker.controllers.envelope")

#: How long Apache Kafka's broker retries a forwarded request (BrokerServer).
TIMEOUT_MS = 60_000
#: As in NodeToControllerChannelManagerImpl.
_BACKOFF_MS = 50


class Controllers:
    """Channels to the active controller. The node creates it, and closes it before its metadata log."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: ServerSettings,
        rng: Rng,
        quorum: Callable[[], LocalController],
        outbound: Callable[..., Outbound],
    ) -> None:
        options = OutboundOptions(
            backoff_ms=_BACKOFF_MS,
            backoff_max_ms=_BACKOFF_MS,
            setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
            in_flight_max=1,
        )
        node_id = settings.node_id
        #: The longest request that a controller takes, if its setting is the same as this node's.
        self._bytes_max = settings.socket_request_max_bytes

        def dial(peer: Peer) -> Outbound:
            return outbound(loop, peer.host, peer.port, client_id=str(node_id), rng=rng, options=options)

        def channel(timeout_ms: int) -> ControllerChannel:
            return ControllerChannel(
                loop, node_id, quorum, dial, min(timeout_ms, settings.controller_socket_timeout_ms)
            )

        self._own = channel(TIMEOUT_MS)
        self._forwarding = channel(TIMEOUT_MS)
        self._partitions = channel(settings.controller_socket_timeout_ms)
        # Half a session, as in Apache Kafka (KAFKA-14392): on a slow link a heartbeat interval may be too short to
        # connect.
        self._life_ms = settings.broker_session_timeout_ms // 2
        self._heartbeats = channel(self._life_ms)
        self._channels = (self._own, self._forwarding, self._partitions, self._heartbeats)

    def ask(
        self,
        request: Any,
        done: Answered,
        version: int = NEWEST,
        charge: MutationQuota = unlimited,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """Send a request of this broker. REQUEST_TIMED_OUT if no active controller responds within `timeout_ms`.

        `version` applies to this node's own controller; another node gets the newest version that both know.
        """
        self._own.ask(Question(request, done, version, charge), timeout_ms)

    def ask_forever(self, request: Any, done: Answered) -> None:
        """Retry until a controller responds: AlterPartition, which has its own channel."""
        self._partitions.ask(Question(request, done, NEWEST, unlimited), None)

    def ask_for_lifecycle(self, request: Any, done: Answered) -> None:
        """Send a registration or a heartbeat, and retry for half a session."""
        self._heartbeats.ask(Question(request, done, NEWEST, unlimited), self._life_ms)

    def forward(
        self, call: Call, request: Any, done: Answered, charge: MutationQuota = unlimited, here: Any = None
    ) -> None:
        """Send a client's request. `charge` is called with its changes if this node is the controller.

        `here` replaces the request for this node's own controller, if that must know the client.
        """

        def wrap() -> Any:
            return envelope.wrap(api_of(request), request, envelope.origin_of(call), self._bytes_max)

        def unwrap(answer: Any) -> Any:
            response = envelope.opened(answer, api_of(request), envelope.origin_of(call))
            if isinstance(response, KafkaError) and response.code == ErrorCode.UNSUPPORTED_VERSION:
                call.connection.close("the active controller does not support this version; ask for the versions again")
            return response

        question = Question(request if here is None else here, done, call.version, charge, wrap, unwrap)
        self._forwarding.ask(question, TIMEOUT_MS)

    def leader_changed(self) -> None:
        """Continue with the new leader of the quorum, if there is one."""
        for channel in self._channels:
            channel.leader_changed()

    def close(self) -> None:
        """Close the connections; pending requests get REQUEST_TIMED_OUT."""
        for channel in self._channels:
            channel.close()
