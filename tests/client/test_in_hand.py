"""Records that an iteration has polled and not yielded, when the program pauses, assigns or closes in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ottla.client import AsyncConsumer, Consumer, TopicPartition
from ottla.client.consumer.position import Chunk
from ottla.kernel.error import OttlaError
from ottla.wire.batch import build
from tests.client.at_point import AtPoint

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
Step = Callable[[AsyncConsumer[bytes, bytes]], Awaitable[None]]


def buffer(consumer: AsyncConsumer[bytes, bytes], *partitions: TopicPartition) -> None:
    """Read these partitions, of which offsets 0 to 3 have been fetched."""
    consumer.assign(partitions)
    for partition in partitions:
        state = consumer._positions[partition]
        state.seek(0)
        assert state.fetched(Chunk(build([(7, None, b"v", ())] * 4), 0, None, check_crcs=True), 0)


async def pause(consumer: AsyncConsumer[bytes, bytes]) -> None:
    await consumer.pause([ONE])


async def assign(consumer: AsyncConsumer[bytes, bytes]) -> None:
    consumer.assign([TWO])


async def unsubscribe(consumer: AsyncConsumer[bytes, bytes]) -> None:
    await consumer.unsubscribe()


async def close(consumer: AsyncConsumer[bytes, bytes]) -> None:
    await consumer.close()


@pytest.mark.parametrize(
    ("step", "left"), [(pause, {ONE: 2, TWO: 4}), (assign, {TWO: 4}), (unsubscribe, {}), (close, {ONE: 2, TWO: 0})]
)
def test_an_iteration_yields_nothing_more_of_what_is_no_longer_to_be_read(
    step: Step, left: dict[TopicPartition, int]
) -> None:
    async def run() -> None:
        async with AsyncConsumer[bytes, bytes]("127.0.0.1:1") as consumer:
            buffer(consumer, ONE, TWO)
            found: list[tuple[int, int]] = []
            async for record in consumer:
                found.append((record.partition, record.offset))
                if len(found) == 2:
                    await step(consumer)
                    if TWO not in left or left[TWO] == 0:
                        assert not consumer._in_hand
                        break
                if len(found) == 6:
                    break
            rest = [(1, offset) for offset in range(left.get(TWO, 0))]
            assert found == [(0, 0), (0, 1), *rest]
            assert consumer.positions() == left

    asyncio.run(run())


def test_records_in_hand_come_again_when_their_partition_is_resumed() -> None:
    async def run() -> None:
        async with AsyncConsumer[bytes, bytes]("127.0.0.1:1") as consumer:
            buffer(consumer, ONE, TWO)
            async for _ in consumer:
                break
            await consumer.pause([ONE])
            assert [record.partition for record in consumer._in_hand] == [1, 1, 1, 1]
            assert (consumer._positions[ONE].fetch_offset, await consumer.position(ONE)) == (1, 1)
            await consumer.resume([ONE])
            assert consumer.positions() == {ONE: 1, TWO: 0}

    asyncio.run(run())


def test_an_iteration_ends_with_a_close_in_the_middle() -> None:
    with Consumer[bytes, bytes]("127.0.0.1:1") as consumer:

        async def begin() -> None:
            buffer(consumer._async, ONE)

        consumer._thread.run(begin())
        offsets: list[Any] = []
        for record in consumer:
            offsets.append(record.offset)
            consumer.close()
        assert offsets == [0]


@pytest.mark.parametrize("call", ["poll", "poll_table"])
def test_a_poll_that_fails_in_a_rebalance_leaves_the_position_that_its_listener_found(call: str) -> None:
    """The poll began with a batch that has nothing for the program, as one that was compacted away."""
    with Consumer[bytes, bytes]("127.0.0.1:1") as consumer:
        half = consumer._async

        async def begin() -> None:
            half.assign([ONE])
            half._positions[ONE].seek(0)
            half._fetcher.all_positioned = True
            marker = build([(7, b"\0\0\0\0", b"\0\0\0\0\0\0", ())], producer_id=1, transactional=True, control=True)
            assert half._positions[ONE].fetched(Chunk(marker, 0, None, check_crcs=True), 0)

        async def fails(*_: object) -> list[bool]:
            await half.seek(ONE, 500)
            raise OttlaError("no")

        consumer._thread.run(begin())
        half._next = fails  # type: ignore[assignment, method-assign]
        with pytest.raises(OttlaError, match="no"):
            getattr(consumer, call)(0)
        assert consumer.positions() == {ONE: 500}


def of_one_and_two(consumer: Consumer[bytes, bytes]) -> None:
    async def begin() -> None:
        buffer(consumer._async, ONE, TWO)
        consumer._async._fetcher.all_positioned = True

    consumer._async._positions.clear()
    consumer._async._in_hand = []
    consumer._thread.run(begin())


def rest_of_two(consumer: Consumer[bytes, bytes], records: Iterator[Any], found: list[tuple[int, int]]) -> None:
    """Read on until all records of the second partition are found; every record was then found once, or is still to
    come.
    """
    while (1, 3) not in found:
        record = next(records)
        found.append((record.partition, record.offset))
    count = sum(partition == 0 for partition, _ in found)
    assert sorted(found) == [(0, offset) for offset in range(count)] + [(1, offset) for offset in range(4)]
    assert consumer.positions() == {ONE: count, TWO: 4}


# With 4, a pause leaves nothing in hand.
@pytest.mark.parametrize("max_poll_records", [4, 6])
def test_a_pause_by_another_thread_at_any_point_of_an_iteration_loses_and_repeats_nothing(
    max_poll_records: int,
) -> None:
    with Consumer[bytes, bytes]("127.0.0.1:1", max_poll_records=max_poll_records) as consumer:
        half = consumer._async
        number, paused = 0, [True]
        while paused:
            of_one_and_two(consumer)
            paused.clear()

            def pause(paused: list[bool] = paused) -> None:
                paused.append(True)
                # The other thread waits for the lock.
                if not half._lock.locked():
                    consumer.pause([ONE])

            with AtPoint(number, "consumer", pause):
                rest_of_two(consumer, iter(consumer), [])
            number += 1
        assert number > 20


def test_an_iteration_that_goes_on_beside_a_pause_loses_and_repeats_nothing() -> None:
    with Consumer[bytes, bytes]("127.0.0.1:1", max_poll_records=6) as consumer:
        half = consumer._async
        number, went_on = 0, [True]
        while went_on:
            of_one_and_two(consumer)
            went_on.clear()
            found: list[tuple[int, int]] = []
            records = iter(consumer)

            def step(
                found: list[tuple[int, int]] = found, records: Iterator[Any] = records, went_on: list[bool] = went_on
            ) -> None:
                went_on.append(True)
                record = next(records)
                found.append((record.partition, record.offset))

            step()
            went_on.clear()
            with AtPoint(number, "consumer", step):
                half.return_in_hand([ONE])
            rest_of_two(consumer, records, found)
            number += 1
        assert number > 10


def test_a_commit_by_another_thread_while_records_are_given_back_is_of_those_that_were_yielded() -> None:
    with Consumer[bytes, bytes]("127.0.0.1:1") as consumer:
        half = consumer._async
        number, looked = 0, [True]
        while looked:
            of_one_and_two(consumer)
            next(iter(consumer))
            looked.clear()

            def look(looked: list[bool] = looked) -> None:
                looked.append(True)
                # The other thread waits for the lock.
                if not half._lock.locked():
                    assert half._consumed() == {ONE: (1, -1, ""), TWO: (0, -1, "")}

            with AtPoint(number, "consumer", look):
                half.return_in_hand()
            number += 1
        assert number > 10
