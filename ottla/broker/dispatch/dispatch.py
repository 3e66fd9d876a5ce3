"""From a frame to its handler and from the handler's reply to bytes.

Rules:
- Brokers' and controllers' listeners have tables of their own. ApiVersions is computed from the table of the listener
  (`ottla.broker.handlers`): what is there is served, nothing else.
- The module of a handler is imported on the first request of its API.
- A request that cannot be read closes its connection, as in Apache Kafka; so does an API or version that was never
  offered. ApiVersions alone answers an unknown version, with version 0 and what is offered (KIP-511).
- A whole request fails by `KafkaError`, which becomes a response here and nowhere else.
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

_log = logging.getLogger("ottla.broker")
_FIXED_HEADER = struct.Struct(">hhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_BYTES = 4
#: A frame longer than this is read and answered in steps, unless it is long because of its records alone.
_LONG_FRAME_BYTES = 64 << 10
#: Long requests are read beside each other as long as they have no more bytes together: in memory a request is some ten
#: times its frame. One that is longer is read alone.
_LONG_BYTES_AT_ONCE = 8 << 20
#: Long requests that wait for that have no more bytes together, unless there is only one. The next one is refused.
_LONG_BYTES_WAITING = 32 << 20


class Handlers(Mapping[int, Handler]):
    """The handlers of one kind of listener. Indexing imports the handler's module; iteration and `in` do not."""

    def __init__(self, modules: Mapping[int, LazyModule], registered: Mapping[int, Handler]) -> None:
        self._modules = modules
        self._registered = registered

    def __getitem__(self, key: int) -> Handler:
        # Also of one that is registered: another thread may be half way through its module, and is waited for.
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
    """The call of a long frame, whose answer is long, too."""

    __slots__ = ()
    is_long: ClassVar[bool] = True


