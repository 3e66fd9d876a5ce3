"""A short form of `make world PROFILE=ten-minutes`, and seeds that run in several processes."""

from __future__ import annotations

import subprocess
import sys

from tests.world.ten_minutes import Counts, TenMinutesHistory


def test_the_faults_go_on_until_there_were_enough() -> None:
    enough = Counts(acknowledged=50, faults=8, kinds=7, leader_changes=1, quorum_elections=1)
    history = TenMinutesHistory(1, enough)
    history.faults_ms = 1_000
    history.run()
    assert all(had >= least for had, least in zip(history.counts, enough, strict=True)), history.counts


def test_seeds_have_the_same_histories_in_several_processes() -> None:
    command = [sys.executable, "-m", "tests.world", "--profile", "commits", "--seeds", "2", "--once"]
    one, two = (
        subprocess.run([*command, "--jobs", jobs], capture_output=True, text=True, check=True).stdout.splitlines()
        for jobs in ("1", "2")
    )
    assert len(one) == 3
    assert one[:2] == two[:2]
