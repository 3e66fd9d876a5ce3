"""A real `__consumer_offsets`, written by Apache Kafka for groups of every kind: the log that we must read.

`record(directory)` starts Apache, lets librdkafka's consumers live through a few rebalances, and gives the bytes of
the offsets partitions that hold something. `tests/golden/group/offsets-*.log` is what it gave once.
"""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.server import Server, apache

_TIMEOUT_S = 40.0


def record(directory: Path) -> list[bytes]:
    """The bytes of each partition of `__consumer_offsets` that is not empty."""
    server = Server(apache(), directory)
    server.start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 4), NewTopic("clicks", 2)]).values():
            future.result(_TIMEOUT_S)
        _classic(server)
        member = _consumer(server)
        _transaction(server)
        _upgrade(server)
        # Read now: the member that is left in the group leaves when it is closed.
        written = [segment.read_bytes() for segment in sorted(server.log_dir.glob("__consumer_offsets-*/*.log"))]
        member.close()
    finally:
        server.stop()
    return [data for data in written if data]


def _open(server: Server, group_id: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group_id,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **settings,
        }
    )


def _await(consumers: list[Consumer], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, "the consumers do not get there"
        for consumer in consumers:
            consumer.poll(0.05)


def _shared(consumers: list[Consumer], partitions: int) -> Callable[[], bool]:
    def done() -> bool:
        owned = [len(consumer.assignment()) for consumer in consumers]
        return all(owned) and sum(owned) == partitions

    return done


def _classic(server: Server) -> None:
    """Two members, one of them static; both commit; one leaves."""
    classic = {"session.timeout.ms": 10_000, "partition.assignment.strategy": "range"}
    consumers = [_open(server, "classic", **classic), _open(server, "classic", **classic, **{"group.instance.id": "i"})]
    for consumer in consumers:
        consumer.subscribe(["orders"])
    _await(consumers, _shared(consumers, 4))
    for consumer in consumers:
        owned = consumer.assignment()
        offsets = [TopicPartition(one.topic, one.partition, 10 + one.partition, metadata="m") for one in owned]
        consumer.commit(offsets=offsets, asynchronous=False)
    for consumer in consumers:
        consumer.close()


def _consumer(server: Server) -> Consumer:
    """Two members of the new protocol, one by regular expression, one static, which is left in the group."""
    new = {"group.protocol": "consumer"}
    consumers = [_open(server, "consumer", **new), _open(server, "consumer", **new, **{"group.instance.id": "i"})]
    consumers[0].subscribe(["^(orders|clicks)$"])
    consumers[1].subscribe(["orders", "clicks"])
    _await(consumers, _shared(consumers, 6))
    for consumer in consumers:
        owned = consumer.assignment()
        offsets = [TopicPartition(one.topic, one.partition, 20 + one.partition) for one in owned]
        consumer.commit(offsets=offsets, asynchronous=False)
    consumers[0].close()
    return consumers[1]


def _transaction(server: Server) -> None:
    """Offsets in a transaction that is committed and in one that is aborted."""
    consumer = _open(server, "transactional")
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions(_TIMEOUT_S)
    for offset, commit in ((5, True), (9, False)):
        producer.begin_transaction()
        offsets = [TopicPartition("orders", 0, offset), TopicPartition("clicks", 1, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _TIMEOUT_S)
        try:
            (producer.commit_transaction if commit else producer.abort_transaction)(_TIMEOUT_S)
        except KafkaException as error:
            raise AssertionError(f"the transaction does not end: {error}") from error
    consumer.close()


def _upgrade(server: Server) -> None:
    """A classic member whose group a member of the new protocol converts, and which is left behind."""
    classic = _open(server, "upgraded", **{"partition.assignment.strategy": "cooperative-sticky"})
    classic.subscribe(["orders"])
    _await([classic], _shared([classic], 4))
    new = _open(server, "upgraded", **{"group.protocol": "consumer"})
    new.subscribe(["orders"])
    _await([classic, new], _shared([classic, new], 4))
    new.close()
