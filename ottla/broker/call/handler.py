"""A handler and the call it gets: `handles` registers a plain function under its API's key.

Rules:
- A handler is registered when its module is imported, on the first request of its API (`ottla.broker.dispatch`).
- A request fails as a whole by `KafkaError`; `Handler.error_response` builds the API's response to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ottla.broker.call.reply import ErrorResponseBuilder
from ottla.kernel.error import KafkaError
from ottla.net.inbound import Connection, PeerError
from ottla.wire.api import API, BROKER, CONTROLLER, Api

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class Handler:
    """An API's function, and the builder of its whole-request error responses."""

    __slots__ = ("api", "function", "error_response")

    def __init__(
        self, api: Api, function: Callable[[Call, Any], Any], error_response: ErrorResponseBuilder | None
    ) -> None:
        self.api = api
        self.function = function
        self.error_response = error_response or self._mirror

    def _mirror(self, request: Any, version: int, error: KafkaError) -> Any:
        from ottla.broker.call.error_response import build_error_response

        response = build_error_response(request, self.api.response, version, error)
        if response is None:
            raise PeerError(f"{self.api.name} v{version} has no field for the error {error}")
        return response


#: API key -> handler, for every imported module: of brokers' listeners, and of controllers' listeners.
REGISTERED: dict[int, Handler] = {}
CONTROLLER_REGISTERED: dict[int, Handler] = {}


def handles(
    key: int, *, error_response: ErrorResponseBuilder | None = None, on: frozenset[str] = BROKER
) -> Callable[[_Handler], _Handler]:
    """Register an API's handler on these kinds of listeners.

    `error_response` builds its response to a KafkaError if the generic form is not the right one.
    """

    def register(function: _Handler) -> _Handler:
        assert on <= API[key].listeners, f"API {key} is not on these listeners"
        for kind, registered in ((BROKER, REGISTERED), (CONTROLLER, CONTROLLER_REGISTERED)):
            if kind <= on:
                assert key not in registered, f"two handlers for API {key}"
                registered[key] = Handler(API[key], function, error_response)
        return function

    return register


class Meter:
    """The cost of one request."""

    __slots__ = ("frame_bytes", "seconds")

    def __init__(self, frame_bytes: int, began_seconds: float) -> None:
        self.frame_bytes = frame_bytes
        #: Time on the loop, up to the handler's return.
        self.seconds = -began_seconds


class Times:
    """Timestamps of a request, in seconds of `Turns.now`. Kept only while a log needs them."""

    __slots__ = ("answered_at", "began_at", "received_at", "frame_bytes", "handled_at")

    def __init__(self, connection: Connection, frame_bytes: int) -> None:
        self.received_at = connection.received_at
        #: When the handler begins, when it returns, and when the response is available.
        self.began_at = self.handled_at = self.answered_at = connection.turns.now()
        self.frame_bytes = frame_bytes


class Call:
    """The context of a request: the client, the version, the node."""

    __slots__ = ("answers_long", "client_id", "connection", "correlation_id", "meter", "node", "times", "version")
    #: True for a long frame, which is decoded, handled and answered in steps.
    is_long: ClassVar[bool] = False
    #: True for a request in a broker's envelope: the connection is the broker's.
    is_forwarded: ClassVar[bool] = False

    def __init__(
        self, node: BrokerNode, connection: Connection, version: int, correlation_id: int, client_id: str
    ) -> None:
        self.node = node
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        #: Set by a handler whose response to a short request is long: it is encoded in steps.
        self.answers_long = False
        #: The request's cost; None while there are no quotas.
        self.meter: Meter | None = None
        #: The request's timestamps; None while no log needs them.
        self.times: Times | None = None

    @property
    def user(self) -> str:
        """The name in the principal."""
        return self.principal.partition(":")[2]

    @property
    def client_address(self) -> str:
        """The client's IP address."""
        return self.connection.peer[0]

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it in group descriptions: `/127.0.0.1`."""
        return f"/{self.client_address}"

    @property
    def principal(self) -> str:
        """The client's principal; Kafka's `User:ANONYMOUS` without authentication."""
        return self.connection.principal
