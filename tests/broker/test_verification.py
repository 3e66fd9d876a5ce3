"""Questions to transaction coordinators: who is asked, in which batches, and what producers learn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.transactions import TransactionCoordinators
from ottla.broker.coordinators.verification import CoordinatorQuestion, Verification
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TRANSACTION_TOPIC, TopicPartition
from ottla.net.peer import Disconnected
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

_ME, _OTHER, _UNKNOWN = 1, 2, 3
_T0, _T1, _U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
_LEADERS = {"here": _ME, "there": _OTHER, "nowhere": _UNKNOWN}


class _Node:
    """Broker 1, with transactional ids that start with "here", "there" or "nowhere"."""

    def __init__(self) -> None:
        self.soon: list[Any] = []
        self.asked: list[tuple[int, AddPartitionsToTxnRequest, Any, int]] = []
        self.told: list[tuple[str, Any]] = []
        self.driver: Any = SimpleNamespace(verify=self._verify, join=self._join)
        self.topics: dict[str, Any] = {
            TRANSACTION_TOPIC: SimpleNamespace(
                partitions={name: SimpleNamespace(leader=_LEADERS[name]) for name in _LEADERS}
            )
        }
        runtime: Any = SimpleNamespace(
            node_id=_ME,
            image=SimpleNamespace(topics=self.topics, brokers={_ME: None, _OTHER: None}),
            loop=SimpleNamespace(call_soon=lambda do, *given: self.soon.append((do, given))),
        )
        coordinators: Any = SimpleNamespace(
            partition_of=lambda name: name.partition(" ")[0], driver_of=lambda name: self._driver()
        )
        peers: Any = SimpleNamespace(
            ask=lambda broker, request, done, at_least: self.asked.append((broker, request, done, at_least)),
            close=lambda: self.told.append(("closed", None)),
        )
        self.verification = Verification(runtime, coordinators, peers)

    def _driver(self) -> Any:
        if isinstance(self.driver, KafkaError):
            raise self.driver
        return self.driver

    def _verify(self, *given: Any) -> None:
        self.told.append(("verify", given))

    def _join(self, *given: Any, client_version: int, done: Any) -> None:
        self.told.append(("join", (*given, client_version)))
        done(ErrorCode.CONCURRENT_TRANSACTIONS)

    def ask(self, name: str, *partitions: TopicPartition, adds: bool = False) -> list[Any]:
        """What the question's producer learns."""
        answers: list[Any] = []
        self.verification.ask(CoordinatorQuestion(name, 7, 3, partitions or (_T0,), adds, answers.append))
        return answers

    def turn(self) -> None:
        for do, given in [self.soon.pop(0) for _ in range(len(self.soon))]:
            do(*given)

    def names(self, batch: int = -1) -> list[str]:
        return [each.transactional_id for each in self.asked[batch][1].transactions]


def _response(*codes: tuple[str, TopicPartition, int], error_code: int = 0) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=error_code,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=tp.topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=tp.partition, partition_error_code=code)
                        ],
                    )
                ],
            )
            for name, tp, code in codes
        ],
    )


def test_without_a_coordinator_a_question_fails_at_once() -> None:
    node = _Node()
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.ask("nowhere", _T0, _T1) == [{_T0: unavailable, _T1: unavailable}]
    node.topics.clear()
    assert node.ask("there") == [{_T0: unavailable}]
    assert node.soon == node.asked == []


@pytest.mark.parametrize("adds", [True, False])
def test_a_coordinator_of_this_node_is_asked_directly(adds: bool) -> None:
    node = _Node()
    answers = node.ask("here", _T0, _U0, adds=adds)
    if adds:
        # The second protocol, whose producers leave it to the leader to add the partition.
        assert node.told == [("join", ("here", 7, 3, (_T0, _U0), 2))]
        assert answers == [dict.fromkeys((_T0, _U0), ErrorCode.CONCURRENT_TRANSACTIONS)]
    else:
        ((what, (*asked, done)),) = node.told
        assert (what, asked) == ("verify", ["here", 7, 3, (_T0, _U0)])
        done({_T0: ErrorCode.NONE})
        assert answers == [{_T0: ErrorCode.NONE}]
    node.driver = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert node.ask("here", adds=adds) == [{_T0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}]
    assert node.soon == node.asked == []


