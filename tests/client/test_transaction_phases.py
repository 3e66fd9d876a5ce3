"""The table of a producer's phases, against every short sequence of calls and answers."""

from collections.abc import Callable
from itertools import product

import pytest

from ottla.client.transaction import state
from ottla.client.transaction.state import Phase, Transactions
from ottla.kernel.client_error import error_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.end_txn import EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from tests.machine import table, watch

#: What leads to the farthest phase, FATAL behind FAILED and ABORTING, is five steps long.
_STEPS = 5


def _give_up(machine: Transactions) -> None:
    error = error_of(int(ErrorCode.TRANSACTION_ABORTABLE))
    assert error is not None
    machine.given_up(error, numbered=True)


def _end(code: ErrorCode) -> Callable[[Transactions], None]:
    def end(machine: Transactions) -> None:
        if machine.phase in (Phase.COMMITTING, Phase.ABORTING):
            machine.end_answered(EndTxnResponse(error_code=int(code), producer_id=7, producer_epoch=1))

    return end


def _init(machine: Transactions) -> None:
    if machine.phase is Phase.NEW:
        machine.init_answered(InitProducerIdResponse(producer_id=7, producer_epoch=0))


def _init_kept(machine: Transactions) -> None:
    if machine.phase is Phase.NEW:
        machine.keeps = True
        machine.init_answered(
            InitProducerIdResponse(
                producer_id=7, producer_epoch=1, ongoing_txn_producer_id=7, ongoing_txn_producer_epoch=0
            )
        )


def _refused(machine: Transactions) -> None:
    error = error_of(int(ErrorCode.PRODUCER_FENCED))
    assert error is not None
    machine.failed(error)


_CALLS: tuple[Callable[[Transactions], object], ...] = (
    lambda machine: machine.begin(2),
    lambda machine: machine.admit(TopicPartition("t", 0)),
    _give_up,
    _refused,
    Transactions.committing,
    Transactions.aborting,
    Transactions.preparing,
    Transactions.is_prepared,
    Transactions.not_prepared,
    _end(ErrorCode.NONE),
    _end(ErrorCode.PRODUCER_FENCED),
)


def test_a_producer_goes_through_the_phases_of_the_table_and_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, Transactions, "phase", lambda phase: str(phase.name))
    for calls in product((_init, _init_kept, _refused), *[_CALLS] * (_STEPS - 1)):
        machine = Transactions("x", 60_000, two_phase=True)
        for call in calls:
            try:
                call(machine)
            except (KafkaError, OttlaError):
                continue
    assert seen == table(state)
