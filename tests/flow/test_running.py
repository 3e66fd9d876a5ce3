"""What is folded along groups as arrays is what a loop over the records gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ottla.flow.vector.aggregate import counts, groups_of, maxima, running


@pytest.mark.parametrize("seed", range(40))
def test_counts_and_maxima_of_groups(seed: int) -> None:
    rng = Random(seed)
    size, keys = rng.randint(1, 60), rng.randint(1, 12)
    names = [f"key-{rng.randrange(keys)}" for _ in range(size)]
    starts = [rng.choice((0, 10, 20)) for _ in range(size)]
    values = [rng.randint(-5, 1 << rng.choice((4, 40))) for _ in range(size)]
    groups = groups_of(pa.array(names), np.array(starts) if seed % 2 else None)
    count = len(groups.keys)
    before = [rng.randint(0, 9) for _ in range(count)]
    newest = [rng.randint(-1, 99) for _ in range(count)]
    run = running(groups.of, count)

    along, sums = counts(run, np.array(before))
    found = maxima(run, np.array(values), np.array(newest))

    assert found is not None
    largest: list[int] = []
    counted: list[int] = []
    for group, value in zip(groups.of.tolist(), values, strict=True):
        before[group] += 1
        newest[group] = max(newest[group], value)
        counted.append(before[group])
        largest.append(newest[group])
    assert (along.tolist(), sums.tolist()) == (counted, before)
    assert (found[0].tolist(), found[1].tolist()) == (largest, newest)
    assert [groups.keys[each].as_py() for each in groups.of.tolist()] == names
    if seed % 2:
        assert [groups.starts[each] for each in groups.of.tolist()] == starts
        assert groups.starts.tolist() == sorted(groups.starts.tolist())


def test_maxima_too_large_for_one_running_maximum_are_left_to_a_loop() -> None:
    assert maxima(running(np.array([0, 1]), 2), np.array([0, 1 << 61]), np.array([-1, -1])) is None
