"""The producer's batches without a socket: when they are ready, how they grow, who waits for whom."""

import random
from collections.abc import Iterator

import pytest

from ottla.client.producer.accumulator import Accumulator, PartitionQueue
from ottla.client.producer.delivery import Delivery, ProducerBatch
from ottla.client.settings.producer import ProducerSettings
from ottla.kernel.client_error import ClientClosed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.batch import HEADER_BYTES


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ms

    def monotonic_ms(self) -> int:
        return self.ms


def made(partitions: int = 1, **settings: object) -> tuple[Accumulator, Clock]:
    clock = Clock()
    read = ProducerSettings.read("localhost:9092", settings)
    accumulator = Accumulator(read, clock, random.Random(1))
    accumulator.set_partitions("t", partitions, range(partitions))
    return accumulator, clock


def put(
    accumulator: Accumulator, size: int = 100, key: bytes | None = None, partition: int | None = None
) -> Delivery | None:
    if partition is None:
        partition = accumulator.chosen("t", key)
    return accumulator.append("t", b"v" * size, key, partition, None, 1_700_000_000_000)


def queue(accumulator: Accumulator, number: int = 0) -> PartitionQueue:
    return accumulator.topics["t"].partitions[number]


def test_a_batch_lingers_and_is_ready_after_linger_ms() -> None:
    accumulator, clock = made(linger_ms=7)
    clock.ms = 100
    put(accumulator)
    for now_ms in (100, 103, 107, 200):
        assert accumulator.due_ms(queue(accumulator), now_ms) == 107


def test_a_full_batch_does_not_linger() -> None:
    accumulator, _ = made(linger_ms=1000, batch_size=500)
    for _ in range(5):
        put(accumulator)
    assert accumulator.due_ms(queue(accumulator), 0) == 0


def test_a_flush_makes_every_batch_ready() -> None:
    accumulator, _ = made(linger_ms=1000)
    put(accumulator)
    accumulator.flushing += 1
    assert accumulator.due_ms(queue(accumulator), 0) == 0


def test_a_batch_grows_while_others_are_on_their_way_up_to_the_largest_request() -> None:
    """Where `batch.size` is not given; its default is 16 KiB."""
    accumulator, _ = made(max_request_size=163_840, linger_ms=1000)
    for _ in range(10):
        put(accumulator, 1_640)
    accumulator.take(queue(accumulator))
    for _ in range(10):
        put(accumulator, 1_640)
    # One batch is on its way: the next may have twice batch.size before it goes without lingering.
    assert accumulator.due_ms(queue(accumulator), 0) == 1000
    for _ in range(10):
        put(accumulator, 1_640)
    assert accumulator.due_ms(queue(accumulator), 0) == 0
    for _ in range(200):
        put(accumulator, 1_640)
    assert all(batch.size <= 163_840 for batch in accumulator.incomplete)
    assert max(batch.size for batch in accumulator.incomplete) > 4 * 16_384


@pytest.mark.parametrize("batch_size", [0, 100, 1000, 5000])
def test_a_batch_size_that_is_given_bounds_each_batch_of_more_than_one_record(batch_size: int) -> None:
    accumulator, _ = made(batch_size=batch_size, linger_ms=1000)
    for number in range(300):
        put(accumulator, 2000 if number % 50 == 0 else 100)
        if number == 40:
            accumulator.take(queue(accumulator))
    batches = list(accumulator.incomplete)
    assert sum(batch.records for batch in batches) == 300
    for batch in batches:
        assert batch.records == 1 or HEADER_BYTES + batch.size <= batch_size
    if batch_size == 1000:
        assert max(batch.records for batch in batches) == (batch_size - HEADER_BYTES) // 124
    waiting = queue(accumulator)
    while waiting.closed:
        assert accumulator.due_ms(waiting, 0) == 0, "a full batch does not linger"
        accumulator.take(waiting)
    assert accumulator.memory_used == sum(batch.reserved for batch in accumulator.incomplete)


def test_memory_that_is_full_turns_records_away_until_a_batch_is_over() -> None:
    accumulator, _ = made(batch_size=1000, buffer_memory=2000)
    taken = 0
    while put(accumulator) is not None:
        taken += 1
    assert 10 < taken < 20
    assert accumulator.starved
    partition = queue(accumulator)
    assert accumulator.due_ms(partition, 0) == 0
    batch = accumulator.take(partition)
    accumulator.complete(partition, batch)
    assert accumulator.memory_used == sum(one.reserved for one in accumulator.incomplete)
    assert put(accumulator) is not None


