"""What the actors of a simulated node do: produce, transact, commit, administer, read."""

from __future__ import annotations

from ottla.kernel.error import ErrorCode
from ottla.sim.machine import Machine
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.consumer_group_heartbeat import TopicPartitions as ConsumerGroupHeartbeatTopicPartitions
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.batch import build, check, read
from ottla.wire.codec import Codec
from tests.crash.load import Sent, Transfer
from tests.sim.actor import Actor, Ask, Script

_BATCH_RECORDS_MAX = 5
_RECORD_BYTES_MAX = 200
_PAUSE_MS_MAX = 400


class Writer(Actor):
    """Knows how to produce to its topic."""

    topic: str

    def values(self, label: str) -> tuple[bytes, ...]:
        """The values of one batch: each begins with a name that is given once."""
        return tuple(
            f"{self.name}/{label}/{index} ".encode() + self.random.randbytes(self.random.randrange(_RECORD_BYTES_MAX))
            for index in range(self.random.randint(1, _BATCH_RECORDS_MAX))
        )

    def now_ms(self) -> int:
        return self.machine.clock.now_ms()

    def produce(self, partition: int, data: bytes, transactional_id: str | None = None) -> Ask:
        part = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[part])],
        )
        return Ask(request, 12, lambda found: found.responses[0].partition_responses[0])

    def init(self, transactional_id: str | None = None) -> Ask:
        return Ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5)

    def pause_ms(self) -> int:
        return self.random.randrange(_PAUSE_MS_MAX)


class IdempotentWriter(Writer):
    """Batches of every codec into all partitions, one at a time; on a compacted topic under a few keys."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str, partitions: int, keys: int = 0) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.partitions = partitions
        self.keys = keys
        self.sent: list[Sent] = []
        #: Of a compacted topic: (partition, key) -> the last value that was acknowledged, and those sent since.
        self.latest: dict[tuple[int, bytes], list[bytes]] = {}

    def script(self) -> Script:
        identity = yield self.init()
        assert identity.error_code == 0, identity
        sequences = [0] * self.partitions
        while not self.ending:
            partition = self.random.randrange(self.partitions)
            values = self.values(str(len(self.sent)))
            keys = [b"k%d" % self.random.randrange(self.keys) if self.keys else None for _ in values]
            data = build(
                [(self.now_ms(), key, value, ()) for key, value in zip(keys, values, strict=True)],
                codec=Codec(len(self.sent) % len(Codec)),
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=sequences[partition],
            )
            self.sent.append(Sent(partition, values, None))
            for key, value in zip(keys, values, strict=True):
                if key is not None:
                    # Until it is acknowledged, the one before it may be what is there.
                    self.latest.setdefault((partition, key), []).append(value)
            answer = yield self.produce(partition, data)
            assert answer.error_code == 0, f"{self.name}: {answer}"
            self.sent[-1] = Sent(partition, values, answer.base_offset)
            for key, value in zip(keys, values, strict=True):
                if key is not None:
                    self.latest[partition, key] = [value]
            sequences[partition] += len(values)
            yield self.pause_ms()


class Transactor(Writer):
    """Transactions over two partitions with a group's offset in them; two of three are committed (KIP-890)."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.group = f"group of {name}"
        self.transfers: list[Transfer] = []
        #: The offset of the last transaction that is known to be committed, and one that may be.
        self.committed = -1
        self.maybe: int | None = None

    def script(self) -> Script:
        identity = yield self.init(self.name)
        assert identity.error_code == 0, identity
        producer_id, epoch = identity.producer_id, identity.producer_epoch
        while not self.ending:
            number = len(self.transfers)
            committed = number % 3 != 1
            sides = (self.values(f"{number}/left"), self.values(f"{number}/right"))
            self.transfers.append(Transfer(sides, committed, acknowledged=False))
            self.maybe = number if committed else None
            for partition, values in enumerate(sides):
                data = build(
                    [(self.now_ms(), None, value, ()) for value in values],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=0,
                    transactional=True,
                )
                answer = yield self.produce(partition, data, self.name)
                assert answer.error_code == 0, f"{self.name}: {answer}"
            answer = yield self._offset(number, producer_id, epoch)
            assert answer.error_code == 0, f"{self.name}: {answer}"
            answer = yield Ask(
                EndTxnRequest(
                    transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=committed
                ),
                5,
            )
            assert answer.error_code == 0, f"{self.name}: {answer}"
            producer_id, epoch = answer.producer_id, answer.producer_epoch
            self.transfers[-1] = Transfer(sides, committed, acknowledged=True)
            if committed:
                self.committed = number
            self.maybe = None
            yield self.pause_ms()

    def _offset(self, number: int, producer_id: int, epoch: int) -> Ask:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        return Ask(request, 5, lambda found: found.topics[0].partitions[0])


