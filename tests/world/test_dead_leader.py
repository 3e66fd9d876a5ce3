"""A client whose metadata names a leader that is dead, or that the network hides, asks the cluster for the new one."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic, OffsetSpec, TopicPartition
from ottla.sim.node import Clients
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of

_RECORDS = [b"%d" % number for number in range(20)]
_ONE = TopicPartition("t", 0)


@pytest.mark.parametrize(("fault", "poll_s"), [("kill", 0.05), ("pause", 5.0)])
def test_a_consumer_finds_where_to_begin(fault: str, poll_s: float) -> None:
    world = World(5)
    with Clients(world):
        controller, brokers = cluster(world, 3, {"min.insync.replicas": "1"})
        for node in (controller, *brokers):
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in brokers), limit_ms=10_000)
        client = world.host("client")
        client.boot()
        servers = servers_of(brokers)

        async def work() -> tuple[list[bytes], int]:
            async with AsyncAdmin(servers) as admin, AsyncProducer(servers) as producer:
                await admin.create_topics([NewTopic("t", assignments={0: [1, 0, 2]})])
                for value in _RECORDS:
                    await (await producer.send("t", value))
                async with AsyncConsumer(servers, auto_offset_reset="earliest") as consumer:
                    # It knows the leader, and has not asked it for an offset.
                    await consumer.partitions_for("t")
                    await admin.list_offset(_ONE, OffsetSpec.LATEST)
                    brokers[1].kill() if fault == "kill" else brokers[1].host.pause()
                    consumer.assign([_ONE])
                    found: list[bytes] = []
                    while len(found) < len(_RECORDS):
                        found += [bytes(each.value or b"") for each in await consumer.poll(poll_s)]
                        await asyncio.sleep(0)
                return found, (await admin.list_offset(_ONE, OffsetSpec.LATEST)).offset

        assert client.run(work(), limit_ms=300_000) == (_RECORDS, len(_RECORDS))
