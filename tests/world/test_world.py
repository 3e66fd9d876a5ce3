"""The simulated world: its order, its clocks, its network, and short histories on it."""

from __future__ import annotations

import errno

import pytest

from ottla.client import AsyncAdmin
from ottla.sim.host import Host
from ottla.sim.network import WINDOW_BYTES
from ottla.sim.node import Clients, NodeHost
from ottla.sim.socket import SimSocket
from ottla.sim.world import World
from tests.world.history import run_history


@pytest.mark.parametrize("seed", [1, 2])
def test_a_history_keeps_every_promise_and_is_the_same_when_it_is_run_again(seed: int) -> None:
    history, again = run_history(seed), run_history(seed)
    assert history.acknowledged > 500
    assert sum(history.faults.values()) > 10
    assert history.world.trace == again.world.trace


def test_another_seed_is_another_history() -> None:
    def trace(seed: int) -> str:
        world = World(seed)
        with Clients(world):
            node = NodeHost(world, "node")
            node.start()
            client = world.host("client")
            client.boot()
            client.run(_create(node.bootstrap_servers))
        return world.trace

    assert trace(1) == trace(1) != trace(2)


async def _create(servers: str) -> None:
    async with AsyncAdmin(servers) as admin:
        await admin.create_topic("topic")


def _connected(world: World) -> tuple[SimSocket, SimSocket, Host, Host]:
    one, two = world.host("one"), world.host("two")
    one.boot(), two.boot()
    listening, near = two.socket(), one.socket()
    listening.bind((two.address, 1))
    listening.listen(1)
    assert near.connect_ex((two.address, 1)) == errno.EINPROGRESS
    world.run_for(10)
    far, _ = listening.accept()
    assert near.writable and not near.getsockopt()
    return near, far, one, two


def _received(sock: SimSocket) -> bytes:
    buffer = bytearray(1 << 20)
    return bytes(buffer[: sock.recv_into(buffer)])


def test_bytes_arrive_in_their_order() -> None:
    world = World(1)
    near, far, _, _ = _connected(world)
    for index in range(50):
        near.send(b"%d " % index)
    world.run_for(10)
    assert _received(far).split() == [b"%d" % index for index in range(50)]


def test_a_cut_holds_one_way_until_it_heals() -> None:
    world = World(1)
    near, far, one, two = _connected(world)
    world.network.cut(one, two)
    near.send(b"there")
    far.send(b"back")
    world.run_for(60_000)
    with pytest.raises(BlockingIOError):
        _received(far)
    assert _received(near) == b"back"
    world.network.heal(one, two)
    world.run_for(5_000)
    assert _received(far) == b"there"


def test_a_reader_that_does_not_read_stops_its_writer() -> None:
    world = World(1)
    near, far, _, _ = _connected(world)
    assert near.send(bytes(WINDOW_BYTES + 1)) == WINDOW_BYTES
    with pytest.raises(BlockingIOError):
        near.send(b"x")
    world.run_for(10)
    _received(far)
    world.run_for(10)
    assert near.writable


def test_a_killed_process_resets_its_peers_and_a_lost_machine_says_nothing() -> None:
    world = World(1)
    near, _, _, two = _connected(world)
    two.kill()
    world.run_for(10)
    with pytest.raises(ConnectionResetError):
        _received(near)

    world = World(1)
    near, _, _, two = _connected(world)
    two.power_off()
    near.send(b"x")
    world.run_for(60_000)
    with pytest.raises(BlockingIOError):
        _received(near)
    two.boot()
    near.send(b"y")
    world.run_for(10)
    with pytest.raises(ConnectionResetError):
        _received(near)


def test_a_port_without_a_listener_refuses() -> None:
    world = World(1)
    one, two = world.host("one"), world.host("two")
    one.boot(), two.boot()
    sock = one.socket()
    sock.connect_ex((two.address, 1))
    world.run_for(10)
    assert sock.getsockopt() == errno.ECONNREFUSED


def test_clocks_drift_and_only_the_wall_steps() -> None:
    world = World(1)
    host = world.host("host")
    host.clock.drift_ppm = 100
    before, wall = host.clock.monotonic_ms(), host.clock.now_ms()
    host.clock.step(-5_000)
    world.run_for(1_000_000)
    assert host.clock.monotonic_ms() - before == pytest.approx(1_000_100, abs=1)
    assert host.clock.now_ms() - wall == pytest.approx(995_100, abs=1)


def test_a_paused_host_does_nothing_and_catches_up() -> None:
    world = World(1)
    host = world.host("host")
    loop = host.boot()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(loop.time())
        loop.call_later(0.1, tick)

    loop.call_later(0.1, tick)
    host.pause()
    world.run_for(1_000)
    assert not ticks
    host.resume()
    world.run_for(1_000)
    assert 8 <= len(ticks) <= 11


def test_a_task_that_fails_unheard_ends_the_run() -> None:
    world = World(1)
    host = world.host("host")
    loop = host.boot()

    def wrong() -> None:
        raise ValueError("a bug")

    loop.call_soon(wrong)
    with pytest.raises(ValueError, match="a bug"):
        world.run_for(10)
