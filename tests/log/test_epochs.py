"""The leader epochs of a log, compared with the epoch of every record."""

from __future__ import annotations

from random import Random

import pytest

from ottla.log.epoch import LeaderEpochs


class _Records:
    """The epoch of every record, and where the epochs that are known begin."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def entries(self) -> list[tuple[int, int]]:
        return [
            (epoch, self.start + index)
            for index, epoch in enumerate(self.records)
            if index == 0 or self.records[index - 1] != epoch
        ]

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if epoch < 0 or not self.records or epoch > self.records[-1]:
            return -1, -1
        if epoch < self.records[0]:
            return epoch, self.start
        last = max(index for index, each in enumerate(self.records) if each <= epoch)
        return self.records[last], self.start + last + 1


@pytest.mark.parametrize("seed", range(40))
def test_epochs_are_those_of_the_records(seed: int) -> None:
    rng, records, epochs, epoch = Random(seed), _Records(), LeaderEpochs([]), 0
    for _ in range(60):
        step = rng.random()
        if step < 0.6:
            epoch += rng.choice((0, 0, 1, 2))
            epochs.assign(epoch, records.end)
            records.records += [epoch] * rng.randint(1, 3)
        elif step < 0.8 and records.records:
            at = rng.randint(records.start, records.end)
            before, known = epochs.entries(), epochs.dirty
            epochs.dirty = False
            epochs.truncate_end(at)
            del records.records[at - records.start :]
            assert epochs.dirty is (epochs.entries() != before)
            epochs.dirty = epochs.dirty or known
        elif records.records:
            at = rng.randint(records.start, records.end - 1)
            before, known = epochs.entries(), epochs.dirty
            epochs.dirty = False
            epochs.truncate_start(at)
            assert epochs.dirty is (epochs.entries() != before)
            epochs.dirty = epochs.dirty or known
            del records.records[: at - records.start]
            records.start = at
        assert epochs.entries() == records.entries()
        assert epochs.latest == (records.records[-1] if records.records else -1)
        for offset in range(records.start, records.end):
            assert epochs.epoch_of(offset) == records.records[offset - records.start]
        assert epochs.epoch_of(records.start - 1) == -1
        for asked in range(-1, epoch + 2):
            assert epochs.end_offset_for(asked, records.end) == records.end_offset_for(asked), asked


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        # Known already: nothing changes.
        (6, 20, [(1, 0), (3, 10), (6, 20)]),
        (6, 25, [(1, 0), (3, 10), (6, 20)]),
        # The same epoch from earlier on.
        (6, 15, [(1, 0), (3, 10), (6, 15)]),
        (6, 10, [(1, 0), (6, 10)]),
        # An older epoch writes: what was newer is gone.
        (3, 30, [(1, 0), (3, 30)]),
        (4, 30, [(1, 0), (3, 10), (4, 30)]),
        # A newer one from where another began: that one wrote nothing.
        (7, 20, [(1, 0), (3, 10), (7, 20)]),
        (7, 0, [(7, 0)]),
        (7, 21, [(1, 0), (3, 10), (6, 20), (7, 21)]),
        # No epoch, no offset.
        (-1, 30, [(1, 0), (3, 10), (6, 20)]),
        (7, -1, [(1, 0), (3, 10), (6, 20)]),
    ],
)
def test_an_epoch_that_begins_takes_away_what_contradicts_it(
    epoch: int, start: int, left: list[tuple[int, int]]
) -> None:
    before = [(1, 0), (3, 10), (6, 20)]
    epochs = LeaderEpochs(before)
    assert not epochs.dirty
    epochs.assign(epoch, start)
    assert epochs.entries() == left
    assert epochs.dirty is (left != before)
    assert epochs.latest == left[-1][0]
    epochs.clear()
    assert (epochs.entries(), epochs.latest, epochs.dirty) == ([], -1, True)
    epochs.dirty = False
    epochs.clear()
    assert not epochs.dirty


def test_epochs_answer_as_kafkas_cache_does() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (6, 20)])
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 25)] == [1, 1, 3, 6]
    assert [epochs.end_offset_for(epoch, 30) for epoch in (-1, 0, 1, 2, 5, 6, 7)] == [
        (-1, -1),
        (0, 0),
        (1, 10),
        (1, 10),
        (3, 20),
        (6, 30),
        (-1, -1),
    ]
    epochs.assign(5, 15)
    assert epochs.entries() == [(1, 0), (3, 10), (5, 15)]
    epochs.truncate_start(12)
    assert epochs.entries() == [(3, 12), (5, 15)]
    epochs.truncate_end(15)
    assert epochs.entries() == [(3, 12)]


def test_a_newer_epoch_drops_all_that_begin_at_its_start_or_behind_it() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (6, 20)])
    epochs.assign(7, 10)
    assert epochs.entries() == [(1, 0), (7, 10)]
