"""Each step of a transaction, field by field: what it changes, and that the rest stays."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from ottla.coordinator.contract import Answer, Called
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.kernel.now import Now
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.event import VerifyPartitions
from ottla.txn.transaction import EPOCH_MAX, State, Transaction
from ottla.wire.record.transaction import TransactionLogKey, TransactionLogValue, parse

_A0, _A1 = TopicPartition("a", 0), TopicPartition("a", 1)
#: An open transaction of producer 7, epoch 5.
_OPEN = Transaction(
    "x", 7, 5, 1000, State.ONGOING, (_A0,), start_ms=30, update_ms=40, previous_producer_id=7, last_epoch=4
)
#: The same, taken over: its client has epoch 6 of the same producer id.
_TAKEN = replace(_OPEN, next_producer_epoch=6)
#: The same, taken over past the last epoch: its client has producer id 9.
_TAKEN_ID = replace(_OPEN, next_producer_id=9, next_producer_epoch=0)


@pytest.mark.parametrize(
    ("before", "bumps", "next_id", "producer_epoch", "previous_id", "goes_on_as", "client_pair", "last_epoch"),
    [
        # before, raises the epoch, fresh id -> the markers' epoch, ids and epochs, the client's pair afterwards
        (_OPEN, True, -1, 6, 7, (-1, -1), (7, 6), 5),
        (_OPEN, False, -1, 5, 7, (-1, -1), (7, 5), 4),
        (_OPEN, True, 9, 6, 7, (9, -1), (9, 0), 5),
        (_TAKEN, True, -1, 6, 7, (-1, 7), (7, 7), 6),
        (_TAKEN, False, -1, 5, 7, (-1, 6), (7, 6), 4),
        (_TAKEN, True, 11, 6, 7, (11, 0), (11, 0), 6),
        (_TAKEN_ID, True, -1, 6, 9, (9, 1), (9, 1), 0),
        (_TAKEN_ID, True, 11, 6, 9, (11, 0), (11, 0), 0),
    ],
)
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_decided(
    before: Transaction,
    bumps: bool,
    next_id: int,
    producer_epoch: int,
    previous_id: int,
    goes_on_as: tuple[int, int],
    client_pair: tuple[int, int],
    last_epoch: int,
    commit: bool,
) -> None:
    decided = before.ended(commit=commit, client_version=2, bumps=bumps, next_id=next_id, now_ms=50)
    assert decided == replace(
        before,
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        producer_epoch=producer_epoch,
        previous_producer_id=previous_id,
        next_producer_id=goes_on_as[0],
        next_producer_epoch=goes_on_as[1],
        last_epoch=last_epoch,
        update_ms=50,
        client_version=2,
    )
    assert decided.after_end == client_pair
    completed = decided.completed(60)
    assert completed == replace(
        decided,
        state=State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT,
        producer_id=client_pair[0],
        producer_epoch=client_pair[1],
        # Without a take-over it is the id that the markers had.
        previous_producer_id=previous_id if before is not _OPEN else 7,
        next_producer_id=-1,
        next_producer_epoch=-1,
        partitions=(),
        update_ms=60,
    )


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_abort_of_nothing_and_a_first_partition_begin_now(state: State) -> None:
    idle = replace(_OPEN, state=state, partitions=())
    assert idle.ended(commit=False, client_version=2, bumps=True, next_id=-1, now_ms=50).start_ms == 50
    begun = idle.extended((_A1,), 2, 50)
    assert begun == replace(idle, state=State.ONGOING, partitions=(_A1,), start_ms=50, update_ms=50, client_version=2)


def test_more_partitions_join_once_each_and_in_their_order_and_do_not_begin_it_again() -> None:
    more = _OPEN.extended((_A1, _A0, TopicPartition("b", 0), _A1), 2, 50)
    assert more == replace(_OPEN, partitions=(_A0, _A1, TopicPartition("b", 0)), update_ms=50, client_version=2)


class _Counted(TopicPartition):
    """A partition that counts the comparisons with others."""

    compared: ClassVar[int] = 0
    __hash__ = TopicPartition.__hash__

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return tuple.__eq__(self, other)


def test_a_partition_is_looked_up_among_those_of_its_transaction_and_not_compared_with_each() -> None:
    _Counted.compared = 0
    held, new = (tuple(_Counted("a", start + index) for index in range(500)) for start in (0, 500))
    begun = replace(_OPEN, partitions=held).extended(new, 2, 50)
    assert begun.partitions == (*held, *new)
    machine = TransactionCoordinator(TransactionSettings(), lambda: None)
    machine.transactions[begun.transactional_id] = begun
    asked = VerifyPartitions(begun.transactional_id, *begun.client, (*new, TopicPartition("b", 0)))
    (answer,) = machine.step(Called(1, asked), Now(0, 0))
    assert isinstance(answer, Answer) and set(answer.response.values()) == {
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert _Counted.compared < 5_000


@pytest.mark.parametrize(
    ("before", "fresh_id", "pair"),
    [(_OPEN, None, (7, 6)), (_OPEN, 9, (9, 0)), (_TAKEN, None, (7, 7)), (_TAKEN_ID, None, (9, 1)), (_TAKEN, 9, (9, 0))],
)
def test_a_take_over_changes_only_which_client_may_end_it(
    before: Transaction, fresh_id: int | None, pair: tuple[int, int]
) -> None:
    taken = before.taken_over(2000, fresh_id, 50)
    assert taken.client == pair
    stays = replace(taken, next_producer_id=before.next_producer_id, next_producer_epoch=before.next_producer_epoch)
    assert stays == replace(before, timeout_ms=2000, update_ms=50)


@pytest.mark.parametrize(("epoch", "used_up"), [(0, False), (EPOCH_MAX - 1, False), (EPOCH_MAX, True)])
def test_the_epochs_of_a_producer_id_are_used_up_at_the_last_one(epoch: int, used_up: bool) -> None:
    assert replace(_OPEN, producer_epoch=epoch).exhausted is used_up
    assert replace(_OPEN, producer_epoch=epoch).client_exhausted is used_up
    # After a take-over the client's epoch counts.
    taken = replace(_OPEN, next_producer_epoch=epoch)
    assert (taken.exhausted, taken.client_exhausted) == (False, used_up)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_record_has_what_its_version_has_room_for(level: int) -> None:
    whole = replace(
        _TAKEN_ID,
        previous_producer_id=6,
        client_version=2,
        last_epoch=-1,
        partitions=(_A0, TopicPartition("b", 3), _A1),
    )
    key, value = parse(*whole.record(level))
    assert isinstance(key, TransactionLogKey) and isinstance(value, TransactionLogValue)
    found = Transaction.of_record(key, value)
    assert set(found.partitions) == set(whole.partitions)
    bare = {"previous_producer_id": -1, "next_producer_id": -1, "next_producer_epoch": -1, "client_version": 0}
    assert found == replace(whole, partitions=found.partitions, **({} if level else bare))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "partitions", "written"),
    [(State.EMPTY, (), None), (State.COMPLETE_COMMIT, (), []), (State.ONGOING, (_A1, _A0), [("a", [0, 1])])],
)
def test_only_an_id_that_has_begun_nothing_has_no_list_of_partitions(
    state: State, partitions: tuple[TopicPartition, ...], written: list[tuple[str, list[int]]] | None
) -> None:
    key, value = parse(*replace(_OPEN, state=state, partitions=partitions).record())
    assert isinstance(key, TransactionLogKey) and isinstance(value, TransactionLogValue)
    found = value.transaction_partitions
    assert (None if found is None else [(each.topic, each.partition_ids) for each in found]) == written
    assert set(Transaction.of_record(key, value).partitions) == set(partitions)
