"""A producer whose memory is full: who waits for room, for how long, and what it is told. Without a broker."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from ottla.client import AsyncProducer, ClientClosed, ErrorCode, KafkaError, Producer
from ottla.client.connection.cluster import Cluster
from ottla.client.producer.sender import Sender
from ottla.client.settings.producer import ProducerSettings
from ottla.kernel.client_error import BufferFull
from ottla.kernel.ids import TopicPartition

_SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "batch.size": 1000,
    "buffer.memory": 2000,
    "linger.ms": 3_600_000,
    "enable.idempotence": False,
}
_FULL = "buffer.memory=2000 stayed full for max.block.ms={}: the cluster takes records more slowly than they are sent"
_VALUE = b"v" * 900


def _fill(producer: AsyncProducer | Producer) -> Callable[[], None]:
    """Two batches fill the memory; what makes room for one more."""
    accumulator = producer._accumulator
    with producer._lock:
        accumulator.set_partitions("t", 1, range(1))
        for _ in range(2):
            assert accumulator.append("t", _VALUE, None, 0, None, 0) is not None
        partition = accumulator.topics["t"].partitions[0]

    def make_room() -> None:
        with producer._lock:
            batch = next(iter(accumulator.incomplete))
            accumulator.complete(partition, batch)
        producer._sender._notify_progress()

    return make_room


def _table() -> pa.Table:
    return pa.table({"value": pa.array([_VALUE], pa.binary())})


async def _send(producer: AsyncProducer, kind: str) -> object:
    if kind == "table":
        return await producer.send_table("t", _table())
    return await producer.send("t", _VALUE, partition=0)


def _send_now(producer: Producer, kind: str) -> object:
    return producer.send_table("t", _table()) if kind == "table" else producer.send("t", _VALUE, partition=0)


@pytest.mark.parametrize("kind", ["record", "table"])
def test_a_send_without_room_waits_until_a_batch_is_over(kind: str) -> None:
    async def run() -> None:
        producer = AsyncProducer({**_SETTINGS, "max.block.ms": 60_000})
        make_room = _fill(producer)
        sending = [asyncio.ensure_future(_send(producer, kind)) for _ in range(2)]
        await asyncio.sleep(0)
        assert producer.metrics().waiting_threads == 2
        for left in (1, 0):
            make_room()
            async with asyncio.timeout(10):
                await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                # The other one found none, and waits again.
                await asyncio.sleep(0)
            assert sum(not each.done() for each in sending) == left == producer.metrics().waiting_threads
        await producer.close(flush=False)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["record", "table"])
def test_a_send_that_finds_no_room_in_time_says_so_and_waits_no_more(kind: str) -> None:
    async def run() -> None:
        producer = AsyncProducer({**_SETTINGS, "max.block.ms": 5})
        _fill(producer)
        with pytest.raises(BufferFull, match=f": {re.escape(_FULL.format(5))}"):
            await _send(producer, kind)
        metrics = producer.metrics()
        assert (metrics.waiting_threads, metrics.buffer_available_bytes) == (0, 0)
        assert metrics.bufferpool_wait_time_total > 0
        await producer.close(flush=False)
        with pytest.raises(ClientClosed, match=r"^this producer is closed"):
            await _send(producer, kind)

    asyncio.run(run())


@pytest.mark.parametrize("kind", [AsyncProducer, Producer])
def test_the_wait_for_a_topic_and_for_room_have_one_deadline(
    kind: type[AsyncProducer | Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Java's client: max.block.ms is for the whole call."""
    deadlines: list[int] = []
    clock = [5_000]
    for module in ("producer", "sync"):
        monkeypatch.setattr(f"ottla.client.producer.{module}.now_ms", lambda: clock[0])

    async def known_partition(_: object, partition: TopicPartition, timeout_ms: int) -> None:
        deadlines.append(clock[0] + timeout_ms)
        clock[0] += 40

    async def run() -> None:
        producer = AsyncProducer({**_SETTINGS, "max.block.ms": 50})
        _fill(producer)
        monkeypatch.setattr(producer, "wait_for_room", full)
        with pytest.raises(BufferFull):
            await producer.send("t", _VALUE, partition=1)
        await producer.close(flush=False)

    async def full(deadline_ms: int) -> None:
        deadlines.append(deadline_ms)
        raise BufferFull("full")

    def no_room(seconds: float) -> bool:
        deadlines.append(clock[0] + round(1000 * seconds))
        return False

    monkeypatch.setattr(Cluster, "known_partition", known_partition)
    monkeypatch.setattr(
        Sender, "set_partitions", lambda sender, topic: sender._accumulator.set_partitions(topic, 2, (0, 1))
    )
    if kind is AsyncProducer:
        asyncio.run(run())
    else:
        with _synchronous(50) as producer:
            _fill(producer)
            monkeypatch.setattr(producer._room, "wait", no_room)
            with pytest.raises(BufferFull):
                producer.send("t", _VALUE, partition=1)
    assert deadlines == [5_050, 5_050]


def _open_timestamps(producer: AsyncProducer | Producer) -> list[dict[int, int]]:
    batches = [partition.open for partition in producer._accumulator.topics["t"].partitions]
    return [batch.given for batch in batches if batch is not None]


