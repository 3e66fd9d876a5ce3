"""Routes frames to handlers, and encodes their responses.

Rules:
- Brokers' and controllers' listeners have separate tables (`ottla.broker.handlers`). A listener serves exactly the APIs
  in its table, and ApiVersions is computed from it.
- The module of a handler is imported on the first request of its API.
- An unreadable request closes its connection, as in Apache Kafka; so does an API or version that was not offered. Only
  ApiVersions answers an unknown version, in version 0 and with the supported range (KIP-511).
- A request fails as a whole by `KafkaError`; only this module turns it into a response.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ottla.broker.call.handler import CONTROLLER_REGISTERED, REGISTERED, Call, Handler, Meter, Times
from ottla.broker.call.reply import Later, NoReply, in_turns
from ottla.broker.handlers import CONTROLLER_MODULES, MODULES
from ottla.broker.log_output import RequestLog
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.lazy import LazyModule
from ottla.net.inbound import Connection, Part, PeerError, Slot
from ottla.raft.message import replica_id
from ottla.wire.api import API, ApiKey
from ottla.wire.compile import decoder, encoder, step_decoder, step_encoder
from ottla.wire.header import RequestHeader, request_header_version, response_header_version
from ottla.wire.reader import has_records
from ottla.wire.type import Malformed

if TYPE_CHECKING:
    from ottla.broker.metadata_node import MetadataNode
    from ottla.broker.node import BrokerNode
    from ottla.broker.observe.requests import Requests
    from ottla.broker.observe.slow import SlowRequests
    from ottla.broker.observe.spans import Spans

_log = logging.getLogger("ottla.broker")
_FIXED_HEADER = struct.Struct(">hhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_BYTES = 4
#: A frame longer than this is decoded and answered in steps, unless it is long only because of its records.
_LONG_FRAME_BYTES = 64 << 10
#: Short requests whose answers may be long: all offsets of a group, all groups, the configs of many topics, all rules.
_LONG_ANSWERS = frozenset(
    {
        ApiKey.OFFSET_FETCH,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)
#: Limit of the total size of long requests being decoded at the same time: a decoded request takes some ten times the
#: memory of its frame. A longer request is decoded alone.
_LONG_BYTES_AT_ONCE = 8 << 20
#: Limit of the total size of long requests that wait for that, unless only one waits. A further request is refused.
_LONG_BYTES_WAITING = 32 << 20
#: No quota measures these requests of brokers and controllers, nor fetches of replicas, as in Apache Kafka: a quota for
#: all clients must not hold up replication.
_UNMEASURED = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
        # The broker that forwards a request measures it.
        ApiKey.ENVELOPE,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
    }
)


class Handlers(Mapping[int, Handler]):
    """The handlers of one kind of listener. Indexing imports the handler's module; iteration and `in` do not."""

    def __init__(self, modules: Mapping[int, LazyModule], registered: Mapping[int, Handler]) -> None:
        self._modules = modules
        self._registered = registered

    def __getitem__(self, key: int) -> Handler:
        # Also if the handler is registered: another thread may be importing its module, so wait for that.
        self._modules[key].load()
        return self._registered[key]

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def __iter__(self) -> Iterator[int]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


HANDLERS = Handlers(MODULES, REGISTERED)
CONTROLLER_HANDLERS = Handlers(CONTROLLER_MODULES, CONTROLLER_REGISTERED)


class _LongCall(Call):
    """The call of a long frame; its response is long, too."""

    __slots__ = ()
    is_long: ClassVar[bool] = True


class _Route:
    """The decoder, encoder and handler of an (API, version), prepared on its first request."""

    __slots__ = (
        "answers_long",
        "decode",
        "encode",
        "flexible_header",
        "handler",
        "has_records",
        "response",
        "tagged_response",
        "version",
    )

    def __init__(self, handler: Handler, key: int, version: int) -> None:
        self.handler = handler
        self.version = version
        self.response = handler.api.response
        self.decode = decoder(handler.api.request, version)
        self.encode = encoder(handler.api.response, version)
        self.flexible_header = request_header_version(key, version) == 2
        self.has_records = has_records(handler.api.request)
        self.tagged_response = response_header_version(key, version) == 1
        self.answers_long = key in _LONG_ANSWERS


