"""What becomes of a batch that was refused, case by case."""

from typing import Any

import pytest

from ottla.client.connection.metadata import Metadata
from ottla.client.producer.accumulator import PartitionQueue
from ottla.client.producer.classify_error import (
    ErrorClass,
    classify_error,
    explained,
    parts_of,
    pause_ms,
    topic_data,
    version_at_most,
)
from ottla.client.producer.delivery import ProducerBatch
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.state import Phase, Transactions
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import produce as wire

SETTINGS = ProducerSettings.read("127.0.0.1:1", {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1000})


def queue(*batches: ProducerBatch) -> PartitionQueue:
    partition = PartitionQueue("t", 0)
    partition.in_flight.extend(batches)
    return partition


def batch(records: int = 2, producer: tuple[int, int] | None = (7, 0)) -> ProducerBatch:
    made = ProducerBatch("t", 0, 0, 1000)
    for _ in range(records):
        made.add(b"v", None, None, None, 0)
    made.seal()
    if producer is not None:
        made.sequence(producer, 0)
    return made


def verdict(code: ErrorCode, *, one: ProducerBatch | None = None, now_ms: int = 0, **more: Any) -> ErrorClass:
    refused = one or batch()
    line = more.get("line", queue(refused))
    return classify_error(
        refused, line, KafkaError(code, ""), more.get("transactions"), more.get("settings", SETTINGS), now_ms
    )


def test_what_may_pass_is_tried_again_until_the_delivery_timeout() -> None:
    assert verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER) is ErrorClass.RETRY
    assert verdict(ErrorCode.NETWORK_EXCEPTION, now_ms=999) is ErrorClass.RETRY
    assert verdict(ErrorCode.NETWORK_EXCEPTION, now_ms=1000) is ErrorClass.FAIL
    assert verdict(ErrorCode.TOPIC_AUTHORIZATION_FAILED) is ErrorClass.FAIL
    none = ProducerSettings.read("127.0.0.1:1", {"retries": 0})
    assert verdict(ErrorCode.NETWORK_EXCEPTION, settings=none) is ErrorClass.FAIL


def test_a_batch_that_is_too_large_is_split_until_it_is_one_record() -> None:
    for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        assert verdict(code) is ErrorClass.SPLIT
        assert verdict(code, one=batch(1)) is ErrorClass.FAIL


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_only_the_first_in_line_says_that_the_broker_has_lost_track(code: ErrorCode) -> None:
    first, second = batch(), batch()
    line = queue(first, second)
    assert verdict(code, one=first, line=line) is ErrorClass.RENUMBER
    assert verdict(code, one=second, line=line) is ErrorClass.RETRY
    assert verdict(code, one=batch(producer=None)) is not ErrorClass.RENUMBER


def test_nothing_mends_lost_track_within_a_transaction() -> None:
    transactions = Transactions("x", 60_000)
    one = batch()
    assert verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, one=one, transactions=transactions) is ErrorClass.FAIL


def test_a_transaction_that_is_aborted_waits_for_no_halves_and_no_other_try() -> None:
    transactions = Transactions("x", 60_000)
    transactions.phase = Phase.ABORTING
    for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        assert verdict(code, transactions=transactions) is ErrorClass.FAIL


def test_pauses_grow_with_each_attempt_and_are_short_while_a_transaction_ends() -> None:
    one = batch()
    pauses = []
    for attempts in range(5):
        one.attempts = attempts
        pauses.append(pause_ms(one, KafkaError(ErrorCode.NETWORK_EXCEPTION, ""), SETTINGS))
    assert all(80 <= pauses[0] <= 120 for _ in range(3))
    assert all(
        0.8 * want <= pause <= 1.2 * want for pause, want in zip(pauses, (100, 200, 400, 800, 1000), strict=True)
    )
    one.attempts = 0
    assert pause_ms(one, KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, ""), SETTINGS) <= 24


def test_requests_carry_topic_ids_where_they_are_known_and_answers_are_read_by_both() -> None:
    metadata = Metadata(max_age_ms=1, max_idle_ms=1, now_ms=0)
    one = batch()
    data = topic_data([(queue(one), one)], metadata, SETTINGS)
    assert [(topic.name, [part.index for part in topic.partition_data]) for topic in data] == [("t", [0])]
    assert version_at_most(wire.ProduceRequest(topic_data=data), None) == 12
    part = wire.PartitionProduceResponse(index=0, error_code=int(ErrorCode.INVALID_RECORD), error_message="no")
    answer = wire.ProduceResponse(responses=[wire.TopicProduceResponse(name="t", partition_responses=[part])])
    assert parts_of(answer, metadata) == {("t", 0): part}
    assert explained(part, one) == "t-0: no"
    part.record_errors = [wire.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="too old")]
    assert explained(part, one) == "t-0: record 1 of the batch: too old"
