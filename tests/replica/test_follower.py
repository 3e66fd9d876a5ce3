"""The follower of a partition: what it asks for, and what an answer does to its log."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from random import Random

import pytest

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.log import Log as DiskLog
from ottla.log.log import LogSettings
from ottla.replica.followed import FollowedPartition
from ottla.replica.follower import (
    AppendRecords,
    AskOffsets,
    FetchAnswered,
    FollowerReplica,
    FollowLeader,
    OffsetsAnswered,
    Pause,
    Position,
    RestartAt,
    Truncate,
)
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build
from tests.replica.model import Log


def _log(*epochs: int, high: int = 0) -> Log:
    return Log([(epoch, 0) for epoch in epochs], high)


def _asked(follower: FollowerReplica, log: Log) -> Position:
    position = follower.position(log)
    assert position is not None
    return position


def test_a_fetch_names_the_epoch_of_the_last_record_and_the_one_that_is_followed() -> None:
    assert FollowerReplica(2, 9).position(_log(1, 1, 4)) == Position(3, 4, 9, 0)


def test_records_are_appended_and_then_the_leader_is_followed() -> None:
    follower, log = FollowerReplica(2, 9), _log(1)
    answer = FetchAnswered(_asked(follower, log), high_watermark=5, log_start_offset=1, size=100)
    assert follower.fetched(answer, log) == [AppendRecords(9), FollowLeader(5, 1)]


@pytest.mark.parametrize(
    ("own", "epoch", "end", "left"),
    [
        # The leader's end of the epoch is the smaller one, or ours is.
        ((1, 1, 1, 3, 3), 1, 2, 2),
        ((1, 1, 3, 3, 3), 1, 4, 2),
        # An epoch that we do not know: to the end of the next older one, and ask again.
        ((1, 1, 3, 3, 3), 2, 3, 2),
        # Older than all that we have.
        ((3, 3, 3), 1, 2, 0),
        # The leader knows nothing as old as ours.
        ((3, 3, 3), -1, -1, 1),
    ],
)
def test_logs_that_part_are_cut_to_where_both_may_agree(own: tuple[int, ...], epoch: int, end: int, left: int) -> None:
    follower, log = FollowerReplica(2, 9), _log(*own, high=1)
    answer = FetchAnswered(_asked(follower, log), diverging=(epoch, end))
    assert follower.fetched(answer, log) == [Truncate(left)]


def _epochs(length: int, known: tuple[int, ...] = (1, 2, 3)) -> list[tuple[int, ...]]:
    """All logs of up to `length` records whose epochs do not go back."""
    return [each for size in range(length + 1) for each in combinations_with_replacement(known, size)]


def _have_one_history(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """An epoch has one leader: it begins at one offset, behind the same records."""
    return all(one[: one.index(each)] == other[: other.index(each)] for each in set(one) & set(other))


def _leaders_answer(leader: Log, asked: Position) -> FetchAnswered | None:
    """What a leader says of a fetch, as its epochs have it; None when both logs agree."""
    epoch, end = leader.end_offset_for_epoch(asked.last_fetched_epoch)
    if end == -1 or (epoch == asked.last_fetched_epoch and end >= asked.offset):
        return None
    return FetchAnswered(asked, diverging=(epoch, end))


def test_any_two_logs_come_to_their_longest_common_start_and_no_cut_is_behind_the_end() -> None:
    """Records of one epoch are the same at the same offset, since one leader wrote them."""
    for leader_epochs in _epochs(4):
        for epochs in _epochs(4):
            if not _have_one_history(epochs, leader_epochs):
                continue
            leader, log, follower = _log(*leader_epochs), _log(*epochs), FollowerReplica(2, 9)
            common = 0
            while common < min(len(epochs), len(leader_epochs)) and epochs[common] == leader_epochs[common]:
                common += 1
            for _ in range(8):
                answer = _leaders_answer(leader, _asked(follower, log)) if log.records else None
                if answer is None:
                    break
                (effect,) = follower.fetched(answer, log)
                assert isinstance(effect, Truncate)
                assert common <= effect.offset <= log.end_offset, (leader_epochs, epochs)
                log.truncate(effect.offset)
            if leader_epochs:
                assert log.end_offset == common, (leader_epochs, epochs)


@pytest.mark.parametrize("diverging", [(-1, -1), (-1, 7), (0, 7), (1, 7), (2, 7), (9, 7)])
@pytest.mark.parametrize("high", [0, 1, 2])
@pytest.mark.parametrize("epochs", [(1, 1), (0, 2), (3, 3)])
def test_no_answer_of_a_leader_cuts_behind_the_end(
    epochs: tuple[int, ...], high: int, diverging: tuple[int, int]
) -> None:
    follower, log = FollowerReplica(2, 9), _log(*epochs, high=high)
    (effect,) = follower.fetched(FetchAnswered(_asked(follower, log), diverging=diverging), log)
    assert isinstance(effect, Truncate) and 0 <= effect.offset <= 2


@pytest.mark.parametrize(
    ("records", "high", "diverging", "left"),
    [
        # No record of ours has an epoch, or ours are unknown to the leader: its end may lie behind ours.
        (2, 1, (3, 7), 2),
        (3, 3, (3, 2), 2),
        (2, 1, (-1, 7), 2),
        (3, 3, (-1, 2), 2),
        (2, 1, (-1, -1), 1),
        # A high watermark that was read from a checkpoint may lie behind a log that a crash has shortened.
        (2, 5, (-1, -1), 2),
    ],
)
def test_a_log_without_epochs_is_cut_to_the_leaders_end_at_most_to_its_own(
    records: int, high: int, diverging: tuple[int, int], left: int
) -> None:
    follower = FollowerReplica(2, 9)
    log = _NoEpochs([(-1, 0)] * records, high)
    (effect,) = follower.fetched(FetchAnswered(_asked(follower, log), diverging=diverging), log)
    assert effect == Truncate(left)


class _NoEpochs(Log):
    """Written before KIP-101."""

    def latest_epoch(self) -> int:
        return -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return -1, -1


def test_offsets_of_another_epoch_or_that_nobody_asked_for_are_dropped() -> None:
    follower, log = FollowerReplica(2, 9), _log(1, 1, 1)
    assert follower.answered_offsets(OffsetsAnswered(9, 0, 2), log) == []
    follower.fetched(FetchAnswered(_asked(follower, log), ErrorCode.OFFSET_OUT_OF_RANGE), log)
    assert follower.answered_offsets(OffsetsAnswered(8, 0, 2), log) == []
    assert follower.position(log) is None, "the answer of this epoch is still to come"
    assert follower.answered_offsets(OffsetsAnswered(9, 3, 3), log) == [], "both end at the same place"


def test_an_answer_from_another_offset_or_epoch_is_dropped() -> None:
    follower, log = FollowerReplica(2, 9), _log(1)
    answer = FetchAnswered(_asked(follower, log), size=100)
    log.records.append((1, 0))
    assert follower.fetched(answer, log) == []
    assert FollowerReplica(2, 10).fetched(FetchAnswered(_asked(follower, log), size=100), log) == []


def test_a_fenced_follower_waits_for_the_metadata() -> None:
    follower, log = FollowerReplica(2, 9), _log(1)
    answer = FetchAnswered(_asked(follower, log), ErrorCode.FENCED_LEADER_EPOCH)
    assert follower.fetched(answer, log) == []
    assert follower.position(log) is None


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_other_errors_are_tried_again(code: ErrorCode) -> None:
    follower, log = FollowerReplica(2, 9), _log(1)
    assert follower.fetched(FetchAnswered(_asked(follower, log), code), log) == [Pause()]
    assert follower.position(log) is not None


@pytest.mark.parametrize(
    ("start", "end", "effects"),
    [
        (0, 2, [Truncate(2)]),
        (7, 9, [RestartAt(7)]),
        (2, 9, []),
        (None, None, [Pause()]),
    ],
)
def test_out_of_range_asks_where_the_leaders_log_lies(
    start: int | None, end: int | None, effects: list[object]
) -> None:
    follower, log = FollowerReplica(2, 9), _log(1, 1, 1)
    answer = FetchAnswered(_asked(follower, log), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert follower.fetched(answer, log) == [AskOffsets()]
    assert follower.position(log) is None, "nothing is fetched meanwhile"
    told = None if start is None or end is None else OffsetsAnswered(9, start, end)
    assert follower.answered_offsets(told, log) == effects
    assert follower.position(log) is not None


def test_a_log_without_epochs_is_trusted_up_to_its_high_watermark() -> None:
    log = Log([(-1, 0)] * 4, 2)
    follower = FollowerReplica(2, 9)
    asked = _asked(follower, log)
    assert asked == Position(2, -1, 9, 0)
    answer = FetchAnswered(asked, high_watermark=3, size=10)
    assert follower.fetched(answer, log) == [Truncate(2), AppendRecords(9), FollowLeader(3, 0)]


def test_records_of_the_first_of_two_segments_wait_for_their_flush_if_the_second_has_no_room() -> None:
    disk = SimDisk(Random(1))
    disk.make_directory("/d")
    data = b"".join(build([(1, b"k", b"v", [])], base_offset=offset, leader_epoch=1) for offset in range(2))
    settings = replace(LogSettings(), segment_bytes=len(data) - 1, flush_messages=1)
    log = DiskLog.open(disk, "/d/t-0", settings, now_ms=0)
    followed = FollowedPartition(TopicPartition("t", 0), Uuid(b"1" * 16), log, leader_epoch=1, leader_id=2)
    position = followed.position()
    assert position is not None
    disk.fill(disk._used() + len(data) // 2)
    with pytest.raises(OSError, match="disk is full"):
        followed.fetched(FetchAnswered(position, size=len(data)), bytearray(data), 1)
    assert (log.end_offset, log.visible_end_offset) == (1, 0)
