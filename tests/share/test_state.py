"""Stored batches: what holds where they overlap, compared with a table of single offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kernel.ids import Uuid
from ottla.share.state import SharePartitionKey, StateBatch, StoredState, combine

_OFFSETS = st.integers(0, 30)
_BATCH = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    _OFFSETS,
    st.integers(0, 8),
    st.sampled_from([0, 2, 4]),
    st.integers(1, 4),
)


def by_offset(batches: list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """(delivery count, state) of each offset, taken one by one."""
    table: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            table[offset] = max(table.get(offset, (0, 0)), (batch.delivery_count, batch.state))
    return table


@given(st.lists(_BATCH, max_size=8), st.lists(_BATCH, max_size=8), st.one_of(st.just(-1), _OFFSETS))
def test_batches_combine_as_their_offsets_do_one_by_one(
    present: list[StateBatch], more: list[StateBatch], start: int
) -> None:
    combined = list(combine(present, more, start))
    assert by_offset(combined, 0) == by_offset([*present, *more], max(start, 0))
    for before, after in pairwise(combined):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "neighbours that say the same"


def test_a_write_leaves_what_it_says_minus_one_of_as_it_was() -> None:
    state = StoredState(5, leader_epoch=3, batches=(StateBatch(5, 9, 0, 1),))
    after = state.updated(-1, -1, 2, [StateBatch(5, 6, 2, 1)])
    assert (after.start_offset, after.leader_epoch, after.delivery_complete_count) == (5, 3, 2)
    assert after.batches == (StateBatch(5, 6, 2, 1), StateBatch(7, 9, 0, 1))
    assert state.updated(8, 4, 0, []).batches == (StateBatch(8, 9, 0, 1),)


def test_a_key_is_its_text_even_with_colons_in_the_group() -> None:
    key = SharePartitionKey("a:b", Uuid(bytes(range(16))), 7)
    assert key.text == "a:b:AAECAwQFBgcICQoLDA0ODw:7"
    assert SharePartitionKey.parse(key.text) == key


@pytest.mark.parametrize(
    "text", ["", "g", "g:0", ":AAECAwQFBgcICQoLDA0ODw:7", "g:short:7", "g:AAECAwQFBgcICQoLDA0ODw:x"]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        SharePartitionKey.parse(text)
