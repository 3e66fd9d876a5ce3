"""The batches of a coordinator's records: together, or cut where the log takes no more."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator import contract
from ottla.coordinator.contract import Append, independent
from ottla.wire.batch import HEADER_BYTES

_ENTRIES: list[Any] = [(b"k", b"v" * 9)] * 5
_RECORD_BYTES = 10 + contract._RECORD_OVERHEAD_BYTES


def test_records_are_one_batch_unless_they_say_otherwise() -> None:
    """Those of a decision count together or not at all, however small the log's batches are."""
    assert Append(_ENTRIES).batches(1) == [_ENTRIES]
    assert Append(_ENTRIES, 7, 0).batches(1) == [_ENTRIES]


@pytest.mark.parametrize(
    ("room", "sizes"), [(1, [1] * 5), (2 * _RECORD_BYTES - 1, [1] * 5), (2 * _RECORD_BYTES, [2, 2, 1]), (1 << 20, [5])]
)
def test_independent_records_fill_batches_that_the_log_takes(room: int, sizes: list[int]) -> None:
    (effect,) = independent(_ENTRIES)
    assert [len(each) for each in effect.batches(HEADER_BYTES + room)] == sizes
    assert [entry for each in effect.batches(HEADER_BYTES + room) for entry in each] == _ENTRIES


def test_records_without_a_value_are_counted_by_their_key_and_none_are_no_effect() -> None:
    (effect,) = independent([(b"k" * 10, None)] * 4)
    assert [len(each) for each in effect.batches(HEADER_BYTES + 2 * _RECORD_BYTES)] == [2, 2]
    assert list(independent([])) == []
