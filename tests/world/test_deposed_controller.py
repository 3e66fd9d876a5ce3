"""A controller that is deposed before it notices: what it decides then is not told as done."""

from __future__ import annotations

from typing import Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.sim.node import Clients
from ottla.sim.world import World
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from tests.world.cluster import combined

#: Longer than the 1.5 fetch timeouts after which a leader that heard nothing resigns.
_HELD_UP_MS = 5_000


def _creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def test_a_request_that_a_deposed_controller_takes_before_its_timers_is_not_told_as_done() -> None:
    """A process that was stopped handles what waits at its sockets first, and then its timers."""
    world, told = World(1), list[Any]()
    with Clients(world):
        nodes = combined(world, 3)
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=20_000)
        world.run_for(2_000)
        [leader] = [each for each in nodes if each.decides]
        loop, running = leader.host.loop, leader.running
        assert loop is not None
        assert running is not None
        loop.call_soon(loop.busy, _HELD_UP_MS)
        loop.call_soon(lambda: running.quorum.ask(_creation("lost"), told.append))
        world.run_for(_HELD_UP_MS + 5_000)
        [new] = [each for each in nodes if each.decides]
        assert new is not leader
        loop, running = new.host.loop, new.running
        assert loop is not None
        assert running is not None
        # The log of the new controller passes the offsets at which the deposed one wrote.
        for name in ("a", "b", "c"):
            loop.call_soon(running.quorum.ask, _creation(name), lambda _: None)
        world.run_for(5_000)
        assert running.quorum.image.topics.keys() >= {"a", "b", "c"}
        assert "lost" not in running.quorum.image.topics
        [answer] = told
        assert isinstance(answer, KafkaError)
        assert answer.code == ErrorCode.NOT_CONTROLLER