class Committer(Actor):
    """Commits offsets that grow, for a group without members."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.group = name
        self.committed = -1
        self.maybe: int | None = None

    def script(self) -> Script:
        while not self.ending:
            self.maybe = self.committed + 1
            answer = yield offset_commit(self.group, self.topic, self.maybe)
            assert answer.error_code == 0, f"{self.name}: {answer}"
            self.committed, self.maybe = self.maybe, None
            yield self.random.randrange(_PAUSE_MS_MAX)


class Administrator(Actor):
    """Makes topics and deletes some of them again."""

    def __init__(self, name: str, machine: Machine, seed: int) -> None:
        super().__init__(name, machine, seed)
        #: Topic -> partitions, None where it is deleted. A topic with no answer yet is in `unsure`.
        self.topics: dict[str, int | None] = {}
        self.unsure: str | None = None

    def script(self) -> Script:
        number = 0
        while not self.ending:
            number += 1
            alive = [name for name, partitions in self.topics.items() if partitions]
            if len(alive) > 3 or (alive and self.random.random() < 0.3):
                name = self.random.choice(alive)
                self.unsure = name
                deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
                answer = yield Ask(deletion, 6, lambda found: found.responses[0])
                # A repeated request may find that the first has done it.
                assert answer.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), answer
                self.topics[name] = None
            else:
                name = self.unsure = f"made-{number}"
                partitions = self.random.randint(1, 3)
                configs = [CreatableTopicConfig(name="segment.ms", value="12345")]
                topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
                request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
                answer = yield Ask(request, 7, lambda found: found.topics[0])
                assert answer.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), answer
                self.topics[name] = partitions
            self.unsure = None
            yield self.random.randrange(4 * _PAUSE_MS_MAX)


class Follower(Actor):
    """Reads one partition from its start; what it was served once, it is served again."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.served: list[tuple[int, bytes | None]] = []

    def script(self) -> Script:
        offset = 0
        while not self.ending:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[FetchTopic(topic=self.topic, partitions=[partition])],
            )
            answer = yield Ask(request, 12, lambda found: found.responses[0].partitions[0])
            assert answer.error_code == 0, f"{self.name}: {answer}"
            for batch in read(bytes(answer.records or b"")):
                header = check(batch.data)
                assert header.base_offset == offset, f"{self.name}: {header.base_offset} comes after {offset}"
                assert header.last_offset < answer.high_watermark, f"{self.name} was served past the high watermark"
                self.served += [(record.offset, record.value) for record in batch.records()]
                offset = header.last_offset + 1
            yield self.random.randrange(_PAUSE_MS_MAX)


class Member(Actor):
    """A member of a consumer group (KIP-848) that heartbeats, and commits in the epoch that it has."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.group = name
        self.committed = -1
        self.maybe: int | None = None
        self.epoch = 0

    def script(self) -> Script:
        member_id = f"member-{self.name}"
        owned: list[ConsumerGroupHeartbeatTopicPartitions] = []
        while not self.ending:
            answer = yield Ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=self.group,
                    member_id=member_id,
                    member_epoch=self.epoch,
                    rebalance_timeout_ms=60_000 if not self.epoch else -1,
                    subscribed_topic_names=[self.topic] if not self.epoch else None,
                    topic_partitions=owned if self.epoch else [],
                ),
                1,
            )
            assert answer.error_code == 0, f"{self.name}: {answer}"
            assert answer.member_epoch >= self.epoch, f"{self.name}: its epoch went back"
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = [
                    ConsumerGroupHeartbeatTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                ]
            if owned:
                self.maybe = self.committed + 1
                answer = yield offset_commit(self.group, self.topic, self.maybe, member_id, self.epoch)
                assert answer.error_code == 0, f"{self.name}: {answer}"
                self.committed, self.maybe = self.maybe, None
            yield self.random.randrange(4 * _PAUSE_MS_MAX)


def offset_commit(group: str, topic: str, offset: int, member_id: str = "", epoch: int = -1) -> Ask:
    """Commit an offset of partition 0."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return Ask(request, 9, lambda found: found.topics[0].partitions[0])