class _Route:
    """The route of an (API, version): compiled once, on its first request."""

    __slots__ = (
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


class Dispatch:
    """A node's table of routes for one kind of listener; the listeners hand it every frame."""

    def __init__(self, node: MetadataNode, handlers: Handlers, work_seconds: Callable[[], float]) -> None:
        # A handler is served where the node has what it needs: those of brokers' listeners by a broker.
        self._node = cast("BrokerNode", node)
        self.handlers = handlers
        self._work_seconds = work_seconds
        self._routes: dict[int, _Route] = {}
        self._around: Callable[[Handler], Handler] | None = None
        self._counted: Callable[[Handler], Handler] | None = None
        #: Bytes of the long requests that are being read, and those that wait for it.
        self._long_bytes = 0
        self._long_waiting: deque[tuple[_Route, Connection, bytes, Slot]] = deque()
        self.log = RequestLog()

    def put_around(self, around: Callable[[Handler], Handler] | None) -> None:
        """From the next request on call what `around` makes of each handler; with None the handlers themselves.

        Tests put faults in here. The routes are made again, so that nothing is asked where nothing is around.
        """
        self._around = around
        self._routes.clear()

    def count_with(self, requests: Requests, *, has_topics: bool) -> None:
        """Count the requests of every handler from here on."""
        self._counted = partial(requests.around, has_topics=has_topics)

    def log_slow(self, slow: SlowRequests | None) -> None:
        """From the next request on tell `slow` the times of each; with None they cost nothing."""
        self.log.slow = slow
        self.log.look()
        self._routes.clear()

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot, decoded: Any = None) -> None:
        """Stage one of a request, whole. Raises PeerError where the connection has to go.

        `decoded` is the request of a long frame that was read in steps.
        """
        try:
            key, version, correlation_id, id_length = _FIXED_HEADER.unpack_from(frame)
        except struct.error:
            raise PeerError("a request without a whole header") from None
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
            raise PeerError(f"a {route.handler.api.name} v{version} request that cannot be read: {error}") from error
        call = (_LongCall if decoded else Call)(self._node, connection, version, correlation_id, client_id)
        if self._node.quotas.active:
            call.meter = Meter(len(frame) + _SIZE_BYTES, self._work_seconds())
        if self.log.wanted:
            call.times = Times(connection, len(frame) + _SIZE_BYTES)
        try:
            reply = route.handler.function(call, request)
        except KafkaError as error:
            reply = route.handler.refuse(request, version, error)
        except PeerError:
            raise
        except Exception:
            _log.exception("%s v%d failed", route.handler.api.name, version)
            reply = route.handler.refuse(request, version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if call.meter is not None:
            call.meter.seconds += self._work_seconds()
        if type(reply) is Later:
            slot.superseded = reply.superseded
            reply.then(lambda value: self._answer(route, call, request, slot, value))
        else:
            self._answer(route, call, request, slot, reply)

    def _answer(self, route: _Route, call: Call, request: Any, slot: Slot, reply: Any) -> None:
        if call.connection.closed:
            return
        usual = type(reply) is route.response
        if not usual and isinstance(reply, KafkaError):
            reply = route.handler.refuse(request, route.version, reply)
        if call.meter is not None:
            self._throttle(call, call.meter, route.handler.api.key, reply)
        if call.times is not None:
            self.log.answered(call, call.times, route.handler, request, reply, slot)
        if not usual and isinstance(reply, NoReply):
            slot.fill(())
            return
        if call.is_long:
            in_turns(call.connection, self._write_in_steps(route, call, slot, reply))
            return
        try:
            parts = route.encode(reply)
        except Exception:
            return self._cannot_be_written(route, call)
        slot.fill(_frame(call.correlation_id, parts, tagged_header=route.tagged_response))

    def _cannot_be_written(self, route: _Route, call: Call) -> None:
        """Our own fault: the client cannot be told in this version, and it must not wait forever."""
        _log.exception("a %s v%d response cannot be written", route.handler.api.name, route.version)
        call.connection.close("its response cannot be written")

    def _read_in_steps(self, route: _Route, connection: Connection, data: bytes, slot: Slot) -> None:
        """Read a request of many elements while others have their turns, and then handle it as any other."""
        if self._long_bytes and self._long_bytes + len(data) > _LONG_BYTES_AT_ONCE:
            self._check_waiting(route, len(data))
            connection.pause()
            self._long_waiting.append((route, connection, data, slot))
            return
        self._long_bytes += len(data)

        def work() -> Generator[None, None, None]:
            try:
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
                connection.close(f"a {name} v{version} request that cannot be read: {error}")
            except PeerError as error:
                connection.close(str(error))

        in_turns(connection, work())

    def _check_waiting(self, route: _Route, size: int) -> None:
        """PeerError where the long requests that wait are too many bytes already. Those of peers that left go first."""
        if sum(len(each[2]) for each in self._long_waiting) + size > _LONG_BYTES_WAITING:
            self._long_waiting = deque(each for each in self._long_waiting if not each[1].closed)
            waiting = sum(len(each[2]) for each in self._long_waiting)
            if waiting and waiting + size > _LONG_BYTES_WAITING:
                name = route.handler.api.name
                raise PeerError(f"a {name} request of {size} bytes, while others of {waiting} bytes wait to be read")

    def _read_waiting(self) -> None:
        """Begin with the long requests that waited until others were read, as many as there is room for."""
        while self._long_waiting:
            route, connection, data, slot = self._long_waiting[0]
            if self._long_bytes and self._long_bytes + len(data) > _LONG_BYTES_AT_ONCE:
                return
            self._long_waiting.popleft()
            if not connection.closed:
                self._read_in_steps(route, connection, data, slot)
                connection.resume()

    def _write_in_steps(self, route: _Route, call: Call, slot: Slot, reply: Any) -> Generator[None, None, None]:
        """Write what answers a request of many elements, while others have their turns."""
        try:
            parts = yield from step_encoder(route.handler.api.response, route.version)(reply)
        except Exception:
            return self._cannot_be_written(route, call)
        if not call.connection.closed:
            slot.fill(_frame(call.correlation_id, parts, tagged_header=route.tagged_response))

    def _throttle(self, call: Call, meter: Meter, key: int, reply: Any) -> None:
        """Tell the client how long it has to wait, and do not listen to it meanwhile (KIP-219)."""
        quotas, user, now_ms = self._node.quotas, call.user, self._node.clock.monotonic_ms()
        throttle_ms = quotas.used(user, call.client_id, meter.seconds, now_ms)
        if key == ApiKey.PRODUCE:
            throttle_ms = max(throttle_ms, quotas.produced(user, call.client_id, meter.frame_bytes, now_ms))
        if not isinstance(reply, NoReply) and hasattr(reply, "throttle_time_ms"):
            # What the handler itself has found: a fetch that is too fast, changes of the controller.
            reply.throttle_time_ms = throttle_ms = max(throttle_ms, reply.throttle_time_ms)
        if throttle_ms:
            call.connection.mute(throttle_ms / 1000)

    def _find(self, key: int, version: int) -> _Route | None:
        """The route of a first request, or None for an ApiVersions version that we do not have."""
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
            # What cannot be imported cannot refuse in its own form, and the client must not wait forever.
            _log.exception("the handler of %s cannot be imported", api.name)
            raise PeerError(f"the handler of {api.name} cannot be imported: {error}") from error
        if self._around is not None:
            handler = self._around(handler)
        handler = self.guarded(handler)
        if self._counted is not None:
            handler = self._counted(handler)
        if self.log.slow is not None:
            handler = self.log.slow.around(handler)
        route = self._routes[key << 16 | version] = _Route(handler, key, version)
        return route

    def guarded(self, handler: Handler) -> Handler:
        """The handler, behind the questions to the authorizer where there is one."""
        if self._node.authorizer is None:
            return handler
        from ottla.broker.guard.guards import guarded

        return guarded(self._node.authorizer, handler)

    def _offer_versions(self, correlation_id: int, slot: Slot) -> None:
        from ottla.broker.handlers.api_versions import offer

        handler = self.handlers[ApiKey.API_VERSIONS]
        response = offer(self._node, 0, self.handlers)
        response.api_keys = [each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS]
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        slot.fill(_frame(correlation_id, encoder(handler.api.response, 0)(response), tagged_header=False))


def _long_request(route: _Route, frame: memoryview, position: int) -> Any:
    """The request of a long frame, if it is long mostly because of its records: then it is read in the first step.

    None if it has more elements than that.
    """
    if route.has_records:
        try:
            next(step_decoder(route.handler.api.request, route.version)(frame, position))
        except StopIteration as done:
            return done.value[0]
    return None


def _client_id(frame: memoryview, length: int, flexible: bool) -> tuple[str, int]:
    """(client id, where the request's body begins)."""
    end = 10 + length if length > 0 else 10
    if flexible:
        if end >= len(frame) or frame[end]:
            # Tagged fields in the header: rare, so the whole header is read the long way.
            header, position = decoder(RequestHeader, 2)(frame, 0)
            return header.client_id or "", position
    elif end > len(frame):
        raise Malformed("the client id ends behind the frame")
    return str(frame[10:end], "utf-8"), end + flexible


def _frame(correlation_id: int, parts: list[Part], *, tagged_header: bool) -> list[Part]:
    """The parts of an encoded response, of which the first is always bytes, with the header in front of them."""
    first = parts[0]
    assert type(first) is bytes
    size = (len(first) if len(parts) == 1 else sum(map(len, parts))) + 4 + tagged_header
    head = _SIZE_AND_CORRELATION.pack(size, correlation_id)
    parts[0] = head + b"\0" + first if tagged_header else head + first
    return parts
