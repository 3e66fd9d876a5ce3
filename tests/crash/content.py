"""One of everything that a server keeps: topics of many settings, records of every sort, transactions, groups, quotas.

Each round has a prefix of its own, so that servers that take turns add to what is there. Clients are unmodified
(librdkafka); what a client would not do, as sending the same batch twice or leaving a transaction open, goes over the
wire by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.kernel.error import ErrorCode
from ottla.wire.api import alter_client_quotas as quotas
from ottla.wire.api import alter_user_scram_credentials as scram
from ottla.wire.api import incremental_alter_configs as alter
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient, make_coordinators

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TIMEOUT_S = 40.0
_BROKER = 4
_SET = 0
_SCRAM_SHA_256 = 1
_TRANSACTION_MS = 600_000
_HEADERS: list[tuple[str, bytes | None]] = [("trace", b"a"), ("trace", b"b"), ("empty", b""), ("null", None)]
#: Topics of a round: what follows the prefix, partitions, settings.
_TOPICS: tuple[tuple[str, int, dict[str, str]], ...] = (
    *((codec, 2, {}) for codec in CODECS),
    ("recompressed", 1, {"compression.type": "zstd", "compression.zstd.level": "5"}),
    ("stamped", 1, {"message.timestamp.type": "LogAppendTime"}),
    ("compacted", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}),
    ("rolling", 1, {"segment.bytes": "1048576", "index.interval.bytes": "512", "retention.ms": "-1"}),
    ("transactions", 2, {"max.message.bytes": "2000000"}),
    ("doomed", 1, {}),
    ("dotted.name_and-more", 3, {"flush.messages": "100"}),
)


class Content:
    """What one round put on a server."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def name(self, kind: str) -> str:
        return f"{self._prefix}-{kind}"

    def make(self) -> None:
        """All of it."""
        self._create()
        for codec in CODECS:
            self._produce(self.name(codec), codec)
        for kind in ("recompressed", "stamped", "compacted", "doomed"):
            self._produce(self.name(kind), "none")
        self._produce(self.name("rolling"), "none", count=900, value_bytes=4000)
        self._transact()
        for protocol in ("classic", "consumer"):
            self._consume(self.name(f"group-{protocol}"), protocol)
        self._change()

    def _create(self) -> None:
        topics = [
            NewTopic(self.name(kind), num_partitions=count, replication_factor=1, config=config)
            for kind, count, config in _TOPICS
        ]
        _all(self._admin.create_topics(topics))

    def _change(self) -> None:
        """Topics that were deleted and grown, settings that were changed after the fact."""
        _all(self._admin.delete_topics([self.name("doomed")]))
        _all(self._admin.create_partitions([NewPartitions(self.name("gzip"), 5)]))
        with WireClient(self._bootstrap) as client:
            wanted = {
                (2, self.name("gzip")): {"retention.ms": "86400000", "max.message.bytes": "1234567"},
                (_BROKER, ""): {"log.retention.ms": "604800001"},
            }
            request = alter.IncrementalAlterConfigsRequest(
                resources=[
                    alter.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[
                            alter.AlterableConfig(name=key, config_operation=_SET, value=value)
                            for key, value in config.items()
                        ],
                    )
                    for (kind, name), config in wanted.items()
                ]
            )
            for each in client.ask(request, 1).responses:
                assert each.error_code == 0, each

    def _producer(self, **settings: Any) -> Any:
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5, "log_level": 0, **settings})

    def _produce(self, topic: str, codec: str, count: int = 200, value_bytes: int = 40) -> None:
        """Records with and without key, value and headers; every seventh key gets a tombstone."""
        producer = self._producer(**{"enable.idempotence": True, "compression.type": codec})
        for number in range(count):
            value = f"{self._prefix} {number} ".encode().ljust(value_bytes, b"\xf0")
            producer.produce(
                topic,
                None if number % 7 == 6 else value,
                f"key-{number % 50}".encode() if number % 3 or "compacted" in topic else None,
                headers=_HEADERS if number % 5 == 0 else None,
            )
            producer.poll(0)
        assert producer.flush(_TIMEOUT_S) == 0

    def _transact(self) -> None:
        """Committed and aborted ones in turn, over two partitions, with a group's offsets in some."""
        topic = self.name("transactions")
        producer = self._producer(**{"transactional.id": self.name("id"), "compression.type": "lz4"})
        producer.init_transactions(_TIMEOUT_S)
        consumer = self._consumer(self.name("group-transactional"), "classic")
        source = self.name("none")
        for number in range(6):
            producer.begin_transaction()
            for index in range(6):
                producer.produce(topic, f"{number}.{index}".encode(), b"k", partition=index % 2)
            if number % 3 != 1:
                offsets = [TopicPartition(source, 0, number + 1)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _TIMEOUT_S)
            if number % 2:
                producer.flush(_TIMEOUT_S)
                producer.abort_transaction(_TIMEOUT_S)
            else:
                producer.commit_transaction(_TIMEOUT_S)
        consumer.close()

    def _consumer(self, group: str, protocol: str) -> Any:
        settings = {"group.protocol": "consumer"} if protocol == "consumer" else {"session.timeout.ms": 6000}
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
                **settings,
            }
        )

    def _consume(self, group: str, protocol: str) -> None:
        """Read two topics as a group, and commit half of it."""
        consumer = self._consumer(group, protocol)
        consumer.subscribe([self.name("none"), self.name("transactions")])
        seen, committed = 0, False
        deadline = time.monotonic() + _TIMEOUT_S
        while seen < 200 + 18:
            assert time.monotonic() < deadline, f"{group} has read {seen} records"
            for message in consumer.consume(100, timeout=0.2):
                assert message.error() is None, message.error()
                seen += 1
            if seen >= 100 and not committed:
                consumer.commit(asynchronous=False)
                committed = True
        consumer.commit(asynchronous=False)
        consumer.close()


