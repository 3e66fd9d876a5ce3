"""An unclean election cuts a log and fills it again under a consumer: it goes back to where the logs part (KIP-320)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random

import pytest

from ottla.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    CommittedOffset,
    ConsumerRecord,
    KafkaError,
    LogTruncation,
    OttlaError,
    TopicPartition,
)
from ottla.metadata.image import PartitionImage
from ottla.sim.host import Host
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of

ONE = TopicPartition("topic", 0)
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
}
#: What both replicas have, what only the lost leader had, and what was written after the election: more than was lost.
BOTH = [b"both %d" % number for number in range(4)]
LOST = [b"lost %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(12)]


class Scene:
    """Two brokers, a topic with a replica on each, and hosts for clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.controller, self.brokers = cluster(self.world, 2, SETTINGS)
        for each in (self.controller, *self.brokers):
            each.start()
        assert self.world.run_until(lambda: all(each.is_ready for each in self.brokers), limit_ms=10_000)
        self.servers = servers_of(self.brokers)
        self.client = self.host("client")
        self.client.run(self._create())
        self.client.run(self.write(BOTH))

    def host(self, name: str) -> Host:
        host = self.world.host(name)
        host.boot()
        return host

    async def _create(self) -> None:
        async with AsyncAdmin(self.servers) as admin:
            configs = {"unclean.leader.election.enable": "true"}
            await admin.create_topic("topic", replication_factor=2, configs=configs)

    async def write(self, values: list[bytes]) -> None:
        async with AsyncProducer(self.servers) as producer:
            for value in values:
                await (await producer.send("topic", value))

    def known(self) -> PartitionImage:
        assert self.controller.running is not None
        return self.controller.running.quorum.image.topics["topic"].partitions[0]

    def by_role(self) -> tuple[NodeHost, NodeHost]:
        """The leader and the other one."""
        first, second = self.brokers
        return (first, second) if first.settings.node_id == self.known().leader else (second, first)

    def write_what_is_lost(self) -> None:
        _, other = self.by_role()
        other.kill()
        assert self.world.run_until(lambda: len(self.known().isr) == 1, limit_ms=30_000)
        self.client.run(self.write(LOST))

    def elect_uncleanly(self) -> None:
        """The leader dies, the other one takes over without what it missed, and is written to; the first comes back."""
        first, second = self.by_role()
        first.kill()
        self.world.run_for(8_000)
        second.start()
        node_id = second.settings.node_id
        assert self.world.run_until(lambda: self.known().leader == node_id, limit_ms=30_000)
        self.client.run(self.write(NEW))
        first.start()
        assert self.world.run_until(lambda: len(self.known().isr) == 2, limit_ms=60_000)


class Reader:
    """A consumer that reads on, in a process of its own, and writes down what it gets."""

    def __init__(self, scene: Scene, settings: dict[str, str], start: CommittedOffset | int | None = None) -> None:
        self.records: list[ConsumerRecord] = []
        self.errors: list[LogTruncation] = []
        self.commit = False
        self.committed: Mapping[TopicPartition, CommittedOffset | None] = {}
        self.over = False
        self._scene = scene
        self._start = start
        host = scene.host(f"reader {len(scene.world.hosts)}")
        assert host.loop is not None
        self._task = host.loop.create_task(self._read({"bootstrap.servers": scene.servers} | settings))

    @property
    def values(self) -> list[bytes]:
        return [bytes(each.value) for each in self.records]

    async def _read(self, settings: dict[str, str]) -> None:
        async with AsyncConsumer(settings | {"enable.auto.commit": "false"}) as consumer:
            consumer.assign([ONE])
            if self._start is not None:
                await consumer.seek(ONE, self._start)
            while not self.over:
                try:
                    self.records += await consumer.poll(0.5)
                except LogTruncation as error:
                    self.errors.append(error)
                    if error.divergent is not None and len(self.errors) == 2:
                        await consumer.seek(ONE, error.divergent[0])
                if self.commit:
                    self.commit = False
                    await consumer.commit()
                    self.committed = await consumer.committed([ONE])

    def until(self, count: int) -> None:
        """Read on until there are so many records, and a little longer."""
        enough = self._scene.world.run_until(lambda: len(self.records) >= count or self._task.done(), limit_ms=60_000)
        self._scene.world.run_for(3_000)
        assert enough, self.values

    def end(self) -> None:
        self.over = True
        # A connection to a machine that has lost its power is given up after ten seconds.
        assert self._scene.world.run_until(self._task.done, limit_ms=60_000)
        self._task.result()


@pytest.fixture
def scene() -> Iterator[Scene]:
    world = World(1)
    with Clients(world):
        yield Scene(world)


def now_held(scene: Scene) -> list[bytes]:
    reader = Reader(scene, {"auto.offset.reset": "earliest"})
    reader.until(len(BOTH + NEW))
    reader.end()
    return reader.values


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_consumer_that_reads_on_goes_back_to_where_the_logs_part(scene: Scene, policy: str) -> None:
    reader = Reader(scene, {"auto.offset.reset": policy}, 0)
    scene.write_what_is_lost()
    reader.until(len(BOTH + LOST))
    scene.elect_uncleanly()
    reader.until(len(BOTH + LOST + NEW))
    reader.end()
    assert reader.values == BOTH + LOST + NEW
    offset = len(BOTH)
    assert [each.offset for each in reader.records[-len(NEW) :]] == list(range(offset, offset + len(NEW)))
    assert reader.records[-1].leader_epoch > reader.records[0].leader_epoch
    assert now_held(scene) == BOTH + NEW


