"""Every record once over three brokers that fail: a short form of `make world PROFILE=eos`."""

from __future__ import annotations

from tests.world.eos import run_eos


def test_a_history_moves_and_takes_every_record_once() -> None:
    history = run_eos(2, faults_ms=8_000)
    assert history.acknowledged > 50
    assert sum(history.faults.values()) > 2
    assert all(each.transactions > 5 for each in history.moves)
