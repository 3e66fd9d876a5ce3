"""Voters whose disks take no more: who cannot save a vote gives none, and ends."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.sim.disk import SimDisk
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


def test_a_controller_that_cannot_write_its_first_records_lets_another_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(4)
    nodes = combined(world, 3)
    full: list[SimDisk] = []
    submit = RaftDriver.submit

    def fill_then_submit(driver: RaftDriver, records: Any) -> None:
        """The disk is full from the record of the new leader on."""
        if not full and old.host.loop is None:
            [node] = [each for each in nodes if each.disk is driver.files._disk]
            node.disk.fill(0)
            full.append(node.disk)
        submit(driver, records)

    with Clients(world):
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=_LIMIT_MS)
        [old] = [each for each in nodes if each.decides]
        monkeypatch.setattr(RaftDriver, "submit", fill_then_submit)
        # Whoever leads next has something to write.
        monkeypatch.setattr(MetadataLog, "is_controller_unregistered", True)
        old.kill()
        assert world.run_until(lambda: any(each.failure for each in nodes), limit_ms=_LIMIT_MS)
        [failed] = [each for each in nodes if each.failure]
        assert failed.disk in full and "first records of a controller" in str(failed.failure)
        old.start()
        others = [each for each in nodes if each is not failed]
        assert world.run_until(lambda: any(each.decides for each in others), limit_ms=_LIMIT_MS)


def test_a_leader_whose_disk_is_full_shows_that_it_lives_when_there_is_room_again() -> None:
    """Its NoOp records have no room."""
    world = World(3)
    nodes = combined(world, 3, {"metadata.max.idle.interval.ms": "500"})
    with Clients(world):
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=_LIMIT_MS)
        [leader] = [each for each in nodes if each.decides]
        leader.disk.fill(0)
        world.run_for(_LIMIT_MS)
        assert [each.failure for each in nodes] == [None] * 3
        assert leader.decides
        leader.disk.fill(None)
        assert leader.node is not None
        end_offset = leader.node.quorum.log.end_offset
        world.run_for(_LIMIT_MS)
        assert leader.node.quorum.log.end_offset > end_offset
