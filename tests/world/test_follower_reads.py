"""Consumers that read from the replica in their rack (KIP-392): the leader sends them there."""

from __future__ import annotations

import asyncio

from ottla.client import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import CONTROLLER_ID, servers_of

_TOPIC = "t"
_RECORDS = 50
_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _racks(world: World, selector: str) -> tuple[NodeHost, list[NodeHost]]:
    given = {"replica.selector.class": selector, "offsets.topic.replication.factor": "3"}
    controller = NodeHost(world, "controller", {"process.roles": "controller", "node.id": str(CONTROLLER_ID)})
    own = {"process.roles": "broker", "controller.quorum.bootstrap.servers": controller.controller_address} | given
    brokers = [
        NodeHost(world, f"broker{index}", own | {"node.id": str(index), "broker.rack": f"r{index}"})
        for index in range(3)
    ]
    return controller, brokers


def _read_in_rack(selector: str, *, stop_follower: bool = False) -> tuple[list[bytes], int, int, int]:
    """(what was read, the leader, the reader's broker, polls at which that broker had its session)."""
    world = World(3)
    with Clients(world):
        controller, brokers = _racks(world, selector)
        for node in (controller, *brokers):
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in brokers), limit_ms=10_000)
        client = world.host("client")
        client.boot()
        servers = servers_of(brokers)
        found: list[bytes] = []
        served = 0
        places = [-1, -1]

        async def work() -> None:
            nonlocal served
            async with AsyncAdmin(servers) as admin:
                await admin.create_topic(_TOPIC, partitions=1, replication_factor=3)
                described = (await admin.describe_topics([_TOPIC]))[_TOPIC]
                leader = described.partitions[0].leader
                assert leader is not None
                places[0] = leader.id
            places[1] = near = (places[0] + 1) % 3
            consumer = AsyncConsumer(
                servers, client_rack=f"r{near}", auto_offset_reset="earliest", fetch_max_wait_ms=500
            )
            async with consumer, AsyncProducer(servers) as producer:
                consumer.assign([TopicPartition(_TOPIC, 0)])
                for number in range(_RECORDS):
                    if stop_follower and number == _RECORDS // 2:
                        brokers[near].kill()
                    await (await producer.send(_TOPIC, b"%d" % number))
                    found.extend(bytes(each.value or b"") for each in await consumer.poll(0.05))
                    node = brokers[near].node
                    served += node is not None and len(node.fetch_sessions) > 0
                while len(found) < _RECORDS:
                    found.extend(bytes(each.value or b"") for each in await consumer.poll(1.0))
                    await asyncio.sleep(0)

        client.run(work(), limit_ms=300_000)
        return found, places[0], places[1], served


def test_a_consumer_reads_from_the_follower_in_its_rack() -> None:
    found, leader, near, served = _read_in_rack(_SELECTOR)
    assert found == [b"%d" % number for number in range(_RECORDS)]
    assert leader != near and served > _RECORDS / 2


def test_without_a_selector_it_reads_from_the_leader() -> None:
    found, _, _, served = _read_in_rack("")
    assert found == [b"%d" % number for number in range(_RECORDS)]
    assert served == 0


def test_it_goes_back_to_the_leader_when_the_follower_dies() -> None:
    found, _, _, served = _read_in_rack(_SELECTOR, stop_follower=True)
    assert found == [b"%d" % number for number in range(_RECORDS)]
    assert served > 0
