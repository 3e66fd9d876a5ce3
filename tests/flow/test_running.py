"""What is folded along groups as arrays is what a loop over the records gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ottla.flow.vector.aggregate import counts, groups_of, maxima, minima, running, sums


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


@pytest.mark.parametrize("seed", range(40))
def test_minima_and_sums_of_groups(seed: int) -> None:
    rng = Random(seed)
    size, count = rng.randint(1, 60), rng.randint(1, 12)
    of = [*range(count), *(rng.randrange(count) for _ in range(size))]
    values = [rng.randint(-(1 << 40), 1 << rng.choice((4, 40))) for _ in of]
    before = [rng.randint(-9, 9) for _ in range(count)]
    run = running(np.array(of), count)

    smallest = minima(run, np.array(values), np.array(before))
    summed = sums(run, np.array(values), np.array(before))

    assert smallest is not None and summed is not None
    least, total = list(before), list(before)
    along: list[tuple[int, int]] = []
    for group, value in zip(of, values, strict=True):
        least[group], total[group] = min(least[group], value), total[group] + value
        along.append((least[group], total[group]))
    assert list(zip(smallest[0].tolist(), summed[0].tolist(), strict=True)) == along
    assert (smallest[1].tolist(), summed[1].tolist()) == (least, total)


def test_sums_and_minima_at_the_ends_of_a_long_are_left_to_a_loop() -> None:
    run, new = running(np.array([0, 0]), 1), np.array([0])
    assert sums(run, np.array([(1 << 63) - 1, 1]), new) is None
    assert sums(run, np.array([-(1 << 62), -1]), np.array([-(1 << 62)])) is None
    assert minima(run, np.array([-(1 << 63), 1]), new) is None
