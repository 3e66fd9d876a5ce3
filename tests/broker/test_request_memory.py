"""`queued.max.request.bytes` of a node: a request that is not complete holds up further ones, and nobody else."""

from __future__ import annotations

import socket

import pytest

import ottla
from ottla.kernel.error import OttlaError
from ottla.wire.api.metadata import MetadataRequest
from tests.abuse.served import frame
from tests.broker.wire_client import WireClient

_BYTES = 1 << 20
_SETTINGS = {"socket.request.max.bytes": str(_BYTES), "queued.max.request.bytes": str(_BYTES)}


def test_a_request_waits_until_another_is_complete_or_gone() -> None:
    with ottla.Node(settings=_SETTINGS) as node, WireClient(node.bootstrap_servers) as other:
        host, port = node.bootstrap_servers.split(":")
        request = frame(MetadataRequest(topics=[]), 9)
        with socket.create_connection((host, int(port))) as first, socket.create_connection((host, int(port))) as next_:
            first.sendall((_BYTES).to_bytes(4, "big") + b"x")
            _ask(other)
            next_.sendall(request[:10])
            _ask(other)
            next_.sendall(request[10:])
            _ask(other)
            next_.setblocking(False)
            with pytest.raises(BlockingIOError):
                next_.recv(1)
            first.close()
            next_.setblocking(True)
            next_.settimeout(20)
            assert next_.recv(4)


def _ask(client: WireClient) -> None:
    """Be answered twice: the node has read by then what came before."""
    for _ in range(2):
        client.ask(MetadataRequest(topics=[]), 9)


def test_a_limit_below_the_longest_request_is_refused() -> None:
    with pytest.raises(OttlaError, match=r"queued.max.request.bytes=1000 is less than socket.request.max.bytes"):
        ottla.Node(settings={"queued.max.request.bytes": "1000"}).start()
