"""Asks the transaction coordinator, here or on another broker, whether partitions led here are in a transaction.

Rules:
- For a producer with transaction version 2 the question also adds the partitions; for an older one it only verifies
  them (KIP-890). The answer leaves the coordinator once its record is committed in `__transaction_state`.
- Another broker is asked in batches, one AddPartitionsToTxn in flight at a time. A transactional id has one entry in a
  batch; its next question waits for the next batch. A broker that hangs delays only the producers whose coordinator it
  is, until it is fenced or request.timeout.ms has passed.
- At most `_WAITING_MAX` questions wait for a broker; a further one gets NETWORK_EXCEPTION and is retried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TRANSACTION_TOPIC, TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.net.peer import Unanswered
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.broker.coordinators.peers import BrokerPeers
    from ottla.broker.coordinators.transactions import TransactionCoordinators
    from ottla.broker.runtime import Runtime

#: Lowest AddPartitionsToTxn version between brokers: batches need 4; 5 has TRANSACTION_ABORTABLE.
_VERSION_MIN = 4
_BATCH_MAX = 200
_WAITING_MAX = 10_000
_SECOND_PROTOCOL = 2

#: Partition -> the coordinator's error code.
Codes = dict[TopicPartition, ErrorCode]


class CoordinatorQuestion(NamedTuple):
    """Partitions of one leader that a producer wants to write to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    #: Whether the partitions are added, or only verified.
    adds: bool
    done: Callable[[Codes], None]

    def fail(self, code: ErrorCode) -> None:
        """Answer all partitions with an error: the coordinator could not be asked."""
        self.done(dict.fromkeys(self.partitions, code))


class Verification:
    """A node's questions to coordinators. `Transactions` creates it."""

    def __init__(self, runtime: Runtime, coordinators: TransactionCoordinators, peers: BrokerPeers) -> None:
        self._runtime = runtime
        self._coordinators = coordinators
        self.peers = peers
        #: Broker id -> queued questions; an entry exists while that broker is being asked.
        self._waiting: dict[int, deque[CoordinatorQuestion]] = {}

    def ask(self, question: CoordinatorQuestion) -> None:
        """Ask the coordinator of the transactional id; `done` is called once, perhaps from within this call."""
        runtime = self._runtime
        topic = runtime.image.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[self._coordinators.partition_of(question.transactional_id)].leader
        if leader == runtime.node_id:
            return self._ask_here(question)
        if leader not in runtime.image.brokers:
            return question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        waiting = self._waiting.get(leader)
        if waiting is None:
            waiting = self._waiting[leader] = deque()
            runtime.loop.call_soon(self._send, leader)
        if len(waiting) >= _WAITING_MAX:
            return question.fail(ErrorCode.NETWORK_EXCEPTION)
        waiting.append(question)
        return None

    def close(self) -> None:
        """Close the connections; pending questions get an error."""
        self.peers.close()

    def _ask_here(self, question: CoordinatorQuestion) -> None:
        name, producer_id, epoch, partitions, adds, done = question
        try:
            driver = self._coordinators.driver_of(name)
        except KafkaError as error:
            return question.fail(error.code)
        if not adds:
            return driver.verify(name, producer_id, epoch, partitions, done)
        version = _SECOND_PROTOCOL
        return driver.join(name, producer_id, epoch, partitions, client_version=version, done=question.fail)

    def _send(self, broker_id: int) -> None:
        waiting = self._waiting[broker_id]
        batch: dict[str, CoordinatorQuestion] = {}
        later: list[CoordinatorQuestion] = []
        while waiting and len(batch) + len(later) < _BATCH_MAX:
            question = waiting.popleft()
            if question.transactional_id in batch:
                later.append(question)
            else:
                batch[question.transactional_id] = question
        waiting.extendleft(reversed(later))
        if not batch:
            del self._waiting[broker_id]
            return
        self.peers.ask(
            broker_id, _request(batch.values()), partial(self._answered, broker_id, batch), at_least=_VERSION_MIN
        )

    def _answered(self, broker_id: int, batch: dict[str, CoordinatorQuestion], answer: Any) -> None:
        if isinstance(answer, Unanswered):
            failed: ErrorCode | None = ErrorCode.NETWORK_EXCEPTION
        elif answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # A misconfiguration between brokers: the producer gets "not verified", as in Apache Kafka.
            failed = ErrorCode.INVALID_TXN_STATE
        else:
            failed = ErrorCode.of(answer.error_code) if answer.error_code else None
        codes = {} if failed is not None else _codes(answer)
        self._send(broker_id)
        unsaid = ErrorCode.UNKNOWN_SERVER_ERROR if failed is None else failed
        call_each(
            partial(question.done, {tp: codes.get((name, tp), unsaid) for tp in question.partitions})
            for name, question in batch.items()
        )


def _request(questions: Iterable[CoordinatorQuestion]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                verify_only=not question.adds,
                topics=_topics(question.partitions),
            )
            for question in questions
        ]
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic))
        topic.partitions.append(tp.partition)
    return list(topics.values())


def _codes(response: AddPartitionsToTxnResponse) -> dict[tuple[str, TopicPartition], ErrorCode]:
    return {
        (result.transactional_id, TopicPartition(topic.name, each.partition_index)): ErrorCode.of(
            each.partition_error_code
        )
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
