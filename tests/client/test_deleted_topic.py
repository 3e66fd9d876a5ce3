"""A topic that is deleted while a group still assigns it: its readers go on with the others."""

import asyncio

import pytest

import ottla
from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncShareConsumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)

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
