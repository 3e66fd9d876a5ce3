"""What a share consumer's program did not see is never accepted, and what raises in between loses nothing else."""

import asyncio
from collections.abc import Coroutine
from contextlib import closing
from typing import Any

import pytest

from ottla.client import AsyncShareConsumer, ShareConsumer, TopicPartition
from ottla.client.acknowledgement import Acknowledge
from ottla.client.connection.clock import now_ms
from ottla.kernel.error import ErrorCode
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.test_share_consumer import ID, ONE, TWO, Heard, acknowledged, record, said, with_session

ACCEPT, RELEASE = int(Acknowledge.ACCEPT), int(Acknowledge.RELEASE)


@pytest.mark.parametrize("explicit", [False, True])
def test_an_iteration_that_ends_early_releases_what_it_did_not_reach(explicit: bool) -> None:
    async def run() -> None:
        settings = {"group.id": "g", "share.acknowledgement.mode": "explicit" if explicit else "implicit"}
        async with AsyncShareConsumer({"bootstrap.servers": "127.0.0.1:1", **settings}) as consumer:
            words = consumer.acknowledgements
            words.give(found := [record(number) for number in range(4)])
            with closing(consumer.one_by_one(found)) as records:
                for one in records:
                    if explicit:
                        consumer.acknowledge(one)
                    if one.offset == 1:
                        break
                # Of what was seen, and of nothing else, something can be said meanwhile.
                words.settle(for_poll=False)
                assert words.ready == {ONE: {0: ACCEPT, 1: ACCEPT}}
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
            said(fetcher, gone := TopicPartition("gone", 0))
            fetcher._pass(now_ms())
            assert [(partition, error and error.code) for partition, _, error in heard] == [
                (gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ]
            assert fetcher.idle

    asyncio.run(run())
