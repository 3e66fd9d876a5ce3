"""A commit while another thread or task ends the same transaction, as a close does: it does not succeed by an abort."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.transaction.api import not_aborted
from ottla.client.transaction.state import Phase
from ottla.kernel.client_error import TransactionAborted
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.end_txn import EndTxnResponse
from tests.client.test_transactor import Scene, done, played, settled


def ended() -> EndTxnResponse:
    return EndTxnResponse(producer_id=7, producer_epoch=1)


@pytest.mark.parametrize("end", ["abort", "close"])
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("first", ["commit", "abort"])
def test_a_commit_that_is_overtaken_by_an_abort_says_so(end: str, written: bool, first: str) -> None:
    async def play(scene: Scene) -> None:
        if written:
            scene.machine.admit(TopicPartition("t", 0))
        delivered, settles = asyncio.Event(), asyncio.Event()
        scene.answers = [ended(), ended()]
        commit = asyncio.create_task(scene.transactor.commit(delivered.wait))  # type: ignore[arg-type]
        await settled()
        other = asyncio.create_task(getattr(scene.transactor, end)(settles.wait))
        await settled()
        for event in (delivered, settles) if first == "commit" else (settles, delivered):
            event.set()
            await settled()
        with pytest.raises(TransactionAborted, match="the transaction of x was aborted by another call"):
            await commit
        await other
        assert scene.machine.phase is Phase.READY
        assert len(scene.called) == written

    played(play)


def test_a_commit_that_looks_for_its_coordinator_sends_no_abort_of_the_next_transaction() -> None:
    async def play(scene: Scene) -> None:
        scene.machine.admit(TopicPartition("t", 0))
        found: asyncio.Future[None] = asyncio.Future()
        look_up = scene.transactor._cluster.coordinator

        async def slowly(*key: object, **keys: object) -> object:
            scene.transactor._cluster.coordinator = look_up  # type: ignore[method-assign]
            await found
            return await look_up(*key, **keys)  # type: ignore[arg-type]

        scene.transactor._cluster.coordinator = slowly  # type: ignore[assignment, method-assign]
        scene.answers = [ended()]
        commit = asyncio.create_task(scene.transactor.commit(done))
        await settled()
        await scene.transactor.abort(done)
        scene.machine.begin(2)
        scene.machine.admit(TopicPartition("t", 0))
        found.set_result(None)
        with pytest.raises(TransactionAborted):
            await commit
        assert scene.machine.phase is Phase.OPEN and len(scene.called) == 1

    played(play)


def test_two_commits_of_one_transaction_both_succeed() -> None:
    async def play(scene: Scene) -> None:
        scene.machine.admit(TopicPartition("t", 0))
        scene.answers = [ended()]
        delivered = asyncio.Event()
        second = asyncio.create_task(scene.transactor.commit(delivered.wait))  # type: ignore[arg-type]
        await settled()
        await scene.transactor.commit(done)
        delivered.set()
        await second
        assert scene.machine.phase is Phase.READY and len(scene.called) == 1

    played(play)


def test_a_commit_beside_one_that_is_refused_has_its_error() -> None:
    async def play(scene: Scene) -> None:
        scene.machine.admit(TopicPartition("t", 0))
        scene.answers = [EndTxnResponse(error_code=int(ErrorCode.PRODUCER_FENCED))]
        delivered = asyncio.Event()
        second = asyncio.create_task(scene.transactor.commit(delivered.wait))  # type: ignore[arg-type]
        await settled()
        with pytest.raises(Exception, match="PRODUCER_FENCED"):
            await scene.transactor.commit(done)
        delivered.set()
        with pytest.raises(Exception, match="PRODUCER_FENCED"):
            await second

    played(play)


def test_a_commit_that_was_overtaken_does_not_say_that_nothing_was_aborted() -> None:
    error = TransactionAborted("by another call")
    not_aborted(OttlaError("no transaction is open"), error)
    assert not hasattr(error, "__notes__")
