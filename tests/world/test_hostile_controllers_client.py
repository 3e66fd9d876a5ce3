"""A client that floods the controllers' listeners with connections and bytes, beside a quorum that keeps electing."""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.broker.metadata_node import MetadataNode
from ottla.net.inbound import PENDING_REPLIES_MAX, UNSENT_BYTES_MAX
from ottla.sim.host import Host
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from ottla.wire.api import ApiKey
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader, request_header_version
from tests.world.cluster import combined

PER_ADDRESS = 8
REQUEST_BYTES = 50_000
#: What a parked fetch, a vote and the like of one voter keep open at another: far fewer than a flood.
OF_VOTERS = 12
_TICK_SECONDS = 0.1


def _request() -> bytes:
    key, version = ApiKey.DESCRIBE_CLUSTER, 1
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="flood")
    frame = encode(header, request_header_version(key, version)) + encode(
        DescribeClusterRequest(endpoint_type=2), version
    )
    return len(frame).to_bytes(4, "big") + frame


class Flood:
    """Opens connections without end and writes to all of them; reads nothing."""

    def __init__(self, host: Host, targets: list[str], rng: Random) -> None:
        self.host = host
        self.targets = [(name, int(port)) for name, _, port in (each.rpartition(":") for each in targets)]
        self.rng = rng
        self.pieces = [
            # Requests that are answered, and whose answers are not read.
            _request() * 200,
            # Frames of which the end never comes, of an allowed length and of others.
            REQUEST_BYTES.to_bytes(4, "big") + b"\x00\x12" * 500,
            (1 << 30).to_bytes(4, "big") + b"x" * 100,
            b"\xff" * 64,
            b"GET / HTTP/1.1\r\n\r\n",
        ]
        self.open: list[Any] = []
        self.opened = self.refused = 0

    def tick(self) -> None:
        assert self.host.loop is not None
        for target in self.targets:
            for _ in range(3):
                sock = self.host.socket()
                sock.connect_ex(target)
                self.open.append(sock)
                self.opened += 1
        for sock in list(self.open):
            try:
                sock.send(self.rng.choice(self.pieces))
            except BlockingIOError:
                pass
            except BrokenPipeError:
                # It is not connected yet.
                continue
            except (ConnectionResetError, ConnectionRefusedError):
                self.refused += 1
            else:
                if not sock.eof:
                    continue
                self.refused += 1
            if sock.eof or sock.error:
                self.open.remove(sock)
                sock.close()
        self.host.loop.call_later(_TICK_SECONDS, self.tick)


def _check_bounds(node: MetadataNode, flood: Host) -> int:
    """Returns how many connections the flood has at this controller."""
    [listener] = node.controller_listeners
    connections = list(listener.connections)
    of_flood = [each for each in connections if each.peer[0] == flood.address]
    assert len(of_flood) <= PER_ADDRESS
    assert len(connections) - len(of_flood) <= OF_VOTERS
    for each in of_flood:
        # One request more than the bound may be answered, not a stream of them.
        assert each._unsent_bytes <= UNSENT_BYTES_MAX + REQUEST_BYTES
        assert len(each._slots) <= PENDING_REPLIES_MAX + 1
    assert listener.memory.lent_bytes <= PER_ADDRESS * (1 << 21)
    return len(of_flood)


def test_a_flood_at_every_controller_s_listener_stops_no_election() -> None:
    world = World(5)
    limits = {
        "max.connections.per.ip": str(PER_ADDRESS),
        "listener.name.controller.max.connections": "40",
        "socket.request.max.bytes": str(REQUEST_BYTES),
    }
    with Clients(world):
        nodes = combined(world, 3, limits)
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=20_000)
        flood = Flood(world.host("flood"), [each.controller_address for each in nodes], Random(7))
        flood.host.boot().call_soon(flood.tick)
        most = 0
        epochs = []
        for _ in range(2):
            for _ in range(8):
                world.run_for(100)
                most = max(
                    most,
                    *(_check_bounds(each.running, flood.host) for each in nodes if each.running is not None),
                )
            leader = _leader(nodes)
            assert leader.running is not None
            epochs.append(leader.running.quorum.leader_epoch)
            leader.kill()
            assert world.run_until(lambda: any(each.decides for each in nodes), limit_ms=10_000)
            leader.start()
            assert world.run_until(lambda back=leader: back.is_ready, limit_ms=30_000)  # type: ignore[misc]
    assert epochs == sorted(set(epochs))
    # It got as far as it may, and was turned away many times.
    assert most == PER_ADDRESS
    assert flood.refused > 50
    assert not any(each.failure for each in nodes)


def _leader(nodes: list[NodeHost]) -> NodeHost:
    [leader] = [each for each in nodes if each.decides]
    return leader
