"""A leader that does not answer: what a follower's fetcher logs of it, and how it goes on with the next address."""

from __future__ import annotations

import pytest

from ottla.net.peer import Disconnected
from tests.broker.test_fetcher import Leader, part


def _silent(leader: Leader, why: str) -> None:
    leader.tell(Disconnected(why, was_sent=True))
    leader.pass_ms(1100)


def test_a_leader_that_does_not_answer_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    """It may be away for hours, and is asked again after each backoff."""
    leader = Leader()
    caplog.clear()
    logged = []
    for why in ("refused", "refused", "no route", "no route", "refused"):
        _silent(leader, why)
        logged.append(sum("does not answer a fetch at leader:9092" in line for line in caplog.messages))
    assert logged == [1, 1, 2, 2, 3]
    leader.answer(part(0), part(1))
    _silent(leader, "refused")
    assert sum("does not answer a fetch" in line for line in caplog.messages) == 4, "it has answered in between"
