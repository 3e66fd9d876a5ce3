"""A callback that raises, or waits on a loop that is gone, keeps no other from hearing of its record."""

import asyncio
import logging

import pytest

from ottla.client.producer.delivery import Delivery, ProducerBatch, RecordMetadata


def test_a_callback_that_raises_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    batch = ProducerBatch("t", 0, 0, 1_000)
    batch.values, batch.runs = [b"v", b"w"], [(0, 5)]
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
    batch.values, batch.runs = [b"v"], [(0, 5)]
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


async def _result(delivery: Delivery) -> RecordMetadata:
    return await delivery
