"""Every record once while partitions move and topics come and go: a short form of `make world PROFILE=operated`."""

from __future__ import annotations

from tests.world.operated import run_operated


def test_a_history_of_an_operated_cluster_keeps_every_promise() -> None:
    history = run_operated(2, faults_ms=12_000)
    assert history.acknowledged > 50
    assert sum(history.faults.values()) > 3
    assert sum(history.lives) > 20
    assert history.done["move"] > 3
