"""A small HTTP server in the driver's process: metrics for Prometheus, the state, and queries of stores.

    GET /metrics                                Prometheus' text format
    GET /state                                  the state, and each task's progress and lag
    GET /stores                                 the names of the queryable stores
    GET /stores/NAME?limit=100                  entries
    GET /stores/NAME/range?from=A&to=B          entries of a key-value store
    GET /stores/NAME/key/KEY                    the value of a key (404 if there is none)
    GET /stores/NAME/fetch/KEY?from=MS&to=MS    windows or sessions of a key

Query responses are JSON with `staleness`. With `max_behind=N` the response is 503 while more than N input records wait.
At most `REQUESTS_MAX` requests are served at once; others wait.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ottla.flow.record import TIME_MAX, Window, Windowed
from ottla.flow.serde import Serde
from ottla.kernel.error import OttlaError
from ottla.kernel.exposition import CONTENT_TYPE
from ottla.spark.streams.query import NotReadable, StoreView

log = logging.getLogger(__name__)
REQUESTS_MAX = 16
PATIENCE_S = 10
LIMIT, LIMIT_MAX = 100, 10_000
DEFAULT_HOST = "127.0.0.1"


class HttpSources:
    """The functions that the server gets its responses from."""

    def __init__(
        self,
        metrics: Callable[[], str],
        state: Callable[[], dict[str, Any]],
        stores: Callable[[], list[str]],
        store: Callable[[str], StoreView],
    ) -> None:
        self.metrics = metrics
        self.state = state
        self.stores = stores
        self.store = store


class HttpServer:
    """The HTTP server. It listens until `close`. `where`: a port, or HOST:PORT (port 0: any); `address`: HOST:PORT.

    OttlaError if `where` is invalid or the address is not available.
    """

    def __init__(self, where: int | str, http_sources: HttpSources) -> None:
        host, port = parse(where)
        turns = threading.BoundedSemaphore(REQUESTS_MAX)

        class Handler(_Handler):
            sources = http_sources

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def process_request(self, request: Any, client_address: Any) -> None:
                if turns.acquire(timeout=PATIENCE_S):
                    super().process_request(request, client_address)
                else:
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                # A client that sends its request byte by byte must not keep its turn.
                deadline = threading.Timer(PATIENCE_S, _end_reading, (request,))
                deadline.start()
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    deadline.cancel()
                    turns.release()

            def handle_error(self, request: Any, client_address: Any) -> None:
                log.debug("the HTTP client at %s is gone: %s", client_address, sys.exception())

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise OttlaError(f"http={where}: cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="ottla-streams-http")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _end_reading(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)


def parse(where: int | str) -> tuple[str, int]:
    """Parse a port or HOST:PORT into host and port. OttlaError if `where` is neither."""
    host, _, port = str(where).rpartition(":")
    if isinstance(where, bool) or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise OttlaError(f"invalid value for http: {where} (expected a port, or HOST:PORT)")
    return host or DEFAULT_HOST, int(port)


class _Handler(BaseHTTPRequestHandler):
    sources: HttpSources
    timeout = PATIENCE_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        kind = "application/json"
        try:
            parts = urlsplit(self.path)
            path = [unquote(part) for part in parts.path.split("/")[1:]]
            status, body = self._answer(path, {name: values[-1] for name, values in parse_qs(parts.query).items()})
            kind, text = (CONTENT_TYPE, body) if isinstance(body, str) else (kind, _json(body))
        except NotReadable as error:
            status, text = 503, _json({"error": str(error)})
        except (OttlaError, ValueError) as error:
            status, text = 400, _json({"error": str(error)})
        except Exception as error:
            status, text = 500, _json({"error": f"{type(error).__name__}: {error}"})
        self._send(status, kind, text)

    def _answer(self, path: list[str], given: dict[str, str]) -> tuple[int, Any]:
        match path:
            case ["metrics"]:
                return 200, self.sources.metrics()
            case ["" | "state"]:
                return 200, self.sources.state()
            case ["stores"]:
                return 200, self.sources.stores()
            case ["stores", name]:
                store = self._store(name, given)
                return 200, _entries(store, store.all(), given)
            case ["stores", name, "range"]:
                store = self._store(name, given)
                low, high = (_key(store.key_serde, given[end]) if end in given else None for end in ("from", "to"))
                return 200, _entries(store, store.range(low, high), given)
            case ["stores", name, "key", key]:
                store = self._store(name, given)
                value = store.get(_key(store.key_serde, key))
                body = {"key": key, "value": value, "staleness": _staleness(store)}
                return 404 if value is None else 200, body
            case ["stores", name, "fetch", key]:
                store = self._store(name, given)
                earliest, latest = int(given.get("from", 0)), int(given.get("to", TIME_MAX))
                return 200, _entries(store, store.fetch(_key(store.key_serde, key), earliest, latest), given)
            case _:
                return 404, {"error": f"unknown path: {self.path} (expected /stores, /state or /metrics)"}

    def _store(self, name: str, given: dict[str, str]) -> StoreView:
        store = self.sources.store(name)
        if "max_behind" in given:
            store.max_behind = int(given["max_behind"])
        return store

    def _send(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing for each request."""


def _json(body: Any) -> str:
    return json.dumps(body, default=_plain) + "\n"


def _entries(store: StoreView, results: Iterable[tuple[Any, Any]], given: dict[str, str]) -> dict[str, Any]:
    limit = int(given.get("limit", LIMIT))
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(f"invalid limit: {limit} (expected 1 to {LIMIT_MAX})")
    taken = list(itertools.islice(results, limit + 1))
    entries = [{"key": _shape(key), "value": value} for key, value in taken[:limit]]
    return {"entries": entries, "more": len(taken) > limit, "staleness": _staleness(store)}


def _staleness(store: StoreView) -> dict[str, int] | None:
    return None if store.staleness is None else store.staleness._asdict()


def _key(serde: Serde, text: str) -> Any:
    """Convert text from the path to a key, by the serde's name. ValueError if it does not convert."""
    match serde.name:
        case "long" | "integer" | "short":
            return int(text)
        case "double" | "float":
            return float(text)
        case "bytes":
            return text.encode()
        case "json":
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return text
        case _:
            return text


def _shape(key: Any) -> Any:
    """A key for JSON: windows become objects with `start` and `end`."""
    if isinstance(key, Windowed):
        return {"key": key.key, **key.window._asdict()}
    return key._asdict() if isinstance(key, Window) else key


def _plain(value: Any) -> Any:
    """A replacement for values that JSON cannot represent."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return getattr(value, "__dict__", None) or str(value)
