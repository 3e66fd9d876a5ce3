"""A node that is killed under load keeps every promise that it made."""

from pathlib import Path

import pytest

from tests.crash.kill import Torture

#: Enough to see most of the ways to end, few enough for every run of the tests; `make crash KILLS=n` is the long form.
_KILLS = 10


@pytest.mark.timeout(300)
def test_what_was_promised_before_a_kill_holds_after_it(tmp_path: Path) -> None:
    torture = Torture(tmp_path, seed="20")
    try:
        report = torture.run(_KILLS)
    finally:
        torture.close()
    tally = report.tally
    assert report.kills >= _KILLS
    assert report.unexplained == 0
    # Every worker came to do its work.
    assert min(tally.acknowledged, tally.transactions, tally.served, tally.commits) > 0