def test_questions_of_one_turn_are_one_request() -> None:
    node = _Node()
    first, second = node.ask("there a", _T0, _U0, _T1, adds=True), node.ask("there b", _T0)
    assert node.asked == []
    node.turn()
    ((broker, request, done, at_least),) = node.asked
    assert (broker, at_least) == (_OTHER, 4)
    assert [
        (
            each.transactional_id,
            each.producer_id,
            each.producer_epoch,
            each.verify_only,
            [(topic.name, topic.partitions) for topic in each.topics],
        )
        for each in request.transactions
    ] == [("there a", 7, 3, False, [("t", [0, 1]), ("u", [0])]), ("there b", 7, 3, True, [("t", [0])])]
    done(_response(("there a", _T0, 0), ("there a", _T1, 48), ("there b", _T0, 47)))
    # What the answer leaves out is no permission.
    assert first == [{_T0: ErrorCode.NONE, _T1: ErrorCode.INVALID_TXN_STATE, _U0: ErrorCode.UNKNOWN_SERVER_ERROR}]
    assert second == [{_T0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    assert len(node.asked) == 1


def test_an_error_of_one_producer_keeps_no_answer_from_the_others() -> None:
    node = _Node()

    def breaks(_: Any) -> None:
        raise ValueError("a bug")

    node.verification.ask(CoordinatorQuestion("there a", 7, 3, (_T0,), False, breaks))
    second = node.ask("there b", _T0)
    node.turn()
    with pytest.raises(ValueError, match="a bug"):
        node.asked[0][2](_response(("there a", _T0, 0), ("there b", _T0, 0)))
    assert second == [{_T0: ErrorCode.NONE}]


def test_one_request_to_a_broker_is_in_flight_and_has_each_transactional_id_once() -> None:
    node = _Node()
    early = [node.ask("there a", _T0), node.ask("there a", _T1), node.ask("there b"), node.ask("there a", _U0)]
    node.turn()
    assert node.names() == ["there a", "there b"]
    late = node.ask("there c")
    node.turn()
    assert len(node.asked) == 1, "the second question waits for the first request's answer"
    node.asked[0][2](_response(("there a", _T0, 0), ("there b", _T0, 0)))
    assert [len(each) for each in early] == [1, 0, 1, 0]
    # In the order in which they were asked.
    assert node.names() == ["there a", "there c"]
    assert node.asked[1][1].transactions[0].topics[0].partitions == [1]
    node.asked[1][2](_response(("there a", _T1, 0), ("there c", _T0, 0)))
    assert (node.names(), late) == (["there a"], [{_T0: ErrorCode.NONE}])
    node.asked[2][2](_response(("there a", _U0, 0)))
    assert early[3] == [{_U0: ErrorCode.NONE}] and len(node.asked) == 3
    # Nothing waits for this broker any more: the next question takes the next turn.
    node.ask("there a")
    node.turn()
    assert len(node.asked) == 4


def test_a_request_has_two_hundred_questions_at_most() -> None:
    node = _Node()
    for number in range(201):
        node.ask(f"there {number}")
    node.turn()
    assert len(node.names()) == 200
    node.asked[0][2](_response())
    assert node.names() == ["there 200"]


def test_too_many_questions_for_a_broker_that_hangs_are_refused() -> None:
    node = _Node()
    waiting = [node.ask("there") for _ in range(10_000)]
    assert node.ask("there") == [{_T0: ErrorCode.NETWORK_EXCEPTION}]
    assert not any(waiting)
    node.turn()
    # The one in flight waits no more.
    assert node.ask("there") == []
    assert node.ask("there") == [{_T0: ErrorCode.NETWORK_EXCEPTION}]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Disconnected("gone", was_sent=True), ErrorCode.NETWORK_EXCEPTION),
        (_response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.INVALID_TXN_STATE),
        (_response(error_code=ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (_response(("there", _T0, 0), error_code=ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_request_that_fails_fails_all_its_questions(answer: Any, code: ErrorCode) -> None:
    node = _Node()
    first, second = node.ask("there", _T0, _T1), node.ask("there b")
    node.turn()
    node.asked[0][2](answer)
    assert (first, second) == ([{_T0: code, _T1: code}], [{_T0: code}])


def test_the_end_closes_the_connections() -> None:
    node = _Node()
    node.verification.close()
    assert node.told == [("closed", None)]


# ---- what the leader of a partition does with the answer


class _Leader:
    """A partition and its producers: whether their transaction is open, their epoch, and what is verified."""

    def __init__(self, *, verifies: bool = True, ongoing: bool = False) -> None:
        self.ongoing, self.current, self.noted = ongoing, 3, list[Any]()
        producers = SimpleNamespace(
            has_ongoing_transaction=lambda producer_id, epoch: (
                self.ongoing and (producer_id, epoch) in ((7, 2), (7, 3))
            ),
            check_epoch=self._check_epoch,
            verify_from=self._verify_from,
            is_verifying=lambda producer_id, token: token == "token",
        )
        self.partition: Any = SimpleNamespace(tp=_T0, log=SimpleNamespace(producers=producers))
        self.node: Any = SimpleNamespace(
            runtime=SimpleNamespace(
                settings=SimpleNamespace(transaction_partition_verification_enable=verifies),
                clock=SimpleNamespace(now_ms=lambda: 9000),
            )
        )

    def _check_epoch(self, producer_id: int, epoch: int) -> None:
        if epoch < self.current:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

    def _verify_from(self, *given: Any) -> str:
        self.noted.append(given)
        return "token"

    def prepare(self, epoch: int = 3, *, implicit: bool = False) -> object:
        return TransactionCoordinators.prepare(self.node, self.partition, 7, epoch, sequence=5, implicit=implicit)

    def admit(self, answer: tuple[object, ErrorCode] | None, epoch: int = 3, *, implicit: bool = False) -> ErrorCode:
        try:
            TransactionCoordinators.pass_verified(self.node, self.partition, 7, epoch, answer, implicit=implicit)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


@pytest.mark.parametrize(
    ("verifies", "implicit", "asks"),
    [(True, False, True), (True, True, True), (False, True, True), (False, False, False)],
)
def test_the_coordinator_is_asked_unless_the_node_leaves_old_producers_alone(
    verifies: bool, implicit: bool, asks: bool
) -> None:
    leader = _Leader(verifies=verifies)
    assert leader.prepare(implicit=implicit) == ("token" if asks else None)
    assert leader.noted == [(7, 3, 5, implicit, 9000)]
    with pytest.raises(KafkaError) as refused:
        leader.prepare(2, implicit=implicit)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    leader.ongoing = True
    assert leader.prepare(implicit=implicit) is None
    # Without an answer only a batch that needs none is admitted.
    assert leader.admit(None, implicit=implicit) is ErrorCode.NONE
    leader.ongoing = False
    assert leader.admit(None, implicit=implicit) is (ErrorCode.NOT_ENOUGH_REPLICAS if asks else ErrorCode.NONE)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (("token", ErrorCode.NONE), ErrorCode.NONE),
        (("token", ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        # Producers give up at PRODUCER_FENCED, which no leader of a partition tells them.
        (("token", ErrorCode.PRODUCER_FENCED), ErrorCode.INVALID_PRODUCER_EPOCH),
        # A marker has ended the transaction that was verified.
        (("older", ErrorCode.NONE), ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_verified_batch_is_admitted_to_the_transaction_that_was_verified(answer: Any, code: ErrorCode) -> None:
    leader = _Leader()
    assert leader.admit(answer) is code
    assert leader.admit(answer, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    # Another batch has opened the transaction meanwhile.
    leader.ongoing = True
    assert leader.admit(answer) is ErrorCode.NONE
