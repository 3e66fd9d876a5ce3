"""A fresh node a test, and short-lived clients to it."""

from collections.abc import Iterator

import pytest

import ottla
from ottla.client import Consumer, Producer, TopicPartition


@pytest.fixture
def node(ottla_node: ottla.Node) -> ottla.Node:
    return ottla_node


@pytest.fixture
def producer(node: ottla.Node) -> Iterator[Producer]:
    with Producer(node.bootstrap_servers, retry_backoff_ms=1, linger_ms=0) as client:
        yield client


@pytest.fixture
def reader(node: ottla.Node, ottla_topic: str) -> Iterator[Consumer]:
    """Reads the topic's one partition from its beginning."""
    with Consumer(node.bootstrap_servers, auto_offset_reset="earliest", retry_backoff_ms=1) as client:
        client.assign([TopicPartition(ottla_topic, 0)])
        yield client


def values(reader: Consumer, count: int) -> list[bytes | None]:
    """The next `count` values; the test's own timeout ends the wait."""
    found: list[bytes | None] = []
    while len(found) < count:
        found.extend(record.value for record in reader.poll(1))
    return found
