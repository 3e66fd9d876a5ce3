"""A cluster of a controller and two brokers in the simulated world: it forms, serves, and stands again after faults."""

from __future__ import annotations

import pytest

from ottla.client import AsyncAdmin, AsyncProducer
from ottla.sim.node import Clients
from ottla.sim.world import World
from tests.world.cluster import cluster, combined, run_cluster_history, servers_of


def test_two_brokers_under_one_controller_serve_a_topic_between_them() -> None:
    world = World(1)
    with Clients(world):
        controller, brokers = cluster(world, 2)
        for node in (*brokers, controller):
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in brokers), limit_ms=10_000)
        client = world.host("client")
        client.boot()
        leaders: set[int] = set()
        offsets: list[tuple[int, int]] = []

        async def work() -> None:
            async with AsyncAdmin(servers_of(brokers)) as admin:
                await admin.create_topic("topic", partitions=4)
                topic = (await admin.describe_topics(["topic"]))["topic"]
                leaders.update(each.leader.id for each in topic.partitions if each.leader is not None)
            async with AsyncProducer(servers_of(brokers)) as producer:
                for index in range(4):
                    told = await (await producer.send("topic", b"value", partition=index))
                    offsets.append((told.partition, told.offset))

        client.run(work())
        assert leaders == {0, 1}
        assert offsets == [(index, 0) for index in range(4)]
        for node in (controller, *brokers):
            assert node.failure is None


@pytest.mark.parametrize("seed", range(6))
def test_a_history_of_a_cluster_keeps_every_promise(seed: int) -> None:
    history = run_cluster_history(seed)
    assert history.acknowledged > 200
    assert sum(history.faults.values()) > 10


def test_a_history_is_the_same_when_it_is_run_again() -> None:
    assert run_cluster_history(1).world.trace == run_cluster_history(1).world.trace


@pytest.mark.parametrize("seed", range(5))
def test_three_combined_nodes_elect_a_leader_and_another_one_when_it_dies(seed: int) -> None:
    world = World(seed)
    with Clients(world):
        nodes = combined(world, 3)
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=20_000)
        client = world.host("client")
        client.boot()

        async def create(name: str) -> None:
            async with AsyncAdmin(servers_of(nodes)) as admin:
                await admin.create_topic(name, partitions=6)

        for number in range(3):
            client.run(create(f"topic-{number}"))
            [leader] = [each for each in nodes if each.decides]
            [leader.kill, leader.power_off, leader.kill][number]()
            assert world.run_until(lambda: any(each.decides for each in nodes), limit_ms=10_000)
            leader.start()
            assert world.run_until(lambda dead=leader: dead.is_ready, limit_ms=60_000)  # type: ignore[misc]
        client.run(create("last"))
        world.run_for(2_000)
        images = [each.node.quorum.image for each in nodes if each.node is not None]
        assert images[0] == images[1] == images[2]
        assert set(images[0].topics) >= {"topic-0", "topic-1", "topic-2", "last"}
        assert set(images[0].controllers) == {1, 2, 3}
        assert not any(each.failure for each in nodes)
