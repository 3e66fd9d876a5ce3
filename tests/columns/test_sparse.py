"""Searches for few matches among many bytes."""

from __future__ import annotations

import numpy as np
import pytest

from ottla.columns.sparse import true_places


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 100, 1001])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_true_places_are_numpys(size: int, share: float) -> None:
    rng = np.random.default_rng(size)
    for _ in range(20):
        marks = rng.random(size) < share
        found = true_places(marks)
        assert found.dtype == np.int64
        assert found.tolist() == np.flatnonzero(marks).tolist()


@pytest.mark.parametrize("at", range(17))
def test_one_match_is_found_at_each_place_of_a_word(at: int) -> None:
    marks = np.zeros(17, dtype=bool)
    marks[at] = True
    assert true_places(marks).tolist() == [at]