def test_a_record_that_no_request_can_hold_is_refused() -> None:
    accumulator, _ = made(max_request_size=1000)
    with pytest.raises(KafkaError) as error:
        put(accumulator, 2000)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_nothing_of_a_partition_overtakes_a_batch_that_is_sent_again() -> None:
    accumulator, _ = made(batch_size=100)
    partition = queue(accumulator)
    sent = []
    for _ in range(3):
        put(accumulator)
        sent.append(accumulator.take(partition))
    put(accumulator)
    accumulator.put_back(partition, sent[1], 50)
    assert accumulator.due_ms(partition, 60) is None, "others are on their way"
    accumulator.put_back(partition, sent[2], 50)
    assert accumulator.due_ms(partition, 60) is None
    accumulator.complete(partition, sent[0])
    assert accumulator.due_ms(partition, 60) == 50
    assert [accumulator.take(partition) for _ in range(2)] == sent[1:]


def test_keys_of_one_hash_share_a_partition_and_records_without_a_key_stick() -> None:
    accumulator, _ = made(4)
    for _ in range(20):
        put(accumulator, key=b"same")
    assert [one.open.records if one.open else 0 for one in accumulator.topics["t"].partitions].count(20) == 1
    accumulator, _ = made(4)
    for _ in range(20):
        put(accumulator)
    assert [one.open.records if one.open else 0 for one in accumulator.topics["t"].partitions].count(20) == 1


def test_sticky_partitions_spread_over_those_with_a_leader() -> None:
    accumulator, _ = made(4)
    accumulator.set_partitions("t", 4, [1, 3])
    used = set()
    for _ in range(50):
        put(accumulator)
        number = accumulator.topics["t"].keyless.number
        used.add(number)
        accumulator.complete(queue(accumulator, number), accumulator.take(queue(accumulator, number)))
    assert used == {1, 3}


def test_round_robin_deals_records_out_one_by_one() -> None:
    accumulator, _ = made(3, partitioner="round_robin")
    for _ in range(9):
        put(accumulator)
    assert [one.open.records for one in accumulator.topics["t"].partitions if one.open] == [3, 3, 3]


def test_a_partition_that_is_not_there_is_refused() -> None:
    accumulator, _ = made(2)
    for wrong in (2, -1):
        with pytest.raises(KafkaError, match="has no partition"):
            put(accumulator, partition=wrong)


def test_a_batch_that_is_too_large_is_halved_and_deliveries_follow_their_records() -> None:
    accumulator, _ = made()
    deliveries = [put(accumulator) for _ in range(9)]
    partition = queue(accumulator)
    batch = accumulator.take(partition)
    batch.sequence((7, 0), 40)
    accumulator.split(partition, batch)
    first, second = partition.closed
    assert [first.base_sequence, second.base_sequence] == [40, 44]
    for half, offset in ((second, 1000), (first, 500)):
        half.succeed(offset, -1)
    assert batch.done
    offsets = [one.result(0).offset for one in deliveries if one is not None]
    assert offsets == [500, 501, 502, 503, 1000, 1001, 1002, 1003, 1004]


def test_a_half_that_is_sent_again_stays_before_the_other() -> None:
    accumulator, _ = made()
    for _ in range(8):
        put(accumulator)
    partition = queue(accumulator)
    batch = accumulator.take(partition)
    batch.sequence((7, 0), 40)
    accumulator.split(partition, batch)
    accumulator.put_back(partition, accumulator.take(partition), 0)
    assert [half.base_sequence for half in partition.closed] == [40, 44]
    # It may be too large itself.
    accumulator.split(partition, accumulator.take(partition))
    assert [half.base_sequence for half in partition.closed] == [40, 42, 44]


def test_a_batch_expires_after_delivery_timeout_ms() -> None:
    accumulator, _ = made(delivery_timeout_ms=100)
    put(accumulator)
    assert accumulator.expired(99) == [] and accumulator.next_deadline_ms() == 100
    assert len(accumulator.expired(100)) == 1
    batch = accumulator.take(queue(accumulator))
    assert accumulator.expired(100) == [], "a transaction waits for the answer"
    assert accumulator.expired(100, in_flight=True) == [(queue(accumulator), batch)]
    accumulator.complete(queue(accumulator), batch)
    assert accumulator.next_deadline_ms() is None


