"""A leader dies right after a consumer was served records; those records stay where they were."""

from __future__ import annotations

from tests.world.reads import run_reads


def test_no_served_record_goes_with_its_leader() -> None:
    history = run_reads(3)
    assert history.faults["kill"] > 4
    assert any(history.ledgers[0].seen["consumer"])
