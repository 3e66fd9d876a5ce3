"""The batches of a log that a share group may see, with transactions of several producers in one read."""

from __future__ import annotations

import pytest

from ottla.broker.share.read import visible_batches
from ottla.share.partition import LogBatch
from ottla.wire.batch import build

_ABORT, _COMMIT = 0, 1


def _batch(offset: int, count: int = 1, producer: int = -1, *, transactional: bool = True) -> bytes:
    epoch = 0 if producer >= 0 else -1
    return build(
        [(1, b"k", b"v", [])] * count,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=offset if producer >= 0 else -1,
        transactional=transactional and producer >= 0,
    )


def _marker(offset: int, producer: int, kind: int) -> bytes:
    return build(
        [(1, bytes([0, 0, 0, kind]), bytes(6), [])],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


#: Producer 7 commits 0, aborts 2 to 4 and commits 7; producer 8 commits 3; others write outside of transactions.
_LOG = [
    _batch(0, producer=7),
    _marker(1, 7, _COMMIT),
    _batch(2, producer=7),
    _batch(3, producer=8),
    _batch(4, producer=7),
    _marker(5, 7, _ABORT),
    _batch(6, producer=7, transactional=False),
    _batch(7, 2, producer=7),
    _marker(9, 8, _COMMIT),
    _marker(10, 7, _COMMIT),
    _batch(11, 3),
]


#: A member gets them with the records, and says that they are gaps.
_MARKERS = (1, 5, 9, 10)


def _seen(data: bytes, aborted: list[tuple[int, int]] | None) -> list[int]:
    found = [batch.first_offset for _, batch in visible_batches(data, aborted) if batch.visible]
    assert {*_MARKERS} <= {*found}
    return [offset for offset in found if offset not in _MARKERS]


@pytest.mark.parametrize(
    ("aborted", "seen"),
    [
        (None, [0, 2, 3, 4, 6, 7, 11]),
        ([], [0, 2, 3, 4, 6, 7, 11]),
        ([(7, 2)], [0, 3, 6, 7, 11]),
        ([(7, 7), (7, 2)], [0, 3, 6, 11]),
        ([(8, 3)], [0, 2, 4, 6, 7, 11]),
        ([(8, 3), (7, 2)], [0, 6, 7, 11]),
        ([(7, 8)], [0, 2, 3, 4, 6, 11]),
        ([(9, 0)], [0, 2, 3, 4, 6, 7, 11]),
    ],
)
def test_aborted_records_are_not_seen_and_markers_are(aborted: list[tuple[int, int]] | None, seen: list[int]) -> None:
    assert _seen(b"".join(_LOG), aborted) == seen


def test_every_whole_batch_has_its_place() -> None:
    data = b"".join(_LOG[6:])
    assert visible_batches(data + _LOG[0][:40], None) == [
        (0, LogBatch(6, 6, True)),
        (len(_LOG[6]), LogBatch(7, 8, True)),
        (len(_LOG[6] + _LOG[7]), LogBatch(9, 9, True)),
        (len(_LOG[6] + _LOG[7] + _LOG[8]), LogBatch(10, 10, True)),
        (len(data) - len(_LOG[10]), LogBatch(11, 13, True)),
    ]
    assert visible_batches(b"", [(7, 2)]) == []
