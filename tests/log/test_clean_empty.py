"""The last batch of a producer stays, empty, when all its records are superseded: it holds the producer's sequence."""

from ottla.log.cleaning.transaction import CleanedTransactions
from ottla.wire.batch import HEADER_BYTES, NewRecord, build, header_at
from ottla.wire.codec import Codec
from tests.log.compaction import NOW_MS, batches, compact, end, open_log, pairs, put, transaction


def test_an_emptied_batch_keeps_what_it_says_of_its_producer() -> None:
    log = open_log()
    transaction(log, 7, ("a", "1"), ("b", "2"), sequence=4)
    end(log, 7, commit=True)
    put(log, ("a", "3"), ("b", "4"), codec=Codec.ZSTD)
    log.roll(NOW_MS)
    put(log, ("x", "1"))
    compact(log)
    header = next(batches(log)).header
    assert (header.base_offset, header.last_offset, header.count) == (0, 1, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 4)
    assert header.is_transactional
    assert not header.is_control


def test_a_rebuilt_batch_has_the_largest_timestamp_of_what_it_keeps() -> None:
    log = open_log()
    records: list[NewRecord] = [(NOW_MS + 5, b"a", b"1", []), (NOW_MS, b"b", b"2", []), (NOW_MS + 9, b"c", b"3", [])]
    log.append(build(records), leader_epoch=1, now_ms=NOW_MS)
    put(log, ("c", "4"))
    log.roll(NOW_MS)
    put(log, ("x", "1"))
    compact(log)
    header = next(batches(log)).header
    assert (header.count, header.base_timestamp, header.max_timestamp) == (2, NOW_MS + 5, NOW_MS + 5)


def test_an_emptied_marker_says_nothing_of_a_transaction() -> None:
    """Its transaction has no batch left, whatever the pass has met of this producer."""
    data = build(
        [(NOW_MS, bytes([0, 0, 0, 1]), bytes(6), [])], producer_id=7, producer_epoch=0, transactional=True, control=True
    )
    header = header_at(data)
    transactions = CleanedTransactions([])
    assert not transactions.is_aborted(header._replace(base_offset=0))
    emptied = header._replace(base_offset=1, length=HEADER_BYTES - 12, count=0)
    assert transactions.ended(emptied, data[:HEADER_BYTES]) == (True, None)
    # The marker that is still whole has its batch.
    assert transactions.ended(header._replace(base_offset=2), data) == (False, None)


def test_a_key_deleted_by_a_transaction_stays_deleted_when_the_producer_once_aborted() -> None:
    """The aborted transaction is cleaned before; the next pass begins behind its marker."""
    log = open_log()
    put(log, ("a", "old"))
    transaction(log, 7, ("b", "1"))
    end(log, 7, commit=False)
    log.roll(NOW_MS)
    compact(log)
    transaction(log, 7, ("a", None), sequence=1)
    end(log, 7, commit=True)
    log.roll(NOW_MS)
    compact(log)
    assert pairs(log) == [(3, "a", None)]
    put(log, ("c", "1"))
    log.roll(NOW_MS)
    compact(log, NOW_MS + 5000)
    assert pairs(log) == [(5, "c", "1")]
