"""Transactions over several brokers, simulated: the coordinator, the leaders and the group's coordinator are others."""

from __future__ import annotations

import pytest

from ottla.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ConfigResource,
    Downgrade,
    ResourceType,
    TopicPartition,
)
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import TRANSACTION_TOPIC
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from ottla.txn.transaction import State, Transaction
from tests.world.cluster import cluster, servers_of
from tests.world.history import _SETTINGS
from tests.world.replicated import _REPLICATED

TOPIC = "records"
NAME = "mover"
PARTITIONS = 3


class TransactionScene:
    """Three brokers under a controller, a topic whose partitions each of them leads, and a client."""

    def __init__(self, seed: int, settings: dict[str, str] | None = None) -> None:
        self.world = World(seed)
        given = _SETTINGS | _REPLICATED | {"transaction.state.log.num.partitions": "1"} | (settings or {})
        self.controller, self.brokers = cluster(self.world, 3, given)
        for node in (self.controller, *self.brokers):
            node.start()
        assert self.world.run_until(lambda: all(each.is_ready for each in self.brokers), limit_ms=30_000)
        self.client = self.world.host("client")
        self.client.boot()
        self.servers = servers_of(self.brokers)
        self.client.run(self._create(), limit_ms=60_000)

    async def _create(self) -> None:
        async with AsyncAdmin(self.servers) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)

    def leader(self, topic: str, index: int) -> int:
        running = self.controller.running
        assert running is not None
        return running.quorum.image.topics[topic].partitions[index].leader

    @property
    def coordinator(self) -> NodeHost:
        return self.brokers[self.leader(TRANSACTION_TOPIC, 0)]

    def transaction(self, name: str = NAME) -> Transaction | None:
        """What the coordinator has, if it answers."""
        running = self.controller.running
        known = None if running is None else running.quorum.image.topics.get(TRANSACTION_TOPIC)
        if known is None or known.partitions[0].leader < 0:
            return None
        node = self.coordinator.node
        driver = None if node is None else node.transactions.find(0)
        return None if driver is None else driver.machine.transactions.get(name)

    def is_in(self, *states: State) -> bool:
        known = self.transaction()
        return known is not None and known.state in states

    async def read(self, isolation: str = "read_committed", count: int = 0) -> dict[int, list[bytes]]:
        """What a consumer reads, at least `count` records or until the end."""
        found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        async with AsyncConsumer(self.servers, isolation_level=isolation, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            await consumer.seek_to_beginning(partitions)
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                for record in await consumer.poll(1.0):
                    found[record.partition].append(record.value)
        return found


def all_of(value: bytes) -> dict[int, list[bytes]]:
    return {index: [value] for index in range(PARTITIONS)}


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_over_partitions_of_three_brokers_is_seen_whole_or_not_at_all(level: int) -> None:
    scene = TransactionScene(level)
    with Clients(scene.world):

        async def work() -> None:
            async with AsyncAdmin(scene.servers) as admin:
                if level < 2:
                    told = await admin.update_features({"transaction.version": level}, downgrade=Downgrade.SAFE)
                    told.check()
            async with AsyncProducer(scene.servers, transactional_id=NAME) as producer:
                for value, commits in ((b"no", False), (b"yes", True)):
                    await producer.init_transactions()
                    await producer.begin_transaction()
                    for index in range(PARTITIONS):
                        await producer.send(TOPIC, value, partition=index)
                    await producer.flush()
                    await producer.send_offsets("group", {TopicPartition(TOPIC, 0): 7 if commits else 3})
                    await (producer.commit_transaction() if commits else producer.abort_transaction())

        scene.client.run(work(), limit_ms=120_000)
        assert {scene.leader(TOPIC, index) for index in range(PARTITIONS)} == {0, 1, 2}
        assert scene.client.run(scene.read(), limit_ms=60_000) == all_of(b"yes")


@pytest.mark.parametrize("cut", [False, True])
def test_a_decided_transaction_is_ended_by_the_next_coordinator(cut: bool) -> None:
    """The coordinator dies, or is cut off, when its decision is committed and no other broker has a marker."""
    scene = TransactionScene(5)
    with Clients(scene.world):
        world, network = scene.world, scene.world.network

        async def begin() -> None:
            producer = AsyncProducer(scene.servers, transactional_id=NAME, request_timeout_ms=2_000)
            await producer.init_transactions()
            await producer.begin_transaction()
            for index in range(PARTITIONS):
                await producer.send(TOPIC, b"yes", partition=index)
            await producer.flush()
            await producer.commit_transaction()
            await producer.close()

        loop = scene.client.loop
        assert loop is not None
        task = loop.create_task(begin())
        assert world.run_until(lambda: scene.is_in(State.PREPARE_COMMIT), limit_ms=30_000)
        first = scene.coordinator
        node = first.node
        assert node is not None
        # The decision is in the log of the coordinator and on its way to the others: no marker goes out before.
        assert "markers" not in vars(node.transactions)
        partition = node.transactions.loaded()[0].partition
        assert world.run_until(lambda: partition.high_watermark == partition.log.end_offset, limit_ms=5_000)
        if cut:
            for other in (*scene.brokers, scene.controller):
                if other is not first:
                    network.cut(first.host, other.host)
                    network.cut(other.host, first.host)
        else:
            first.kill()
        others = {0, 1, 2} - {first.settings.node_id}
        assert world.run_until(lambda: scene.leader(TRANSACTION_TOPIC, 0) in others, limit_ms=30_000)
        network.heal_all()
        if not cut:
            first.start()
        assert world.run_until(task.done, limit_ms=120_000)
        task.result()
        assert world.run_until(lambda: scene.is_in(State.COMPLETE_COMMIT), limit_ms=60_000)
        # The broker that was cut off leads nothing any more, and has to hear of it: until then it serves what it has.
        world.run_for(10_000)
        assert scene.client.run(scene.read(), limit_ms=120_000) == all_of(b"yes")


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused() -> None:
    scene = TransactionScene(6)
    with Clients(scene.world):

        async def commit() -> None:
            async with AsyncProducer(scene.servers, transactional_id=NAME) as producer:
                for _ in range(2):
                    await producer.init_transactions()
                    await producer.begin_transaction()
                    for index in range(PARTITIONS):
                        await producer.send(TOPIC, b"yes", partition=index)
                    await producer.commit_transaction()

        scene.client.run(commit(), limit_ms=60_000)
        first = scene.coordinator
        first.kill()
        others = {0, 1, 2} - {first.settings.node_id}
        assert scene.world.run_until(lambda: scene.leader(TRANSACTION_TOPIC, 0) in others, limit_ms=30_000)
        scene.client.run(commit(), limit_ms=60_000)
        known = scene.transaction()
        assert known is not None
        leader = scene.brokers[scene.leader(TOPIC, 0)].node
        assert leader is not None
        partition = leader.partitions[TOPIC, 0]
        entry = partition.log.producers.by_id[known.producer_id]
        with pytest.raises(KafkaError, match="TRANSACTION_COORDINATOR_FENCED"):
            leader.transactions.marker_writer.write(
                partition,
                known.producer_id,
                known.producer_epoch + 1,
                committed=False,
                coordinator_epoch=entry.coordinator_epoch - 1,
                transaction_version=2,
            )


def test_a_share_group_over_three_brokers_gives_each_record_to_one_member_until_it_is_accepted() -> None:
    scene = TransactionScene(3, {"share.coordinator.state.topic.num.partitions": "3"})
    with Clients(scene.world):
        taken: list[bytes] = []

        async def work() -> None:
            async with AsyncAdmin(scene.servers) as admin:
                group = ConfigResource(ResourceType.GROUP, "sharers")
                (await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})).check()
            async with AsyncProducer(scene.servers) as producer:
                for number in range(30):
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            async with AsyncShareConsumer(scene.servers, group_id="sharers") as consumer:
                consumer.subscribe([TOPIC])
                while len(taken) < 30:
                    taken.extend(each.value for each in await consumer.poll(1.0))
                await consumer.commit()
            async with AsyncAdmin(scene.servers) as admin:
                told = await admin.list_share_group_offsets("sharers")
                lags.update({each.partition: position.lag for each, position in told.items()})

        lags: dict[int, int | None] = {}
        scene.client.run(work(), limit_ms=120_000)
        assert sorted(taken) == sorted(b"%d" % number for number in range(30))
        assert lags == dict.fromkeys(range(PARTITIONS), 0)
