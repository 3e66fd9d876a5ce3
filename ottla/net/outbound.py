"""The connection of a node to another node: requests go out in order, and each ends exactly once.

    outbound = Outbound(loop, "192.0.2.1", 9093, client_id="1", options=OutboundOptions(), rng=rng)
    outbound.ask(VoteRequest(...), done, timeout_ms=2_000)      # done(VoteResponse) or done(Unanswered)
    outbound.close()

Rules:
- It connects when there is a request and no connection. When a connection fails or breaks, every pending request ends
  with `Unanswered`; the caller decides whether to retry. Attempts to connect follow each other after a backoff that
  doubles, and new requests wait for the next attempt.
- ApiVersions comes first on each connection; a request goes in the highest version that both ends know.
- At most `in_flight_max` requests are in flight; the others wait here, in order.
- A request that times out closes the connection, as in the Java client: a later answer would belong to no request. A
  request that times out before it is sent ends alone.
- A peer that breaks the protocol (a frame too long, garbage, an unknown correlation id) loses this connection.
- `done` is always called from the loop, never from within `ask` or `close`, and never twice.

Not obvious: names are resolved on threads of their own, and each attempt takes the next of their addresses. Requests
end with `PeerRefused` when every address refused the connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ports import Rng
from ottla.net.answer_frames import AnswerFrames
from ottla.net.keepalive import keep_alive
from ottla.net.peer import Disconnected, Done, Expired, NotOffered, OutboundOptions, PeerRefused, Unanswered
from ottla.net.request import FIRST_VERSION, PeerVersions, api_of, decoded, encoded, first_request, retry_version
from ottla.wire.api import API, Api, ApiKey
from ottla.wire.api.api_versions import ApiVersionsResponse
from ottla.wire.type import Malformed

#: Backoff and setup timeout vary by this fraction around their value, as in the Java client.
_JITTER = 0.2


class OutboundRequest:
    """A request that waits to be sent, or for its answer."""

    __slots__ = ("api", "at_least", "at_most", "correlation_id", "done", "due", "request", "timeout_ms", "version")

    def __init__(self, api: Api, request: object, at_least: int, at_most: int | None, done: Done) -> None:
        self.api = api
        self.request = request
        self.at_least = at_least
        self.at_most = at_most
        self.done = done
        #: On the loop's clock: when it expires; never if it is the connection's own.
        self.due = inf
        self.timeout_ms = 0
        self.version = self.correlation_id = -1


class Outbound:
    """A peer, and the connection to it while there is one. Its owner creates and closes it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        client_id: str,
        rng: Rng,
        options: OutboundOptions | None = None,
        new_socket: Callable[..., socket.socket] = socket.socket,
    ) -> None:
        self.host = host
        self.port = port
        self.closed = False
        #: Why the last connection, or the last attempt to connect, ended; "" before the first.
        self.last_failure = ""
        self._loop = loop
        self._client_id = client_id
        self._rng = rng
        self._options = options or OutboundOptions()
        self._new_socket = new_socket
        self._addresses: deque[str] = deque()
        #: True while every attempt since the name was resolved ended with ECONNREFUSED.
        self._all_refuse = True
        self._is_resolving = False
        self._sock: socket.socket | None = None
        #: The socket's descriptor; -1 without a socket.
        self._fd = -1
        #: The versions that the peer supports; None until it has named them on this connection.
        self.versions: PeerVersions | None = None
        self._frames: AnswerFrames
        self._correlation_id = 0
        #: Consecutive attempts that led to no connection.
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        #: On the loop's clock: no attempt to connect before this.
        self._not_before = 0.0
        self._setup: asyncio.TimerHandle | None = None
        #: Runs when the first pending request expires, or earlier: an answer leaves it as it is.
        self._expiry: asyncio.TimerHandle | None = None
        self._waiting: deque[OutboundRequest] = deque()
        self._sent: deque[OutboundRequest] = deque()
        self._out: deque[memoryview] = deque()
        self._writing = False

    # ---- for its owner

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection with negotiated versions."""
        return self.versions is not None

    @property
    def pending(self) -> int:
        """How many requests are in flight or wait to be sent."""
        return len(self._sent) + len(self._waiting)

    def ask(
        self, request: object, done: Done, *, timeout_ms: int, at_least: int = 0, at_most: int | None = None
    ) -> None:
        """Send `request` in its turn, and call `done` once, within `timeout_ms`.

        The version is the highest that both ends know, from `at_least` to `at_most`; `NotOffered` if there is none.
        """
        entry = OutboundRequest(api_of(request), request, at_least, at_most, done)
        if self.closed:
            return self._give_up(entry, Disconnected(self._say("closed by this node"), was_sent=False))
        entry.due, entry.timeout_ms = self._loop.time() + timeout_ms / 1000, timeout_ms
        self._waiting.append(entry)
        self._expire_at(entry.due)
        if self._sock is None:
            self._connect_later()
        elif self.versions is not None:
            self._send_waiting()
        return None

    def close(self) -> None:
        """Close the connection; every pending request ends with `Disconnected`."""
        if self.closed:
            return
        self.closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._end("closed by this node")

    # ---- connecting

    def _connect_later(self) -> None:
        """Connect when the backoff is over, unless an attempt is already planned."""
        if self._retry is None and not self._is_resolving:
            self._retry = self._loop.call_later(max(0.0, self._not_before - self._loop.time()), self._connect)

    def _connect(self) -> None:
        self._retry = None
        if self.closed or not self._waiting:
            # Every request timed out during the backoff: the next one connects.
            return
        self._setup = self._loop.call_later(self._setup_seconds(), self._setup_expired)
        if self._addresses:
            return self._dial()
        self._all_refuse = True
        family = _family_of(self.host)
        if family is not None:
            self._addresses.append(self.host)
            return self._dial()
        # Not on the loop's threads: they are few, and a process that ends waits for them. The name of a machine that is
        # gone may take half a minute.
        try:
            threading.Thread(target=self._look_up, name="ottla-lookup", daemon=True).start()
        except RuntimeError as error:
            return self._failed(f"its name cannot be looked up: {error}")
        self._is_resolving = True
        return None

    def _look_up(self) -> None:
        found: list[str] | Exception
        try:
            found = _resolve(self.host, self.port)
        except Exception as error:
            found = error
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._resolved, found)

    def _resolved(self, found: list[str] | Exception) -> None:
        self._is_resolving = False
        if self.closed:
            return None
        if self._setup is None:
            # The lookup outlasted the setup timeout. Requests made since then start over.
            return self._connect_later() if self._waiting else None
        if isinstance(found, Exception):
            return self._failed(f"no such host ({found})")
        self._addresses.extend(found)
        return self._dial()

    def _dial(self) -> None:
        # The next attempt takes the next address; after the last one, the name is resolved again.
        address = self._addresses.popleft()
        try:
            sock = self._new_socket(_family_of(address) or socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            return self._failed(error.strerror or str(error))
        self._sock, self._fd = sock, sock.fileno()
        self._frames = AnswerFrames(self._options.frame_bytes_max)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)
            code = sock.connect_ex((address, self.port))
        except OSError as error:
            return self._failed(error.strerror or str(error))
        if code not in (0, errno.EINPROGRESS):
            return self._failed(os.strerror(code), code)
        self._loop.add_writer(self._fd, self._connect_finished)
        self._writing = True
        return None

    def _connect_finished(self) -> None:
        """Handle the outcome of the attempt to connect."""
        assert self._sock is not None
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return self._failed(os.strerror(code), code)
        self._loop.remove_writer(self._fd)
        self._writing = False
        return self._connected()

    def _connected(self) -> None:
        """Negotiate versions on the new connection."""
        self._loop.add_reader(self._fd, self._readable)
        self._negotiate(FIRST_VERSION)

    def _negotiate(self, version: int) -> None:
        """Send ApiVersions. The setup timeout bounds this, too."""
        first = OutboundRequest(API[ApiKey.API_VERSIONS], first_request(), 0, None, lambda answer: None)
        self._send(first, version)

    def _handle_setup(self, response: Any, version: int) -> None:
        """Handle the response to a request of the connection itself."""
        self._negotiated(response, version)

    def _negotiated(self, response: ApiVersionsResponse, version: int) -> None:
        try:
            retry = retry_version(response, version)
        except KafkaError as error:
            return self._failed(f"it answers ApiVersions with {error}")
        if retry is not None:
            return self._negotiate(retry)
        return self._activate(PeerVersions(response))

    def _activate(self, versions: PeerVersions) -> None:
        """Start using the connection."""
        self.versions = versions
        self._failures = 0
        self._not_before = 0.0
        self._addresses.clear()
        if self._setup is not None:
            self._setup.cancel()
            self._setup = None
        self._send_waiting()

    def _setup_seconds(self) -> float:
        options = self._options
        doubled = min(options.setup_timeout_max_ms, options.setup_timeout_ms << min(self._failures, 16))
        return self._jittered(doubled)

    def _setup_expired(self) -> None:
        self._setup = None
        self._failed("connecting took too long")

    def _jittered(self, ms: int) -> float:
        """`ms` plus or minus up to a fifth, in seconds."""
        return ms * (1 + _JITTER * (2 * self._rng.random() - 1)) / 1000

    def _failed(self, why: str, code: int = 0) -> None:
        """Fail the attempt to connect (`code`: the errno) and every waiting request; the next attempt waits longer."""
        self._all_refuse = self._all_refuse and code == errno.ECONNREFUSED
        options = self._options
        backoff_ms = min(options.backoff_max_ms, options.backoff_ms << min(self._failures, 16))
        self._failures += 1
        self._not_before = self._loop.time() + self._jittered(backoff_ms)
        self._end(
            f"cannot be reached: {why}", PeerRefused if self._all_refuse and not self._addresses else Disconnected
        )

    # ---- out

    def _send_waiting(self) -> None:
        """Send waiting requests up to `in_flight_max`."""
        assert self.versions is not None
        while self._waiting and len(self._sent) < self._options.in_flight_max and self._sock is not None:
            entry = self._waiting.popleft()
            version = self.versions.best(entry.api.key, entry.at_most)
            if isinstance(version, int) and version < entry.at_least:
                version = f"takes {entry.api.key.name} up to v{version}, and v{entry.at_least} is needed"
            if isinstance(version, int):
                self._send(entry, version)
            else:
                self._give_up(entry, NotOffered(self._say(version), was_sent=False))

    def _send(self, entry: OutboundRequest, version: int) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        entry.version, entry.correlation_id = version, self._correlation_id
        try:
            parts = encoded(entry.request, entry.api, version, entry.correlation_id, self._client_id)
        except OttlaError as error:
            return self._give_up(entry, NotOffered(self._say(str(error)), was_sent=False))
        # Only the encoded copy is needed from here on.
        entry.request = None
        self._sent.append(entry)
        self._out.append(memoryview(b"".join(parts)))
        if not self._writing:
            self._write()
        return None

    def _write(self) -> None:
        sock, out = self._sock, self._out
        assert sock is not None
        try:
            while out:
                sent = sock.send(out[0])
                if sent < len(out[0]):
                    out[0] = out[0][sent:]
                else:
                    out.popleft()
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._write)
            return
        except OSError as error:
            return self._lost(error.strerror or str(error) or "connection lost")
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    # ---- in

    def _readable(self) -> None:
        assert self._sock is not None
        try:
            count = self._sock.recv_into(self._frames.room())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            return self._lost(error.strerror or str(error) or "connection lost")
        if not count:
            return self._lost("the peer closed the connection")
        sock = self._sock
        try:
            for frame in self._frames.filled(count):
                self._answered(frame)
                if self._sock is not sock:
                    return
        except Malformed as error:
            return self._lost(str(error))

    def _answered(self, frame: memoryview) -> None:
        if not self._sent:
            raise Malformed("it answered what was never asked")
        entry = self._sent[0]
        response = decoded(entry.api, entry.version, entry.correlation_id, frame)
        self._sent.popleft()
        if self.versions is None:
            return self._handle_setup(response, entry.version)
        self._loop.call_soon(entry.done, response)
        self._send_waiting()
        return None

    # ---- ends

    def _expire_at(self, due: float) -> None:
        """Have `_expire` run at `due`, unless it runs before."""
        if self._expiry is not None:
            if self._expiry.when() <= due:
                return
            self._expiry.cancel()
        self._expiry = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        """End the requests that have expired, and wait for the next one."""
        self._expiry = None
        now = self._loop.time()
        while (first := self._first_due()) is not None and first.due <= now:
            self._expired(first)
        if first is not None:
            self._expire_at(first.due)

    def _first_due(self) -> OutboundRequest | None:
        """The pending request that expires first; the connection's own ones never do."""
        pending = [each for each in (*self._sent, *self._waiting) if each.due < inf]
        return min(pending, key=lambda each: each.due, default=None)

    def _expired(self, entry: OutboundRequest) -> None:
        what = f"{entry.api.name} was not answered in {entry.timeout_ms} ms"
        if entry in self._waiting:
            self._waiting.remove(entry)
            why = f"{what}; it was not sent: {self.last_failure}" if self.last_failure else f"{what}; it was not sent"
            return self._give_up(entry, Expired(self._say(why), was_sent=False))
        self._sent.remove(entry)
        self._give_up(entry, Expired(self._say(what), was_sent=True))
        self._lost(what)
        return None

    def _lost(self, why: str) -> None:
        """Close a connection that broke, or that can no longer be used."""
        if self.versions is None:
            return self._failed(why)
        self._not_before = self._loop.time() + self._jittered(self._options.backoff_ms)
        return self._end(why)

    def _end(self, why: str, kind: type[Disconnected] = Disconnected) -> None:
        """Release the connection, and end every pending request."""
        self.last_failure = why
        if self._setup is not None:
            self._setup.cancel()
            self._setup = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._sock is not None:
            self._loop.remove_reader(self._fd)
            if self._writing:
                self._loop.remove_writer(self._fd)
            self._sock.close()
            self._sock, self._fd = None, -1
        self._writing = False
        self.versions = None
        self._out.clear()
        sent, self._sent = self._sent, deque()
        waiting, self._waiting = self._waiting, deque()
        for entry in sent:
            self._give_up(entry, Disconnected(self._say(why), was_sent=True))
        for entry in waiting:
            self._give_up(entry, kind(self._say(why), was_sent=False))

    def _give_up(self, entry: OutboundRequest, why: Unanswered) -> None:
        self._loop.call_soon(entry.done, why)

    def _say(self, why: str) -> str:
        return f"{self.host}:{self.port} {why}"


def _family_of(host: str) -> int | None:
    """The address family of a numeric address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family
    return None


def _resolve(host: str, port: int) -> list[str]:
    """The distinct addresses of a name. OSError if there are none."""
    lookup = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in lookup))
