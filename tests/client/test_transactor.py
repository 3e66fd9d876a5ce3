"""What drives a transaction: which errors look the coordinator up again, what waits how long, and what is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.connection.cluster import TRANSACTION, Cluster
from ottla.client.membership.commit import GroupMetadata
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.api import not_aborted
from ottla.client.transaction.driver import Transactor, _protocol
from ottla.client.transaction.state import CommitUnanswered, Phase, Transactions
from ottla.kernel.client_error import Fenced, NotReachable, RequestTimedOut
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.api.end_txn import EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ONE = TopicPartition("t", 0)
_MOVED = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
]
_STAYED = [
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
]


class Scene:
    """A transactor whose transaction is open, without a cluster: what it forgets, and whom it wakes."""

    def __init__(self, version: int = 2, **settings: Any) -> None:
        self.settings = ProducerSettings.read("127.0.0.1:1", {"transactional_id": "x", **settings})
        self.machine = Transactions("x", 60_000, two_phase=self.settings.transaction_two_phase_commit_enable)
        self.machine.init_answered(InitProducerIdResponse(producer_id=7, producer_epoch=0))
        self.machine.begin(version)
        self.forgotten: list[tuple[int, str]] = []
        self.wakes: list[None] = []
        self.aborted: list[KafkaError] = []
        self.cluster = Cluster(self.settings)
        self.cluster.coordinator = self._coordinator  # type: ignore[method-assign]
        self.cluster.forget_coordinator = lambda *key: self.forgotten.append(key)  # type: ignore[method-assign]
        sender = SimpleNamespace(
            wake=lambda: self.wakes.append(None), abort=self.aborted.append, failed=["batch"], renumber=lambda _: None
        )
        self.sender = cast(Any, sender)
        self.transactor = Transactor(self.cluster, self.sender, self.settings, threading.Lock(), self.machine)
        self.asked: list[tuple[int, str, str]] = []
        #: The requests to the coordinator and the version that each has at most, and what it answers.
        self.called: list[tuple[str, int | None]] = []
        self.answers: list[Any] = []

    async def _coordinator(self, kind: int, key: str, purpose: str = "coordinator") -> Any:
        self.asked.append((kind, key, purpose))
        return SimpleNamespace(call=self._call)

    async def _call(self, request: Any, response: Any, *, timeout_ms: int, at_most: int | None = None) -> Any:
        self.called.append((type(request).__name__, at_most))
        answer = self.answers.pop(0)
        return await answer if isinstance(answer, asyncio.Future) else answer


def played(play: Callable[[Scene], Awaitable[None]], version: int = 2, **settings: Any) -> None:
    async def run() -> None:
        await play(Scene(version, **settings))

    asyncio.run(run())


async def hangs() -> None:
    await asyncio.get_running_loop().create_future()


async def settled() -> None:
    """Whatever can be done now has been."""
    for _ in range(20):
        await asyncio.sleep(0)


async def done() -> None:
    return None


@pytest.mark.parametrize("code", [*_MOVED, *_STAYED, None])
def test_a_coordinator_that_has_moved_is_looked_up_again(code: ErrorCode | None) -> None:
    error: Exception = NotReachable("gone") if code is None else KafkaError(code, "why")

    async def play(scene: Scene) -> None:
        async def attempt(_: object) -> None:
            raise error

        with pytest.raises(type(error)) as raised:
            await scene.transactor._at_own_coordinator(attempt)()
        assert raised.value is error
        assert scene.asked == [(TRANSACTION, "x", "")]
        assert scene.forgotten == ([(TRANSACTION, "x")] if code in (*_MOVED, None) else [])

    played(play)


@pytest.mark.parametrize("phase", [Phase.FATAL, Phase.FAILED])
def test_init_tells_a_producer_that_cannot_go_on_why(phase: Phase) -> None:
    async def play(scene: Scene) -> None:
        code = ErrorCode.PRODUCER_FENCED if phase is Phase.FATAL else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        scene.machine.failed(KafkaError(code, "why"))
        assert scene.machine.phase is phase
        with pytest.raises(KafkaError, match="why"):
            await scene.transactor.init()
        assert scene.asked == []

    played(play)


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Phase.NEW),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Phase.NEW),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Phase.NEW),
        (ErrorCode.PRODUCER_FENCED, Phase.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Phase.FATAL),
    ],
)
def test_a_producer_that_may_not_have_its_id_yet_can_ask_again(code: ErrorCode, phase: Phase) -> None:
    machine = Transactions("x", 60_000)
    with pytest.raises(KafkaError, match=code.name):
        machine.init_answered(InitProducerIdResponse(error_code=int(code)))
    assert machine.phase is phase
    if phase is Phase.NEW:
        machine.init_answered(InitProducerIdResponse(producer_id=7, producer_epoch=0))
        assert (machine.phase, machine.producer) == (Phase.READY, (7, 0))


@pytest.mark.parametrize("call", ["commit", "abort", "prepare"])
def test_what_takes_longer_than_max_block_ms_says_what_to_do(call: str) -> None:
    async def play(scene: Scene) -> None:
        what = "the broker has not answered for all records" if call == "abort" else "not all records and offsets"
        with pytest.raises(RequestTimedOut, match=f"{what}.* within max.block.ms=20: try again, or abort"):
            await getattr(scene.transactor, call)(hangs)
        assert scene.machine.phase in (Phase.COMMITTING, Phase.ABORTING, Phase.OPEN, Phase.PREPARED)
        assert bool(scene.aborted) == (call == "abort")
        assert scene.sender.failed == ["batch"], "nothing was told of it yet"

    def two_phase(scene: Scene) -> Awaitable[None]:
        scene.machine.two_phase = call == "prepare"
        return play(scene)

    played(two_phase, max_block_ms=20)


def test_an_empty_transaction_ends_without_a_request_and_tells_what_its_abort_told() -> None:
    async def play(scene: Scene) -> None:
        await scene.transactor.abort(done)
        assert scene.machine.phase is Phase.READY and scene.sender.failed == []
        scene.machine.begin(2)
        await scene.transactor.commit(done)
        assert scene.machine.phase is Phase.READY

    played(play)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "why"), ErrorCode.TOPIC_AUTHORIZATION_FAILED, "why"),
        (NotReachable("no broker can be reached"), ErrorCode.REQUEST_TIMED_OUT, "no broker can be reached"),
    ],
)
def test_partitions_that_cannot_be_added_fail_the_transaction(error: Exception, code: ErrorCode, said: str) -> None:
    async def play(scene: Scene) -> None:
        given: list[tuple[int, int, int]] = []

        async def retry(attempt: object, timeout_ms: int, *_: object, backoff: Any) -> None:
            given.append((timeout_ms, backoff.next_ms(), backoff.next_ms()))
            raise error

        scene.cluster.retry = retry  # type: ignore[method-assign, assignment]
        scene.machine.admit(ONE)
        assert scene.machine.pending
        scene.transactor._pending()
        scene.transactor._pending()
        assert scene.transactor._adding is not None
        await scene.transactor._adding
        assert not scene.machine.pending and scene.machine.phase is Phase.FAILED
        assert scene.machine.error is not None and scene.machine.error.code is code
        assert said in str(scene.machine.error) and len(scene.wakes) == 1
        [(timeout_ms, first, _)] = given
        assert timeout_ms == 90_000 and first <= 24, "the last transaction ends soon"

    played(play, version=1, delivery_timeout_ms=90_000)


@pytest.mark.parametrize("fails", [False, True])
def test_partitions_are_added_unless_the_transaction_has_failed_meanwhile(fails: bool) -> None:
    results = [AddPartitionsToTxnPartitionResult(partition_index=0)]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]

    async def play(scene: Scene) -> None:
        scene.answers = [AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)]
        scene.machine.admit(ONE)
        scene.transactor._pending()
        if fails:
            scene.machine.failed(KafkaError(ErrorCode.INVALID_RECORD, "why"))
        assert scene.transactor._adding is not None
        await scene.transactor._adding
        assert scene.called == ([] if fails else [("AddPartitionsToTxnRequest", 3)])
        assert (ONE in scene.machine.partitions) is not fails
        assert scene.wakes, "the partition's records go on"

    played(play, version=1)


@pytest.mark.parametrize(
    ("code", "phase"),
    [(ErrorCode.GROUP_AUTHORIZATION_FAILED, Phase.FAILED), (ErrorCode.COORDINATOR_NOT_AVAILABLE, Phase.OPEN)],
)
def test_offsets_that_cannot_be_written_fail_the_transaction_unless_that_passes(code: ErrorCode, phase: Phase) -> None:
    error = KafkaError(code, "why")

    async def play(scene: Scene) -> None:
        async def write(_: object) -> None:
            raise error

        scene.transactor._write = write  # type: ignore[method-assign, assignment]
        with pytest.raises(KafkaError) as raised:
            await scene.transactor.send_offsets(GroupMetadata("g"), {ONE: (5, -1, "")})
        assert raised.value is error
        assert scene.machine.phase is phase and scene.machine.error is (error if phase is Phase.FAILED else None)
        assert scene.machine.owed, "still to be written"

    played(play)


def test_a_group_is_added_once_by_the_first_protocol_and_never_by_the_second() -> None:
    assert Scene(2).machine.group_request("g") is None
    machine = Scene(1).machine
    assert machine.group_request("g") == AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=7, producer_epoch=0, group_id="g"
    )
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        machine.group_answered("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert machine.group_request("g") is not None, "it was not added"
    machine.group_answered("g", ErrorCode.NONE)
    assert machine.group_request("g") is None and machine.group_request("h") is not None
    # The coordinator has a transaction now, though nothing was written.
    machine.aborting()
    assert machine.end_request() is not None
    machine.end_answered(EndTxnResponse())
    machine.begin(1)
    assert machine.group_request("g") is not None, "another transaction"


def test_offsets_are_owed_to_an_open_transaction_only() -> None:
    machine = Scene().machine
    machine.owe(GroupMetadata("g"), {})
    assert machine.owed == []
    machine.failed(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        machine.owe(GroupMetadata("g"), {ONE: (1, -1, "")})
    assert machine.owed == []


@pytest.mark.parametrize("commits", [False, True])
def test_a_close_that_cannot_end_the_transaction_says_so(commits: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="ottla.client")
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "why")

    async def play(scene: Scene) -> None:
        async def retry(*_: object, **__: object) -> None:
            raise error

        scene.cluster.retry = retry  # type: ignore[method-assign, assignment]
        scene.machine.admit(ONE)
        if commits:
            scene.machine.committing()
            scene.machine.end_request()
            assert scene.machine.unanswered
        await scene.transactor.close(done)
        outcome = "confirmed as committed" if commits else "aborted"
        [said] = [each.getMessage() for each in caplog.records]
        assert said == f"the transaction of x was not {outcome}: {error}"

    played(play)


@pytest.mark.parametrize(
    ("level", "supported", "protocol"), [(None, True, 1), (1, True, 1), (2, True, 2), (3, True, 2), (2, False, 1)]
)
def test_the_second_protocol_needs_the_feature_and_the_request(
    level: int | None, supported: bool, protocol: int
) -> None:
    connection = SimpleNamespace(
        features={} if level is None else {"transaction.version": level},
        supports=lambda key, version: supported and (key, version) == (ApiKey.END_TXN, 5),
    )
    assert _protocol(cast(Any, connection)) == protocol


def test_a_failed_transaction_is_not_ended_but_told() -> None:
    async def play(scene: Scene) -> None:
        error = KafkaError(ErrorCode.INVALID_RECORD, "why")
        scene.machine.failed(error)
        with pytest.raises(KafkaError) as raised:
            await scene.transactor._end(Phase.COMMITTING)
        assert raised.value is error and scene.asked == []

    played(play)


_UNANSWERED = "the commit was sent and may have been carried out: call commit_transaction to know, or close"
_NOT_ABORTED = "the transaction was not aborted (h:1 is gone): the coordinator aborts it after its timeout"


@pytest.mark.parametrize(
    ("failure", "error", "notes"),
    [
        (CommitUnanswered("x"), ZeroDivisionError(), [_UNANSWERED]),
        (NotReachable("h:1 is gone"), ZeroDivisionError(), [_NOT_ABORTED]),
        (NotReachable("h:1 is gone"), KafkaError(ErrorCode.INVALID_RECORD), [_NOT_ABORTED]),
        (NotReachable("h:1 is gone"), Fenced(ErrorCode.PRODUCER_FENCED), []),
        (Fenced(ErrorCode.PRODUCER_FENCED), ZeroDivisionError(), None),
    ],
)
def test_an_error_that_ends_a_transaction_says_what_became_of_it(
    failure: Any, error: BaseException, notes: list[str] | None
) -> None:
    not_aborted(failure, error)
    found = getattr(error, "__notes__", [])
    if notes is None:
        assert len(found) == 1 and str(failure) in found[0]
    else:
        assert found == notes


def test_an_abort_that_fails_as_the_commit_did_adds_nothing_and_a_fence_says_more() -> None:
    error = KafkaError(ErrorCode.INVALID_RECORD, "why")
    not_aborted(error, error)
    assert not hasattr(error, "__notes__")
    fence = Fenced(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(Fenced) as raised:
        not_aborted(fence, error)
    assert raised.value is fence and fence.__cause__ is error


@pytest.mark.parametrize("call", ["commit", "abort", "prepare"])
@pytest.mark.parametrize("answer", [None, RequestTimedOut("no answer")], ids=["answered", "given up"])
def test_a_transaction_ends_behind_the_offsets_of_a_call_that_was_interrupted(
    call: str, answer: KafkaError | None
) -> None:
    """A coordinator that took them after the end would keep them as pending: its group could not be read any more."""

    async def play(scene: Scene) -> None:
        late: asyncio.Future[TxnOffsetCommitResponse] = asyncio.get_running_loop().create_future()
        good = TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=[_TAKEN])])
        scene.answers = [late, good, EndTxnResponse()]
        sending = asyncio.ensure_future(scene.transactor.send_offsets(GroupMetadata("g"), {ONE: (5, -1, "")}))
        await settled()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        ending = asyncio.ensure_future(getattr(scene.transactor, call)(done))
        await settled()
        assert not ending.done() and "EndTxnRequest" not in [name for name, _ in scene.called]
        if answer is None:
            late.set_result(good)
        else:
            late.set_exception(answer)
        if call == "abort":
            scene.answers = [EndTxnResponse()]
        await ending
        assert scene.machine.phase is (Phase.PREPARED if call == "prepare" else Phase.READY)

    played(play, transaction_two_phase_commit_enable=True)


_TAKEN = TxnOffsetCommitResponsePartition(partition_index=0)
