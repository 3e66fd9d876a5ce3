"""InitProducerId: which epoch a producer gets, and which earlier one a retry of it may name (KIP-360)."""

from __future__ import annotations

import pytest

from ottla.txn.transaction import State, Transaction

_KNOWN = Transaction("x", 7, 5, 1000, last_epoch=4, state=State.COMPLETE_COMMIT, start_ms=30, update_ms=40)


@pytest.mark.parametrize(
    ("expected", "fresh", "producer", "last"),
    [
        # It names no epoch: nothing that it knew before is a retry.
        (-1, None, (7, 6), -1),
        (-1, 9, (9, 0), -1),
        # It names the epoch that counts.
        (5, None, (7, 6), 5),
        (5, 9, (9, 0), 5),
        # The same call again.
        (4, None, (7, 5), 4),
        # Any other is fenced.
        (3, None, None, None),
        (6, None, None, None),
    ],
)
def test_a_producer_that_begins_again(
    expected: int, fresh: int | None, producer: tuple[int, int] | None, last: int | None
) -> None:
    found = _KNOWN.initialized(2000, expected, fresh, 50)
    if producer is None:
        assert found is None
        return
    assert found is not None
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.last_epoch == last
    assert (found.previous_producer_id, found.next_producer_id, found.next_producer_epoch) == (7, -1, -1)
    assert (found.state, found.partitions, found.timeout_ms) == (State.EMPTY, (), 2000)
    assert (found.start_ms, found.update_ms) == (-1, 50)


def test_a_producer_that_is_new_gets_the_first_epoch_whatever_it_names() -> None:
    new = Transaction("x", 7, -1, 1000)
    for expected in (-1, 0, 5):
        found = new.initialized(1000, expected, None, 50)
        assert found is not None and (found.producer_epoch, found.last_epoch) == (0, -1)
