"""How fast a quorum has another leader, and what leaves its leader in office (docs/decisions/0653)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isnan

import pytest

from ottla.broker.observe.raft_latency import RaftLatency
from ottla.client import AsyncAdmin
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import combined, servers_of

#: controller.quorum.fetch.timeout.ms, and how much of it may be over at the last fetch (a fetch waits for 500 ms).
_FETCH_TIMEOUT_MS = 2_000
_SINCE_FETCH_MS = 600


@contextmanager
def _running(seed: int, voters: int) -> Iterator[tuple[World, list[NodeHost]]]:
    """A quorum that has been at rest for a while."""
    world = World(seed)
    with Clients(world):
        nodes = combined(world, voters)
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=20_000)
        world.run_for(3_000 + world.rng.randrange(1_000))
        yield world, nodes


def _leader(nodes: list[NodeHost]) -> NodeHost:
    [leader] = [each for each in nodes if each.decides and each.host.loop is not None and not each.host.paused]
    return leader


def _epoch(node: NodeHost) -> int:
    assert node.running is not None
    return node.running.quorum.raft.quorum.epoch


def _elected_after_ms(world: World, nodes: list[NodeHost], gone: NodeHost) -> float:
    """How long it takes until another controller has committed the first record of its epoch and decides."""
    began_us = world.now_us
    others = [each for each in nodes if each is not gone]
    assert world.run_until(lambda: any(each.decides for each in others), limit_ms=20_000)
    new = next(each for each in others if each.decides)

    def commits() -> bool:
        assert new.running is not None
        role = new.running.quorum.raft.quorum.role
        return bool(getattr(role, "high_watermark", -1) > getattr(role, "epoch_start_offset", 1 << 62))

    assert world.run_until(commits, limit_ms=20_000)
    return (world.now_us - began_us) / 1000


@pytest.mark.parametrize(("seed", "voters"), [(0, 3), (1, 3), (2, 3), (3, 5)])
def test_a_killed_leader_is_followed_in_a_tenth_of_the_fetch_timeout(seed: int, voters: int) -> None:
    with _running(seed, voters) as (world, nodes):
        leader = _leader(nodes)
        epoch = _epoch(leader)
        others = [(each, RaftLatency()) for each in nodes if each is not leader]
        for node, latency in others:
            assert node.running is not None
            latency.watch(node.running.quorum, node.host.clock)
        leader.kill()
        took_ms = _elected_after_ms(world, nodes, leader)
        assert took_ms < _FETCH_TIMEOUT_MS / 10
        for node, latency in others:
            average, largest = latency.elections.measured(node.host.clock.monotonic_ms())
            # A voter that was never prospective has seen no election.
            assert isnan(average) or 0 <= average <= largest < took_ms
            assert not (node.decides and isnan(average))
            assert isnan(latency.commits.measured(node.host.clock.monotonic_ms())[0]) is not node.decides
        assert _epoch(_leader([each for each in nodes if each is not leader])) == epoch + 1


def test_leaders_that_die_one_after_the_other_are_each_followed_at_once() -> None:
    with _running(5, 3) as (world, nodes):
        client = world.host("client")
        client.boot()

        async def create(name: str) -> None:
            async with AsyncAdmin(servers_of(nodes)) as admin:
                await admin.create_topic(name, partitions=1)

        first = _epoch(_leader(nodes))
        for number in range(3):
            leader = _leader(nodes)
            leader.kill()
            assert _elected_after_ms(world, nodes, leader) < _FETCH_TIMEOUT_MS / 10
            leader.start()
            assert world.run_until(lambda dead=leader: dead.is_ready, limit_ms=60_000)  # type: ignore[misc]
            client.run(create(f"topic-{number}"))
        assert _epoch(_leader(nodes)) == first + 3


@pytest.mark.parametrize("gone", [NodeHost.power_off, lambda node: node.host.pause()], ids=["power", "paused"])
def test_a_leader_that_is_only_silent_has_the_fetch_timeout(gone: Callable[[NodeHost], None]) -> None:
    with _running(6, 3) as (world, nodes):
        leader = _leader(nodes)
        gone(leader)
        took_ms = _elected_after_ms(world, nodes, leader)
        assert _FETCH_TIMEOUT_MS - _SINCE_FETCH_MS < took_ms < 2 * _FETCH_TIMEOUT_MS


@pytest.mark.parametrize("ways", ["there", "back", "both"])
def test_a_voter_that_is_cut_off_from_the_leader_disturbs_it_neither_then_nor_afterwards(ways: str) -> None:
    with _running(7, 3) as (world, nodes):
        leader = _leader(nodes)
        epoch = _epoch(leader)
        voter = next(each for each in nodes if each is not leader)
        for _ in range(2):
            if ways != "back":
                world.network.cut(voter.host, leader.host)
            if ways != "there":
                world.network.cut(leader.host, voter.host)
            world.run_for(7_000)
            world.network.heal_all()
            world.run_for(5_000)
            assert leader.decides and {_epoch(each) for each in nodes} == {epoch}


def test_a_connection_that_breaks_while_the_leader_lives_is_no_reason_to_vote() -> None:
    with _running(8, 3) as (world, nodes):
        leader = _leader(nodes)
        epoch = _epoch(leader)
        for _ in range(8):
            for node in nodes:
                for each in list(node.host.sockets.values()):
                    if each.peer is not None:
                        each._was_reset()
            # Long enough for a fetch, which waits for up to 500 ms: without one an election is due.
            world.run_for(800 + world.rng.randrange(400))
        assert leader.decides and {_epoch(each) for each in nodes} == {epoch}
