"""What becomes of a batch that was refused, how long it waits, and what an answer says of it: pure, by tables."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from ottla.client.connection.metadata import Metadata
from ottla.client.producer.accumulator import PartitionQueue
from ottla.client.producer.classify_error import (
    ErrorClass,
    classify_error,
    explained,
    parts_of,
    pause_ms,
    version_at_most,
)
from ottla.client.producer.delivery import ProducerBatch
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.state import TRANSACTION_PAUSE_MS
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

SPLIT, RETRY, RENUMBER, FAIL = ErrorClass.SPLIT, ErrorClass.RETRY, ErrorClass.RENUMBER, ErrorClass.FAIL
SETTINGS = ProducerSettings.read("127.0.0.1:1", {"retries": 3, "retry_backoff_ms": 100, "retry_backoff_max_ms": 1000})
DEADLINE_MS = 50
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def batch(*, records: int = 2, attempts: int = 0, numbered: bool = True) -> ProducerBatch:
    made = ProducerBatch("t", 0, 0, DEADLINE_MS)
    for _ in range(records):
        made.add(b"v", None, None, None, 0)
    made.seal()
    made.deadline_ms = DEADLINE_MS
    made.attempts = attempts
    made.producer = (7, 0) if numbered else None
    return made


def fate(
    code: ErrorCode, refused: ProducerBatch, *, now_ms: int = 0, ahead: bool = False, transactions: Mock | None = None
) -> ErrorClass:
    queue = Mock(spec=PartitionQueue, in_flight=[batch(), refused] if ahead else [refused], closed=[])
    return classify_error(refused, queue, KafkaError(code), transactions, SETTINGS, now_ms)


def transaction(*, sends: bool = True, version: int = 2) -> Mock:
    return Mock(sends=sends, version=version)


@pytest.mark.parametrize(
    ("code", "records", "expected"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, 2, SPLIT),
        (ErrorCode.RECORD_LIST_TOO_LARGE, 2, SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, 1, FAIL),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, RETRY),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 2, FAIL),
    ],
)
def test_an_error_is_retried_or_not(code: ErrorCode, records: int, expected: ErrorClass) -> None:
    assert fate(code, batch(records=records)) is expected
    assert fate(code, batch(records=records), transactions=transaction()) is expected
    # An abort has begun: nothing is sent again.
    assert fate(code, batch(records=records), transactions=transaction(sends=False)) is FAIL


@pytest.mark.parametrize(
    ("now_ms", "attempts", "expected"),
    [(DEADLINE_MS - 1, 2, RETRY), (DEADLINE_MS, 2, FAIL), (0, 3, FAIL), (0, 2, RETRY)],
)
def test_retries_end_at_the_deadline_and_after_their_number(now_ms: int, attempts: int, expected: ErrorClass) -> None:
    assert fate(ErrorCode.NETWORK_EXCEPTION, batch(attempts=attempts), now_ms=now_ms) is expected


@pytest.mark.parametrize(
    ("code", "numbered", "ahead", "alone", "in_transaction"),
    [
        (OUT_OF_ORDER, True, False, RENUMBER, FAIL),
        (OUT_OF_ORDER, True, True, RETRY, RETRY),
        (ErrorCode.UNKNOWN_PRODUCER_ID, True, False, RENUMBER, FAIL),
        (ErrorCode.UNKNOWN_PRODUCER_ID, True, True, RETRY, FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True, False, RENUMBER, FAIL),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, True, False, RENUMBER, FAIL),
        (OUT_OF_ORDER, False, False, FAIL, FAIL),
    ],
)
def test_a_broker_that_lost_track_needs_new_numbers_unless_another_batch_is_to_blame(
    code: ErrorCode, numbered: bool, ahead: bool, alone: ErrorClass, in_transaction: ErrorClass
) -> None:
    assert fate(code, batch(numbered=numbered), ahead=ahead) is alone
    assert fate(code, batch(numbered=numbered), ahead=ahead, transactions=transaction()) is in_transaction


@pytest.mark.parametrize(
    ("attempts", "serial", "expected"), [(1, 4, RETRY), (0, -1, RENUMBER), (1, 5, RENUMBER), (1, 6, RENUMBER)]
)
def test_only_a_batch_behind_one_that_comes_again_is_not_to_blame(
    attempts: int, serial: int, expected: ErrorClass
) -> None:
    refused, waiting = batch(), batch(attempts=attempts)
    # The halves of a batch have its serial.
    refused.serial, waiting.serial = 5, serial
    queue = Mock(spec=PartitionQueue, in_flight=[refused], closed=[waiting])
    assert classify_error(refused, queue, KafkaError(OUT_OF_ORDER), None, SETTINGS, 0) is expected


@pytest.mark.parametrize(
    ("code", "attempts", "base_ms"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 0, 100),
        (ErrorCode.NETWORK_EXCEPTION, 2, 400),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 0, TRANSACTION_PAUSE_MS),
    ],
)
def test_a_pause_grows_and_is_short_while_the_last_transaction_ends(
    code: ErrorCode, attempts: int, base_ms: int
) -> None:
    found = {pause_ms(batch(attempts=attempts), KafkaError(code), SETTINGS) for _ in range(50)}
    assert 0.8 * base_ms - 1 <= min(found) and max(found) <= 1.2 * base_ms + 1


@pytest.mark.parametrize(
    ("ids", "transactions", "version"),
    [
        ([Uuid(b"i" * 16)], None, None),
        ([Uuid(b"i" * 16), NO_UUID], None, 12),
        ([NO_UUID], transaction(version=2), 12),
        ([Uuid(b"i" * 16)], transaction(version=2), None),
        ([Uuid(b"i" * 16)], transaction(version=1), 11),
    ],
)
def test_a_request_takes_the_version_that_can_carry_it(
    ids: list[Uuid], transactions: Mock | None, version: int | None
) -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(topic_id=topic_id) for topic_id in ids])
    assert version_at_most(request, transactions) == version


def test_an_answers_partitions_are_found_by_name_or_by_id() -> None:
    metadata = Mock(spec=Metadata, topic_names={b"i" * 16: "by-id"})
    results = [PartitionProduceResponse(index=number) for number in (0, 2)]
    topics = [
        TopicProduceResponse(name="named", partition_responses=results),
        TopicProduceResponse(topic_id=Uuid(b"i" * 16), partition_responses=results[1:]),
    ]
    assert parts_of(ProduceResponse(responses=topics), metadata) == {
        ("named", 0): results[0],
        ("named", 2): results[1],
        ("by-id", 2): results[1],
    }


@pytest.mark.parametrize(
    ("message", "records", "text"),
    [
        (None, [], "t-0"),
        ("too old", [], "t-0: too old"),
        ("too old", [(1, None), (2, "x")], "t-0: record 1 of the batch: too old"),
        ("too old", [(3, "no key")], "t-0: record 3 of the batch: no key"),
        (None, [(0, None)], "t-0: record 0 of the batch: "),
    ],
)
def test_an_error_names_the_record_that_the_broker_names(
    message: str | None, records: list[tuple[int, str | None]], text: str
) -> None:
    errors = [BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why) for index, why in records]
    part = PartitionProduceResponse(error_message=message, record_errors=errors)
    assert explained(part, batch()) == text