class Looked(dict[ProducerBatch, None]):
    """Batches, and how often all of them were looked at."""

    times = 0

    def __iter__(self) -> Iterator[ProducerBatch]:
        self.times += 1
        return super().__iter__()


def test_a_pass_does_not_look_at_each_batch_before_one_may_expire() -> None:
    """A producer that fills its memory has thousands, and a pass for each answer."""
    accumulator, clock = made(delivery_timeout_ms=100)
    put(accumulator)
    assert accumulator.expired(0) == []
    accumulator.incomplete = looked = Looked(accumulator.incomplete)
    for clock.ms in range(100):
        put(accumulator)
        accumulator.close_batch(queue(accumulator))
        assert accumulator.expired(clock.ms) == []
    assert looked.times == 0
    assert [batch.deadline_ms for _, batch in accumulator.expired(103)] == [100, 101, 102, 103]
    assert looked.times > 0


def test_an_encoded_batch_that_waited_for_room_expires_at_its_own_time() -> None:
    accumulator, clock = made(delivery_timeout_ms=100)
    clock.ms = 50
    put(accumulator)
    assert accumulator.expired(50) == []
    early = ProducerBatch("t", 0, 0, 100)
    accumulator.put(queue(accumulator), early)
    assert [batch for _, batch in accumulator.expired(100)] == [early]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_batches_that_failed_are_sent_again_in_the_order_in_which_they_were_sent(order: tuple[int, ...]) -> None:
    accumulator, _ = made(batch_size=100)
    partition = queue(accumulator)
    sent = []
    for _ in range(3):
        put(accumulator)
        sent.append(accumulator.take(partition))
    put(accumulator)
    for number in order:
        accumulator.put_back(partition, sent[number], 50)
    again = [accumulator.take(partition) for _ in range(4)]
    assert again[:3] == sent
    # Once more, when the first of them is through.
    accumulator.complete(partition, again[0])
    for number in order:
        if number:
            accumulator.put_back(partition, sent[number], 50)
    assert [accumulator.take(partition) for _ in range(2)] == sent[1:]


def test_full_memory_makes_batches_ready_however_long_they_may_linger() -> None:
    accumulator, _ = made(2, batch_size=1000, buffer_memory=2000, linger_ms=5000)
    put(accumulator, partition=0)
    put(accumulator, partition=1)
    assert accumulator.due_ms(queue(accumulator), 0) == 5000
    while put(accumulator, partition=0) is not None:
        pass
    assert [accumulator.due_ms(queue(accumulator, number), 0) for number in (0, 1)] == [0, 0]


def test_a_growing_batch_stays_within_the_largest_request() -> None:
    accumulator, _ = made(max_request_size=40_000, linger_ms=1000)
    for _ in range(1200):
        put(accumulator, partition=0)
    assert len(accumulator.incomplete) > 1
    assert all(batch.size <= 40_000 and batch.limit <= 40_000 for batch in accumulator.incomplete)


def test_the_memory_of_halves_is_that_of_the_whole() -> None:
    accumulator, _ = made(batch_size=1001)
    for _ in range(6):
        put(accumulator)
    partition = queue(accumulator)
    batch = accumulator.take(partition)
    accumulator.split(partition, batch)
    assert accumulator.memory_used == sum(one.reserved for one in accumulator.incomplete) == 1000
    for _ in range(2):
        accumulator.complete(partition, accumulator.take(partition))
    assert accumulator.memory_used == 0


@pytest.mark.parametrize("partition", [-1, 3, 4])
def test_a_partition_that_the_topic_has_not_is_refused(partition: int) -> None:
    """Whether the caller names it or a partitioner does."""
    named, _ = made(3)
    by_partitioner, _ = made(3, partitioner=lambda topic, key, count: partition)
    for accumulator, given in ((named, partition), (by_partitioner, None)):
        with pytest.raises(KafkaError, match=f"topic t has no partition {partition} ") as caught:
            put(accumulator, partition=given)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not accumulator.incomplete and not accumulator.memory_used


