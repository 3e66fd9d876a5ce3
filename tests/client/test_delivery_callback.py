"""A callback that raises, or waits on a loop that is gone, keeps no other from hearing of its record."""

import asyncio
import logging
from concurrent.futures import Future

import pyarrow
import pytest

import ottla
from ottla.client import Admin, AsyncProducer, OttlaError, Producer
from ottla.client.producer.delivery import Delivery, ProducerBatch, RecordMetadata


def test_a_callback_that_raises_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    batch = ProducerBatch("t", 0, 0, 1_000)
    for value in (b"v", b"w"):
        batch.add(value, None, None, None, 5)
    batch.seal()
    told: list[RecordMetadata | None] = []

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    Delivery.of(batch, 0).when_done(fails)
    Delivery.of(batch, 1).when_done(lambda metadata, _: told.append(metadata))
    with caplog.at_level(logging.ERROR, "ottla.client"):
        batch.succeed(7, -1)
    assert told == [RecordMetadata("t", 0, 8, 5)]
    assert "ZeroDivisionError" in caplog.text


def test_a_program_whose_loop_is_closed_keeps_nobody_waiting() -> None:
    batch = ProducerBatch("t", 0, 0, 1_000)
    batch.add(b"v", None, None, None, 5)
    batch.seal()
    told: list[RecordMetadata | None] = []

    async def waits() -> None:
        waiting = asyncio.ensure_future(_result(Delivery.of(batch, 0)))
        await asyncio.sleep(0)
        assert not waiting.done()

    asyncio.run(waits())
    assert batch.waiters
    Delivery.of(batch, 0).when_done(lambda metadata, _: told.append(metadata))
    batch.succeed(7, -1)
    assert told == [RecordMetadata("t", 0, 7, 5)]


def test_a_partitioner_may_use_its_producer(node: ottla.Node) -> None:
    """It was called under the lock for which the loop waits that it needs."""
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic("chosen", 3)

    def last(topic: str, key: bytes | None, count: int) -> int:
        # The sender's next pass comes first.
        producer._thread.loop.call_soon_threadsafe(producer._sender.wake)
        return producer.partitions_for(topic)[-1]

    with Producer[bytes, bytes](node.bootstrap_servers, partitioner=last) as producer:
        for _ in range(3):
            assert producer.send("chosen", b"v").result(30).partition == 2


def test_a_partitioner_that_raises_is_heard(node: ottla.Node) -> None:
    """A KeyError counted as a topic without metadata: the asyncio producer asked the partitioner forever."""

    def misses(*_: object) -> int:
        raise KeyError("no such region")

    async def send() -> None:
        async with AsyncProducer(node.bootstrap_servers, partitioner=misses) as producer:
            await producer.send("regions", b"v")

    with pytest.raises(KeyError, match="no such region"):
        asyncio.run(send())
    with (
        Producer(node.bootstrap_servers, partitioner=misses) as producer,
        pytest.raises(KeyError, match="no such region"),
    ):
        producer.send("regions", b"v")


async def _result(delivery: Delivery) -> RecordMetadata:
    return await delivery


def test_a_result_is_not_waited_for_on_the_loop_that_would_bring_it() -> None:
    """Neither in a coroutine nor in a callback; a loop of the program's own may wait for a synchronous producer."""

    async def own() -> None:
        async with AsyncProducer(node.bootstrap_servers) as producer:
            delivery = await producer.send("t", b"v")
            with pytest.raises(OttlaError, match="await the delivery"):
                delivery.result(0.05)
            table = await producer.send_table("t", pyarrow.table({"value": ["w"]}))
            with pytest.raises(OttlaError, match="await the delivery"):
                table.result(0.05)
            await delivery
            await table
            assert (delivery.result().offset, table.result()[0].offset) == (0, 1)

    async def another() -> None:
        assert producer.send("t", b"v").result(30).offset == 2

    with ottla.Node() as node:
        node.create_topic("t", 1)
        asyncio.run(own())
        with Producer(node.bootstrap_servers) as producer:
            asyncio.run(another())
            told: Future[Exception | None] = Future()

            def from_the_callback(*_: object) -> None:
                try:
                    producer.send("t", b"v").result(0.05)
                except Exception as error:
                    told.set_result(error)

            producer.send("t", b"v").when_done(from_the_callback)
            assert "await the delivery" in str(told.result(30))
