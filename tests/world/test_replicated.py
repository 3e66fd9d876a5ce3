"""Three replicas of everything on three brokers under one controller, with unmodified clients: by seeds."""

from __future__ import annotations

import pytest

from tests.world.replicated import run_replicated


@pytest.mark.parametrize("seed", range(6))
def test_a_history_of_replicated_topics_keeps_every_promise(seed: int) -> None:
    history = run_replicated(seed)
    assert history.acknowledged > 200
    assert sum(history.faults.values()) > 10
    assert max(history.committed.ends.values()) > 100


def test_a_history_is_the_same_when_it_is_run_again() -> None:
    assert run_replicated(4).world.trace == run_replicated(4).world.trace
