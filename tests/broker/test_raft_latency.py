"""Latencies of the quorum: what counts as an election and a commit, and for how long a figure is shown."""

from __future__ import annotations

from math import isnan
from typing import Any, cast

from ottla.broker.observe.raft_latency import RaftLatency, SampledLatency
from ottla.raft.role import Follower, Leader, Prospective, QuorumRole, Unattached, Voter
from ottla.raft.votes import Votes


def test_a_figure_is_shown_for_two_windows_after_the_last_value_of_its_window() -> None:
    latency = SampledLatency()
    assert all(map(isnan, latency.measured(0)))
    latency.record(10, 1_000)
    latency.record(30, 2_000)
    assert latency.measured(2_000) == (20, 30)
    latency.record(50, 40_000)
    assert latency.measured(61_999) == (30, 50)
    assert latency.measured(62_000) == (50, 50)
    assert latency.measured(99_999) == (50, 50)
    assert all(map(isnan, latency.measured(100_000)))


def _follower(epoch: int) -> Follower:
    return Follower(epoch, 2, None, (), fetch_deadline_ms=0, update_deadline_ms=0)


def _leader(high_watermark: int) -> Leader:
    leader = Leader(
        3, Voter(1), frozenset(), cast(Any, None), (), volatile_voters=cast(Any, None), epoch_start_offset=10,
        announce_deadline_ms=0, check_deadline_ms=0,
    )  # fmt: skip
    leader.high_watermark = high_watermark
    return leader


def test_an_election_begins_with_the_last_question_and_ends_with_a_leader() -> None:
    latency = RaftLatency()
    before: QuorumRole = Unattached(1)
    for role, now_ms in (
        (before, 0),
        (_follower(1), 100),
        (asking := Prospective(before, Votes([], 1), 0), 2_000),
        (asking, 2_500),
        (Prospective(before, Votes([], 1), 0), 3_000),
        (_follower(2), 3_040),
        (_follower(3), 9_000),
    ):
        latency.look(role, 10, now_ms)
    assert latency.elections.measured(9_000) == (40, 40)


def test_a_commit_is_measured_by_record_from_the_append_of_its_batch() -> None:
    latency, leader = RaftLatency(), _leader(-1)
    latency.look(leader, 10, 1_000)
    latency.look(leader, 11, 1_000)
    latency.look(leader, 15, 1_010)
    assert isnan(latency.commits.measured(1_010)[0])
    leader.high_watermark = 15
    latency.look(leader, 15, 1_030)
    # One record in 30 ms, four in 20 ms.
    assert latency.commits.measured(1_030) == (17.5, 30)
    # What a leader had under way when it lost its office was not committed by it.
    latency.look(leader, 16, 1_040)
    latency.look(_follower(4), 16, 1_050)
    latency.look(_leader(16), 16, 1_060)
    assert latency.commits.measured(1_060)[1] == 30
