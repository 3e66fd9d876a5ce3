"""A node whose disk was replaced: it comes back with its number and empty directories, and copies what it had."""

from __future__ import annotations

from ottla.broker.metadata.format import format_directories
from ottla.client import AsyncAdmin, AsyncProducer
from ottla.kernel.ids import TopicPartition
from ottla.sim.disk import SimDisk
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of
from tests.world.replicas import raw

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "1000"}


def _replace_disk(node: NodeHost, cluster_id: str) -> None:
    node.kill()
    node.disk = SimDisk(node.world.rng)
    node.disk.make_directory("/data")
    node.disk.sync_directory("/")
    format_directories(node.disk, node.settings, cluster_id, clock=node.host.clock, rng=node.world.rng)


def test_a_node_with_a_new_disk_copies_what_it_had_and_is_not_made_a_leader_without_it() -> None:
    world = World(1)
    with Clients(world):
        controller, brokers = cluster(world, 3, SETTINGS)
        for each in (controller, *brokers):
            each.start()
        assert world.run_until(lambda: all(each.is_ready for each in brokers), limit_ms=10_000)
        client = world.host("client")
        client.boot()
        servers = servers_of(brokers)

        async def create() -> None:
            async with AsyncAdmin(servers) as admin:
                await admin.create_topic("copied", partitions=3, replication_factor=3)
                await admin.create_topic("alone", partitions=3)
            async with AsyncProducer(servers) as producer:
                for topic in ("copied", "alone"):
                    for partition in range(3):
                        await (await producer.send(topic, b"value", partition=partition))

        client.run(create())
        dead = brokers[1]
        assert controller.running is not None
        _replace_disk(dead, controller.running.cluster_id)
        world.run_for(8_000)
        dead.start()
        assert world.run_until(lambda: dead.is_ready, limit_ms=30_000), dead.failure

        def is_whole() -> bool:
            assert controller.running is not None
            return all(len(each.isr) == 3 for each in controller.running.quorum.image.topics["copied"].partitions)

        assert world.run_until(is_whole, limit_ms=60_000)
        world.run_for(2_000)
        for partition in range(3):
            logs = [each.node.store.get(TopicPartition("copied", partition)) for each in brokers if each.node]
            assert len({b"".join(raw(log)) for log in logs if log is not None}) == 1
            assert None not in logs
        # What it alone had is gone, and is not passed off as an empty partition.
        known = controller.running.quorum.image.topics["alone"].partitions
        lost = [index for index, each in enumerate(known) if each.replicas == (1,)]
        assert lost and dead.node is not None
        assert all(dead.node.store.get(TopicPartition("alone", index)) is None for index in lost)
        assert not any((("alone", index) in dead.node.partitions) for index in lost)
