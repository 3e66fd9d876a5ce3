"""A short form of `make world PROFILE=ten-minutes`, and seeds that run in several processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from ottla.sim.node import NodeHost
from tests.world.dealt import dealt
from tests.world.ten_minutes import Counts, TenMinutesHistory


def test_the_faults_go_on_until_there_were_enough() -> None:
    enough = Counts(acknowledged=50, faults=8, kinds=7, leader_changes=1, quorum_elections=1)
    history = TenMinutesHistory(1, enough)
    history.faults_ms = 1_000
    history.run()
    assert all(had >= least for had, least in zip(history.counts, enough, strict=True)), history.counts


class _Deaths(TenMinutesHistory):
    """A history in which often no node is left to kill."""

    @property
    def kinds(self) -> list[Callable[[NodeHost], None]]:
        return [self._kill, self._kill_controller, self._pause]


def test_a_fault_waits_until_there_is_something_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    history = _Deaths(1, Counts(acknowledged=0, faults=8, kinds=3, leader_changes=0, quorum_elections=0))
    # One of three voters is never elected.
    decides = property(lambda node: node.running is not None and history.world.now_us % 60_000_000 > 30_000_000)
    monkeypatch.setattr(NodeHost, "decides", decides)
    history.world.after(20_000_000, history.nodes[0].start)
    history._fail_for(1)
    assert len(history.faults) == 3
    assert max(history.faults.values()) - min(history.faults.values()) <= 1, history.faults


def test_a_crash_that_follows_from_another_fault_is_no_kind_of_its_own() -> None:
    history = TenMinutesHistory(1)
    history.faults = {"kill": 2, "crash in recovery": 1}
    assert history.kinds_had == 1


def test_seeds_have_the_same_histories_in_several_processes() -> None:
    command = [sys.executable, "-m", "tests.world", "--profile", "commits", "--seeds", "2", "--once"]
    one, two = (
        subprocess.run([*command, "--jobs", jobs], capture_output=True, text=True, check=True).stdout.splitlines()
        for jobs in ("1", "2")
    )
    assert len(one) == 3
    assert one[:2] == two[:2]


def test_a_seed_deals_settings_that_nodes_take() -> None:
    hands = [dealt(seed) for seed in range(200)]
    assert hands == [dealt(seed) for seed in range(200)]
    values = {name: {hand[name] for hand in hands if name in hand} for name in hands[0].keys() | hands[1].keys()}
    assert all(len(found) > 1 for found in values.values()), "a setting has one value in all histories"
    for hand in hands:
        ServerSettings.parse(single_node("data", "127.0.0.1", 0, 0) | hand)
