"""The index of aborted transactions: what it tells is what its file says, also after a cut."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from ottla.log.log import Log, Origin
from ottla.log.segment.aborted import AbortedTransaction, TransactionIndex
from ottla.sim.disk import SimDisk
from tests.log.compaction import NOW_MS, SETTINGS, end, open_log, put, transaction

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
    index.finish()
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


@pytest.mark.parametrize("as_follower", [False, True])
def test_a_marker_that_just_fits_on_the_disk_ends_its_transaction(as_follower: bool, disk: SimDisk) -> None:
    other = open_log()
    transaction(other, 7, ("a", "1"))
    bytes_before = other.size
    end(other, 7, commit=False)
    marker = other.read(1, 1000, end_offset=2).bytes()
    log = Log.open(disk, "/d/t-0", SETTINGS, now_ms=NOW_MS)
    transaction(log, 7, ("a", "1"))
    disk.fill(disk._used() + other.size - bytes_before)
    if as_follower:
        log.append(marker, leader_epoch=1, now_ms=NOW_MS, origin=Origin.REPLICA)
    else:
        end(log, 7, commit=False)
    assert (log.last_stable_offset, log.aborted(0, 2)) == (2, [AbortedTransaction(7, 0, 1, 2)])
    disk.fill(None)
    put(log, ("b", "2"))
    log.close()
    again = Log.open(disk, "/d/t-0", SETTINGS, now_ms=NOW_MS, clean=True)
    assert (again.last_stable_offset, again.aborted(0, 2)) == (3, [AbortedTransaction(7, 0, 1, 2)])


@pytest.mark.parametrize("as_follower", [False, True])
def test_a_marker_is_written_again_after_the_index_could_not_be_read(
    as_follower: bool, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    Log.open(disk, "/d/t-0", SETTINGS, now_ms=NOW_MS).close()
    log = Log.open(disk, "/d/t-0", SETTINGS, now_ms=NOW_MS, clean=True)
    transaction(log, 7, ("a", "1"))
    other = open_log()
    transaction(other, 7, ("a", "1"))
    end(other, 7, commit=False)
    marker = other.read(1, 1000, end_offset=2).bytes()

    def mark() -> None:
        if as_follower:
            log.append(marker, leader_epoch=1, now_ms=NOW_MS, origin=Origin.REPLICA)
        else:
            end(log, 7, commit=False)

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", refused)
        with pytest.raises(OSError, match="too many"):
            mark()
    mark()
    assert (log.last_stable_offset, log.aborted(0, 2)) == (2, [AbortedTransaction(7, 0, 1, 2)])
