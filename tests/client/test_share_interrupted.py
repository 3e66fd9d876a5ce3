"""What a share consumer's program did not see is never accepted, and what raises in between loses nothing else."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from ottla.client import AsyncShareConsumer, ShareConsumer, TopicPartition
from ottla.client.acknowledgement import Acknowledge
from ottla.client.connection.clock import now_ms
from ottla.kernel.client_error import ClientClosed, ConnectionLost
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.share_fetch import AcquiredRecords, PartitionData
from ottla.wire.batch import build
from tests.client.hurried import hurried
from tests.client.test_share_consumer import ID, ONE, TWO, Heard, acknowledged, record, said, with_session

ACCEPT, RELEASE = int(Acknowledge.ACCEPT), int(Acknowledge.RELEASE)


@pytest.mark.parametrize("explicit", [False, True])
def test_an_iteration_that_ends_early_releases_what_it_did_not_reach(explicit: bool) -> None:
    async def run() -> None:
        settings = {"group.id": "g", "share.acknowledgement.mode": "explicit" if explicit else "implicit"}
        async with AsyncShareConsumer({"bootstrap.servers": "127.0.0.1:1", **settings}) as consumer:
            words = consumer.acknowledgements
            words.give(found := [record(number) for number in range(4)])
            left = found[::-1]
            for one in consumer.one_by_one(left):
                if explicit:
                    consumer.acknowledge(one)
                if one.offset == 1:
                    break
            # Of what was seen, and of nothing else, something can be said meanwhile.
            words.settle(for_poll=False)
            assert words.ready == {ONE: {0: ACCEPT, 1: ACCEPT}}
            consumer.release(left)
            words.settle(for_poll=True)
            assert words.ready == {ONE: {0: ACCEPT, 1: ACCEPT, 2: RELEASE, 3: RELEASE}}

    asyncio.run(run())


def test_a_poll_that_is_interrupted_when_it_is_over_accepts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ShareConsumer[bytes, bytes]("127.0.0.1:1", group_id="g")
    half, thread = consumer._async, consumer._thread
    parts = [MetadataResponsePartition(partition_index=0, leader_id=7)]
    topic = MetadataResponseTopic(name="t", topic_id=ID, partitions=parts)
    brokers = [MetadataResponseBroker(node_id=7, host="127.0.0.1", port=1)]
    half._cluster.metadata.apply(MetadataResponse(brokers=brokers, topics=[topic]), now_ms())

    async def poll(_: float) -> list[Any]:
        half.acknowledgements.give(found := [record(4), record(5)])
        return found

    def run(work: Coroutine[Any, Any, Any]) -> None:
        thread.submit(work).result()
        raise KeyboardInterrupt

    monkeypatch.setattr(half, "poll", poll)
    with monkeypatch.context() as patch:
        patch.setattr(thread, "run", run)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()

    async def settle() -> None:
        half.acknowledgements.settle(for_poll=True)

    thread.run(settle())
    assert half.acknowledgements.ready == {ONE: {4: RELEASE, 5: RELEASE}}
    consumer.close()


def test_a_callback_that_raises_is_heard_and_stops_no_other() -> None:
    async def run() -> None:
        heard: Heard = []
        async with with_session(heard) as (fetcher, connection):

            def tell(partition: TopicPartition, *rest: Any) -> None:
                heard.append((partition, *rest))
                raise ZeroDivisionError

            consumer = fetcher._on_answer.__self__  # type: ignore[attr-defined]
            consumer.on_acknowledged = tell
            looked: list[None] = []
            fetcher.on_data.append(lambda: looked.append(None))
            said(fetcher, ONE, TWO)
            answer: asyncio.Future[Any] = asyncio.Future()
            connection.send.side_effect = [answer]
            fetcher._ask(7, connection, {ONE: ID, TWO: ID})
            answer.set_result(acknowledged({0: ErrorCode.NONE, 1: ErrorCode.NONE}))
            await asyncio.sleep(0)
            assert [partition for partition, *_ in heard] == [ONE, TWO]
            assert looked == [None]
            with pytest.raises(ZeroDivisionError):
                await consumer._take()

    asyncio.run(run())


def test_acknowledgements_for_a_deleted_topic_are_given_up() -> None:
    async def run() -> None:
        heard: Heard = []
        async with with_session(heard) as (fetcher, _):
            fetcher.assigned = set()
            gone = TopicPartition("gone", 0)
            fetcher._sources[gone] = fetcher._sources[ONE]
            said(fetcher, gone)
            fetcher._pass(now_ms())
            assert [(partition, error and error.code) for partition, _, error in heard] == [
                (gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ]
            assert not fetcher.unanswered()

    asyncio.run(run())


@pytest.mark.parametrize("damage", ["a record", "a length"])
def test_only_what_no_consumer_can_read_is_rejected(damage: str) -> None:
    """Batches of offsets 0 and 1, 2 and 3, 4 and 5, of which 1 to 5 are acquired; the second one is damaged."""
    found = [bytearray(build([(7, None, b"v", ())] * 2, base_offset=first)) for first in (0, 2, 4)]
    if damage == "a record":
        found[1][-1] ^= 1
    else:
        found[1][8:12] = (3).to_bytes(4, "big")
    acquired = [
        AcquiredRecords(first_offset=1, last_offset=2, delivery_count=1),
        AcquiredRecords(first_offset=3, last_offset=5, delivery_count=2),
    ]

    async def run() -> None:
        async with AsyncShareConsumer("127.0.0.1:1", group_id="g") as consumer:
            fetcher = consumer._fetcher
            fetcher.assigned = {ONE}
            fetcher._acquire(ONE, PartitionData(acquired_records=acquired, records=b"".join(found)))
            readable = {1: 1, 4: 2, 5: 2} if damage == "a record" else {1: 1}
            assert {one.offset: one.delivery_count for one in fetcher.records} == readable
            assert consumer.acknowledgements.ready == {
                ONE: dict.fromkeys(sorted({1, 2, 3, 4, 5} - readable.keys()), int(Acknowledge.REJECT))
            }
            assert isinstance(fetcher.error, KafkaError)
            consumer.acknowledgements.ready.clear()
            fetcher.error = None

    asyncio.run(run())


def test_a_commit_beside_a_poll_that_waits_leaves_both_awake() -> None:
    """As of two threads: the one that waited first was not woken, the commit not for a minute."""

    async def run() -> None:
        async with AsyncShareConsumer("127.0.0.1:1", group_id="g") as consumer:
            waiting = [asyncio.create_task(consumer._wait(600_000)) for _ in range(2)]
            await asyncio.sleep(0)
            consumer.something_to_do()
            async with asyncio.timeout(10):
                await asyncio.gather(*waiting)
            consumer.something_to_do()

    asyncio.run(run())


@asynccontextmanager
async def committing(
    heard: Heard, answer: asyncio.Future[Any] | None = None
) -> AsyncIterator[tuple[Any, Mock, asyncio.Task[Any]]]:
    """A consumer, its connection, and a commit that waits for this answer, or else to be sent with a close."""
    async with with_session(heard) as (fetcher, connection):
        consumer = fetcher._on_answer.__self__  # type: ignore[attr-defined]
        consumer._group = Mock(end=AsyncMock(), poll_waits=nullcontext)
        if answer is None:
            fetcher._busy[7] = {}
        connection.send.side_effect = [answer]
        consumer.acknowledgements.give([record(4), record(5)])
        commit = asyncio.create_task(consumer.commit())
        await turns()
        yield consumer, connection, commit


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_commit_beside_a_close_waits_for_its_answer() -> None:
    async def run() -> None:
        async with committing([]) as (consumer, connection, commit):
            answer: asyncio.Future[Any] = asyncio.Future()
            connection.call = lambda *_, **__: answer
            close = asyncio.create_task(consumer.close())
            await turns()
            consumer.something_to_do()
            await turns()
            assert not commit.done()
            answer.set_result(acknowledged({0: ErrorCode.INVALID_RECORD_STATE}))
            await close
            error = (await commit)[ONE]
            assert error is not None and error.code is ErrorCode.INVALID_RECORD_STATE

    hurried(run())


def test_a_close_that_is_cancelled_answers_the_commits_beside_it() -> None:
    async def run() -> None:
        heard: Heard = []
        async with committing(heard) as (consumer, connection, commit):
            connection.call = lambda *_, **__: asyncio.Future()
            close = asyncio.create_task(consumer.close())
            await turns()
            close.cancel()
            with pytest.raises(asyncio.CancelledError):
                await close
            before = now_ms()
            error = (await commit)[ONE]
            assert error is not None and error.code is ErrorCode.NETWORK_EXCEPTION
            assert now_ms() == before
            assert [(partition, offsets) for partition, offsets, _ in heard] == [(ONE, [4, 5])]

    hurried(run())


def test_a_commit_whose_connection_ends_with_the_consumer_is_answered() -> None:
    async def run() -> None:
        answer: asyncio.Future[Any] = asyncio.Future()
        async with committing([], answer) as (consumer, connection, commit):
            connection.closed = "closed"
            await consumer.close()
            await turns()
            answer.set_exception(ConnectionLost("closed by this client"))
            before = now_ms()
            error = (await commit)[ONE]
            assert error is not None and error.code is ErrorCode.NETWORK_EXCEPTION
            assert now_ms() == before

    hurried(run())


def test_a_close_behind_an_unsubscription_sends_what_was_acknowledged_and_answers_the_commits_beside_it() -> None:
    async def run() -> None:
        heard: Heard = []
        async with committing(heard) as (consumer, connection, commit):
            # It has left its group, but the records stay its own until its session ends.
            consumer._group = None
            connection.call = AsyncMock(return_value=acknowledged({0: ErrorCode.NONE}))
            await consumer.close()
            before = now_ms()
            assert await commit == {ONE: None}
            assert now_ms() == before
            request = connection.call.call_args.args[0]
            assert request.share_session_epoch == -1 and len(request.topics) == 1
            assert heard == [(ONE, [4, 5], None)]

    hurried(run())


def test_a_closed_consumer_does_not_commit() -> None:
    async def run() -> None:
        consumer = AsyncShareConsumer[bytes, bytes]("127.0.0.1:1", group_id="g")
        consumer.acknowledgements.give([record(4)])
        await consumer.close()
        with pytest.raises(ClientClosed, match=r"^this consumer is closed$"):
            await consumer.commit()

    hurried(run())
