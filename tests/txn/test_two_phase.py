"""Transactions of a two-phase commit (KIP-939): no timeout, and a take-over that does not abort them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.coordinator.contract import Append, TimePassed
from ottla.kernel.error import ErrorCode
from ottla.kernel.now import Now
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.transaction import EPOCH_MAX, NO_TIMEOUT_MS, State
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.txn.test_coordinator import A0, A1, Scene

_VERSION = 6
_YEAR_MS = 365 * 86_400_000


class TwoPhase(Scene):
    """A coordinator that lets transactions be prepared."""

    level = 2

    def loaded(self) -> TransactionCoordinator:
        settings = TransactionSettings(transaction_two_phase_commit_enable=True)
        machine = TransactionCoordinator(settings, lambda: next(self.ids), lambda: self.level)
        for key, value in self.log:
            machine.replay(key, value)
        return machine

    def begin(self, *, keep: bool = False, two_phase: bool = True, timeout_ms: int = 60_000) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=timeout_ms, enable2_pc=two_phase, keep_prepared_txn=keep
        )
        answer: InitProducerIdResponse = self.ask(request, _VERSION)
        return answer

    def prepare(self) -> InitProducerIdResponse:
        """A transaction with a partition, open."""
        begun = self.begin()
        assert self.add(begun, A0) is ErrorCode.NONE
        return begun

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.carry_out(self.machine.step(TimePassed(), Now(self.now_ms, self.now_ms)))

    def age(self, epoch: int) -> None:
        """Have the transaction be taken over so often that its client's epoch is this one."""
        old = replace(self.machine.transactions["t"], next_producer_epoch=epoch)
        self.carry_out([Append([old.record()])])


@pytest.fixture
def scene() -> TwoPhase:
    return TwoPhase()


def test_a_broker_that_does_not_allow_it_refuses() -> None:
    answer = Scene().ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, enable2_pc=True), 6)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("client_version", [1, 2])
def test_the_timeout_is_not_looked_at_and_never_comes(scene: TwoPhase, client_version: int) -> None:
    begun = scene.begin(timeout_ms=0)
    assert begun.error_code == ErrorCode.NONE
    assert scene.machine.transactions["t"].timeout_ms == NO_TIMEOUT_MS
    assert scene.add(begun, A0, version=client_version) is ErrorCode.NONE
    scene.pass_time(_YEAR_MS)
    assert scene.state() is State.ONGOING


def test_a_take_over_keeps_the_transaction_and_tells_which_one_it_is(scene: TwoPhase) -> None:
    first = scene.prepare()
    second = scene.begin(keep=True)
    assert (second.ongoing_txn_producer_id, second.ongoing_txn_producer_epoch) == (
        first.producer_id,
        first.producer_epoch,
    )
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    assert scene.state() is State.ONGOING


def test_without_a_transaction_there_is_nothing_to_keep(scene: TwoPhase) -> None:
    begun = scene.begin(keep=True)
    assert (begun.error_code, begun.ongoing_txn_producer_id, begun.ongoing_txn_producer_epoch) == (0, -1, -1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_whoever_took_it_over_ends_it_with_the_markers_of_its_records(
    scene: TwoPhase, commit: bool, crash: bool
) -> None:
    first = scene.prepare()
    second = scene.begin(keep=True)
    scene.holding = True
    if crash:
        scene.crash()
    ended = scene.end(second, commit=commit)
    (marker,) = scene.markers
    assert (marker.producer_id, marker.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (
        0,
        second.producer_id,
        second.producer_epoch + 1,
    )
    scene.holding = False
    scene.write_markers()
    assert scene.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    again = scene.end(second, commit=commit)
    assert (again.error_code, again.producer_epoch) == (0, second.producer_epoch + 1), "a repetition"
    assert scene.add(ended, A1) is ErrorCode.NONE, "the next transaction"


def test_whom_it_was_taken_from_is_fenced(scene: TwoPhase) -> None:
    first = scene.prepare()
    scene.begin(keep=True)
    assert scene.end(first, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    assert scene.add(first, A1) is ErrorCode.PRODUCER_FENCED
    assert scene.state() is State.ONGOING


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("open_transaction", [True, False])
def test_a_producer_of_the_last_epoch_is_fenced_by_the_new_id_of_the_next_one(
    scene: TwoPhase, open_transaction: bool, commit: bool
) -> None:
    first = scene.prepare() if open_transaction else scene.begin()
    old = replace(scene.machine.transactions["t"], producer_epoch=EPOCH_MAX)
    scene.carry_out([Append([old.record()])])
    first.producer_epoch = EPOCH_MAX
    second = scene.begin(keep=open_transaction)
    assert (second.producer_id > first.producer_id, second.producer_epoch) == (True, 0)
    ended = scene.end(first, commit=commit)
    assert (ended.error_code, ended.producer_id) == (ErrorCode.PRODUCER_FENCED, -1)
    assert scene.state() is (State.ONGOING if open_transaction else State.EMPTY)
    assert scene.end(second, commit=False).error_code == ErrorCode.NONE


def test_a_prepared_transaction_takes_nothing_more(scene: TwoPhase) -> None:
    scene.prepare()
    second = scene.begin(keep=True)
    assert scene.add(second, A1) is ErrorCode.INVALID_TXN_STATE


def test_it_may_be_taken_over_again_and_again_and_past_the_last_epoch(scene: TwoPhase) -> None:
    first = scene.prepare()
    last = first
    for attempt in range(5):
        if attempt == 2:
            scene.age(EPOCH_MAX - 1)
        last = scene.begin(keep=True)
        assert (last.ongoing_txn_producer_id, last.ongoing_txn_producer_epoch) == (
            first.producer_id,
            first.producer_epoch,
        )
    assert last.producer_id != first.producer_id and last.producer_epoch == 1
    scene.crash()
    ended = scene.end(last, commit=True)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, last.producer_id, 2)
    assert scene.state() is State.COMPLETE_COMMIT


def test_an_end_with_the_last_epoch_brings_a_new_producer_id(scene: TwoPhase) -> None:
    first = scene.prepare()
    scene.begin(keep=True)
    scene.age(EPOCH_MAX - 1)
    last = scene.begin(keep=True)
    assert last.producer_epoch == EPOCH_MAX
    assert last.producer_id == first.producer_id
    scene.holding = True
    ended = scene.end(last, commit=False)
    assert ended.producer_id != first.producer_id and ended.producer_epoch == 0
    assert scene.end(last, commit=False).error_code == ErrorCode.CONCURRENT_TRANSACTIONS, "a repetition"
    scene.holding = False
    scene.write_markers()
    again = scene.end(last, commit=False)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, ended.producer_id, 0)


def test_beginning_anew_aborts_what_was_prepared(scene: TwoPhase) -> None:
    first = scene.prepare()
    second = scene.begin(keep=True)
    assert scene.begin().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.state() is State.COMPLETE_ABORT
    third = scene.begin()
    assert third.error_code == 0 and third.producer_epoch > second.producer_epoch > first.producer_epoch


def test_a_level_without_room_for_it_in_the_log_refuses(scene: TwoPhase) -> None:
    scene.level = 1
    assert scene.begin(keep=True).error_code == ErrorCode.UNSUPPORTED_VERSION
