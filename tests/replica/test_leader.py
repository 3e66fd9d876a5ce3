"""The leader of a partition: who is in sync, and how far it is committed."""

from __future__ import annotations

import pytest

from ottla.kernel.error import ErrorCode
from ottla.replica.leader import (
    Appended,
    Effect,
    Fetched,
    IsrAccepted,
    IsrRefused,
    LeaderReplica,
    LeaderSettings,
    MetadataFollowed,
    PartitionState,
    ProposeIsr,
    RaiseHighWatermark,
    TimePassed,
)

_LAG_MS = 1_000
#: Larger than every partition epoch here: the two must not be taken for each other.
_EPOCH = 50


def _leader(
    isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 1, end_offset: int = 10, high: int = 10
) -> LeaderReplica:
    return LeaderReplica(
        LeaderSettings(1, _LAG_MS, min_isr),
        PartitionState(_EPOCH, 7, (1, 2, 3), isr),
        end_offset=end_offset,
        high_watermark=high,
        brokers={1: 101, 2: 102, 3: 103},
        now_ms=0,
    )


def _fetch(
    leader: LeaderReplica, replica_id: int, offset: int, now_ms: int = 0, epoch: int | None = None
) -> list[Effect]:
    epoch = 100 + replica_id if epoch is None else epoch
    return leader.step(Fetched(replica_id, epoch, offset, 0), now_ms)


def test_the_high_watermark_is_the_least_end_of_the_isr() -> None:
    leader = _leader()
    assert leader.step(Appended(12), 0) == []
    assert _fetch(leader, 2, 12) == []
    assert _fetch(leader, 3, 11) == [RaiseHighWatermark(11)]
    assert _fetch(leader, 3, 12) == [RaiseHighWatermark(12)]


def test_the_high_watermark_of_a_follower_stays_until_the_isr_has_been_heard() -> None:
    leader = _leader(high=4)
    assert leader.step(Appended(11), 0) == []
    assert leader.high_watermark == 4


def test_it_never_goes_back() -> None:
    leader = _leader()
    leader.step(Appended(12), 0)
    _fetch(leader, 2, 12), _fetch(leader, 3, 12)
    assert _fetch(leader, 3, 9) == []
    assert leader.high_watermark == 12


def test_it_stands_while_fewer_than_min_insync_replicas_are_in_sync() -> None:
    leader = _leader((1,), min_isr=2)
    assert leader.step(Appended(12), 5_000) == []
    accepted = MetadataFollowed(PartitionState(_EPOCH, 8, (1, 2, 3), (1, 2)), 2)
    leader.step(accepted, 5_000)
    assert _fetch(leader, 2, 12, 5_000) == [RaiseHighWatermark(12)]


def test_min_insync_replicas_beyond_the_replicas_means_all_of_them() -> None:
    leader = LeaderReplica(
        LeaderSettings(1, _LAG_MS, 3),
        PartitionState(_EPOCH, 7, (1,), (1,)),
        end_offset=0,
        high_watermark=0,
        brokers={1: 101},
        now_ms=0,
    )
    assert leader.step(Appended(1), 0) == [RaiseHighWatermark(1)]


def test_a_replica_that_lags_leaves_and_counts_until_that_is_committed() -> None:
    leader = _leader()
    leader.step(Appended(12), 0)
    _fetch(leader, 2, 12, 1_500)
    (proposal,) = leader.step(TimePassed(), 1_500)
    assert proposal == ProposeIsr(((1, 101), (2, 102)), _EPOCH, 7)
    assert leader.step(TimePassed(), 1_500) == [], "one at a time"
    assert leader.high_watermark == 10
    assert leader.step(IsrAccepted(leader.proposal or _any(), _EPOCH, 8, (1, 2)), 1_500) == [RaiseHighWatermark(12)]


def _any() -> ProposeIsr:
    return ProposeIsr((), 0, 0)


def test_a_replica_that_had_what_there_was_at_its_last_fetch_does_not_lag() -> None:
    leader = _leader((1, 2))
    for end in range(11, 40):
        now_ms = (end - 10) * 400
        leader.step(Appended(end), now_ms)
        _fetch(leader, 2, end - 1, now_ms)
        assert leader.step(TimePassed(), now_ms) == []


