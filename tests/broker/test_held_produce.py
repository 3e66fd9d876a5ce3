"""A produce request that is held for its coordinators: when it goes on, and that its connection is read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.held_produce import Verified, hold
from ottla.broker.handlers.produce import produce
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.table_node import called


class _Scene:
    """Two producers' batches in one request, and what its connection and coordinators are told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.questions: list[Any] = []
        connection = SimpleNamespace(
            closed=False, pause=lambda: self.told.append("pause"), resume=lambda: self.told.append("resume")
        )
        transactions = SimpleNamespace(
            prepare=lambda partition, *producer, **_: (partition.tp, producer),
            verification=SimpleNamespace(ask=self.questions.append),
        )
        self.call: Any = SimpleNamespace(
            version=11, connection=connection, node=SimpleNamespace(transactions=transactions)
        )
        batches = [
            build([(1, b"k", b"v", [])], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
            for producer in (7, 8)
        ]
        data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
        self.request = ProduceRequest(
            transactional_id="x", topic_data=[TopicProduceData(name="t", partition_data=data)]
        )

    def hold(self, go_on: Any) -> Any:
        def partition_of(call: Any, topic: Any, index: int) -> Any:
            return SimpleNamespace(tp=TopicPartition(topic.name, index))

        return hold(self.call, self.request, partition_of, go_on)


def test_a_request_of_two_producers_waits_for_both_answers() -> None:
    scene, passed = _Scene(), list[Verified]()
    scene.hold(lambda verified: passed.append(dict(verified)))
    assert scene.told == ["pause"]
    first, second = scene.questions
    first.done({TopicPartition("t", 0): ErrorCode.NONE})
    assert (passed, scene.told) == ([], ["pause"])
    second.done({TopicPartition("t", 1): ErrorCode.INVALID_TXN_STATE})
    (verified,) = passed
    assert {tp: code for tp, (_, code) in verified.items()} == {
        TopicPartition("t", 0): ErrorCode.NONE,
        TopicPartition("t", 1): ErrorCode.INVALID_TXN_STATE,
    }
    assert scene.told == ["pause", "resume"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_held_request_that_fails_is_answered_and_its_connection_is_read_again(
    error: Exception, code: ErrorCode
) -> None:
    scene = _Scene()

    def go_on(verified: Verified) -> Any:
        raise error

    answers: list[Any] = []
    scene.hold(go_on).then(answers.append)
    for question, index in zip(scene.questions, (0, 1), strict=True):
        question.done({TopicPartition("t", index): ErrorCode.NONE})
    (answer,) = answers
    assert (answer.code, scene.told) == (code, ["pause", "resume"])


_ABORTABLE, _BUSY, _RETRY = (
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (12, _BUSY, _BUSY),
        (11, _BUSY, _RETRY),
        (12, ErrorCode.NOT_COORDINATOR, _RETRY),
        (11, ErrorCode.NETWORK_EXCEPTION, _RETRY),
        (11, _ABORTABLE, _ABORTABLE),
        (10, _ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_coordinators_error_reaches_a_producer_as_one_that_it_knows(
    version: int, code: ErrorCode, told: ErrorCode
) -> None:
    """An older producer aborts its transaction, or ends, for an error that it does not know to be temporary."""
    request = _Scene().request
    request.acks = 1
    call = called(version)
    call.is_long, call.node.transactions.is_shared = False, False
    call.node.transactions.guard.side_effect = KafkaError(code)
    partition = call.node.leader_of.return_value
    partition.machine = None
    answer: Any = produce(call, request)
    (topic,) = answer.responses
    assert [each.error_code for each in topic.partition_responses] == [told, told]
    assert not partition.append.called
