"""A producer's batch: its split halves, its bytes after a retry, and what the senders of its records are told."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

from ottla.client.producer.delivery import Delivery, ProducerBatch, RecordMetadata, TableDelivery
from ottla.kernel.client_error import RequestTimedOut
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.batch import read
from ottla.wire.codec import Codec

_LAST_SEQUENCE = 0x7FFFFFFF


def batch_of(*values: bytes, stamps: tuple[tuple[int, int], ...] = ((0, 5),)) -> ProducerBatch:
    batch = ProducerBatch("t", 3, created_ms=100, deadline_ms=1_000)
    now_ms = 0
    for index, value in enumerate(values):
        now_ms = dict(stamps).get(index, now_ms)
        batch.add(value, None, None, None, now_ms)
    batch.seal()
    batch.limit, batch.room = 1_000, 200
    return batch


def told_of(batch: ProducerBatch, count: int) -> list[tuple[RecordMetadata | None, KafkaError | None]]:
    """What the senders of its first records are told, as it comes."""
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
    for index in range(count):
        Delivery.of(batch, index).when_done(lambda metadata, error: told.append((metadata, error)))
    return told


def test_stamps_begin_runs_and_the_latest_is_known() -> None:
    batch = batch_of(b"a", b"b", b"c", stamps=((0, 7), (1, 9), (2, 8)))
    assert batch.runs == [(0, 7), (1, 9), (2, 8)]
    assert (batch.timestamp, batch.max_timestamp, batch.size, batch.records) == (8, 9, 800, 3)
    assert (batch.since_s, batch.until_s) == (0.008, 0.009)
    assert [batch.timestamp_of(index) for index in range(3)] == [7, 9, 8]


def test_a_timestamp_of_the_log_replaces_those_of_the_records() -> None:
    batch = batch_of(b"a", b"b", stamps=((0, 7), (1, 9)))
    batch.succeed(10, 50)
    assert [Delivery.of(batch, index).result().timestamp for index in range(2)] == [50, 50]
    early = batch_of(b"a")
    early.succeed(10, 0)
    assert Delivery.of(early, 0).result().timestamp == 0, "the first millisecond of 1970 is a time, too"


def test_the_halves_of_a_batch_have_its_records_times_and_sequence() -> None:
    batch = batch_of(b"a", b"b", b"c", b"d", b"e", stamps=((0, 7), (1, 9), (3, 8), (4, 6)))
    batch.keys = [b"1", None, b"3", None, b"5"]
    batch.headers = [[("h", bytes([number]))] for number in range(5)]
    batch.sequence((11, 2), 40, transactional=True)
    batch.attempts, batch.serial = 4, 17
    first, second = batch.halves()
    assert (first.values, second.values) == ([b"a", b"b"], [b"c", b"d", b"e"])
    assert (first.keys, second.keys) == ([b"1", None], [b"3", None, b"5"])
    assert first.headers == [[("h", b"\0")], [("h", b"\1")]]
    assert second.headers == [[("h", b"\2")], [("h", b"\3")], [("h", b"\4")]]
    assert first.runs == [(0, 7), (1, 9)] and second.runs == [(0, 9), (1, 8), (2, 6)]
    assert (first.max_timestamp, second.max_timestamp) == (9, 9)
    for part, sequence in ((first, 40), (second, 42)):
        assert (part.topic, part.partition, part.created_ms, part.deadline_ms) == ("t", 3, 100, 1_000)
        assert (part.producer, part.base_sequence, part.transactional, part.renews) == ((11, 2), sequence, True, False)
        assert (part.serial, part.attempts, part.size) == (17, 5, 400)
    assert not batch.values and batch.parts == [(0, first), (2, second)]


def test_halves_without_a_sequence_get_theirs_later_and_one_that_renews_goes_on_to() -> None:
    for part in batch_of(b"a", b"b").halves():
        assert part.producer is None and part.base_sequence == -1 and part.renews
        assert part.keys is None and part.headers is None
    renewing = batch_of(b"a", b"b")
    renewing.sequence((1, 0), 5)
    renewing.renews = True
    assert all(part.renews for part in renewing.halves())


def test_a_sequence_goes_around_within_the_halves() -> None:
    batch = batch_of(b"a", b"b", b"c", b"d")
    batch.sequence((1, 0), _LAST_SEQUENCE)
    first, second = batch.halves()
    assert (first.base_sequence, second.base_sequence) == (_LAST_SEQUENCE, 1)


def test_rows_of_a_table_are_read_from_their_bytes_to_be_split() -> None:
    whole = batch_of(b"a", b"b", b"c", stamps=((0, 7), (2, 9)))
    whole.keys = [b"1", None, b"3"]
    table = ProducerBatch("t", 3, 100, 1_000)
    table.already_encoded(3, 7, 9)
    table.encoded = whole.encode(Codec.NONE, None)
    assert table.records == 3
    first, second = table.halves()
    assert (first.values, second.values) == ([b"a"], [b"b", b"c"])
    assert (first.keys, second.keys) == ([b"1"], [None, b"3"])
    assert [first.timestamp_of(0), second.timestamp_of(0), second.timestamp_of(1)] == [7, 7, 9]


def test_senders_are_told_when_both_halves_are_done_each_by_its_own_half() -> None:
    batch = batch_of(b"a", b"b", b"c", stamps=((0, 7), (2, 9)))
    told = told_of(batch, 3)
    first, second = batch.halves()
    second.succeed(70, -1)
    deliveries = [Delivery.of(batch, index) for index in range(3)]
    assert not told and [each.done for each in deliveries] == [False] * 3
    first.fail(KafkaError(ErrorCode.CORRUPT_MESSAGE))
    assert [each.done for each in deliveries] == [True] * 3
    assert told[0][0] is None and told[0][1] is not None and told[0][1].code == ErrorCode.CORRUPT_MESSAGE
    assert told[1:] == [(RecordMetadata("t", 3, 70, 7), None), (RecordMetadata("t", 3, 71, 9), None)]
    assert first.seen and not second.seen


def test_a_half_may_be_split_again() -> None:
    batch = batch_of(*(bytes([65 + number]) for number in range(8)))
    left, right = batch.halves()
    left_first, left_second = left.halves()
    for part, offset in ((left_first, 100), (left_second, 200), (right, 300)):
        assert not batch.done
        part.succeed(offset, -1)
    assert [Delivery.of(batch, index).result().offset for index in range(8)] == [
        100, 101, 200, 201, 300, 301, 302, 303,
    ]  # fmt: skip
    rows = TableDelivery([batch, left])
    assert [each.offset for each in rows.result()] == [100, 200, 300, 100, 200]


def test_a_table_is_delivered_when_all_its_batches_are_and_fails_with_the_first_error() -> None:
    batches = [batch_of(b"a"), batch_of(b"b"), batch_of(b"c")]
    rows, done = TableDelivery(batches), []
    with pytest.raises(RequestTimedOut):
        rows.result(0)
    batches[0].succeed(1, -1)
    batches[1].fail(KafkaError(ErrorCode.CORRUPT_MESSAGE))
    done.append(rows.done)
    batches[2].fail(KafkaError(ErrorCode.INVALID_RECORD))
    done.append(rows.done)
    assert done == [False, True]
    with pytest.raises(KafkaError) as error:
        rows.result()
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE

    async def awaited() -> list[RecordMetadata]:
        good = [batch_of(b"a"), batch_of(b"b")]
        asyncio.get_running_loop().call_soon(good[0].succeed, 5, -1)
        asyncio.get_running_loop().call_soon(good[1].succeed, 9, -1)
        return await TableDelivery(good)

    assert [each.offset for each in asyncio.run(awaited())] == [5, 9]


def test_an_offset_that_the_broker_did_not_tell_is_minus_one_for_every_record() -> None:
    batch = batch_of(b"a", b"b")
    batch.succeed(-1, -1)
    assert [Delivery.of(batch, index).result().offset for index in range(2)] == [-1, -1]


def test_a_delivery_says_where_it_is() -> None:
    batch = batch_of(b"a", b"b")
    delivery = Delivery.of(batch, 1)
    assert repr(delivery) == "<Delivery to t-3: pending>"
    batch.succeed(7, -1)
    assert repr(delivery) == "<Delivery to t-3: at offset 8>"
    unknown, failed, split = batch_of(b"a"), batch_of(b"a"), batch_of(b"a", b"b")
    unknown.succeed(-1, -1)
    failed.fail(KafkaError(ErrorCode.CORRUPT_MESSAGE))
    for part, offset in zip(split.halves(), (3, 0), strict=True):
        part.succeed(offset, -1)
    assert repr(Delivery.of(unknown, 0)) == "<Delivery to t-3: sent>"
    assert repr(Delivery.of(failed, 0)).startswith("<Delivery to t-3: failed, ")
    assert repr(Delivery.of(split, 1)) == "<Delivery to t-3: at offset 0>"


def test_a_wait_ends_with_its_time_or_with_the_batch() -> None:
    batch = batch_of(b"a")
    with pytest.raises(RequestTimedOut, match=r"no answer for the record within 0\.0 s"):
        Delivery.of(batch, 0).result(0.0)
    threading.Timer(0.01, batch.succeed, (4, -1)).start()
    assert Delivery.of(batch, 0).result(60).offset == 4


def test_a_callback_of_a_finished_batch_is_called_at_once_and_once() -> None:
    batch = batch_of(b"a")
    batch.succeed(4, -1)
    told = told_of(batch, 1)
    assert told == [(RecordMetadata("t", 3, 4, 5), None)] and not batch.waiters


def test_a_finished_batch_keeps_its_count_and_none_of_its_records() -> None:
    batch = batch_of(b"a", b"b")
    batch.keys, batch.headers = [None, b"k"], [[], []]
    batch.encode(Codec.GZIP, None)
    batch.succeed(4, -1)
    assert batch.records == 2 and not batch.values
    kept = (batch.encoded, batch.body, batch.uncompressed, batch.keys, batch.headers)
    assert all(each is None for each in kept)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_new_sequence_is_in_the_bytes_and_those_sent_before_do_not_change(codec: Codec) -> None:
    batch = batch_of(b"a", b"b", stamps=((0, 7), (1, 9)))
    batch.sequence((11, 2), 40)
    sent = [batch.encode(codec, None)]
    assert batch.encode(codec, None) is sent[0], "a retry with the same sequence sends the same bytes"
    kept = [bytes(sent[0])]
    for attempt, transactional in ((1, False), (2, True)):
        batch.attempts = attempt
        batch.sequence((12, attempt), 40 + attempt, transactional=transactional)
        sent.append(batch.encode(codec, None))
        kept.append(bytes(sent[-1]))
    assert [bytes(each) for each in sent] == kept
    found = [next(iter(read(each))) for each in sent]
    assert [(each.header.producer_id, each.header.producer_epoch, each.header.base_sequence) for each in found] == [
        (11, 2, 40),
        (12, 1, 41),
        (12, 2, 42),
    ]
    assert [each.header.is_transactional for each in found] == [False, False, True]
    for each in found:
        records = each.records()
        assert [(record.value, record.timestamp) for record in records] == [(b"a", 7), (b"b", 9)]
        assert each.header.max_timestamp == 9 and each.header.last_offset_delta == 1
    assert all(earlier != later for earlier, later in pairwise(kept))


def test_a_batch_without_a_producer_id_says_so_in_its_bytes() -> None:
    header = next(iter(read(batch_of(b"a").encode(Codec.NONE, None)))).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
