"""Values of outbound connections: a peer, the options, and the errors of requests without an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.frozen import frozen
from ottla.kernel.named import NamedTuple
from ottla.net.answer_frames import FRAME_BYTES_MAX
from ottla.settings.server.network import NetworkDeclaration


class Unanswered(OSError):
    """No answer came. `was_sent`: the peer may have acted on the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class Disconnected(Unanswered):
    """The connection could not be made, or broke before the answer came."""


class PeerRefused(Disconnected):
    """Every address of the peer refuses connections: its machine runs, but no process listens there."""


class Expired(Unanswered):
    """The request timed out."""


class NotOffered(Unanswered):
    """The peer does not support this request, or no version of it that can express what the caller needs."""


#: Given the response, an instance of the API's response class, or an `Unanswered`.
Done = Callable[[Any], None]


class Peer(NamedTuple):
    """Another node, at one of its listeners."""

    node_id: int
    host: str
    port: int


@frozen
class OutboundOptions:
    """The settings of a connection. The defaults are Apache Kafka's between brokers."""

    #: The first and the longest backoff between two attempts to connect.
    backoff_ms: int = 50
    backoff_max_ms: int = 1_000
    #: The timeout of the first attempt to connect, and the longest timeout after failures.
    setup_timeout_ms: int = NetworkDeclaration.socket_connection_setup_timeout_ms.default
    setup_timeout_max_ms: int = NetworkDeclaration.socket_connection_setup_timeout_max_ms.default
    in_flight_max: int = 5
    #: An answer longer than this closes the connection.
    frame_bytes_max: int = FRAME_BYTES_MAX
