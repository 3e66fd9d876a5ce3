"""The index of aborted transactions: what it tells is what its file says, also after a cut."""

from __future__ import annotations

from random import Random

import pytest

from ottla.log.segment.aborted import AbortedTransaction, TransactionIndex
from ottla.sim.disk import SimDisk

PATH = "/d/00.txnindex"
FIRST, SECOND = AbortedTransaction(7, 0, 9, 10), AbortedTransaction(8, 5, 19, 20)


@pytest.fixture
def disk() -> SimDisk:
    one = SimDisk(Random(1))
    one.make_directory("/d")
    return one


def index(disk: SimDisk) -> TransactionIndex:
    found = TransactionIndex(disk, PATH)
    assert found.entries() == [] and not found.exists
    found.append(FIRST)
    found.append(SECOND)
    return found


def told(index: TransactionIndex, disk: SimDisk) -> list[AbortedTransaction]:
    entries = index.entries()
    assert TransactionIndex(disk, PATH).entries() == entries, "the file says something else"
    return entries


def test_what_is_cut_off_is_told_no_more(disk: SimDisk) -> None:
    found = index(disk)
    assert told(found, disk) == [FIRST, SECOND] and found.exists
    found.truncate(20)
    assert told(found, disk) == [FIRST, SECOND]
    found.truncate(19)
    assert told(found, disk) == [FIRST]
    found.append(SECOND)
    assert told(found, disk) == [FIRST, SECOND]
    found.reset()
    assert told(found, disk) == []
    found.append(SECOND)
    assert told(found, disk) == [SECOND]


@pytest.mark.parametrize(
    ("start", "end", "transactions", "is_last"),
    [
        (0, 5, [FIRST], True),
        (0, 6, [FIRST], True),
        (0, 10, [FIRST], True),
        (0, 11, [FIRST, SECOND], True),
        (9, 21, [FIRST, SECOND], False),
        (10, 21, [SECOND], False),
        (20, 21, [], False),
    ],
)
def test_transactions_that_overlap_are_collected(
    start: int, end: int, transactions: list[AbortedTransaction], is_last: bool, disk: SimDisk
) -> None:
    collected: list[AbortedTransaction] = []
    assert index(disk).collect(start, end, collected) is is_last
    assert collected == transactions
