"""What a node tells of transactions and producers, and which producer id it gives: field by field."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.producer_id import init_producer_id
from ottla.broker.handlers.transaction_view import describe_producers, describe_transactions, list_transactions
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.txn.transaction import State, Transaction
from ottla.wire.api import describe_producers as producers
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.list_transactions import ListTransactionsRequest
from tests.broker.table_node import called, done, leads

NONE = ErrorCode.NONE


def transaction(name: str, state: State = State.ONGOING, *, producer_id: int = 7, start_ms: int = 100) -> Transaction:
    partitions = (TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0))
    return Transaction(name, producer_id, 3, 6000, state, partitions, start_ms=start_ms, update_ms=150)


def coordinator(*known: Transaction) -> Mock:
    driver = Mock(machine=Mock(transactions={each.transactional_id: each for each in known}))
    return Mock(drivers=lambda: [driver], driver_of=lambda name: driver)


def test_a_transaction_is_described_with_its_partitions_by_topic() -> None:
    call = called(transactions=coordinator(transaction("x")))
    found, missing, empty = describe_transactions(
        call, DescribeTransactionsRequest(transactional_ids=["x", "y", ""])
    ).transaction_states
    assert (found.error_code, found.transactional_id, found.transaction_state) == (NONE, "x", "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (7, 3, 6000)
    assert found.transaction_start_time_ms == 100
    assert [(each.topic, each.partitions) for each in found.topics] == [("a", [1, 0]), ("b", [0])]
    assert (missing.error_code, missing.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "y")
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_a_transactional_id_of_another_coordinator_fails_alone() -> None:
    here = coordinator(transaction("x"))

    def driver_of(name: str) -> Any:
        if name == "elsewhere":
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return here.driver_of(name)

    call = called(transactions=Mock(driver_of=driver_of))
    states = describe_transactions(
        call, DescribeTransactionsRequest(transactional_ids=["elsewhere", "x"])
    ).transaction_states
    assert [(each.transactional_id, each.error_code, each.transaction_state) for each in states] == [
        ("elsewhere", ErrorCode.NOT_COORDINATOR, ""),
        ("x", NONE, "Ongoing"),
    ]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, "open old never done"),
        ({"state_filters": ["Ongoing"]}, "open old"),
        ({"state_filters": ["Empty", "CompleteCommit"]}, "never done"),
        ({"producer_id_filters": [8, 9]}, "done"),
        ({"state_filters": ["Ongoing"], "producer_id_filters": [8]}, ""),
        ({"duration_filter": 0}, "open old never done"),
        # At 1,000 ms: older than so many.
        ({"duration_filter": 899}, "open old never done"),
        ({"duration_filter": 900}, "old never done"),
        ({"transactional_id_pattern": "o.*|never"}, "open old never"),
        ({"transactional_id_pattern": "o"}, ""),
        ({"transactional_id_pattern": ""}, "open old never done"),
    ],
)
def test_transactions_are_listed_by_every_filter(filters: dict[str, Any], names: str) -> None:
    known = (
        transaction("open"),
        transaction("old", start_ms=99),
        transaction("never", State.EMPTY, start_ms=-1),
        transaction("done", State.COMPLETE_COMMIT, producer_id=8, start_ms=50),
    )
    call = called(transactions=coordinator(*known), clock=Mock(now_ms=lambda: 1000))
    found = done(list_transactions(call, ListTransactionsRequest(**filters)), call)
    assert [each.transactional_id for each in found.transaction_states] == names.split()
    assert found.unknown_state_filters == []
    for each in found.transaction_states:
        (same,) = (one for one in known if one.transactional_id == each.transactional_id)
        assert each.producer_id == same.producer_id
        assert each.transaction_state == {0: "Empty", 1: "Ongoing", 4: "CompleteCommit"}[same.state]


def test_a_state_that_there_is_not_is_named_and_a_pattern_that_is_none_is_refused() -> None:
    call = called(transactions=coordinator(), clock=Mock(now_ms=lambda: 1000))
    request = ListTransactionsRequest(state_filters=["Ongoing", "Dreaming", "ongoing", "Dreaming"])
    assert done(list_transactions(call, request), call).unknown_state_filters == ["Dreaming", "ongoing"]
    with pytest.raises(KafkaError) as refused:
        done(list_transactions(call, ListTransactionsRequest(transactional_id_pattern="(")), call)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_producers_of_a_partition_are_described() -> None:
    known = SimpleNamespace(epoch=1, last_sequence=2, last_timestamp=3, coordinator_epoch=4, transaction_start=5)
    call = called(leader_of=leads(t=Mock(log=Mock(producers=Mock(by_id={9: known})))), hosted={})
    topics = [
        producers.TopicRequest(name="t", partition_indexes=[0, 1]),
        producers.TopicRequest(name="u", partition_indexes=[0]),
        producers.TopicRequest(name="no such", partition_indexes=[0]),
    ]
    first, second, third = describe_producers(call, producers.DescribeProducersRequest(topics=topics)).topics
    (found,) = first.partitions[0].active_producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence, found.last_timestamp) == (9, 1, 2, 3)
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (4, 5)
    away = first.partitions[1]
    assert (away.partition_index, away.error_code, away.error_message) == (
        1,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "not here",
    )
    assert second.partitions[0].error_message == "This server does not host this topic-partition."
    assert third.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# ---- producer ids


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": -1, "producer_epoch": 0}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_producer_names_its_id_and_epoch_together(fields: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        init_producer_id(called(), InitProducerIdRequest(**{"transactional_id": None, **fields}))
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (3, NONE, NONE),
    ],
)
def test_an_older_client_is_told_of_its_fencing_in_its_own_words(
    version: int, said: ErrorCode, told: ErrorCode
) -> None:
    def ask(_: Any, asked_version: int, answered: Any) -> None:
        assert asked_version == version
        answered(InitProducerIdResponse(error_code=said))

    transactions = Mock(driver_of=lambda name: Mock(ask=ask) if name == "x" else None)
    call = called(version, transactions=transactions)
    answer = done(init_producer_id(call, InitProducerIdRequest(transactional_id="x")), call)
    assert answer.error_code == told


def test_only_a_transactional_id_that_needs_a_producer_id_waits_for_one() -> None:
    asked: list[Any] = []
    transactions = Mock(driver_of=lambda name: Mock(ask=lambda request, version, told: asked.append(told)))
    waiting: list[Any] = []
    call = called(transactions=transactions, producer_ids=Mock(when_available=waiting.append))
    known, new = (init_producer_id(call, InitProducerIdRequest(transactional_id=name)) for name in ("known", "new"))
    assert waiting == [], "a known id needs none, perhaps"
    asked[0](InitProducerIdResponse(producer_id=5, producer_epoch=2))
    assert known.value.producer_epoch == 2
    asked[1](InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert not new.resolved
    waiting[0]()
    # The controller gave none, or another request has taken it: the producer comes again.
    asked[2](InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert new.value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and len(waiting) == 1


@pytest.mark.parametrize("number", [5000, 0, None])
def test_an_idempotent_producer_gets_the_next_id_or_comes_again(number: int | None) -> None:
    call = called(producer_ids=Mock(when_available=lambda then: then(), next=lambda: number))
    answer = done(init_producer_id(call, InitProducerIdRequest(transactional_id=None)), call)
    if number is None:
        assert answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    else:
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, number, 0)
