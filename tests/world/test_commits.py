"""A group's coordinator dies right after it has confirmed a commit; the commit stays."""

from __future__ import annotations

from tests.world.commits import run_commits


def test_no_confirmed_commit_goes_with_its_coordinator() -> None:
    history = run_commits(1)
    assert history.faults["kill"] > 4
    assert history.commits.committed
