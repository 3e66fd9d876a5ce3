"""A machine that loses its power says nothing: who waits for its answer learns by TCP's keepalive."""

from __future__ import annotations

import asyncio

from ottla.client import AsyncAdmin, AsyncConsumer
from ottla.sim.node import Clients, NodeHost
from ottla.sim.workload import until_it_works
from ottla.sim.world import World

_TOPIC = "records"
#: The probes give up after 30 s; `max.poll.interval.ms`, the time that a JoinGroup may take, is five minutes.
_LIMIT_MS = 60_000


async def _create(servers: str) -> None:
    async def ask() -> None:
        async with AsyncAdmin(servers) as admin:
            await admin.create_topic(_TOPIC, partitions=2)

    await until_it_works(ask)


async def _join(servers: str, owned: dict[str, int], name: str, is_polling: asyncio.Event) -> None:
    """Be a member that polls while it may."""
    async with AsyncConsumer(servers, group_id="group", enable_auto_commit=False) as consumer:
        consumer.subscribe([_TOPIC])
        while True:
            await is_polling.wait()
            await consumer.poll(0.2)
            owned[name] = len(consumer.assignment())


def test_who_waits_to_join_at_a_machine_that_lost_its_power_joins_again_soon() -> None:
    world = World(1)
    node = NodeHost(world, "node", {"log.flush.interval.messages": "1"})
    one, other = world.host("one"), world.host("other")
    owned = {"one": 0, "other": 0}
    with Clients(world):
        node.start()
        first, second = one.boot(), other.boot()
        one.run(_create(node.bootstrap_servers))
        polls = asyncio.Event()
        polls.set()
        tasks = [first.create_task(_join(node.bootstrap_servers, owned, "one", polls))]
        assert world.run_until(lambda: owned["one"] == 2, limit_ms=_LIMIT_MS)
        # The first member does not poll: the second one waits for its answer.
        polls.clear()
        always = asyncio.Event()
        always.set()
        tasks.append(second.create_task(_join(node.bootstrap_servers, owned, "other", always)))
        world.run_for(2_000)
        node.power_off()
        world.run_for(1_000)
        node.start()
        first.call_soon(polls.set)
        assert world.run_until(lambda: owned == {"one": 1, "other": 1}, limit_ms=_LIMIT_MS), owned
        for task in tasks:
            task.cancel()
        world.run_for(5_000)


def test_a_machine_that_stays_away_ends_the_connections_to_it() -> None:
    world = World(2)
    node = NodeHost(world, "node")
    client = world.host("client")
    with Clients(world):
        node.start()
        loop = client.boot()
        client.run(_create(node.bootstrap_servers))

        async def connected(listed: asyncio.Event) -> None:
            async with AsyncAdmin(node.bootstrap_servers) as admin:
                await admin.list_topics()
                listed.set()
                await asyncio.Event().wait()

        listed = asyncio.Event()
        task = loop.create_task(connected(listed))
        assert world.run_until(listed.is_set, limit_ms=_LIMIT_MS)
        assert client.sockets
        node.power_off()
        world.run_for(_LIMIT_MS)
        assert all(each.eof or each.closed for each in client.sockets.values())
        task.cancel()
        world.run_for(1_000)
