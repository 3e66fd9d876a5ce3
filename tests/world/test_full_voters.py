"""Voters whose disks take no more: who cannot save a vote gives none, and ends."""

from __future__ import annotations

from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import combined

_LIMIT_MS = 30_000


def test_a_voter_that_cannot_save_its_vote_ends_and_votes_when_there_is_room_again() -> None:
    world = World(3)
    nodes = combined(world, 3)

    def leaders() -> list[NodeHost]:
        return [each for each in nodes if each.host.loop is not None and each.decides]

    with Clients(world):
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=_LIMIT_MS)
        [leader] = leaders()
        others = [each for each in nodes if each is not leader]
        for each in others:
            each.disk.fill(0)
        leader.kill()
        assert world.run_until(lambda: any(each.failure for each in others), limit_ms=_LIMIT_MS)
        world.run_for(_LIMIT_MS)
        assert leaders() == []
        for each in others:
            assert each.failure is None or "the simulated disk is full" in each.failure
            each.disk.fill(None)
            each.kill()
            each.start()
        assert world.run_until(lambda: len(leaders()) == 1, limit_ms=_LIMIT_MS)