def test_a_record_that_waits_for_room_is_as_old_as_its_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Java's client, which takes the time before it waits."""
    for module in ("producer", "sync"):
        monkeypatch.setattr(f"ottla.client.producer.{module}.wall_ms", lambda: 123)

    async def run() -> None:
        producer = AsyncProducer({**_SETTINGS, "max.block.ms": 60_000})
        make_room = _fill(producer)
        sending = asyncio.ensure_future(producer.send("t", _VALUE))
        await asyncio.sleep(0)
        make_room()
        await sending
        assert _open_timestamps(producer) == [{0: 123}]
        await producer.close(flush=False)

    asyncio.run(run())
    with _synchronous(60_000) as producer:
        make_room = _fill(producer)
        wait = producer._room.wait

        def makes_room(seconds: float) -> bool:
            producer._thread.loop.call_soon_threadsafe(make_room)
            return wait(seconds)

        monkeypatch.setattr(producer._room, "wait", makes_room)
        producer.send("t", _VALUE)
        assert _open_timestamps(producer) == [{0: 123}]


@contextmanager
def _synchronous(max_block_ms: int) -> Iterator[Producer]:
    producer = Producer({**_SETTINGS, "max.block.ms": max_block_ms})
    try:
        yield producer
    finally:
        producer.close(flush=False)


@pytest.mark.parametrize("kind", ["record", "table"])
def test_a_thread_without_room_waits_until_a_batch_is_over(kind: str) -> None:
    with _synchronous(60_000) as producer:
        make_room = _fill(producer)
        done = threading.Event()

        def send() -> None:
            _send_now(producer, kind)
            done.set()

        thread = threading.Thread(target=send)
        thread.start()
        while producer.metrics().waiting_threads != 1:
            assert thread.is_alive()
        assert not done.is_set()
        make_room()
        assert done.wait(10)
        thread.join()
        assert producer.metrics().waiting_threads == 0


@pytest.mark.parametrize("kind", ["record", "table"])
def test_a_thread_that_finds_no_room_in_time_is_told(kind: str) -> None:
    with _synchronous(5) as producer:
        _fill(producer)
        with pytest.raises(BufferFull, match=f": {re.escape(_FULL.format(5))}"):
            _send_now(producer, kind)
        assert producer.metrics().waiting_threads == 0
    with pytest.raises(ClientClosed, match=r"^this producer is closed"):
        _send_now(producer, kind)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_request_size": 500, "buffer_memory": 400}, "max.request.size=500"),
        ({"max_request_size": 5000, "buffer_memory": 400}, "buffer.memory=400"),
    ],
)
def test_a_record_that_never_fits_is_refused_at_once(settings: dict[str, int], said: str) -> None:
    async def run() -> None:
        producer = AsyncProducer("127.0.0.1:1", **settings)  # type: ignore[arg-type]
        with producer._lock:
            producer._accumulator.set_partitions("t", 1, range(1))
        with pytest.raises(KafkaError, match=rf": a record of \d+ bytes is larger than {re.escape(said)}") as raised:
            await producer.send("t", _VALUE, partition=0)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await producer.close(flush=False)

    asyncio.run(run())


def test_sends_get_room_in_the_order_in_which_they_began_to_wait() -> None:
    """A large record waits for two batches to end, and a small one that came later does not take what it waits for."""

    async def run() -> None:
        producer = AsyncProducer({**_SETTINGS, "max.block.ms": 60_000})
        make_room = _fill(producer)
        ended: list[str] = []

        async def send(name: str, size: int) -> None:
            await producer.send("t", b"v" * size, partition=0)
            ended.append(name)

        async with asyncio.timeout(10):
            sending = [asyncio.ensure_future(send("large", 1_500)), asyncio.ensure_future(send("small", 800))]
            await asyncio.sleep(0)
            make_room()
            await asyncio.sleep(0)
            # It comes when there is room for it, and others wait.
            sending.append(asyncio.ensure_future(send("last", 700)))
            for _ in range(5):
                await asyncio.sleep(0)
            assert ended == []
            make_room()
            await sending[0]
            assert ended == ["large"]
            make_room()
            await asyncio.gather(*sending)
            assert ended == ["large", "small", "last"]
        assert not producer._accumulator.line
        await producer.close(flush=False)

    asyncio.run(run())


@pytest.mark.parametrize("gives_up", [False, True])
def test_threads_get_room_in_the_order_in_which_they_began_to_wait(gives_up: bool) -> None:
    with _synchronous(60_000) as producer:
        make_room = _fill(producer)
        ended: list[str] = []

        def send(name: str, size: int) -> None:
            try:
                producer.send("t", b"v" * size, partition=0)
                ended.append(name)
            except BufferFull:
                ended.append("none for " + name)

        def begin(name: str, size: int) -> threading.Thread:
            thread = threading.Thread(target=send, args=(name, size))
            before = len(producer._accumulator.line)
            thread.start()
            while len(producer._accumulator.line) == before:
                assert thread.is_alive()
            return thread

        if gives_up:
            producer.settings = ProducerSettings.read({**_SETTINGS, "max.block.ms": 50}, {})
            producer._async.settings = producer.settings
        large = begin("large", 1_500)
        producer._async.settings = ProducerSettings.read({**_SETTINGS, "max.block.ms": 60_000}, {})
        small = begin("small", 800)
        make_room()
        if gives_up:
            # The one behind it has room from then on, and does not wait for another batch to end.
            for thread in (large, small):
                thread.join(10)
            assert ended == ["none for large", "small"]
        else:
            last = begin("last", 700)
            assert ended == []
            make_room()
            large.join(10)
            assert ended == ["large"]
            make_room()
            for thread in (small, last):
                thread.join(10)
            assert sorted(ended[1:]) == ["last", "small"]
        assert not producer._accumulator.line
