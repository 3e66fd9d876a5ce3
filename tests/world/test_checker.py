"""The checker cries at each promise that is broken, and is silent when all are kept."""

from __future__ import annotations

import pytest

from ottla.log.segment.aborted import AbortedTransaction
from ottla.sim.checker import Broken, SentRecord, WorkloadLedger, check
from tests.world.replicas import check_compacted

_LOGS = {0: [(0, b"a"), (1, b"b"), (3, b"c")], 1: []}


def _ledger() -> WorkloadLedger:
    sent = [SentRecord("p", number, value, 0, offset) for number, (offset, value) in enumerate(_LOGS[0])]
    seen: list[tuple[int, int, bytes] | None] = [None, *((0, offset, value) for offset, value in _LOGS[0])]
    return WorkloadLedger("t", sent, {"c": seen}, {("g", 0): 4})


def _holds(ledger: WorkloadLedger, logs: dict[int, list[tuple[int, bytes]]], committed: int | None = 4) -> None:
    check(ledger, logs, {("g", 0): committed})


def test_what_was_told_and_what_is_there_agree() -> None:
    _holds(_ledger(), _LOGS)


def test_an_acknowledged_record_that_is_gone_is_seen() -> None:
    with pytest.raises(Broken, match="was acknowledged in t-0 at 1"):
        _holds(_ledger(), {0: [_LOGS[0][0], _LOGS[0][2]], 1: []})


def test_another_record_at_its_offset_is_seen() -> None:
    with pytest.raises(Broken, match="was acknowledged in t-0 at 0, where b'b' is"):
        _holds(_ledger(), {0: [(0, b"b"), (1, b"a"), (3, b"c")], 1: []})


def test_a_record_that_is_there_twice_is_seen() -> None:
    with pytest.raises(Broken, match="twice"):
        _holds(_ledger(), {**_LOGS, 1: [(0, b"a")]})


def test_a_record_that_was_never_sent_is_seen() -> None:
    with pytest.raises(Broken, match="never sent"):
        _holds(_ledger(), {**_LOGS, 1: [(0, b"x")]})


def test_records_of_one_producer_out_of_order_are_seen() -> None:
    ledger = _ledger()
    ledger.sent = [SentRecord("p", 2, b"a"), SentRecord("p", 1, b"b"), SentRecord("p", 3, b"c")]
    with pytest.raises(Broken, match="record 1 of p is behind 2"):
        _holds(ledger, _LOGS)


def test_a_record_served_that_is_not_there_is_seen() -> None:
    ledger = _ledger()
    ledger.seen["c"].append((0, 4, b"d"))
    with pytest.raises(Broken, match="was served b'd'"):
        _holds(ledger, _LOGS)


def test_a_record_that_a_consumer_skips_is_seen() -> None:
    ledger = _ledger()
    del ledger.seen["c"][2]
    with pytest.raises(Broken, match="was not served t-0 at 1"):
        _holds(ledger, _LOGS)


def test_a_consumer_that_goes_back_is_seen_unless_it_began_anew() -> None:
    ledger = _ledger()
    ledger.seen["c"] += [None, (0, 0, b"a")]
    _holds(ledger, _LOGS)
    ledger.seen["c"] += [(0, 0, b"a")]
    with pytest.raises(Broken, match="at 0 behind 0"):
        _holds(ledger, _LOGS)


@pytest.mark.parametrize("position", [3, None])
def test_a_commit_that_goes_back_is_seen(position: int | None) -> None:
    with pytest.raises(Broken, match="went back from 4"):
        _holds(_ledger(), _LOGS, position)


def test_compacted_replicas_may_differ_in_what_was_aborted_only() -> None:
    whole: dict[int, tuple[int, bytes | None, bytes | None]]
    whole = {0: (7, b"a", b"1"), 1: (8, b"b", b"2"), 4: (7, b"c", b"3")}
    aborted = [AbortedTransaction(7, 4, 5, 4)]
    left = {offset: whole[offset] for offset in (0, 1)}
    check_compacted("t-0", [(whole, aborted), (left, [])])
    with pytest.raises(AssertionError, match="lacks what is committed at 1"):
        check_compacted("t-0", [(whole, aborted), ({0: whole[0]}, aborted)])
    with pytest.raises(AssertionError, match="lacks what is committed at 4"):
        check_compacted("t-0", [(left, []), (whole, [AbortedTransaction(8, 4, 5, 4)])])
    with pytest.raises(AssertionError, match="differ at 1"):
        check_compacted("t-0", [(whole, aborted), ({**whole, 1: (8, b"b", b"x")}, aborted)])
