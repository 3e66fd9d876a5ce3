"""What a transaction coordinator refuses, and that a refusal changes and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.contract import Answer, Append, Called, Loaded, TimePassed
from ottla.kernel.error import ErrorCode
from ottla.kernel.now import Now
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.event import AddPartitions, MarkersWritten, TimedOut, VerifyPartitions
from ottla.txn.transaction import EPOCH_MAX, NO_EPOCH, NO_PRODUCER_ID, State
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from tests.txn.test_coordinator import A0, A1, Scene


class Poor(Scene):
    """A coordinator that prepared transactions are allowed at, and whose controller may have no producer ids."""

    has_ids = True

    def loaded(self) -> TransactionCoordinator:
        settings = TransactionSettings(transaction_two_phase_commit_enable=True)
        machine = TransactionCoordinator(settings, lambda: next(self.ids) if self.has_ids else None, lambda: 2)
        for key, value in self.log:
            machine.replay(key, value)
        return machine

    def age(self, **changes: Any) -> None:
        old = replace(self.machine.transactions["t"], **changes)
        self.carry_out([Append([old.record()])])

    def refused(self, request: Any, version: int = 6) -> ErrorCode:
        """The code of an answer that has no producer id; nothing is written."""
        before = len(self.log)
        answer = self.ask(request, version)
        assert len(self.log) == before and not self.markers
        assert (answer.producer_id, answer.producer_epoch) == (NO_PRODUCER_ID, NO_EPOCH)
        return ErrorCode(answer.error_code)


def init(**fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(**{"transactional_id": "t", "transaction_timeout_ms": 60_000, **fields})


def end(scene: Scene, name: str = "t", *, committed: bool = True) -> EndTxnRequest:
    producer_id, epoch = scene.machine.transactions["t"].client
    return EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=committed)


LOADS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("fields", [{"transactional_id": ""}, {"producer_id": 7}, {"producer_epoch": 7}])
def test_an_id_without_an_epoch_or_a_name_is_an_invalid_request(fields: dict[str, Any]) -> None:
    scene = Poor()
    assert scene.refused(init(**fields)) is ErrorCode.INVALID_REQUEST
    assert scene.machine.transactions == {}


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [(0, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (1, ErrorCode.NONE)],
)
def test_a_timeout_is_above_zero_and_no_longer_than_it_may(timeout_ms: int, code: ErrorCode) -> None:
    most = TransactionSettings().transaction_max_timeout_ms
    assert Poor().ask(init(transaction_timeout_ms=timeout_ms)).error_code == code
    assert Poor().ask(init(transaction_timeout_ms=most)).error_code == ErrorCode.NONE
    assert Poor().refused(init(transaction_timeout_ms=most + 1)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_without_producer_ids_nobody_begins_and_the_next_try_does() -> None:
    scene = Poor()
    scene.has_ids = False
    assert scene.refused(init()) is LOADS
    assert scene.machine.transactions == {}
    scene.has_ids = True
    assert scene.ask(init()).producer_id == 1000


@pytest.mark.parametrize(
    "ask",
    [
        lambda scene: init(),
        lambda scene: init(keep_prepared_txn=True),
        lambda scene: end(scene),
        lambda scene: end(scene, committed=False),
    ],
    ids=["init", "take over", "commit", "abort"],
)
def test_an_open_transaction_of_the_last_epoch_waits_for_a_producer_id(ask: Callable[[Poor], Any]) -> None:
    scene = Poor()
    scene.add(scene.ask(init()), A0)
    scene.age(producer_epoch=EPOCH_MAX)
    before = scene.machine.transactions["t"]
    scene.has_ids = False
    assert scene.refused(ask(scene)) is LOADS
    assert scene.machine.transactions["t"] == before and before.state is State.ONGOING
    scene.has_ids = True
    assert scene.ask(ask(scene), 6).error_code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert scene.machine.transactions["t"] != before


def test_an_idle_id_of_the_last_epoch_waits_for_a_producer_id() -> None:
    scene = Poor()
    first = scene.ask(init())
    scene.age(producer_epoch=EPOCH_MAX)
    scene.has_ids = False
    assert scene.refused(init()) is LOADS
    assert scene.refused(init(producer_id=first.producer_id, producer_epoch=EPOCH_MAX)) is LOADS
    scene.has_ids = True
    answer = scene.ask(init())
    assert (answer.producer_id, answer.producer_epoch) == (1001, 0)


def test_a_timeout_that_has_no_producer_id_to_end_with_is_tried_again() -> None:
    scene = Poor()
    scene.add(scene.ask(init()), A0)
    scene.age(producer_epoch=EPOCH_MAX)
    scene.has_ids = False
    scene.now_ms += 100_000
    now = Now(scene.now_ms, scene.now_ms)
    assert scene.machine.step(TimedOut("t"), now) == []
    assert scene.state() is State.ONGOING
    scene.has_ids = True
    scene.carry_out(scene.machine.step(TimePassed(), now))
    assert scene.state() is State.COMPLETE_ABORT
    assert scene.machine.transactions["t"].producer_id == 1001


def test_an_end_without_a_name_or_of_an_unknown_one_is_refused() -> None:
    scene = Poor()
    scene.ask(init())
    assert scene.refused(end(scene, "")) is ErrorCode.INVALID_REQUEST
    assert scene.refused(end(scene, "other")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [4, 5])
def test_a_producer_of_another_id_ends_nothing(version: int) -> None:
    scene = Poor()
    producer = scene.ask(init())
    scene.add(producer, A0)
    request = end(scene)
    request.producer_id += 1
    assert scene.refused(request, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    request = end(scene)
    request.producer_epoch += 1
    assert scene.refused(request, version) is ErrorCode.PRODUCER_FENCED
    assert scene.state() is State.ONGOING


def test_partitions_are_added_only_by_the_producer_whose_turn_it_is() -> None:
    scene = Poor()
    producer = scene.ask(init())
    ours = producer.producer_id, producer.producer_epoch

    def added(name: str, producer_id: int, epoch: int) -> ErrorCode:
        before = len(scene.log)
        code: ErrorCode = scene.ask(AddPartitions(name, producer_id, epoch, (A0,), 2))
        assert len(scene.log) == before or code is ErrorCode.NONE
        return code

    assert added("", *ours) is ErrorCode.INVALID_REQUEST
    assert added("other", *ours) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert added("t", ours[0] + 1, ours[1]) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert added("t", ours[0], ours[1] + 1) is ErrorCode.PRODUCER_FENCED
    assert added("t", *ours) is ErrorCode.NONE
    before = len(scene.log)
    assert added("t", *ours) is ErrorCode.NONE
    assert len(scene.log) == before, "it is there already"
    scene.holding = True
    scene.ask(end(scene), 4)
    assert added("t", *scene.machine.transactions["t"].client) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_transaction_that_was_taken_over_takes_no_more_partitions() -> None:
    scene = Poor()
    first = scene.ask(init())
    scene.add(first, A0)
    taken = scene.ask(init(keep_prepared_txn=True), 6)
    assert taken.ongoing_txn_producer_id == first.producer_id
    assert scene.add(first, A1) is ErrorCode.PRODUCER_FENCED
    assert scene.add(taken, A1) is ErrorCode.INVALID_TXN_STATE
    asked = VerifyPartitions("t", taken.producer_id, taken.producer_epoch, (A0, A1))
    assert scene.ask(asked) == dict.fromkeys((A0, A1), ErrorCode.INVALID_TXN_STATE)
    assert scene.machine.transactions["t"].partitions == (A0,)


def test_markers_and_timeouts_of_what_is_not_waiting_for_them_do_nothing() -> None:
    scene = Poor()
    scene.ask(init())
    now = Now(scene.now_ms, scene.now_ms)
    for event in (MarkersWritten("t"), MarkersWritten("other"), TimedOut("t"), TimedOut("other")):
        assert scene.machine.step(event, now) == []


def test_a_request_of_another_kind_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="does not know str"):
        Poor().machine.step(Called(1, "nothing", 0), Now(0, 0))


def test_a_coordinator_that_still_loads_has_its_checks_due() -> None:
    scene = Poor()
    assert scene.machine.deadline_ms() is None, "there is nothing to check"
    scene.ask(init())
    loading = scene.loaded()
    settings = TransactionSettings()
    intervals = (
        settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        settings.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
    assert loading.deadline_ms() == min(intervals)
    assert loading.step(Loaded(), Now(wall_ms=9_000_000, monotonic_ms=500)) == []
    assert loading.deadline_ms() == 500 + min(intervals)


def test_a_tombstone_forgets_the_epoch_before_the_last() -> None:
    scene = Poor()
    first = scene.ask(init())
    own = init(producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert scene.ask(own).producer_epoch == 1
    assert scene.ask(own).producer_epoch == 1, "an answer that was lost is given again"
    name, _ = scene.log[0]
    kept = scene.log[-1]
    for entry in ((name, None), kept):
        scene.carry_out([Append([entry])])
    assert scene.machine.transactions["t"].last_epoch == NO_EPOCH
    assert scene.refused(own) is ErrorCode.PRODUCER_FENCED
    assert isinstance(scene.machine.step(Called(99, init(), 6), Now(0, 0))[-1], Answer)


@pytest.mark.parametrize(("timeouts_ms", "expiry_ms"), [(100, 1_000), (1_000, 100)])
def test_a_check_that_was_made_is_due_again_after_its_interval(timeouts_ms: int, expiry_ms: int) -> None:
    """A deadline that stays in the past would keep the node's loop busy."""
    scene = Poor()
    scene.ask(init())
    settings = TransactionSettings(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=timeouts_ms,
        transaction_remove_expired_transaction_cleanup_interval_ms=expiry_ms,
    )
    machine = TransactionCoordinator(settings, lambda: None)
    machine.replay(*scene.log[0])
    machine.step(Loaded(), Now(0, 0))
    due = []
    for _ in range(12):
        deadline_ms = machine.deadline_ms()
        assert deadline_ms is not None
        due.append(deadline_ms)
        machine.step(TimePassed(), Now(deadline_ms, deadline_ms))
    # At 1,000 both checks are due.
    assert due == list(range(100, 1_300, 100))
