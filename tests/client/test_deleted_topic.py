"""A topic that is deleted while a group still assigns it: its readers go on with the others."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import ottla
from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    ConsumerRecord,
    ErrorCode,
    KafkaError,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from ottla.client.connection.clock import now_ms
from ottla.client.consumer.offset_lookup import OffsetLookup
from ottla.wire.api import ApiKey

GONE = TopicPartition("gone", 0)


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_an_assignment_does_not_wait_for_a_topic_that_is_gone(
    kind: type[AsyncConsumer[bytes, bytes]] | type[AsyncShareConsumer[bytes, bytes]],
) -> None:
    async def run() -> None:
        async with kind("127.0.0.1:1", group_id="g") as consumer, asyncio.timeout(10):
            await consumer.assign_more({GONE})
            assert consumer.owned() == {GONE}

    asyncio.run(run())


@pytest.mark.parametrize("gone", [GONE, TopicPartition("there", 7)], ids=["topic", "partition"])
def test_a_partition_that_is_not_there_holds_up_no_other(node: ottla.Node, gone: TopicPartition) -> None:
    """Each poll waited its whole timeout for the one, again and again; all polls together take less than one does."""
    stays = [TopicPartition("there", number) for number in (0, 1)]
    with Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        with suppress(KafkaError):
            admin.create_topic("there", 2)
        start = {one: admin.list_offsets({one: OffsetSpec.LATEST})[one].offset for one in stays}
        for number in range(100):
            producer.send("there", b"%d" % number, partition=number % 2)

    async def run() -> None:
        options: dict[str, Any] = {
            "auto_offset_reset": "latest",
            "max_poll_records": 10,
            "allow_auto_create_topics": False,
        }
        async with AsyncConsumer(node.bootstrap_servers, **options) as consumer, asyncio.timeout(55):
            consumer.assign([gone, *stays])
            assert await consumer.poll(0.5) == []
            for one, offset in start.items():
                await consumer.seek(one, offset)
            count = 0
            while count < 100:
                records = await consumer.poll(50)
                assert records
                count += len(records)

    asyncio.run(run())


def test_partitions_with_leaders_are_placed_beside_one_without(node: ottla.Node) -> None:
    """The first poll of a consumer that has read nothing yet."""
    with Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        admin.create_topic("first", 1)
        producer.send("first", b"v").result(30)

    async def run() -> None:
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False}
        async with AsyncConsumer(node.bootstrap_servers, **options) as consumer, asyncio.timeout(50):
            consumer.assign([GONE, TopicPartition("first", 0)])
            assert [record.value for record in await consumer.poll(60)] == [b"v"]

    asyncio.run(run())


def test_a_position_is_waited_for_though_another_partition_has_one(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader is away at first: a poll goes on with the other, and the question waits for an answer."""
    asked, attempt = list[int](), OffsetLookup.attempt

    async def at_first_away(lookup: OffsetLookup) -> None:
        asked.append(1)
        if len(asked) < 4:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        await attempt(lookup)

    monkeypatch.setattr(OffsetLookup, "attempt", at_first_away)
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic("away", 2)

    async def run() -> None:
        async with AsyncConsumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("away", 0), TopicPartition("away", 1)])
            await consumer.seek(TopicPartition("away", 0), 0)
            assert await consumer.position(TopicPartition("away", 1)) == 0

    asyncio.run(run())
    assert len(asked) == 4


def test_a_member_goes_on_with_its_other_topics(node: ottla.Node) -> None:
    other = TopicPartition("stays", 0)
    with Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        admin.create_topic(other.topic, 1)
        producer.send(other.topic, b"before").result(30)

    async def next_value(consumer: AsyncConsumer[bytes, bytes]) -> bytes:
        async with asyncio.timeout(30):
            while True:
                records: list[ConsumerRecord[bytes, bytes]] = await consumer.poll(0.2)
                if records:
                    return records[0].value

    async def run() -> None:
        settings = {"group.protocol": "classic", "auto.offset.reset": "earliest"}
        async with AsyncConsumer({"bootstrap.servers": node.bootstrap_servers, **settings}, group_id="g") as consumer:
            consumer.subscribe([other.topic])
            assert await next_value(consumer) == b"before"
            await consumer.assign_more({GONE})
            with Producer(node.bootstrap_servers) as producer:
                producer.send(other.topic, b"after")
            assert await next_value(consumer) == b"after"
            assert consumer.owned() == {GONE, other}

    asyncio.run(run())


def test_a_producer_does_not_create_a_topic_again_that_it_no_longer_writes(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each update of its metadata asked for every topic it had ever written, and the broker creates what is asked."""

    async def run() -> None:
        async with AsyncProducer(node.bootstrap_servers) as producer:
            for topic in ("abandoned", "kept"):
                await (await producer.send(topic, b"v"))
            await producer._sender._update()
            with Admin(node.bootstrap_servers) as admin:
                admin.delete_topics(["abandoned"]).check()
            later = now_ms() + producer.settings.metadata_max_idle_ms + 1
            monkeypatch.setattr("ottla.client.connection.cluster.now_ms", lambda: later)
            await (await producer.send("kept", b"v"))
            await producer._sender._update()
            with Admin(node.bootstrap_servers) as admin:
                assert {"abandoned", "kept"}.intersection(each.name for each in admin.list_topics()) == {"kept"}
            assert "kept" in producer._cluster.metadata.topics
            await (await producer.send("abandoned", b"v"))
            assert "abandoned" in producer._cluster.metadata.topics

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_deleted_topic_does_not_hold_up_the_last_commit(node: ottla.Node, protocol: str) -> None:
    """The coordinator does not know the topic, which passes in other cases: the commit was tried for 30 seconds."""
    topics = [f"{protocol}-{word}" for word in ("deleted", "stays")]
    settings = {
        "bootstrap.servers": node.bootstrap_servers,
        "group.id": protocol,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": "false",
    }
    with Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        for topic in topics:
            producer.send(topic, b"v").result(30)
        consumer = Consumer[bytes, bytes](settings)
        consumer.subscribe(topics)
        count = 0
        while count < 2:
            count += len(consumer.poll(20))
        admin.delete_topics(topics[:1]).check()
        with node.faults.watch(ApiKey.OFFSET_COMMIT) as commits:
            consumer.close()
        assert len(commits.requests) == 1
        assert [(each.topic, at.offset) for each, at in admin.list_group_offsets(protocol).items()] == [(topics[1], 1)]
