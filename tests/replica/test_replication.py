"""Replication by the pure machines, played by seeds."""

from __future__ import annotations

import pytest

from tests.replica.model import Model

_STEPS = 1_500


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_what_is_committed_is_never_lost_and_everything_is_level_in_the_end(first: int) -> None:
    elections = expansions = truncations = committed = 0
    for seed in range(first, first + 10):
        model = Model(seed)
        for _ in range(_STEPS):
            model.step()
        model.settle()
        elections += model.elections
        expansions += model.expansions
        truncations += model.truncations
        committed += len(model.committed)
    assert min(elections, expansions, truncations) > 5 and committed > 500
