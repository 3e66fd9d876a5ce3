"""A client that sends exactly what a test says: one request, one response, over a real socket."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.wire.api import API, ApiKey
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version


class WireClient:
    """One connection. The test that makes it closes it."""

    def __init__(self, bootstrap_servers: str, client_id: str | None = "test") -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=20)
        self.client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, request: Any, version: int) -> None:
        """Frame and send a request."""
        self.send_raw(self.framed(request, version))

    def framed(self, request: Any, version: int) -> bytes:
        """The next request's frame with its length."""
        key = _key_of(request)
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self.client_id,
        )
        body = encode(header, request_header_version(key, version)) + encode(request, version)
        return len(body).to_bytes(4, "big") + body

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def receive(self, key: int, version: int) -> Any:
        """The next response, which must be of this API and version and whole to its last byte."""
        frame = self.receive_frame()
        header, position = decode(ResponseHeader, response_header_version(key, version), frame)
        response, end = decode(API[ApiKey(key)].response, version, frame, position)
        assert end == len(frame), "the response has bytes behind its end"
        self.last_correlation_id = header.correlation_id
        return response

    def receive_frame(self) -> bytes:
        """The next frame without its length. ConnectionError when the node closed the connection."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise ConnectionError("the node closed the connection")
            data += piece
        return bytes(data)

    def ask(self, request: Any, version: int) -> Any:
        """Send and wait for the response."""
        self.send(request, version)
        return self.receive(_key_of(request), version)


GROUP, TRANSACTION, SHARE = 0, 1, 2
_PATIENCE_S = 45.0


def make_coordinators(client: Any, *key_types: int) -> None:
    """Ask for coordinators as a client does first: that makes the topics which hold them. `client` has an `ask`."""
    for key_type in key_types or (GROUP, TRANSACTION):
        key = "g:AAAAAAAAAAAAAAAAAAAAAA:0" if key_type == SHARE else "g"
        deadline = time.monotonic() + _PATIENCE_S
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while code == ErrorCode.COORDINATOR_NOT_AVAILABLE and time.monotonic() < deadline:
            # Apache Kafka makes the topic after it has answered.
            answer = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
            code = answer.coordinators[0].error_code
        assert code == 0, f"no coordinator of kind {key_type}: {code}"


def _key_of(request: Any) -> ApiKey:
    name = type(request).__name__.removesuffix("Request")
    return next(key for key in ApiKey if API[key].name == name)
