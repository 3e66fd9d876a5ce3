"""Random requests to both controllers; OTTLA_CONTROLLER_SEEDS=100 plays more of them."""

import os

import pytest

from tests.interop.controller.fleet import Fleet
from tests.interop.controller.history import History

SEEDS = int(os.environ.get("OTTLA_CONTROLLER_SEEDS", "2"))
STEPS = 150


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_random_requests_come_to_the_same(fleet: Fleet, seed: int) -> None:
    History(fleet, seed).run(STEPS)