def test_a_replica_joins_when_it_has_reached_the_high_watermark_and_the_start_of_the_epoch() -> None:
    leader = _leader((1, 2), end_offset=10, high=6)
    assert _fetch(leader, 3, 9, 5_000) == [], "what it has below 10 may not be ours"
    (proposal,) = _fetch(leader, 3, 10, 5_000)
    assert proposal == ProposeIsr(((1, 101), (2, 102), (3, 103)), _EPOCH, 7)


def test_one_that_is_proposed_bounds_the_high_watermark_already() -> None:
    leader = _leader((1, 2))
    assert isinstance(_fetch(leader, 3, 10, 5_000)[0], ProposeIsr)
    leader.step(Appended(12), 9_000)
    assert _fetch(leader, 2, 12, 9_000) == []
    assert leader.high_watermark == 10


def test_a_fetch_of_an_earlier_life_of_a_broker_counts_for_nothing() -> None:
    leader = _leader((1, 2))
    assert _fetch(leader, 3, 8, 5_000) == []
    assert _fetch(leader, 3, 10, 5_000, epoch=90) == []
    assert leader.followers[3].end_offset == 8


@pytest.mark.parametrize("brokers", [{1: 101, 2: 102}, {1: 101, 2: 102, 3: 104}])
def test_a_broker_that_is_fenced_or_has_another_epoch_does_not_join(brokers: dict[int, int]) -> None:
    leader = _leader((1, 2))
    leader.brokers = brokers
    assert _fetch(leader, 3, 10, 5_000) == []


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_proposal_that_was_not_applied_is_forgotten(code: ErrorCode) -> None:
    leader = _leader((1, 2))
    (proposal,) = _fetch(leader, 3, 10, 5_000)
    assert isinstance(proposal, ProposeIsr)
    assert leader.step(IsrRefused(proposal, code), 5_000) == []
    assert leader.proposal is None


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_one_that_may_have_been_applied_counts_until_the_metadata_says_what_became_of_it(code: ErrorCode) -> None:
    leader = _leader((1, 2))
    (proposal,) = _fetch(leader, 3, 10, 5_000)
    assert isinstance(proposal, ProposeIsr)
    assert leader.step(IsrRefused(proposal, code), 5_000) == []
    assert leader.maximal_isr == {1, 2, 3}
    leader.brokers = {1: 101, 2: 102}
    leader.step(MetadataFollowed(PartitionState(_EPOCH, 8, (1, 2, 3), (1, 2)), 1), 5_000)
    assert leader.maximal_isr == {1, 2}


def test_a_replica_that_has_nothing_to_fetch_joins_when_it_may() -> None:
    """Its session is silent about a partition in which nothing happens."""
    leader = _leader((1,))
    leader.brokers = {1: 101, 2: 102}
    (first,) = _fetch(leader, 2, 10, 5_000)
    assert _fetch(leader, 3, 10, 5_000) == []
    assert isinstance(first, ProposeIsr)
    leader.brokers = {1: 101, 2: 102, 3: 103}
    (second,) = leader.step(IsrAccepted(first, _EPOCH, 8, (1, 2)), 5_000)
    assert second == ProposeIsr(((1, 101), (2, 102), (3, 103)), _EPOCH, 8)
    leader.step(IsrRefused(second, ErrorCode.INELIGIBLE_REPLICA), 5_000)
    (third,) = leader.step(TimePassed(), 5_000)
    assert isinstance(third, ProposeIsr)
    leader.step(IsrRefused(third, ErrorCode.INELIGIBLE_REPLICA), 5_000)
    # A session that was not heard of for replica.lag.time.max.ms says nothing.
    assert leader.step(TimePassed(), 5_000 + _LAG_MS + 1) == []


def test_a_request_that_failed_is_made_again() -> None:
    leader = _leader((1, 2))
    (proposal,) = _fetch(leader, 3, 10, 5_000)
    assert isinstance(proposal, ProposeIsr)
    assert leader.step(IsrRefused(proposal, ErrorCode.REQUEST_TIMED_OUT), 5_000) == [proposal]


def test_the_record_of_an_answered_proposal_does_not_end_the_next_one() -> None:
    """The answer of the controller comes before its record, and another replica is proposed in between."""
    leader = _leader((1,))
    (first,) = _fetch(leader, 2, 10, 5_000)
    assert isinstance(first, ProposeIsr)
    leader.step(IsrAccepted(first, _EPOCH, 8, (1, 2)), 5_000)
    (second,) = _fetch(leader, 3, 10, 5_000)
    leader.step(MetadataFollowed(PartitionState(_EPOCH, 8, (1, 2, 3), (1, 2)), 1), 5_000)
    assert leader.maximal_isr == {1, 2, 3}
    assert leader.proposal is second


