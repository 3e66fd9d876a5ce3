"""What follows from a log for a fetch and for a truncation."""

import pytest

from ottla.raft.checkpoint import SnapshotId
from ottla.raft.log_view import EpochEnd, check_fetch, truncation_offset
from tests.raft.memory_log import MemoryLog


def log_of(*epochs: tuple[int, int]) -> MemoryLog:
    """(epoch, records) of each epoch."""
    log = MemoryLog()
    for epoch, records in epochs:
        log.append(records, epoch)
    return log


@pytest.mark.parametrize(
    ("leader", "offset"),
    [
        # Both have the epoch: where the shorter of them ends.
        (EpochEnd(3, 5), 5),
        (EpochEnd(3, 20), 9),
        (EpochEnd(1, 2), 2),
        # The follower does not have it: where the epoch before it ends here, whatever the leader has.
        (EpochEnd(2, 8), 3),
        (EpochEnd(2, 1), 3),
        # A log that begins with nothing.
        (EpochEnd(0, 4), 4),
        (EpochEnd(0, 40), 9),
    ],
)
def test_a_follower_is_cut_where_both_are_one(leader: EpochEnd, offset: int) -> None:
    assert truncation_offset(log_of((1, 3), (3, 6)), leader) == offset


@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [
        (0, 0, None),
        (3, 1, None),
        (8, 2, None),
        (10, 5, None),
        (11, 5, EpochEnd(5, 10)),
        (4, 1, EpochEnd(1, 3)),
        (9, 3, EpochEnd(2, 8)),
        (9, 9, EpochEnd(5, 10)),
    ],
)
def test_a_leader_sees_where_a_follower_parts_from_it(offset: int, epoch: int, answer: EpochEnd | None) -> None:
    assert check_fetch(log_of((1, 3), (2, 5), (5, 2)), offset, epoch) == answer


@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [
        (0, 0, SnapshotId(8, 2)),
        (2, 1, SnapshotId(8, 2)),
        (3, 1, None),
        (3, 0, SnapshotId(8, 2)),
        (3, 2, SnapshotId(8, 2)),
        (5, 0, SnapshotId(8, 2)),
        (8, 2, None),
        (10, 5, None),
        (7, 5, None),
        (9, 2, EpochEnd(2, 8)),
    ],
)
def test_a_leader_shows_its_newest_snapshot_to_whoever_is_before_its_start(
    offset: int, epoch: int, answer: EpochEnd | SnapshotId | None
) -> None:
    log = log_of((1, 3), (2, 5), (5, 2))
    log.snapshot(SnapshotId(3, 1))
    log.snapshot(SnapshotId(8, 2))
    log.begin_at(SnapshotId(3, 1))
    assert check_fetch(log, offset, epoch) == answer
