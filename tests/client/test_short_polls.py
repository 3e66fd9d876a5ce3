"""Polls that are shorter than the way to the broker and back, as of a program that has its own loop."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncShareConsumer,
    Consumer,
    ErrorCode,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from ottla.wire.api import ApiKey
from tests.client.conftest import eventually, share_from_the_start


@pytest.fixture
def topic(node: ottla.Node, name: str) -> Iterator[str]:
    """A topic with a record, on a node that takes its time with questions about offsets."""
    with Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        admin.create_topic(name, 1)
        producer.send(name, b"v").result(30)
    with node.faults.delay([ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS], 20):
        yield name


def test_a_consumer_that_never_waits_reads(node: ottla.Node, topic: str) -> None:
    with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        eventually(lambda: [record.value for record in consumer.poll(0)] == [b"v"], 20)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_never_waits_reads(node: ottla.Node, topic: str, protocol: str) -> None:
    """On a loop of its own, which each poll must let run."""

    async def run() -> None:
        settings = {"group.protocol": protocol, "auto.offset.reset": "earliest"}
        async with AsyncConsumer({"bootstrap.servers": node.bootstrap_servers, **settings}, group_id=topic) as consumer:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 20
            while not await consumer.poll(0):
                assert time.monotonic() < deadline

    asyncio.run(run())


def test_a_share_consumer_that_never_waits_reads(node: ottla.Node, topic: str) -> None:
    with Admin(node.bootstrap_servers) as admin:
        share_from_the_start(admin, topic)
    with ShareConsumer(node.bootstrap_servers, group_id=topic) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: [record.value for record in consumer.poll(0)] == [b"v"], 20)

    async def run() -> None:
        async with AsyncShareConsumer(node.bootstrap_servers, group_id=topic) as consumer:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 20
            while not await consumer.poll(0):
                assert time.monotonic() < deadline

    with Producer(node.bootstrap_servers) as producer:
        producer.send(topic, b"w").result(30)
    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "api"), [(Consumer, ApiKey.FETCH), (ShareConsumer, ApiKey.SHARE_FETCH)], ids=["consumer", "share"]
)
def test_a_poll_that_waits_does_not_hammer_a_leader_that_refuses(node: ottla.Node, kind: Any, api: ApiKey) -> None:
    """Each refusal woke the poll, which woke the fetcher: hundreds of requests a second for as long as an election."""
    name = f"refused-{kind.__name__}"
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    with kind(node.bootstrap_servers, group_id=name, client_id=name) as consumer:
        consumer.subscribe([name])
        with node.faults.watch(api, client_id=name) as asked:
            eventually(lambda: consumer.poll(0.1) == [] and bool(asked.requests), 20)
        with (
            node.faults.watch(api, client_id=name) as asked,
            node.faults.error(api, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None, client_id=name),
        ):
            assert consumer.poll(1) == []
        assert len(asked.requests) <= 15, "each 100 ms one"
