"""The HTTP endpoint of a node: `metrics.listener=HOST:PORT`.

    GET /metrics    Prometheus' text format
    GET /health     200 while the node's loop responds: its state in JSON, with any problems
    GET /ready      200 while the node serves clients; otherwise 503 with the reason

Rules:
- The endpoint is open from the first phase of a start, so that an operator can see why the node does not serve yet.
- There is no authentication, as with JMX exporters: bind it to an address that only trusted hosts can reach.
- Peers cost at most `_CONNECTIONS_MAX` connections, 8 KiB of request and ten seconds each; a response is built in
  pieces. A further connection takes the place of a silent one, so that silent peers do not keep probes out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.observe import metrics
from ottla.broker.observe.client_metrics import PushedClientMetrics
from ottla.broker.observe.cluster_changes import ClusterChanges
from ottla.broker.observe.raft_latency import RaftLatency
from ottla.broker.observe.requests import Requests
from ottla.kernel.error import OttlaError
from ottla.kernel.exposition import CONTENT_TYPE
from ottla.net.listener import listening_socket
from ottla.settings.server.own import OwnSettings

if TYPE_CHECKING:
    from ottla.broker.metadata_node import MetadataNode
    from ottla.broker.node import BrokerNode

_log = logging.getLogger("ottla.broker")
SETTING = OwnSettings.metrics_listener.name
_CONNECTIONS_MAX = 32
_REQUEST_BYTES_MAX = 8 << 10
_REQUEST_TIMEOUT_SECONDS = 10.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def parse(text: str) -> tuple[str, int]:
    """(host, port) of the setting. OttlaError if it is not HOST:PORT; an empty host means all addresses."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise OttlaError(f"invalid value {text} for configuration {SETTING}: HOST:PORT is expected (127.0.0.1:9308)")
    return host.strip("[]"), int(port)


class Observation:
    """What one node shows over HTTP. The node creates it, and ends it with `close`."""

    def __init__(self, node: MetadataNode, where: str, seconds: Any) -> None:
        self.node = node
        self.requests = Requests(seconds, lambda topic_id: node.image.topic_names.get(topic_id))
        self.changes = ClusterChanges()
        self.latency = RaftLatency()
        #: Metrics that clients push; None on a node that is only a controller.
        self.clients: PushedClientMetrics | None = None
        if node.settings.is_broker:
            self.clients = PushedClientMetrics(node.loop, node.clock)
            cast("BrokerNode", node).telemetry.export_to(self.clients.take)
        #: Called for the metric families of other components.
        self.more_lines: list[Callable[[], list[str]]] = []
        #: The oldest first.
        self._peers: dict[_Peer, None] = {}
        self._server: asyncio.Server | None = None
        self._sock = _listen(*parse(where))
        #: The bound address as HOST:PORT.
        self.address = "{}:{}".format(*self._sock.getsockname()[:2])
        self._starting: asyncio.Task[None] | None = None
        # If the start fails, the loop has no further turn, and then there is no task either.
        node.loop.call_soon(self._start)

    def _start(self) -> None:
        if self._sock.fileno() >= 0:
            self._starting = self.node.loop.create_task(self._serve())

    async def _serve(self) -> None:
        is_local = self.address.startswith(("127.", "::1:"))
        to_all = "" if is_local else " (without TLS and passwords: every host that reaches this address can read them)"
        _log.info("metrics, health and readiness at http://%s%s", self.address, to_all)
        self._server = await self.node.loop.create_server(lambda: _Peer(self), sock=self._sock)

    def close(self) -> None:
        """Stop listening, and abort open connections."""
        if self._starting is not None:
            self._starting.cancel()
        if self._server is not None:
            self._server.close()
        self._sock.close()
        for peer in list(self._peers):
            peer.abort()

    def enter(self, peer: _Peer) -> None:
        """Add a connection. If there are too many, abort the one that has been silent longest, else the oldest."""
        if len(self._peers) >= _CONNECTIONS_MAX:
            oldest = next((each for each in self._peers if not each.is_answered), next(iter(self._peers)))
            self.leave(oldest)
            oldest.abort()
        self._peers[peer] = None

    def leave(self, peer: _Peer) -> None:
        """Remove a closed connection."""
        self._peers.pop(peer, None)

    def answer(self, path: str) -> tuple[int, str, Generator[list[str], None, None]]:
        """(status, content type, pieces of lines)."""
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._metrics()
        if path in ("/health", "/ready"):
            state = self._state()
            status = 503 if path == "/ready" and state["state"] != "ready" else 200
            return status, "application/json", _single(json.dumps(state))
        return 404, "text/plain; charset=utf-8", _single("there are /metrics, /health and /ready here")

    def _metrics(self) -> Generator[list[str], None, None]:
        yield from metrics.lines(self.node, self.requests, self.changes, self.latency, self.clients)
        for lines in self.more_lines:
            yield lines()

    def _state(self) -> dict[str, Any]:
        node = self.node
        own = node.image.brokers.get(node.node_id)
        state, reasons = "ready", []
        if not node.is_ready:
            state, reasons = "starting", [node.progress or node.why_waiting() or "it reads its logs"]
        elif node.settings.is_broker and own is not None and own.in_controlled_shutdown:
            state, reasons = "stopping", ["other brokers take over its partitions"]
        elif node.settings.is_broker and (own is None or own.fenced):
            state, reasons = "fenced", ["the controllers have not heard of this broker for too long"]
        reasons += [f"log directory {path} has failed" for path in node.failed_directories]
        return {"node": node.node_id, "state": state, "reasons": reasons}


def _single(text: str) -> Generator[list[str], None, None]:
    yield [text]


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listening_socket(host, port, _CONNECTIONS_MAX)
    except OSError as error:
        raise OttlaError(f"{SETTING}: cannot listen at {host}:{port}: {error.strerror or error}") from error


class _Peer(asyncio.Protocol):
    """A connection, for one request."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        self._received = b""
        #: Its request is complete, or will never be.
        self.is_answered = False
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._observation.enter(self)
        self._limit = self._observation.node.loop.call_later(_REQUEST_TIMEOUT_SECONDS, self.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._observation.leave(self)
        if self._limit is not None:
            self._limit.cancel()

    def abort(self) -> None:
        """Abort the connection."""
        self.is_answered = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.is_answered:
            return
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._answer()
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self.abort()

    def _answer(self) -> None:
        self.is_answered = True
        method, _, rest = self._received.partition(b"\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            status, kind, pieces = 405, "text/plain; charset=utf-8", _single("GET is served here")
        else:
            status, kind, pieces = self._observation.answer(path)
        self._go_on(status, kind, pieces, [], is_head=method == "HEAD")

    def _go_on(
        self, status: int, kind: str, pieces: Generator[list[str], None, None], made: list[str], *, is_head: bool
    ) -> None:
        """Build one more piece; send the response when it is complete."""
        if self._transport.is_closing():
            return pieces.close()
        piece = next(pieces, None)
        if piece is not None:
            made += piece
            loop = self._observation.node.loop
            loop.call_soon(lambda: self._go_on(status, kind, pieces, made, is_head=is_head))
            return
        body = ("\n".join(made) + "\n").encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if is_head else body))
        self._transport.close()
