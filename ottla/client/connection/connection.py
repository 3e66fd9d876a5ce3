"""A connection to one broker: requests are sent as they come, answers are matched in order.

Rules:
- The broker answers in the order of the requests (Kafka's protocol guide); an unexpected correlation id closes the
  connection.
- A connection is used only after ApiVersions has returned the broker's versions; each request is sent in the highest
  version that both ends know.
- A request without an answer in time closes the connection, as in the Java client: a later answer would match no
  request, and the requests behind it wait in the same queue.
- An answer's bytes fields are views of its frame, which has no other user: records are not copied.
- With SASL the client authenticates after ApiVersions, and again with the first request after most of the session's
  lifetime. Requests made in the meantime are held back, because the broker accepts nothing but the exchange.
- Requests are also held back for the throttle time that an answer names, in which the broker would not read them. A
  request's timeout does not run in that time, as in Java's client: the connection of a client above its quota stays.

KIPs: 35 (ApiVersions), 511 (client software), 482 (flexible versions), 152 and 368 (SASL), 219 (throttle times).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections import deque
from typing import Any, TypeVar, cast

from ottla.client.connection.clock import now_ms, randomness
from ottla.client.connection.node_metric import NodeMeter
from ottla.client.connection.throttle import throttle_ms
from ottla.kernel.client_error import ConnectionLost, NotReachable, RequestTimedOut, Unsupported, check
from ottla.kernel.error import KafkaError, OttlaError
from ottla.net.answer_frames import AnswerFrames
from ottla.net.keepalive import keep_alive_soon
from ottla.net.request import FIRST_VERSION, PeerVersions, api_of, decoded, encoded, first_request, retry_version
from ottla.security.sasl import SignIn
from ottla.security.sign_in import Security, authenticate
from ottla.security.tls import failed_tls
from ottla.settings.client.client import ClientSettings
from ottla.wire.api import API, Api, ApiKey
from ottla.wire.type import Malformed, UnsupportedVersion

R = TypeVar("R")

#: How long `finish` waits for the broker to read the data written, in seconds.
_FINISH_S = 5.0
#: The part of a session's lifetime after which the client authenticates again (the same bounds as in Java's client).
_SESSION_USED = (0.85, 0.95)
#: Authentication timeout before a request without an answer, which has no timeout of its own.
_SIGN_IN_TIMEOUT_MS = 30_000


class _Sent:
    """A request that waits for its answer."""

    __slots__ = ("answer", "api", "correlation_id", "sent_ms", "timeout_ms", "timer", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, answer: asyncio.Future[Any], timeout_ms: int
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.answer = answer
        self.timeout_ms = timeout_ms
        self.timer: asyncio.TimerHandle | None = None
        self.sent_ms = 0


class BrokerConnection(asyncio.BufferedProtocol):
    """A socket to a broker. Opened by `open`; ended by `close`, by the broker, or by a request that timed out."""

    def __init__(self, host: str, port: int, client_id: str, meter: NodeMeter) -> None:
        self.host = host
        self.port = port
        #: Why the connection is closed; None while it is open.
        self.closed: str | None = None
        #: The error of the system or TLS when the connection was lost.
        self.lost_by: BaseException | None = None
        self._versions = PeerVersions()
        #: Time of the last use, on the loop's clock in seconds.
        self.used_at = 0.0
        self._client_id = client_id
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._sent: deque[_Sent] = deque()
        self._correlation_id = 0
        self._answers = 0
        self._sign_in: SignIn | None = None
        #: Time on the loop's clock from which a request first starts a new authentication.
        self._sign_in_at = math.inf
        #: Until when nothing more is sent, on the loop's clock, and the timer for that time.
        self._throttled_until = 0.0
        self._throttle_end: asyncio.TimerHandle | None = None
        #: Requests held back while the client authenticates again, or is throttled; None otherwise.
        self._held: list[tuple[_Sent | None, list[bytes | memoryview]]] | None = None
        self._signing: asyncio.Task[None] | None = None
        self._frames = AnswerFrames()
        self._is_paused = False
        #: Resolved when there may be room for more data, if `writable` waits for that.
        self._room: asyncio.Future[None] | None = None
        #: Resolved when the socket is closed, if `finish` waits for that.
        self._socket_closed: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, settings: ClientSettings, security: Security, meter: NodeMeter, timeout_ms: int
    ) -> BrokerConnection:
        """Connect, negotiate versions and authenticate.

        NotReachable if that does not succeed in `timeout_ms`. TlsFailed or AuthenticationFailed if one end does not
        trust the other, which retrying would not cure.
        """
        connection = cls(host, port, settings.client_id, meter)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await connection._connect(security.context, connection._loop.time() + timeout_ms / 1000)
                await connection._negotiate_versions(settings.request_timeout_ms)
                if security.sign_in is not None:
                    connection._sign_in = security.sign_in
                    await connection._authenticate(settings.request_timeout_ms)
        except TimeoutError:
            connection.close("connecting took too long")
            raise NotReachable(f"{host}:{port} did not answer within {timeout_ms} ms: is it a Kafka broker?") from None
        except ssl.SSLError as error:
            connection.close("TLS failed")
            raise failed_tls(host, port, error) from error
        except (OSError, UnicodeError, OverflowError) as error:
            # The last two: a name or a port that no machine can have, as advertised by a broker.
            why = "no such host" if isinstance(error, socket.gaierror | UnicodeError) else _reason(error)
            if security.context is not None and isinstance(error, ConnectionResetError | BrokenPipeError):
                why = f"{why} in the TLS handshake: check security.protocol"
            raise NotReachable(f"{host}:{port} cannot be reached ({why})") from error
        except ConnectionLost as error:
            if isinstance(connection.lost_by, ssl.SSLError):
                raise failed_tls(host, port, connection.lost_by) from error
            why = f"no Kafka broker, or another security.protocol: {error.message}"
            raise NotReachable(f"{host}:{port} does not speak Kafka's protocol ({why})") from error
        except BaseException:
            connection.close("connecting was cancelled")
            raise
        return connection

    async def _connect(self, context: ssl.SSLContext | None, deadline: float) -> None:
        """Connect to one of the host's addresses, each of which gets an equal part of the time that is left."""
        addresses = await _addresses(self.host, self.port)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            name = None if context is None else self.host
            try:
                async with asyncio.timeout((deadline - self._loop.time()) / left):
                    await self._loop.create_connection(
                        lambda: self, address, self.port, ssl=context, server_hostname=name
                    )
                return
            except OSError as error:
                # A host whose certificate is not trusted is not asked for another one; TimeoutError is an OSError, too.
                if left == 1 or isinstance(error, ssl.SSLError):
                    raise

    async def _negotiate_versions(self, timeout_ms: int) -> None:
        api, request, version = API[ApiKey.API_VERSIONS], first_request(), FIRST_VERSION
        response = await self._transmit(api, version, request, timeout_ms)
        second_try = retry_version(response, version)
        if second_try is not None:
            response = await self._transmit(api, second_try, request, timeout_ms)
            check(response.error_code)
        self._versions = PeerVersions(response)

    async def _authenticate(self, timeout_ms: int) -> None:
        assert self._sign_in is not None

        def ask(request: object) -> asyncio.Future[Any]:
            api = api_of(request)
            return self._transmit(api, self.version_of(api.key), request, timeout_ms, bypass_hold=True)

        lifetime_ms = await authenticate(ask, self._sign_in, self.host, self.port)
        if lifetime_ms > 0:
            self._sign_in_at = self._loop.time() + lifetime_ms / 1000 * randomness().uniform(*_SESSION_USED)

    async def _authenticate_again(self, timeout_ms: int) -> None:
        """Authenticate again on the same connection, then send the requests held back."""
        try:
            await self._authenticate(timeout_ms)
        except (OttlaError, KafkaError) as error:
            return self.close(f"authenticating again failed: {error}")
        self._signing = None
        self._release()

    def version_of(self, key: ApiKey, at_most: int | None = None) -> int:
        """The highest version that both ends know. Unsupported if there is none."""
        best = self._versions.best(key, at_most)
        if isinstance(best, str):
            raise Unsupported(f"{self.host}:{self.port} {best}")
        return best

    def supports(self, key: ApiKey, version: int = 0) -> bool:
        """True if the broker accepts this request, in this version or a later one."""
        return self._versions.highest(key) >= version

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The (lowest, highest) version that the broker accepts, by API key."""
        return self._versions.ranges

    @property
    def features(self) -> dict[str, int]:
        """The finalized levels of the cluster's features, by name."""
        return self._versions.features

    async def call(
        self, request: object, response: type[R], *, timeout_ms: int, at_most: int | None = None, version: int = -1
    ) -> R:
        """Send a request and return its answer. Raises ConnectionLost, RequestTimedOut or Unsupported."""
        return cast(R, await self.send(request, timeout_ms=timeout_ms, at_most=at_most, version=version))

    def send(
        self, request: object, *, timeout_ms: int, at_most: int | None = None, version: int = -1
    ) -> asyncio.Future[Any]:
        """Send a request now; the future gets its answer. Any number of requests may be in flight."""
        api = api_of(request)
        if version < 0:
            version = self.version_of(api.key, at_most)
        return self._transmit(api, version, request, timeout_ms)

    def send_unanswered(self, request: object, version: int) -> None:
        """Send a request that gets no answer: Produce with acks=0."""
        _, parts = self._encoded(api_of(request), version, request)
        self._write(None, parts, _SIGN_IN_TIMEOUT_MS)

    def _transmit(
        self, api: Api, version: int, request: object, timeout_ms: int, *, bypass_hold: bool = False
    ) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        correlation_id, parts = self._encoded(api, version, request)
        sent = _Sent(api, version, correlation_id, answer, timeout_ms)
        begin = max(self._loop.time(), self._throttled_until)
        sent.timer = self._loop.call_at(begin + timeout_ms / 1000, self._timed_out, sent)
        if bypass_hold:
            self._put(sent, parts)
        else:
            self._write(sent, parts, timeout_ms)
        return answer

    def _write(self, sent: _Sent | None, parts: list[bytes | memoryview], timeout_ms: int) -> None:
        if self._held is None and self._loop.time() >= self._sign_in_at:
            self._held = []
            self._sign_in_at = math.inf
            self._signing = self._loop.create_task(self._authenticate_again(timeout_ms))
        if self._held is None:
            self._put(sent, parts)
        else:
            self._held.append((sent, parts))

    def _throttle(self, pause_ms: int) -> None:
        """Send nothing for this time, and give the requests in flight so much longer."""
        pause_s = pause_ms / 1000
        for sent in self._sent:
            self._give_time(sent, pause_s)
        until = self._loop.time() + pause_s
        if until <= self._throttled_until:
            return
        # Requests held back have the former end in their timeouts.
        longer_s = until - max(self._loop.time(), self._throttled_until)
        for held, _ in self._held or ():
            if held is not None:
                self._give_time(held, longer_s)
        self._throttled_until = until
        if self._held is None:
            self._held = []
        if self._throttle_end is not None:
            self._throttle_end.cancel()
        self._throttle_end = self._loop.call_at(until, self._end_throttle)

    def _give_time(self, sent: _Sent, more_s: float) -> None:
        if sent.timer is not None:
            sent.timer.cancel()
            sent.timer = self._loop.call_at(sent.timer.when() + more_s, self._timed_out, sent)

    def _end_throttle(self) -> None:
        self._throttle_end = None
        self._release()

    def _release(self) -> None:
        """Send the requests held back, unless there is another reason to hold them."""
        if self._held is None or self._signing is not None or self._throttle_end is not None:
            return
        held, self._held = self._held, None
        for sent, parts in held:
            self._write(sent, parts, _SIGN_IN_TIMEOUT_MS)
        self._make_room()

    def _put(self, sent: _Sent | None, parts: list[bytes | memoryview]) -> None:
        if self._transport is None or self.closed is not None:
            return
        now = now_ms()
        if sent is not None:
            sent.sent_ms = now
            self._sent.append(sent)
        self._transport.writelines(parts)
        self._meter.sent(sum(map(len, parts)), now)
        self.used_at = self._loop.time()

    def _encoded(self, api: Api, version: int, request: object) -> tuple[int, list[bytes | memoryview]]:
        """The request's correlation id and its frame."""
        if self.closed is not None or self._transport is None:
            raise ConnectionLost(f"{self.host}:{self.port}: {self.closed or 'not connected'}")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            return self._correlation_id, encoded(request, api, version, self._correlation_id, self._client_id)
        except OttlaError as error:
            if isinstance(error.__cause__, UnsupportedVersion):
                raise Unsupported(f"{self.host}:{self.port} takes {api.name} up to v{version}: {error}") from error
            raise

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer yet."""
        return len(self._sent) + len(self._held or ())

    @property
    def throttled(self) -> bool:
        """Whether requests are held back because the client is above its quota."""
        return self._throttle_end is not None

    @property
    def is_writable(self) -> bool:
        """Whether no request is held back and the transport buffers less than its high-water mark; True once closed."""
        return self.closed is not None or not (self._is_paused or self._held)

    async def writable(self) -> None:
        """Wait until the socket has accepted the written data, down to the transport's low-water mark."""
        while not self.is_writable:
            if self._room is None or self._room.done():
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def close(self, why: str = "closed by this client") -> None:
        """Close the socket; all pending requests fail with ConnectionLost."""
        if self.closed is None:
            self._end(why)

    async def finish(self) -> None:
        """Close once the written data is sent: only the transport holds requests with acks=0."""
        transport = self._transport
        if self.closed is not None or transport is None:
            return
        if self._signing is None:
            for sent, parts in self._held or ():
                if sent is None:
                    self._put(None, parts)
        self.closed = "closed by this client"
        self._socket_closed = self._loop.create_future()
        transport.close()
        try:
            async with asyncio.timeout(_FINISH_S):
                await self._socket_closed
        except TimeoutError:
            # A broker that does not read must not hold up the end of a program.
            pass
        finally:
            self._end(self.closed)

    def _timed_out(self, sent: _Sent) -> None:
        why = f"did not answer {sent.api.name} in {sent.timeout_ms} ms"
        if not sent.answer.done():
            sent.answer.set_exception(RequestTimedOut(f"{self.host}:{self.port} {why}"))
        self.close(f"the broker {why}")

    def _end(self, why: str) -> None:
        self.closed = why
        if self._transport is not None:
            self._transport.abort()
        self._make_room()
        waiting = [*self._sent, *(sent for sent, _ in self._held or () if sent is not None)]
        self._sent.clear()
        self._held = None
        self._sign_in_at = math.inf
        if self._throttle_end is not None:
            self._throttle_end.cancel()
            self._throttle_end = None
        for sent in waiting:
            if sent.timer is not None:
                sent.timer.cancel()
            if not sent.answer.done():
                sent.answer.set_exception(ConnectionLost(f"{self.host}:{self.port}: {why}"))

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive_soon(raw)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._socket_closed is not None and not self._socket_closed.done():
            self._socket_closed.set_result(None)
        if self.closed is None:
            self.lost_by = exc
            why = _reason(exc) if isinstance(exc, OSError) else "the broker closed the connection"
            if exc is None and self._answers == 1 and self._sign_in is None:
                # ApiVersions is the only request that a broker answers before authentication.
                why += " after the first request: does it require authentication (security.protocol)?"
            self._end(why)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._make_room()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._frames.filled(nbytes)
        except Malformed as error:
            return self.close(str(error))
        for frame in frames:
            if self.closed is None:
                self._answered(frame)

    def _answered(self, frame: memoryview) -> None:
        if not self._sent:
            return self.close("the broker sent an answer without a request")
        sent = self._sent.popleft()
        if sent.timer is not None:
            sent.timer.cancel()
        try:
            response = decoded(sent.api, sent.version, sent.correlation_id, frame)
        except Malformed as error:
            if not sent.answer.done():
                sent.answer.set_exception(ConnectionLost(f"{self.host}:{self.port}: unreadable answer ({error})"))
            return self.close(f"the broker's answer to {sent.api.name} cannot be read: {error}")
        self.used_at = self._loop.time()
        self._answers += 1
        now = now_ms()
        self._meter.answered(len(frame), now - sent.sent_ms, now)
        if pause_ms := throttle_ms(sent.api.key, sent.version, response):
            self._throttle(pause_ms)
        if not sent.answer.done():
            sent.answer.set_result(response)


async def _addresses(host: str, port: int) -> list[str]:
    """The distinct addresses of a host, in the order in which they are tried."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, UnicodeError, ValueError):
            socket.inet_pton(family, host)
            return [host]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: is a broker running there?"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
