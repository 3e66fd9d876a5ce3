"""Replicated partitions on real nodes under faults, by seeds; and that two runs of a seed are one history."""

from __future__ import annotations

import pytest

from ottla.sim.checker import Broken, CommittedRecords
from tests.world.replicas import run_replicas


@pytest.mark.parametrize("first", [1, 4, 7])
def test_nothing_acknowledged_is_lost_and_the_replicas_are_level_in_the_end(first: int) -> None:
    acknowledged = elections = expansions = 0
    for seed in range(first, first + 3):
        history = run_replicas(seed)
        acknowledged += history.acknowledged
        elections += history.script.elections
        expansions += history.script.expansions
        assert sum(history.faults.values()) >= 20, f"seed {seed}: {history.faults}"
    assert acknowledged > 600 and elections > 10 and expansions > 10


def test_one_seed_is_one_history() -> None:
    assert run_replicas(14).world.trace == run_replicas(14).world.trace


def test_the_checker_sees_two_values_at_one_offset() -> None:
    committed = CommittedRecords()
    committed.add_committed("one", 0, [(0, b"a"), (1, b"b")])
    committed.add_committed("two", 0, [(0, b"a")])
    with pytest.raises(Broken, match="two has committed b'c', and one b'b'"):
        committed.add_committed("two", 0, [(1, b"c")])


def test_the_checker_sees_an_in_sync_replica_that_lacks_what_is_committed() -> None:
    committed = CommittedRecords()
    committed.add_committed("one", 0, [(0, b"a"), (1, b"b")])
    committed.check_in_sync("two", 0, [(0, b"a"), (1, b"b"), (2, b"c")], 3)
    with pytest.raises(Broken, match="two is in sync and has None"):
        committed.check_in_sync("two", 0, [(0, b"a")], 2)