def secrets(bootstrap: str) -> None:
    """What only Apache Kafka is asked for here: quotas and SCRAM credentials."""
    with WireClient(bootstrap) as client:
        entity = [quotas.EntityData(entity_type="user", entity_name="alice")]
        ops = [quotas.OpData(key="producer_byte_rate", value=1_048_576.0)]
        request = quotas.AlterClientQuotasRequest(entries=[quotas.RequestEntryData(entity=entity, ops=ops)])
        assert client.ask(request, 1).entries[0].error_code == 0
        upsertion = scram.ScramCredentialUpsertion(
            name="alice", mechanism=_SCRAM_SHA_256, iterations=4096, salt=b"salt" * 4, salted_password=b"p" * 32
        )
        answer = client.ask(scram.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        assert answer.results[0].error_code == 0


class OpenTransaction:
    """A transaction that is begun on one server and ended on another."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str) -> None:
        self.transactional_id = transactional_id
        self.topic = topic
        with WireClient(bootstrap) as client:
            make_coordinators(client)
            found = retry(
                lambda: client.ask(
                    InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_MS),
                    5,
                )
            )
            self.producer_id, self.epoch = found.producer_id, found.producer_epoch
            self.base_offset = self._send(client)

    def _send(self, client: WireClient) -> int:
        data = batch(self.producer_id, self.epoch, 0, b"open", transactional=True)
        return produce(client, self.topic, data, transactional_id=self.transactional_id)

    def end(self, bootstrap: str, *, committed: bool) -> None:
        """Commit or abort it, on whichever server is there now."""
        with WireClient(bootstrap) as client:
            retry(
                lambda: client.ask(
                    EndTxnRequest(
                        transactional_id=self.transactional_id,
                        producer_id=self.producer_id,
                        producer_epoch=self.epoch,
                        committed=committed,
                    ),
                    5,
                )
            )


class Retrier:
    """An idempotent producer that never heard the answer to its last batch."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.sequence = 0
        with WireClient(bootstrap) as client:
            found = client.ask(InitProducerIdRequest(transactional_id=None), 5)
            assert found.error_code == 0, found
            self.producer_id, self.epoch = found.producer_id, found.producer_epoch
            self.base_offset = self.send(client)

    def send(self, client: WireClient) -> int:
        return produce(client, self.topic, batch(self.producer_id, self.epoch, self.sequence, b"once", b"only"))

    def send_again(self, bootstrap: str) -> None:
        """The same batch: it must be answered as it was, and not be written again; the next one must be."""
        with WireClient(bootstrap) as client:
            assert self.send(client) == self.base_offset
            self.sequence += 2
            self.base_offset = self.send(client)


def batch(producer_id: int, epoch: int, sequence: int, *values: bytes, transactional: bool = False) -> bytes:
    """One batch of an idempotent producer."""
    now_ms = time.time_ns() // 1_000_000
    return build(
        [(now_ms, None, value, ()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(client: WireClient, topic: str, data: bytes, transactional_id: str | None = None) -> int:
    """Write a batch with acks=all; the base offset."""
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])],
    )
    answer = retry(lambda: client.ask(request, 12).responses[0].partition_responses[0])
    offset: int = answer.base_offset
    return offset


def retry(ask: Callable[[], Any]) -> Any:
    """Ask until a coordinator or leader that is still loading has loaded."""
    passing = {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        answer = ask()
        if answer.error_code not in passing:
            assert answer.error_code == 0, (ErrorCode(answer.error_code), answer)
            return answer
        assert time.monotonic() < deadline, answer


def _all(futures: dict[str, Future[None]]) -> None:
    for future in futures.values():
        future.result(_TIMEOUT_S)
