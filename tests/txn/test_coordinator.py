"""The transaction coordinator, driven by hand: no log, no socket, no clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.contract import Answer, Append, Called, Continue, Loaded, TimePassed
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.kernel.now import Now
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.event import AddPartitions, MarkersWritten, VerifyPartitions, WriteMarkers
from ottla.txn.transaction import EPOCH_MAX, NO_EPOCH, PREPARED, State
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Scene:
    """A coordinator, its log, and a driver that writes markers at once unless told to hold them."""

    def __init__(self) -> None:
        self.ids = count(1000)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000_000
        self.holding = False
        self.markers: list[WriteMarkers] = []
        self.answers: dict[int, Any] = {}
        self.tickets = count()
        self.machine = self.loaded()
        self.machine.step(Loaded(), Now(self.now_ms, self.now_ms))

    def loaded(self) -> TransactionCoordinator:
        machine = TransactionCoordinator(TransactionSettings(), lambda: next(self.ids))
        for key, value in self.log:
            machine.replay(key, value)
        return machine

    def carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                for key, value in effect.entries:
                    self.log.append((key, value))
                    self.machine.replay(key, value)
            elif isinstance(effect, Answer):
                assert effect.ticket not in self.answers, "a request has one answer"
                self.answers[effect.ticket] = effect.response
            elif isinstance(effect, Continue):
                self.carry_out(self.machine.step(effect.event, Now(self.now_ms, self.now_ms)))
            else:
                self.markers.append(effect)
        if not self.holding:
            self.write_markers()

    def write_markers(self) -> None:
        while self.markers:
            done = self.markers.pop(0)
            self.carry_out(self.machine.step(MarkersWritten(done.transactional_id), Now(self.now_ms, self.now_ms)))

    def crash(self) -> None:
        """Everything that is not in the log is lost."""
        self.markers.clear()
        self.machine = self.loaded()
        self.carry_out(self.machine.step(Loaded(), Now(self.now_ms, self.now_ms)))

    def ask(self, request: Any, version: int = 5) -> Any:
        ticket = next(self.tickets)
        self.carry_out(self.machine.step(Called(ticket, request, version), Now(self.now_ms, self.now_ms)))
        return self.answers[ticket]

    def init(self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> InitProducerIdResponse:
        answer: InitProducerIdResponse = self.ask(
            InitProducerIdRequest(
                transactional_id="t", transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
            )
        )
        return answer

    def add(self, producer: Any, *partitions: TopicPartition, version: int = 2) -> ErrorCode:
        request = AddPartitions("t", producer.producer_id, producer.producer_epoch, partitions, version)
        code: ErrorCode = self.ask(request)
        return code

    def verify(self, name: str, producer_id: int, producer_epoch: int, partition: TopicPartition) -> ErrorCode:
        found: dict[TopicPartition, ErrorCode] = self.ask(
            VerifyPartitions(name, producer_id, producer_epoch, (partition,))
        )
        return found[partition]

    def end(self, producer: Any, *, commit: bool = True, version: int = 5) -> EndTxnResponse:
        answer: EndTxnResponse = self.ask(
            EndTxnRequest(
                transactional_id="t",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=commit,
            ),
            version,
        )
        return answer

    def state(self) -> State:
        return self.machine.transactions["t"].state


def test_a_transaction_commits_and_its_epoch_rises() -> None:
    scene = Scene()
    scene.holding = True
    producer = scene.init()
    assert (producer.producer_id, producer.producer_epoch) == (1000, 0)
    assert scene.add(producer, A0) is ErrorCode.NONE
    assert scene.add(producer, A1, A0) is ErrorCode.NONE
    ended = scene.end(producer)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, 1000, 1)
    (markers,) = scene.markers
    assert markers.partitions == (A0, A1)
    assert markers.committed
    assert markers.producer_epoch == 1, "the marker carries the risen epoch (KIP-890)"
    assert scene.state() is State.PREPARE_COMMIT
    scene.write_markers()
    assert scene.state() is State.COMPLETE_COMMIT


def test_an_end_of_a_producer_that_was_locked_out_is_no_repetition() -> None:
    scene = Scene()
    older = scene.init()
    newer = scene.init()
    assert newer.producer_epoch == older.producer_epoch + 1
    for commit in (False, True):
        assert scene.end(older, commit=commit).error_code == ErrorCode.PRODUCER_FENCED
    assert scene.add(newer, A0) is ErrorCode.NONE


def test_with_the_old_protocol_the_epoch_stays() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, A0, version=1)
    assert scene.end(producer, version=4).error_code == 0
    assert scene.machine.transactions["t"].producer_epoch == 0
    assert scene.end(producer, version=4).error_code == 0, "the same end again is answered as before"
    assert scene.end(producer, commit=False, version=4).error_code == ErrorCode.INVALID_TXN_STATE


def test_an_end_that_is_retried_gets_the_same_answer() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, A0)
    first, second = scene.end(producer), scene.end(producer)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, 1000, first.producer_epoch)
    assert scene.end(producer, commit=False).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("commit", "code"), [(True, ErrorCode.INVALID_TXN_STATE), (False, ErrorCode.NONE)])
def test_only_an_abort_may_end_what_never_began(commit: bool, code: ErrorCode) -> None:
    scene = Scene()
    assert scene.end(scene.init(), commit=commit).error_code == code


def test_a_new_producer_aborts_the_open_transaction_of_the_old_one() -> None:
    scene = Scene()
    old = scene.init()
    scene.add(old, A0)
    assert scene.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.state() is State.COMPLETE_ABORT
    new = scene.init()
    assert new.error_code == 0
    assert new.producer_epoch == 2
    assert scene.add(old, A0) is ErrorCode.PRODUCER_FENCED
    assert scene.end(old).error_code == ErrorCode.PRODUCER_FENCED


def test_nothing_begins_while_an_end_is_under_way() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, A0)
    scene.holding = True
    ended = scene.end(producer)
    assert scene.add(ended, A0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.end(producer).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    scene.write_markers()
    assert scene.add(ended, A0) is ErrorCode.NONE


def test_a_crash_between_the_decision_and_the_markers_writes_them_again() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, A0)
    scene.holding = True
    scene.end(producer)
    scene.crash()
    (markers,) = scene.markers
    assert markers.committed
    assert markers.partitions == (A0,)


def test_a_report_of_markers_completes_only_what_was_decided() -> None:
    scene = Scene()
    producer: Any = scene.init()
    for commit in (True, False):
        scene.add(producer, A0)
        producer = scene.end(producer, commit=commit)
    scene.add(producer, A0)
    before, length = scene.machine.transactions["t"], len(scene.log)
    assert scene.machine.step(MarkersWritten("t"), Now(scene.now_ms, scene.now_ms)) == []
    assert scene.machine.transactions["t"] is before
    assert (scene.state(), len(scene.log)) == (State.ONGOING, length)
    scene.end(producer)
    assert scene.machine.step(MarkersWritten("t"), Now(scene.now_ms, scene.now_ms)) == []
    assert scene.state() is State.COMPLETE_COMMIT


def test_a_transaction_older_than_its_timeout_is_aborted() -> None:
    scene = Scene()
    producer = scene.init(timeout_ms=5_000)
    scene.add(producer, A0)
    scene.now_ms += 5_000
    scene.carry_out(scene.machine.step(TimePassed(), Now(scene.now_ms, scene.now_ms)))
    assert scene.state() is State.ONGOING
    deadline_ms = scene.machine.deadline_ms()
    assert deadline_ms is not None
    scene.now_ms = deadline_ms + 5_000
    scene.carry_out(scene.machine.step(TimePassed(), Now(scene.now_ms, scene.now_ms)))
    assert scene.state() is State.COMPLETE_ABORT
    assert scene.end(producer).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_silent_transactional_id_is_forgotten() -> None:
    scene = Scene()
    scene.init()
    scene.now_ms += 8 * 24 * 3_600_000
    scene.carry_out(scene.machine.step(TimePassed(), Now(scene.now_ms, scene.now_ms)))
    assert not scene.machine.transactions
    assert scene.log[-1][1] is None


def test_a_transactional_id_that_was_forgotten_leaves_no_epoch_to_retry() -> None:
    scene = Scene()
    first = scene.init()
    scene.init(first.producer_id, first.producer_epoch)
    known = scene.machine.transactions["t"]
    assert known.last_epoch == first.producer_epoch
    key, value = scene.log[-1]
    scene.machine.replay(key, None)
    scene.machine.replay(key, value)
    assert scene.machine.transactions["t"] == replace(known, last_epoch=NO_EPOCH)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    assert Scene().init(timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_that_recovers_keeps_its_id_and_a_stranger_is_fenced() -> None:
    scene = Scene()
    first = scene.init()
    again = scene.init(first.producer_id, first.producer_epoch)
    assert (again.producer_id, again.producer_epoch) == (1000, 1)
    retried = scene.init(first.producer_id, first.producer_epoch)
    assert (retried.producer_id, retried.producer_epoch) == (1000, 1)
    assert scene.init(4242, 0).error_code == ErrorCode.PRODUCER_FENCED
    scene.init()
    assert scene.init(first.producer_id, first.producer_epoch).error_code == ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    scene = Scene()
    producer = scene.init()
    for _ in range(EPOCH_MAX):
        scene.add(producer, A0)
        ended = scene.end(producer)
        producer.producer_id, producer.producer_epoch = ended.producer_id, ended.producer_epoch
    assert (producer.producer_id, producer.producer_epoch) == (1000, EPOCH_MAX)
    scene.add(producer, A0)
    last = scene.end(producer)
    assert (last.error_code, last.producer_id, last.producer_epoch) == (0, 1001, 0)
    assert scene.end(producer).error_code == 0, "its retry finds the new id"
    assert scene.add(last, A0) is ErrorCode.NONE


class Transactions(RuleBasedStateMachine):
    """Any order of requests, crashes and passing time keeps the promises."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.scene.holding = True
        self.producer: Any = None
        self.decided: dict[tuple[int, int], bool] = {}

    @initialize()
    def begin(self) -> None:
        self.producer = self.scene.init()

    @rule(partition=st.sampled_from([A0, A1]))
    def add(self, partition: TopicPartition) -> None:
        self.scene.add(self.producer, partition)

    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        answer = self.scene.end(self.producer, commit=commit)
        if not answer.error_code:
            self.producer.producer_id, self.producer.producer_epoch = answer.producer_id, answer.producer_epoch

    @rule()
    def begin_anew(self) -> None:
        answer = self.scene.init()
        if not answer.error_code:
            self.producer = answer

    @rule()
    def crash(self) -> None:
        self.scene.crash()

    @rule(passed_ms=st.integers(0, 200_000))
    def wait(self, passed_ms: int) -> None:
        self.scene.now_ms += passed_ms
        self.scene.carry_out(self.scene.machine.step(TimePassed(), Now(self.scene.now_ms, self.scene.now_ms)))

    @precondition(lambda self: self.scene.markers)
    @rule()
    def write_markers(self) -> None:
        self.scene.write_markers()

    @invariant()
    def a_decided_transaction_has_its_markers_under_way(self) -> None:
        for each in self.scene.machine.transactions.values():
            under_way = [one for one in self.scene.markers if one.transactional_id == each.transactional_id]
            assert bool(under_way) == (each.state in PREPARED)

    @invariant()
    def an_end_is_decided_once(self) -> None:
        for one in self.scene.markers:
            known = self.decided.setdefault((one.producer_id, one.producer_epoch), one.committed)
            assert known == one.committed

    @invariant()
    def the_log_alone_gives_the_state(self) -> None:
        again = self.scene.loaded()
        assert {name: each.record() for name, each in again.transactions.items()} == {
            name: each.record() for name, each in self.scene.machine.transactions.items()
        }


Transactions.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTransactions = Transactions.TestCase
