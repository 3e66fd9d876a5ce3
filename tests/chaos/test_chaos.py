"""A short chaos run against our nodes; `make chaos` is the long form, also against Apache Kafka."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.run import chaos

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_no_promise_is_broken_by_kills_and_cuts(tmp_path: Path) -> None:
    result = asyncio.run(chaos("ottla", tmp_path, 1, 20, ["kill9", "pause", "cut", "oneway", "stop"], 3))
    assert result.acknowledged > 20
    assert sum(result.faults.values()) >= 2
    assert not result.ended, "a node ended by itself"