def test_an_answer_that_its_record_has_overtaken_does_not_end_the_next_proposal() -> None:
    leader = _leader((1,))
    (first,) = _fetch(leader, 2, 10, 5_000)
    assert isinstance(first, ProposeIsr)
    leader.step(MetadataFollowed(PartitionState(_EPOCH, 8, (1, 2, 3), (1, 2)), 1), 5_000)
    (second,) = _fetch(leader, 3, 10, 5_000)
    leader.step(IsrAccepted(first, _EPOCH, 8, (1, 2)), 5_000)
    leader.step(IsrRefused(first, ErrorCode.INELIGIBLE_REPLICA), 5_000)
    assert leader.proposal is second and leader.maximal_isr == {1, 2, 3}


def test_one_that_is_about_to_join_is_waited_for() -> None:
    """Else the high watermark would run ahead of it for ever."""
    leader = _leader((1, 2))
    _fetch(leader, 3, 9, 5_000), _fetch(leader, 2, 10, 5_000)
    leader.step(Appended(11), 5_000)
    leader.followers[3].caught_up_ms = 5_000
    assert _fetch(leader, 2, 11, 5_000) == []
    assert leader.high_watermark == 10


def test_replicas_come_and_go_with_the_metadata() -> None:
    leader = _leader()
    leader.step(MetadataFollowed(PartitionState(_EPOCH, 8, (1, 3, 4), (1, 3)), 1), 0)
    assert set(leader.followers) == {3, 4}
    leader.validate()


def test_a_replica_that_the_metadata_adds_is_not_waited_for_until_it_has_caught_up() -> None:
    leader = _leader((1, 2))
    leader.brokers = {1: 101, 2: 102, 4: 104}
    leader.step(MetadataFollowed(PartitionState(_EPOCH, 8, (1, 2, 4), (1, 2)), 1), 5_000)
    leader.step(Appended(12), 5_000)
    assert _fetch(leader, 2, 12, 5_000) == [RaiseHighWatermark(12)]
    assert _fetch(leader, 4, 0, 5_000) == []
    leader.step(Appended(13), 5_000)
    assert _fetch(leader, 2, 13, 5_000) == [RaiseHighWatermark(13)]


def test_an_answer_of_another_leader_epoch_counts_for_nothing() -> None:
    leader = _leader((1,))
    (proposal,) = _fetch(leader, 2, 10, 5_000)
    assert isinstance(proposal, ProposeIsr)
    for epoch in (_EPOCH - 1, _EPOCH + 1):
        assert leader.step(IsrAccepted(proposal, epoch, 8, (1, 2)), 5_000) == []
    assert leader.proposal is proposal and leader.state.isr == (1,)


def test_a_fetch_while_a_proposal_is_under_way_proposes_nothing() -> None:
    leader = _leader((1,))
    (first,) = _fetch(leader, 2, 10, 5_000)
    assert _fetch(leader, 3, 10, 5_000) == [] and _fetch(leader, 2, 10, 5_000) == []
    assert leader.step(TimePassed(), 5_000) == []
    assert leader.proposal is first


@pytest.mark.parametrize(("late", "joins"), [(0, True), (1, False)])
def test_a_replica_that_was_level_one_lag_time_ago_may_join_and_one_that_was_later_not(late: int, joins: bool) -> None:
    leader = _leader((1,))
    leader.brokers = {1: 101}
    assert _fetch(leader, 2, 10, 5_000) == []
    leader.brokers = {1: 101, 2: 102}
    proposed = leader.step(TimePassed(), 5_000 + _LAG_MS + late)
    assert bool(proposed) is joins


def test_a_fenced_replica_out_of_the_isr_is_not_waited_for() -> None:
    leader = _leader((1, 2))
    leader.brokers = {1: 101, 2: 102}
    _fetch(leader, 3, 10)
    leader.step(Appended(12), 0)
    assert _fetch(leader, 2, 12) == [RaiseHighWatermark(12)]


def test_a_new_leader_waits_for_no_replica_out_of_the_isr_that_it_has_not_heard_of() -> None:
    leader = _leader((1, 2))
    leader.step(Appended(12), 0)
    assert _fetch(leader, 2, 12) == [RaiseHighWatermark(12)]
