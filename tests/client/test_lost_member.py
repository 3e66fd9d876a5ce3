"""A member of a group that the coordinator has thrown out: what it commits of its records is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import ottla
from ottla.client import Admin, Consumer, KafkaError, Producer, TopicPartition
from tests.client.conftest import eventually

PROTOCOLS = ("classic", "consumer")
#: A session is over; and the group, which has been empty since, is removed.
AWAY_MS = (60_000, 3_600_000)
_names = count()


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    quick = {f"group.consumer.{least}heartbeat.interval.ms": "100" for least in ("", "min.")}
    with ottla.Node(settings=quick) as node:
        yield node


@pytest.fixture
def partition(node: ottla.Node) -> TopicPartition:
    """A partition of ten records."""
    made = TopicPartition(f"lost-{next(_names)}", 0)
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic(made.topic, 1)
    with Producer(node.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(made.topic, b"%d" % number)
    return made


def member(node: ottla.Node, partition: TopicPartition, protocol: str) -> Consumer[bytes, bytes]:
    settings = {
        "bootstrap.servers": node.bootstrap_servers,
        "group.id": partition.topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        **({"heartbeat.interval.ms": "100"} if protocol == "classic" else {}),
    }
    consumer = Consumer(settings)
    consumer.subscribe([partition.topic])
    return consumer


def thrown_out(node: ottla.Node, consumer: Consumer[bytes, bytes], away_ms: int) -> None:
    """The member is away for so long, and has heard that its session is over."""
    group = consumer._async._group
    assert group is not None
    node.clock.advance(away_ms)
    eventually(lambda: group._lost)


def committed(node: ottla.Node, partition: TopicPartition) -> int:
    with Admin(node.bootstrap_servers) as admin:
        found = admin.list_group_offsets(partition.topic)
        return found[partition].offset if partition in found else -1


@pytest.mark.parametrize("away_ms", AWAY_MS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_transaction_of_a_lost_member_is_refused(
    node: ottla.Node, partition: TopicPartition, protocol: str, away_ms: int
) -> None:
    with (
        member(node, partition, protocol) as consumer,
        Producer(node.bootstrap_servers, transactional_id=partition.topic) as producer,
    ):
        assert len(consumer.poll(20, max_records=5)) == 5
        before = consumer.group_metadata()
        assert before.member_id
        thrown_out(node, consumer, away_ms)
        assert consumer.group_metadata() == before
        producer.init_transactions()
        with pytest.raises(KafkaError), producer.transaction():
            producer.send_offsets(consumer)
        assert committed(node, partition) == -1
        # It comes back, and reads its records once more.
        again = consumer.poll(20)
        assert again and again[0].offset == 0
        with producer.transaction():
            producer.send_offsets(consumer)
        assert committed(node, partition) == again[-1].offset + 1


@pytest.mark.parametrize("away_ms", AWAY_MS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_of_a_lost_member_is_refused(
    node: ottla.Node, partition: TopicPartition, protocol: str, away_ms: int
) -> None:
    with member(node, partition, protocol) as consumer:
        assert len(consumer.poll(20, max_records=5)) == 5
        thrown_out(node, consumer, away_ms)
        with pytest.raises(KafkaError):
            consumer.commit()
        assert committed(node, partition) == -1
        again = consumer.poll(20)
        assert again and again[0].offset == 0
        consumer.commit()
        assert committed(node, partition) == again[-1].offset + 1
