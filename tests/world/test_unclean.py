"""An unclean election: the new leader recovers, and says so with the next change of the in-sync replicas (KIP-704)."""

from __future__ import annotations

from ottla.client import AsyncAdmin, AsyncProducer
from ottla.kernel.ids import TopicPartition
from ottla.metadata.image import PartitionImage
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of
from tests.world.replicas import raw

RECOVERED, RECOVERING = 0, 1
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "1000"}


def test_a_leader_elected_uncleanly_is_recovered_when_a_replica_is_in_sync_with_it_again() -> None:
    world = World(1)
    with Clients(world):
        controller, brokers = cluster(world, 2, SETTINGS)
        for each in (controller, *brokers):
            each.start()
        assert world.run_until(lambda: all(each.is_ready for each in brokers), limit_ms=10_000)
        client = world.host("client")
        client.boot()
        servers = servers_of(brokers)

        async def create() -> None:
            async with AsyncAdmin(servers) as admin:
                configs = {"unclean.leader.election.enable": "true"}
                await admin.create_topic("topic", replication_factor=2, configs=configs)

        async def write(text: bytes) -> None:
            async with AsyncProducer(servers) as producer:
                await (await producer.send("topic", text))

        def known() -> PartitionImage:
            assert controller.running is not None
            return controller.running.quorum.image.topics["topic"].partitions[0]

        client.run(create())
        client.run(write(b"both have it"))
        first = next(each for each in brokers if each.settings.node_id == known().leader)
        second = next(each for each in brokers if each is not first)
        second.kill()
        assert world.run_until(lambda: len(known().isr) == 1, limit_ms=30_000)
        client.run(write(b"only the first has it"))
        first.kill()
        world.run_for(8_000)
        second.start()
        assert world.run_until(lambda: known().leader == second.settings.node_id, limit_ms=30_000)
        assert known().leader_recovery_state == RECOVERING
        assert known().isr == (second.settings.node_id,)
        client.run(write(b"written after it"))
        first.start()
        assert world.run_until(lambda: len(known().isr) == 2, limit_ms=60_000)
        assert known().leader_recovery_state == RECOVERED
        world.run_for(2_000)
        logs = [_log(each) for each in brokers]
        assert logs[0] == logs[1]
        assert b"written after it" in logs[0] and b"only the first has it" not in logs[0]


def _log(host: NodeHost) -> bytes:
    assert host.node is not None
    log = host.node.store.get(TopicPartition("topic", 0))
    assert log is not None
    return b"".join(raw(log))
