"""Two log directories under everything that changes what lies in them, killed by a seed."""

import pytest

from ottla.kernel.error import KafkaError
from tests.sim.wide import run_wide_history

# Seed 5 with the power: a sync that failed took a share coordinator away while it answered.
_SEEDS = [0, 1, 5, 1011]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "without power"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_trimming_growing_and_moving_lose_nothing(seed: int, *, power: bool, caplog: pytest.LogCaptureFixture) -> None:
    run_wide_history(seed, power=power)
    # What handlers raise unasked is logged and answered with UNKNOWN_SERVER_ERROR.
    raised = [record.exc_info[0] for record in caplog.records if record.exc_info and record.exc_info[0]]
    assert [each for each in raised if not issubclass(each, OSError | KafkaError)] == []
