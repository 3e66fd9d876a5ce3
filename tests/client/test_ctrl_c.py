"""Ctrl-C at any point of a synchronous poll or iteration: the program has every record up to its position.

The tests interrupt each point of the client's code at which the interpreter looks for signals, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ottla.client import Consumer, Producer, ShareConsumer, TopicPartition
from ottla.client.acknowledgement import Acknowledge, ShareRecord
from ottla.client.consumer.position import Chunk, PartitionPosition
from ottla.wire.batch import build, read
from ottla.wire.codec import Codec
from tests.client.at_point import CtrlC
from tests.client.test_share_consumer import record

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    consumer: Consumer = Consumer("127.0.0.1:1", value_deserializer=bytes.decode)
    consumer._async._fetcher.signal = lambda: None  # type: ignore[method-assign]
    yield consumer
    consumer.close()


@pytest.fixture
def producer() -> Iterator[Producer]:
    """Its sender sleeps."""
    producer: Producer = Producer("127.0.0.1:1")
    producer._sender.signal = lambda: None  # type: ignore[method-assign]
    yield producer
    producer.close(flush=False)


def is_interrupted(number: int, call: Callable[[], object]) -> bool:
    """Call a part of the producer with Ctrl-C at one of its points; False if it ends before that."""
    with CtrlC(number, "producer"):
        try:
            call()
        except KeyboardInterrupt:
            return True
    return False


def fetched(consumer: Consumer) -> None:
    """Two partitions from offset 0 on, with two batches of two records each."""
    half = consumer._async
    half._fetcher.all_positioned = True
    half._in_hand = []
    for partition in (ONE, TWO):
        state = half._positions[partition] = PartitionPosition(partition)
        state.seek(0)
        data = b"".join(build([(1, None, b"v", ())] * 2, base_offset=first) for first in (0, 2))
        state.fetched(Chunk(data, 0, None, check_crcs=True), 0)


def poll(consumer: Consumer, got: list[int]) -> None:
    got += [record.partition for record in consumer.poll(0, max_records=6)]


def poll_table(consumer: Consumer, got: list[int]) -> None:
    table = consumer.poll_table(0, max_records=6)
    got += table["partition"].to_pylist()


def iterate(consumer: Consumer, got: list[int]) -> None:
    with closing(iter(consumer)) as records:  # type: ignore[type-var]
        for each in records:
            got.append(each.partition)
            if len(got) == 6:
                break


@pytest.mark.parametrize("read", [poll, poll_table, iterate])
def test_ctrl_c_takes_no_record_from_the_program(
    read: Callable[[Consumer, list[int]], None], consumer: Consumer
) -> None:
    fetched(consumer)
    # What is imported at its first use is imported here.
    read(consumer, [])
    got: list[int] = []
    number, interrupted = 0, True
    while interrupted:
        fetched(consumer)
        got.clear()
        with CtrlC(number, "consumer"):
            try:
                read(consumer, got)
                interrupted = False
            except KeyboardInterrupt:
                number += 1
        assert consumer.positions() == {ONE: got.count(0), TWO: got.count(1)}, f"after {number} points"
    assert len(got) >= 6 and number > 20


def poll_share(consumer: ShareConsumer, got: list[int]) -> None:
    got += [each.offset for each in consumer.poll(0)]


def iterate_share(consumer: ShareConsumer, got: list[int]) -> None:
    with closing(iter(consumer)) as records:  # type: ignore[type-var]
        for each in records:
            got.append(each.offset)
            if len(got) == 3:
                break


# A call that is interrupted before it has begun.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("read", [poll_share, iterate_share])
def test_ctrl_c_accepts_no_record_of_a_share_group_that_the_program_has_not_got(
    read: Callable[[ShareConsumer, list[int]], None],
) -> None:
    consumer: ShareConsumer = ShareConsumer("127.0.0.1:1", group_id="g")
    half = consumer._async

    async def polled(_: float) -> list[ShareRecord]:
        half.acknowledgements.give(found := [record(number) for number in range(3)])
        return found

    async def settled() -> set[int]:
        half.acknowledgements.settle(for_poll=True)
        words = half.acknowledgements.ready.pop(TopicPartition("t", 0), {})
        half.acknowledgements.ready.clear()
        return {offset for offset, word in words.items() if word == Acknowledge.ACCEPT}

    half.poll = polled  # type: ignore[assignment, method-assign]
    half._fetcher.wake = lambda: None  # type: ignore[method-assign]
    got: list[int] = []
    number, interrupted = 0, True
    while interrupted:
        got.clear()
        with CtrlC(number, "share"):
            try:
                read(consumer, got)
                interrupted = False
            except KeyboardInterrupt:
                number += 1
        assert consumer._thread.run(settled()) == set(got), f"after {number} points"
    assert got == [0, 1, 2] and number > 2
    consumer.close()


def key_of(number: int, kind: str) -> bytes | None:
    return None if kind == "plain" or (kind == "mixed" and not number % 2) else b"k%d" % number


def headers_of(number: int, kind: str) -> list[tuple[str, bytes | str | None]] | None:
    return [("h", b"%d" % number)] if kind == "headers" or (kind == "mixed" and number > 2) else None


# The first batches of some take one record each.
@pytest.mark.parametrize("batch_size", [16_384, 100])
@pytest.mark.parametrize("kind", ["plain", "keyed", "headers", "mixed"])
def test_ctrl_c_in_a_send_leaves_a_producer_that_can_be_used(kind: str, batch_size: int) -> None:
    """Every record that it has is one that the program sent, with its own key and headers; and its lock is free."""
    producer: Producer = Producer("127.0.0.1:1", batch_size=batch_size)
    producer._sender.signal = lambda: None  # type: ignore[method-assign]
    interrupted, number = True, 0
    while interrupted:
        topic = f"t{number}"
        with producer._lock:
            producer._accumulator.set_partitions(topic, 1, (0,))
        interrupted, sent = False, []
        with CtrlC(number, "producer"):
            for each in range(5):
                try:
                    producer.send(topic, b"v%d" % each, key_of(each, kind), headers=headers_of(each, kind))
                    sent.append(each)
                except KeyboardInterrupt:
                    interrupted = True
        assert producer._lock.acquire(blocking=False), f"after {number} points"
        producer._lock.release()
        accumulator = producer._accumulator
        partition = accumulator.topics[topic].partitions[0]
        assert partition in accumulator.active
        with producer._lock:
            accumulator.close_batch(partition)
            batches = [accumulator.take(partition) for _ in partition.closed.copy()]
        assert set(batches) == {batch for batch in accumulator.incomplete if batch.topic == topic}
        assert accumulator.memory_used == sum(batch.reserved for batch in accumulator.incomplete), (
            f"after {number} points"
        )
        (*read_back,) = read(b"".join(batch.encode(Codec.NONE, None) for batch in batches))
        found = [(record.value, record.key, list(record.headers)) for each in read_back for record in each.records()]
        each_one = [(b"v%d" % each, key_of(each, kind), headers_of(each, kind) or []) for each in range(5)]
        assert [one for one in each_one if one in found] == found, f"after {number} points"
        assert {each for each in range(5) if each_one[each] in found} >= set(sent), f"after {number} points"
        number += 1
    assert number > 20
    producer.close(flush=False)


def test_ctrl_c_while_a_batch_grows_leaves_no_memory_taken(producer: Producer) -> None:
    accumulator = producer._accumulator
    interrupted, number = True, 0
    while interrupted:
        topic = f"t{number}"
        with producer._lock:
            accumulator.set_partitions(topic, 1, (0,))
        producer.send(topic, b"1")
        interrupted = is_interrupted(number, partial(producer.send, topic, b"2" * 20_000))
        left = accumulator.incomplete
        assert accumulator.memory_used == sum(batch.reserved for batch in left), f"after {number} points"
        with producer._lock:
            for batch in list(left):
                accumulator.complete(accumulator.topics[topic].partitions[0], batch)
        number += 1
    assert number > 10


def test_ctrl_c_while_rows_are_put_leaves_them_counted_or_out(producer: Producer) -> None:
    accumulator = producer._accumulator
    table = pa.table({"value": [b"1", b"2"]})
    interrupted, number = True, 0
    while interrupted:
        topic = f"t{number}"
        with producer._lock:
            accumulator.set_partitions(topic, 1, (0,))
        if not number:
            # What is imported at its first use is imported here.
            producer.send_table(topic, table)
        told = f"after {number} points"
        (partition,) = accumulator.topics[topic].partitions
        interrupted = is_interrupted(number, partial(producer.send_table, topic, table))
        put = [batch for batch in accumulator.incomplete if batch.topic == topic]
        assert partition.waiting() == put and (partition in accumulator.active) is bool(put), told
        assert accumulator.memory_used == sum(batch.reserved for batch in accumulator.incomplete), told
        with producer._lock:
            for batch in put:
                accumulator.complete(partition, batch)
        number += 1
    assert number > 20


def test_ctrl_c_in_the_first_send_does_not_hold_up_the_flush(producer: Producer) -> None:
    with producer._lock:
        producer._accumulator.set_partitions("t", 1, (0,))
    number = 0
    while not producer._accumulator.incomplete:
        with CtrlC(number, "producer"), pytest.raises(KeyboardInterrupt):
            producer.send("t", b"v")
        number += 1
    producer.flush(10)
    # A record of the next transaction could get into it, and out with this one.
    assert producer._accumulator.topics["t"].partitions[0].open is None and not producer._accumulator.memory_used


@pytest.mark.parametrize("records", [0, 1])
def test_ctrl_c_at_the_end_of_a_batch_leaves_it_where_it_is_sent_once(producer: Producer, records: int) -> None:
    accumulator = producer._accumulator
    number, interrupted = 0, True
    while interrupted:
        topic, told = f"t{number}", f"after {number} points"
        with producer._lock:
            accumulator.set_partitions(topic, 1, (0,))
            (partition,) = accumulator.topics[topic].partitions
            accumulator._batch_with_room(accumulator.topics[topic], 0, 100)
            if records:
                accumulator.append(topic, b"v", None, None, None, None)
            interrupted = is_interrupted(number, partial(accumulator.close_batch, partition))
            left = list(accumulator.incomplete)
            assert [batch.records for batch in left if batch.records] == [1] * records, told
            assert (accumulator.due_ms(partition, 0) is not None) is bool(records), told
            assert partition.waiting() == left or not records, told
            for batch in left:
                accumulator.complete(partition, batch)
            assert partition.open is None and partition not in accumulator.active, told
            assert not accumulator.memory_used, told
        number += 1
    assert number > 5


def test_ctrl_c_while_the_sender_is_woken_does_not_let_it_sleep_on() -> None:
    producer: Producer = Producer("127.0.0.1:1")
    woken: list[object] = []

    def call_soon_threadsafe(call: object) -> None:
        woken.append(call)
        if len(woken) == 1:
            raise KeyboardInterrupt

    with producer._lock:
        producer._accumulator.set_partitions("t", 1, (0,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer._sender, "_loop", SimpleNamespace(call_soon_threadsafe=call_soon_threadsafe))
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"1", headers=[("h", b"")])
        for number in (b"2", b"3"):
            producer.send("t", number, headers=[("h", b"")])
    assert len(woken) == 2
    producer.close(flush=False)
