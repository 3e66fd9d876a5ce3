"""How a poll goes through the partitions: each in its turn, an error in its place, and the fetcher woken for room."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.client.connection.clock import now_ms
from ottla.client.consumer.handing_out import RecordCalls, starts_of
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import Chunk, PartitionPosition
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.batch import build

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
A, B, C = PARTITIONS


class Fetcher:
    """Counts how often it is woken."""

    def __init__(self) -> None:
        self.signals = 0

    def signal(self) -> None:
        self.signals += 1


class Consumer(RecordCalls):
    """Three partitions with this many records each, in batches of two."""

    def __init__(self, *counts: int, **settings: object) -> None:
        self.settings = ConsumerSettings.read("127.0.0.1:1", settings)
        self.meter = ConsumerMeter(0)
        self._lock = threading.Lock()
        self._positions = {partition: PartitionPosition(partition) for partition in PARTITIONS}
        self.fetcher = Fetcher()
        self._fetcher: Any = self.fetcher
        self._first_index = 0
        self._dead_letters = None
        self._held = {}
        for state, count in zip(self._positions.values(), counts, strict=True):
            state.seek(0)
            for first in range(0, count, 2):
                values = [(first, None, b"%d" % offset, ()) for offset in range(first, min(count, first + 2))]
                state.fetched(Chunk(build(values, base_offset=first), first, None, check_crcs=True), first)

    def state(self, partition: TopicPartition) -> PartitionPosition:
        return self._positions[partition]

    def polled(self, records_max: int) -> list[tuple[int, int]]:
        """(partition, offset) of the records of one poll."""
        return [(record.partition, record.offset) for record in self.take(records_max)]


def test_a_poll_takes_no_more_than_it_may_and_the_next_begins_behind_it() -> None:
    consumer = Consumer(4, 4, 4)
    assert consumer.polled(3) == [(0, 0), (0, 1), (0, 2)]
    assert consumer.polled(5) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    assert consumer.polled(100) == [(0, 3), (2, 1), (2, 2), (2, 3)]
    assert consumer.polled(100) == []


def test_a_partition_with_plenty_does_not_hold_up_the_others() -> None:
    consumer = Consumer(100, 2, 2)
    polls = [consumer.polled(2) for _ in range(4)]
    assert polls == [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)], [(0, 2), (0, 3)]]


def test_a_paused_partition_is_passed_over() -> None:
    consumer = Consumer(2, 2, 2)
    consumer.state(A).paused = True
    assert consumer.waiting(1) == [True]
    assert consumer.polled(100) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert consumer.waiting(1) == []
    consumer.state(A).paused = False
    assert consumer.polled(100) == [(0, 0), (0, 1)]


def test_an_error_waits_until_what_was_taken_before_it_is_returned_and_is_raised_once() -> None:
    consumer = Consumer(2, 0, 4)
    consumer.state(B).error = KafkaError(ErrorCode.CORRUPT_MESSAGE)
    assert consumer.polled(100) == [(0, 0), (0, 1)]
    assert consumer.waiting(1) == [True]
    with pytest.raises(KafkaError) as error:
        consumer.take(100)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    assert consumer.polled(100) == [(2, 0), (2, 1), (2, 2), (2, 3)], "the poll after it goes on behind it"


def test_an_error_does_not_wait_for_ever_behind_a_partition_with_plenty() -> None:
    consumer = Consumer(100, 0, 0)
    consumer.state(B).error = KafkaError(ErrorCode.CORRUPT_MESSAGE)
    assert len(consumer.polled(10)) == 10
    with pytest.raises(KafkaError):
        consumer.take(10)
    assert consumer.polled(1) == [(0, 10)]


def test_a_batch_that_cannot_be_read_is_an_error_of_its_poll_or_of_the_next() -> None:
    consumer = Consumer(0, 2, 0)
    for partition, first in ((A, 0), (C, 0)):
        damaged = bytearray(build([(0, None, b"x", ())]))
        damaged[-1] ^= 1
        consumer.state(partition).fetched(Chunk(damaged, first, None, check_crcs=True), first)
    with pytest.raises(KafkaError) as error:
        consumer.take(100)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE and consumer.state(A).position == 0
    assert consumer.polled(100) == [(1, 0), (1, 1)]
    with pytest.raises(KafkaError):
        consumer.take(100)
    assert consumer.state(C).position == 0 and consumer.waiting(1) == []


def test_the_fetcher_is_woken_when_a_poll_made_room_and_only_then() -> None:
    consumer = Consumer(4, 0, 0)
    size = consumer.state(A).buffered
    consumer.take(1)
    assert consumer.fetcher.signals == 1, "a batch was taken out"
    consumer.take(1)
    assert consumer.fetcher.signals == 1, "the rest of that batch"
    consumer.take(100)
    assert consumer.fetcher.signals == 2
    consumer.take(100)
    assert consumer.fetcher.signals == 2
    full = Consumer(4, 0, 0, max_partition_fetch_bytes=1)
    assert full.state(A).buffered == size
    full.take(2)
    assert full.fetcher.signals == 0, "it is still full"
    full.take(2)
    assert full.fetcher.signals == 1


def test_the_fetcher_is_woken_also_when_the_poll_raises() -> None:
    consumer = Consumer(0, 0, 0)
    damaged = bytearray(build([(0, None, b"x", ())]))
    damaged[-1] ^= 1
    consumer.state(A).fetched(Chunk(damaged, 0, None, check_crcs=True), 0)
    with pytest.raises(KafkaError):
        consumer.take(1)
    assert consumer.fetcher.signals == 1


def test_polled_records_are_counted_by_topic() -> None:
    consumer = Consumer(3, 2, 0)
    consumer.take(100)
    assert consumer.meter.topic("t", 0).records.total == 5
    consumer.take(100)
    assert consumer.meter.snapshot({}, {}, stable=False, now_ms=now_ms()).records_consumed_total == 5


def test_an_interrupted_poll_gives_its_records_back() -> None:
    consumer = Consumer(4, 4, 0)
    raw = consumer.take(6)
    with pytest.raises(KeyboardInterrupt), consumer.given_back(raw):
        raise KeyboardInterrupt
    assert (consumer.state(A).position, consumer.state(B).position) == (0, 0)
    assert not consumer.state(A).has_records and consumer.state(A).error is None
    assert consumer.fetcher.signals == 2, "they are fetched again"
    with consumer.given_back([]):
        pass
    assert consumer.fetcher.signals == 2


def test_records_of_a_partition_that_has_gone_meanwhile_are_given_back_to_nobody() -> None:
    consumer = Consumer(4, 2, 0)
    raw = consumer.take(100)
    del consumer._positions[A]
    with pytest.raises(KeyboardInterrupt), consumer.given_back(raw):
        raise KeyboardInterrupt
    assert consumer.state(B).position == 0 and A not in consumer._positions


def test_a_poll_starts_at_the_first_record_of_each_partition() -> None:
    raw = Consumer(4, 0, 3).take(6)
    assert starts_of(raw) == {A: 0, C: 0}
    assert starts_of(raw[2:]) == {A: 2, C: 0}
    assert starts_of([]) == {}