@pytest.mark.parametrize("count", [1, 3, 7])
def test_a_topic_has_as_many_partitions_as_the_metadata_says(count: int) -> None:
    asked: list[tuple[str, bytes | None, int]] = []

    def last(topic: str, key: bytes | None, partitions: int) -> int:
        asked.append((topic, key, partitions))
        return partitions - 1

    accumulator, _ = made(1, partitioner=last)
    for _ in range(2):
        accumulator.set_partitions("t", count, range(count))
        assert [each.number for each in accumulator.topics["t"].partitions] == list(range(count))
    put(accumulator, key=b"k")
    assert asked == [("t", b"k", count)]
    assert queue(accumulator, count - 1).open is not None


def test_the_last_partition_can_be_named() -> None:
    accumulator, _ = made(3)
    put(accumulator, partition=0)
    put(accumulator, partition=2)
    assert [each.open is not None for each in accumulator.topics["t"].partitions] == [True, False, True]


def test_a_closed_producer_takes_nothing_more_and_forgets_what_it_had() -> None:
    accumulator, _ = made()
    open_one = put(accumulator)
    assert open_one is not None
    assert accumulator.close() == [open_one.batch]
    assert queue(accumulator).open is None, "the synchronous producer appends to an open batch without asking"
    with pytest.raises(ClientClosed):
        put(accumulator)
    with pytest.raises(ClientClosed):
        accumulator.put(queue(accumulator), open_one.batch)


def test_a_topic_that_comes_again_with_fewer_partitions_gets_records_for_those_alone() -> None:
    accumulator, _ = made(6)
    accumulator.topics["t"].partitions[4].next_sequence = 57
    accumulator.set_partitions("t", 2, range(2))
    told = [put(accumulator, key=b"%d" % number) for number in range(40)] + [put(accumulator)]
    assert {each.batch.partition for each in told if each is not None} == {0, 1}
    with pytest.raises(KafkaError, match=r"has no partition 4 \(expected 0 to 1\)"):
        put(accumulator, partition=4)
    # An old answer about the topic: a sequence that began again could repeat that of another record.
    accumulator.set_partitions("t", 6, range(6))
    assert queue(accumulator, 4).next_sequence == 57
    put(accumulator, partition=4)


def test_a_partitioner_is_told_the_present_number_of_partitions() -> None:
    counts: list[int] = []

    def first(topic: str, key: bytes | None, count: int) -> int:
        counts.append(count)
        return 0

    accumulator, _ = made(6, partitioner=first)
    put(accumulator)
    accumulator.set_partitions("t", 2, range(2))
    put(accumulator)
    assert counts == [6, 2]


def test_a_topic_is_in_use_while_records_are_added_or_wait() -> None:
    accumulator, _ = made()
    assert accumulator.topics_in_use() == set()
    put(accumulator)
    for _ in range(2):
        assert accumulator.topics_in_use() == {"t"}
    accumulator.complete(queue(accumulator), accumulator.take(queue(accumulator)))
    put(accumulator)
    accumulator.complete(queue(accumulator), accumulator.take(queue(accumulator)))
    assert accumulator.topics_in_use() == {"t"}, "a record came and went between two updates"
    assert accumulator.topics_in_use() == set()


def test_a_batch_that_ctrl_c_has_caught_between_open_and_closed_is_sent_once() -> None:
    for closed in (False, True):
        accumulator, _ = made()
        put(accumulator)
        partition = queue(accumulator)
        first = partition.open
        assert first is not None
        first.seal()
        if closed:
            partition.closed.append(first)
        put(accumulator)
        put(accumulator)
        assert [accumulator.take(partition).records for _ in range(2)] == [1, 2]
        assert accumulator.due_ms(partition, 0) is None and not accumulator.active
    accumulator, _ = made()
    put(accumulator)
    partition = queue(accumulator)
    partition.closed.append(partition.open)  # type: ignore[arg-type]
    partition.open.seal()  # type: ignore[union-attr]
    assert accumulator.take(partition).records == 1 and partition.open is None and not accumulator.active


def test_a_batch_takes_no_record_after_its_end() -> None:
    accumulator, _ = made()
    ended = []
    for _ in range(2):
        put(accumulator)
        ended.append(queue(accumulator).open)
        accumulator.complete(queue(accumulator), ended[-1])  # type: ignore[arg-type]
    put(accumulator)
    ended.append(queue(accumulator).open)
    accumulator.close()
    assert all(batch is not None and batch.sealed for batch in ended)