def test_without_a_policy_it_is_told_until_it_seeks(scene: Scene) -> None:
    reader = Reader(scene, {"auto.offset.reset": "none"}, 0)
    scene.write_what_is_lost()
    reader.until(len(BOTH + LOST))
    epoch = reader.records[-1].leader_epoch
    scene.elect_uncleanly()
    reader.until(len(BOTH + LOST + NEW))
    reader.end()
    assert reader.values == BOTH + LOST + NEW
    parted = (len(BOTH), reader.records[0].leader_epoch)
    assert [(each.offset, each.leader_epoch, each.divergent) for each in reader.errors] == [
        (len(BOTH + LOST), epoch, parted)
    ] * 2


def test_a_committed_offset_is_validated_by_who_goes_on_from_it(scene: Scene) -> None:
    given = {"auto.offset.reset": "latest", "group.id": "group"}
    reader = Reader(scene, given, 0)
    scene.write_what_is_lost()
    reader.until(len(BOTH + LOST))
    reader.commit = True
    assert scene.world.run_until(lambda: bool(reader.committed), limit_ms=10_000)
    at = CommittedOffset(len(BOTH + LOST), leader_epoch=reader.records[-1].leader_epoch)
    assert reader.committed == {ONE: at}
    reader.end()
    scene.elect_uncleanly()
    for next_reader in (Reader(scene, given), Reader(scene, given, at)):
        next_reader.until(len(NEW))
        next_reader.end()
        assert next_reader.values == NEW
    unaware = Reader(scene, given, at.offset)
    unaware.until(len(BOTH + NEW) - at.offset)
    unaware.end()
    assert unaware.values == (BOTH + NEW)[at.offset :], "a seek without an epoch is taken at its word"


def test_an_election_that_loses_nothing_repeats_nothing(scene: Scene) -> None:
    reader = Reader(scene, {"auto.offset.reset": "none"}, 0)
    reader.until(len(BOTH))
    for _ in range(2):
        first, _ = scene.by_role()
        first.kill()
        assert scene.world.run_until(lambda: len(scene.known().isr) == 1, limit_ms=30_000)
        first.start()
        assert scene.world.run_until(lambda: len(scene.known().isr) == 2, limit_ms=60_000)
        scene.client.run(scene.write(NEW))
    reader.until(len(BOTH + NEW + NEW))
    reader.end()
    assert reader.values == BOTH + NEW + NEW
    assert len({each.leader_epoch for each in reader.records}) == 3
    assert reader.errors == []


class Storm:
    """Elections of all kinds under a writer and readers, some of which go on from the commits of the one before."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.rng = Random(f"cut {seed}")
        self.going = True
        host = scene.host("writer")
        assert host.loop is not None
        self._writer = host.loop.create_task(self._write())

    async def _write(self) -> None:
        number = 0
        # Each write waits for its batch to linger.
        settings = {
            "acks": "1",
            "linger.ms": "200",
            "delivery.timeout.ms": "3000",
            "request.timeout.ms": "1000",
            "max.block.ms": "1000",
        }
        async with AsyncProducer(
            {"bootstrap.servers": self.scene.servers, "enable.idempotence": "false"} | settings
        ) as producer:
            while self.going:
                number += 1
                with suppress(KafkaError, OttlaError):
                    await (await producer.send("topic", b"%d" % number))

    def end(self) -> None:
        self.going = False
        assert self.scene.world.run_until(self._writer.done, limit_ms=60_000)

    def elect(self) -> None:
        """The leader goes, after the other one or alone; both are back and in sync in the end."""
        world, rng = self.scene.world, self.rng
        first, second = self.scene.by_role()
        down = [second.kill, second.power_off] if rng.random() < 0.8 else []
        if down:
            rng.choice(down)()
            world.run_for(rng.randint(500, 12_000))
        rng.choice([first.kill, first.power_off])()
        world.run_for(rng.randint(0, 8_000))
        for each in rng.sample([first, second] if down else [first], 2 if down else 1):
            each.start()
            world.run_for(rng.randint(0, 15_000))
        assert world.run_until(lambda: len(self.scene.known().isr) == 2, limit_ms=120_000)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_of_each_offset_a_reader_got_last_what_the_log_holds(policy: str, seed: int) -> None:
    world = World(seed)
    with Clients(world):
        scene = Scene(world)
        storm = Storm(scene, seed)
        given = {"auto.offset.reset": policy, "group.id": "group"}
        chain = [Reader(scene, given, 0)]
        alone = Reader(scene, {"auto.offset.reset": policy}, 0)
        for _ in range(4):
            world.run_for(storm.rng.randint(500, 8_000))
            storm.elect()
            chain[-1].commit = True
            assert world.run_until(lambda: not chain[-1].commit, limit_ms=60_000)
            if storm.rng.random() < 0.5:
                chain[-1].end()
                chain.append(Reader(scene, given))
        world.run_for(5_000)
        storm.end()
        world.run_for(10_000)
        for reader in (chain[-1], alone):
            reader.end()
        held = Reader(scene, {"auto.offset.reset": "earliest"}, 0)
        world.run_for(10_000)
        held.end()
        assert held.records
        for readers in (chain, [alone]):
            last = {each.offset: each for reader in readers for each in reader.records}
            end = held.records[-1].offset + 1
            assert [each for offset, each in sorted(last.items()) if offset < end] == held.records