class Dispatch:
    """Routes of one kind of listener. The listeners pass it every frame."""

    def __init__(self, node: MetadataNode, handlers: Handlers, work_seconds: Callable[[], float]) -> None:
        # A ControllerNode serves only controllers' listeners, so brokers' handlers always get a BrokerNode.
        self._node = cast("BrokerNode", node)
        self.handlers = handlers
        self._work_seconds = work_seconds
        self._routes: dict[int, _Route] = {}
        self._wrapper: Callable[[Handler], Handler] | None = None
        self._counted: Callable[[Handler], Handler] | None = None
        #: Total size of the long requests being decoded, and the queue of those that wait.
        self._long_bytes = 0
        self._long_waiting: deque[tuple[_Route, Connection, bytes, Slot]] = deque()
        self.log = RequestLog()

    def wrap_handlers(self, around: Callable[[Handler], Handler] | None) -> None:
        """From the next request on wrap each handler with `around`; None removes the wrapper.

        Tests inject faults this way. The routes are rebuilt, so that there is no check while no wrapper is set.
        """
        self._wrapper = around
        self._routes.clear()

    def count_with(self, requests: Requests, *, has_topics: bool) -> None:
        """Count the requests of every handler from now on."""
        self._counted = partial(requests.around, has_topics=has_topics)

    def trace(self, spans: Spans) -> None:
        """Make spans of traced records from now on."""
        self.log.spans = spans
        self.log.look()

    def log_slow(self, slow: SlowRequests | None) -> None:
        """Report the times of each request to `slow` from the next request on; None turns that off."""
        self.log.slow = slow
        self.log.look()
        self._routes.clear()

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot, decoded: Any = None) -> None:
        """Handle a request up to its first answer or `Later`. Raises PeerError to close the connection.

        `decoded` is the request of a long frame, if it was decoded in steps.
        """
        try:
            key, version, correlation_id, id_length = _FIXED_HEADER.unpack_from(frame)
        except struct.error:
            raise PeerError("a request with a truncated header") from None
        route = self._routes.get(key << 16 | version) or self._find(key, version)
        if route is None:
            return self._offer_versions(correlation_id, slot)
        try:
            client_id, position = _client_id(frame, id_length, route.flexible_header)
            if len(frame) <= _LONG_FRAME_BYTES:
                request = route.decode(frame, position)[0]
            else:
                request = decoded or _long_request(route, frame, position)
                if request is None:
                    return self._read_in_steps(route, connection, bytes(frame), slot)
        except (Malformed, UnicodeDecodeError) as error:
            raise PeerError(f"an unreadable {route.handler.api.name} v{version} request: {error}") from error
        call = (_LongCall if decoded else Call)(self._node, connection, version, correlation_id, client_id)
        if self._node.quotas.active and not _is_unmeasured(key, request):
            call.meter = Meter(len(frame) + _SIZE_BYTES, self._work_seconds())
        if self.log.wanted:
            call.times = Times(connection, len(frame) + _SIZE_BYTES)
        try:
            reply = route.handler.function(call, request)
        except KafkaError as error:
            reply = route.handler.error_response(request, version, error)
        except PeerError:
            raise
        except Exception:
            _log.exception("%s v%d failed", route.handler.api.name, version)
            reply = route.handler.error_response(request, version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if call.meter is not None:
            call.meter.seconds += self._work_seconds()
        if type(reply) is Later:
            slot.superseded = reply.superseded
            reply.then(partial(self._answer, route, call, request, slot))
        else:
            self._answer(route, call, request, slot, reply)

    def _answer(self, route: _Route, call: Call, request: Any, slot: Slot, reply: Any) -> None:
        if call.connection.closed:
            return
        is_response = type(reply) is route.response
        if not is_response and isinstance(reply, KafkaError):
            try:
                reply = route.handler.error_response(request, route.version, reply)
            except PeerError as error:
                call.connection.close(str(error))
                return
        if call.meter is not None:
            self._throttle(call, call.meter, route.handler.api.key, reply)
        if call.times is not None:
            self.log.answered(call, call.times, route.handler, request, reply, slot)
        if not is_response and isinstance(reply, NoReply):
            slot.fill(())
            return
        if call.is_long or call.answers_long or route.answers_long:
            in_turns(call.connection, self._write_in_steps(route, call, slot, reply))
            return
        try:
            parts = route.encode(reply)
        except Exception:
            return self._encoding_failed(route, call)
        slot.fill(_frame(call.correlation_id, parts, tagged_header=route.tagged_response))

    def _encoding_failed(self, route: _Route, call: Call) -> None:
        """Close the connection after a bug in encoding: there is no response, and the client must not wait forever."""
        _log.exception("cannot encode a %s v%d response", route.handler.api.name, route.version)
        call.connection.close("its response cannot be encoded")

    def _read_in_steps(
        self, route: _Route, connection: Connection, data: bytes, slot: Slot, *, waited: bool = False
    ) -> None:
        """Decode a request of many elements in steps, so that the loop serves others, then handle it like any other."""
        if self._long_bytes and self._long_bytes + len(data) > _LONG_BYTES_AT_ONCE:
            self._check_waiting(route, len(data))
            connection.pause()
            self._long_waiting.append((route, connection, data, slot))
            return
        self._long_bytes += len(data)

        def work() -> Generator[None, None, None]:
            try:
                if waited:
                    # Many may have waited, and each may be done in one step: none begins within another's end.
                    yield
                yield from read()
            finally:
                self._long_bytes -= len(data)
                self._read_waiting()

        def read() -> Generator[None, None, None]:
            name, version = route.handler.api.name, route.version
            try:
                id_length = _FIXED_HEADER.unpack_from(data)[3]
                _, position = _client_id(memoryview(data), id_length, route.flexible_header)
                request, _ = yield from step_decoder(route.handler.api.request, version)(data, position)
                self.on_frame(connection, memoryview(data), slot, request)
            except (Malformed, UnicodeDecodeError) as error:
                connection.close(f"an unreadable {name} v{version} request: {error}")
            except PeerError as error:
                connection.close(str(error))

        in_turns(connection, work())

    def _check_waiting(self, route: _Route, size: int) -> None:
        """Raise PeerError if too many bytes of long requests wait already, not counting closed connections."""
        if sum(len(entry[2]) for entry in self._long_waiting) + size > _LONG_BYTES_WAITING:
            self._long_waiting = deque(entry for entry in self._long_waiting if not entry[1].closed)
            waiting = sum(len(entry[2]) for entry in self._long_waiting)
            if waiting and waiting + size > _LONG_BYTES_WAITING:
                name = route.handler.api.name
                raise PeerError(f"a {name} request of {size} bytes while {waiting} bytes of requests wait")

    def _read_waiting(self) -> None:
        """Start decoding waiting long requests, as many as there is room for."""
        while self._long_waiting:
            route, connection, data, slot = self._long_waiting[0]
            if self._long_bytes and self._long_bytes + len(data) > _LONG_BYTES_AT_ONCE:
                return
            self._long_waiting.popleft()
            if not connection.closed:
                self._read_in_steps(route, connection, data, slot, waited=True)
                connection.resume()

    def _write_in_steps(self, route: _Route, call: Call, slot: Slot, reply: Any) -> Generator[None, None, None]:
        """Encode the response to a request of many elements in steps."""
        try:
            parts = yield from step_encoder(route.handler.api.response, route.version)(reply)
        except Exception:
            return self._encoding_failed(route, call)
        if not call.connection.closed:
            slot.fill(_frame(call.correlation_id, parts, tagged_header=route.tagged_response))

    def _throttle(self, call: Call, meter: Meter, key: int, reply: Any) -> None:
        """Put the throttle time into the response, and do not read from the connection meanwhile (KIP-219)."""
        quotas, user, now_ms = self._node.quotas, call.user, self._node.clock.monotonic_ms()
        # As in Apache Kafka, a request without a response uses no time.
        used = not isinstance(reply, NoReply)
        throttle_ms = quotas.used(user, call.client_id, meter.seconds, now_ms) if used else 0
        if key == ApiKey.PRODUCE:
            throttle_ms = max(throttle_ms, quotas.produced(user, call.client_id, meter.frame_bytes, now_ms))
        if hasattr(reply, "throttle_time_ms"):
            # The handler itself may have throttled: a fetch over its quota, controller mutations.
            reply.throttle_time_ms = throttle_ms = max(throttle_ms, reply.throttle_time_ms)
        if throttle_ms:
            call.connection.mute(throttle_ms / 1000)

    def _find(self, key: int, version: int) -> _Route | None:
        """The route of a first request, or None for an unknown version of ApiVersions."""
        if key not in self.handlers:
            raise PeerError(f"API {key} is not served here")
        api = API[key]
        if version not in api.offered(unstable=self._node.settings.unstable_api_versions_enable):
            if key == ApiKey.API_VERSIONS:
                return None
            raise PeerError(f"{api.name} has no version {version}")
        try:
            handler = self.handlers[key]
        except Exception as error:
            # Without its module the handler cannot build an error response, and the client must not wait forever.
            _log.exception("cannot import the handler of %s", api.name)
            raise PeerError(f"the handler of {api.name} cannot be imported: {error}") from error
        if self._wrapper is not None:
            handler = self._wrapper(handler)
        handler = self.guarded(handler)
        if self._counted is not None:
            handler = self._counted(handler)
        if self.log.slow is not None:
            handler = self.log.slow.around(handler)
        if self.log.spans is not None:
            handler = self.log.spans.around(handler)
        route = self._routes[key << 16 | version] = _Route(handler, key, version)
        return route

    def guarded(self, handler: Handler) -> Handler:
        """The handler, with the authorizer's guard around it if there is an authorizer."""
        if self._node.authorizer is None:
            return handler
        from ottla.broker.guard.guards import guarded

        return guarded(self._node.authorizer, handler)

    def _offer_versions(self, correlation_id: int, slot: Slot) -> None:
        from ottla.broker.handlers.api_versions import offer

        handler = self.handlers[ApiKey.API_VERSIONS]
        response = offer(self._node, 0, self.handlers, {})
        response.api_keys = [entry for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS]
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        slot.fill(_frame(correlation_id, encoder(handler.api.response, 0)(response), tagged_header=False))


def _is_unmeasured(key: int, request: Any) -> bool:
    if key == ApiKey.FETCH:
        return replica_id(request) >= 0
    return key in _UNMEASURED


def _long_request(route: _Route, frame: memoryview, position: int) -> Any:
    """The request of a long frame that is long because of its records: it is decoded in one step.

    None if it has more elements than that.
    """
    if route.has_records:
        try:
            next(step_decoder(route.handler.api.request, route.version)(frame, position))
        except StopIteration as done:
            return done.value[0]
    return None


def _client_id(frame: memoryview, length: int, flexible: bool) -> tuple[str, int]:
    """(client id, position of the request's body)."""
    end = 10 + length if length > 0 else 10
    if flexible:
        if end >= len(frame) or frame[end]:
            # Tagged fields in the header are rare, so decode the whole header the slow way.
            header, position = decoder(RequestHeader, 2)(frame, 0)
            return header.client_id or "", position
    elif end > len(frame):
        raise Malformed("the client id ends behind the frame")
    return str(frame[10:end], "utf-8"), end + flexible


def _frame(correlation_id: int, parts: list[Part], *, tagged_header: bool) -> list[Part]:
    """The parts of a response with the header in front; the first part of an encoded response is always bytes."""
    first = parts[0]
    assert type(first) is bytes
    size = (len(first) if len(parts) == 1 else sum(map(len, parts))) + 4 + tagged_header
    head = _SIZE_AND_CORRELATION.pack(size, correlation_id)
    parts[0] = head + b"\0" + first if tagged_header else head + first
    return parts
