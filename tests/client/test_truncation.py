"""A position finds out that a log was cut and written again under it (KIP-320)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client import LogTruncation
from ottla.client.consumer.position import Doubt, PartitionPosition
from ottla.kernel.error import ErrorCode
from tests.client.test_position_epoch import ONE, batch, chunk, placed


def doubted() -> tuple[PartitionPosition, Doubt]:
    """Ten records of epoch 1 and five of epoch 3 were read, and node 2 leads at epoch 4 now."""
    state = placed(0, batch(0, 1, 10), batch(10, 3))
    state.led_by(1, 3)
    state.take(15)
    state.led_by(2, 4)
    return state, Doubt(15, 3, 2, 4)


def test_a_new_leader_is_asked_before_anything_more_is_given_or_fetched() -> None:
    state = placed(0, batch(0, 1, 10), batch(10, 1))
    state.led_by(1, 1)
    assert len(state.take(4)) == 4
    state.led_by(1, 1)
    assert state.has_records
    state.led_by(1, 2)
    assert state.doubt() == Doubt(4, 1, 1, 2), "the same node in a newer epoch is another leader"
    assert (state.has_records, state.buffered, state.fetch_offset) == (False, 0, 4)
    assert not state.fetched(chunk(4, batch(4, 1)), 4)
    assert state.validated(Doubt(4, 1, 1, 2), 1, 15, "earliest") is None
    assert (state.doubt(), state.position, state.epoch) == (None, 4, 1)
    assert state.fetched(chunk(4, batch(0, 1, 10)), 4)
    assert [one.offset for one in state.take(2)] == [4, 5]


@pytest.mark.parametrize(("epoch", "leader_epoch"), [(-1, 5), (3, -1), (-1, -1)])
def test_without_epochs_there_is_nothing_to_validate(epoch: int, leader_epoch: int) -> None:
    state = placed(0, batch(0, epoch))
    state.led_by(1, 4)
    state.take(3)
    state.led_by(2, leader_epoch)
    assert state.doubt() is None
    assert state.has_records, "what was fetched is still good"


@pytest.mark.parametrize(("offset", "epoch", "doubts"), [(5, -1, False), (5, 2, True), (0, 0, True)])
def test_a_seek_is_validated_if_it_names_an_epoch_also_under_the_same_leader(
    offset: int, epoch: int, doubts: bool
) -> None:
    state, _ = doubted()
    state.seek(offset, epoch)
    assert state.doubt() is None, "the seek ends what was to be validated before it"
    state.led_by(2, 4)
    assert state.doubt() == (Doubt(offset, epoch, 2, 4) if doubts else None)


def test_a_log_that_has_it_all_changes_nothing() -> None:
    for end_epoch, end_offset in ((3, 15), (3, 99), (2, 15)):
        state, doubt = doubted()
        assert state.validated(doubt, end_epoch, end_offset, "none") is None
        assert (state.position, state.epoch, state.validating, state.error) == (15, 3, False, None)


def test_a_cut_with_a_policy_goes_back_to_where_the_logs_part() -> None:
    state, doubt = doubted()
    truncated = state.validated(doubt, 1, 8, "latest")
    assert truncated is not None and truncated.divergent == (8, 1)
    assert (state.position, state.fetch_offset, state.epoch) == (8, 8, 1)
    assert (state.validating, state.error, state.reset) == (False, None, None)
    state.led_by(2, 4)
    assert state.doubt() is None, "the leader has just said so"


@pytest.mark.parametrize(("end_epoch", "end_offset"), [(-1, -1), (-1, 20), (3, -1)])
def test_a_leader_that_does_not_know_the_epoch_has_the_policy_decide(end_epoch: int, end_offset: int) -> None:
    state, doubt = doubted()
    truncated = state.validated(doubt, end_epoch, end_offset, "latest")
    assert truncated is not None and truncated.divergent is None
    assert (state.position, state.reset, state.validating) == (None, "latest", False)


@pytest.mark.parametrize(("answer", "divergent"), [((1, 8), (8, 1)), ((-1, -1), None)])
def test_a_cut_without_a_policy_is_an_error_until_the_program_seeks(
    answer: tuple[int, int], divergent: tuple[int, int] | None
) -> None:
    state, doubt = doubted()
    state.validated(doubt, *answer, "none")
    assert state.position == 15, "the program may still look where it was"
    with pytest.raises(LogTruncation) as caught:
        state.raise_error()
    error = caught.value
    assert (error.code, error.topic_partition, error.offset, error.leader_epoch) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ONE,
        15,
        3,
    )
    assert error.divergent == divergent
    said = str(error)
    assert "t-0" in said and "15" in said and "auto.offset.reset" in said
    assert ("seek to 8" in said) == (divergent is not None)
    assert state.doubt() == doubt, "it is found again until the program seeks"
    state.seek(8)
    state.led_by(2, 4)
    assert state.doubt() is None


def test_an_answer_about_another_position_changes_nothing() -> None:
    changes: list[Callable[[PartitionPosition], object]] = [
        lambda state: state.led_by(1, 5),
        lambda state: state.seek(3),
        lambda state: state.forget("earliest"),
        lambda state: state.stop(12, None),
    ]
    for change in changes:
        state, doubt = doubted()
        change(state)
        before = (state.position, state.epoch, state.validating, state.reset)
        assert state.validated(doubt, 1, 8, "latest") is None
        state.trusted(doubt)
        assert (state.position, state.epoch, state.validating, state.reset) == before


def test_a_poll_that_is_given_back_is_validated_where_it_goes_on() -> None:
    state, _ = doubted()
    state.validate_at_ms = 1 << 60
    state.stop(12, None)
    assert state.doubt() == Doubt(12, 3, 2, 4)
    assert state.validate_at_ms == 0, "it is asked at once"


def test_a_new_leader_ends_what_a_replica_was_preferred_for() -> None:
    state = placed(0, batch(0, 1))
    state.preferred = (7, 1)
    state.led_by(1, 1)
    assert state.preferred == (7, 1)
    state.led_by(2, 2)
    assert state.preferred is None
