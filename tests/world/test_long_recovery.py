"""Logs that take a minute to recover: the loop of the node goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from ottla.broker.controllers.lifecycle import LifeState
from ottla.broker.metadata_node import MetadataNode
from ottla.broker.node import BrokerNode
from ottla.client import AsyncAdmin, AsyncProducer, ConfigResource, ResourceType
from ottla.kernel.ids import TopicPartition
from ottla.sim.host import HostLoop
from ottla.sim.node import Clients, NodeHost, controller_address
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of

RECOVERY_MS = 60_000


class SlowPool(Executor):
    """Threads whose jobs take a minute. A loop that waits for one stands still for as long."""

    def __init__(self, loop: HostLoop) -> None:
        self.loop = loop
        self.ended = False
        #: A job is at work: what it asks for is work of other threads, in the same minute.
        self._working = False
        self._jobs: list[_SlowJob] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job = _SlowJob(self, lambda: fn(*args, **kwargs))
        if self._working:
            job.run()
        else:
            self._jobs.append(job)
            self.loop.host.world.after(RECOVERY_MS * 1000, job.run_later, "recovery")
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ended = True
        for job in self._jobs:
            job.run()


class _SlowJob(Future[Any]):
    def __init__(self, pool: SlowPool, work: Callable[[], Any]) -> None:
        super().__init__()
        self._pool, self._work = pool, work

    def run_later(self) -> None:
        if not self._pool.loop.dead:
            self._pool.loop.beside(self.run)

    def run(self) -> None:
        if self.done() or self.running() or not self.set_running_or_notify_cancel():
            return
        before, self._pool._working = self._pool._working, True
        try:
            self.set_result(self._work())
        except Exception as error:
            self.set_exception(error)
        finally:
            self._pool._working = before

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._pool.loop.busy(RECOVERY_MS)
            self.run()
        return super().result(0)


class SlowHost(NodeHost):
    """A host of a node whose logs take long to recover once `slow` is set."""

    slow = False

    def new_node(self, settings: Any, loop: Any, ports: Any) -> MetadataNode:
        node = super().new_node(settings, loop, ports)
        if self.slow:
            assert isinstance(node, BrokerNode)
            node._new_loading_pool = lambda: SlowPool(loop)  # type: ignore[method-assign]
        return node


async def _write(servers: str, topic: str) -> None:
    async with AsyncProducer(servers) as producer:
        for number in range(20):
            await (await producer.send(topic, b"%d" % number))


def test_a_broker_keeps_its_session_while_its_logs_are_recovered_and_has_the_newest_settings_after_it() -> None:
    world = World(3)
    with Clients(world):
        controller, [other] = cluster(world, 1)
        own = {"process.roles": "broker", "controller.quorum.bootstrap.servers": controller.controller_address}
        slow = SlowHost(world, "slow", own | {"node.id": "7"})
        for each in (controller, other, slow):
            each.start()
        assert world.run_until(lambda: other.is_ready and slow.is_ready, limit_ms=10_000)
        client = world.host("client")
        client.boot()
        topic = ConfigResource(ResourceType.TOPIC, "topic")

        async def create() -> None:
            async with AsyncAdmin(servers_of([other])) as admin:
                await admin.create_topic("topic", replication_factor=2, configs={"segment.bytes": "2000000"})

        async def change() -> None:
            async with AsyncAdmin(servers_of([other])) as admin:
                await admin.alter_config(topic, {"segment.bytes": None})

        client.run(create())
        client.run(_write(servers_of([other, slow]), "topic"))
        slow.kill()
        slow.slow = True
        world.run_for(12_000)
        slow.start()
        lines: list[str] = []
        assert slow.node is not None
        slow.node.on_progress = lines.append
        assert world.run_until(lambda: _recovers(slow), limit_ms=10_000)
        node, began_us = slow.node, world.now_us
        world.run_for(3_000)
        # Removed while the logs are opened with it.
        client.run(change())
        asked = _heartbeats(node)
        world.run_for(30_000)
        assert len(asked) >= 10
        assert node.life.state == LifeState.RECOVERY and not slow.is_ready
        # The node follows the metadata, and does not say that it waits for controllers.
        assert node.quorum.image.offset == _image(other).offset
        assert not any("waits for the controllers" in line for line in lines)
        assert world.run_until(lambda: slow.is_ready, limit_ms=RECOVERY_MS)
        assert world.now_us - began_us >= RECOVERY_MS * 1000
        log = node.store.get(TopicPartition("topic", 0))
        assert log is not None and log.settings.segment_bytes == 1 << 30
        in_sync = lambda: len(_image(other).topics["topic"].partitions[0].isr) == 2  # noqa: E731
        assert world.run_until(in_sync, limit_ms=30_000)
        assert slow.failure is None


def _recovers(host: NodeHost) -> bool:
    return host.node is not None and host.node.life.state == LifeState.RECOVERY


def _image(host: NodeHost) -> Any:
    assert host.running is not None
    return host.running.quorum.image


def _heartbeats(node: BrokerNode) -> list[Any]:
    """The answers to heartbeats from now on."""
    told: list[Any] = []
    answered = node.life._heartbeat_answered

    def note(response: Any) -> None:
        told.append(response)
        answered(response)

    node.life._heartbeat_answered = note  # type: ignore[method-assign]
    return told


def test_a_voter_votes_while_its_logs_are_recovered() -> None:
    world = World(4)
    with Clients(world):
        hosts = [world.host(f"node{index}") for index in range(1, 4)]
        voters = ",".join(f"{index}@{controller_address(host)}" for index, host in enumerate(hosts, 1))
        given = {"controller.quorum.voters": voters, "controller.quorum.bootstrap.servers": ""}
        nodes = [SlowHost(world, host, {"node.id": str(index)} | given) for index, host in enumerate(hosts, 1)]
        for node in nodes:
            node.start()
        assert world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=20_000)
        [leader] = [each for each in nodes if each.decides]
        slow, third = (each for each in nodes if each is not leader)
        slow.kill()
        slow.slow = True
        world.run_for(12_000)
        slow.start()
        assert slow.node is not None
        assert world.run_until(lambda: _recovers(slow), limit_ms=20_000)
        leader.kill()
        assert world.run_until(lambda: third.decides or slow.decides, limit_ms=10_000)
        assert not slow.is_ready
        assert world.run_until(lambda: slow.is_ready, limit_ms=2 * RECOVERY_MS)


def test_a_node_that_is_stopped_while_its_logs_are_recovered_gives_up_and_leaves_no_mark_of_a_clean_end() -> None:
    world = World(5)
    with Clients(world):
        controller, [other] = cluster(world, 1)
        own = {"process.roles": "broker", "controller.quorum.bootstrap.servers": controller.controller_address}
        slow = SlowHost(world, "slow", own | {"node.id": "7"})
        for node in (controller, other, slow):
            node.start()
        assert world.run_until(lambda: other.is_ready and slow.is_ready, limit_ms=20_000)
        client = world.host("client")
        client.boot()

        async def create() -> None:
            async with AsyncAdmin(servers_of([other, slow])) as admin:
                await admin.create_topic("topic", replication_factor=2)

        client.run(create())
        client.run(_write(servers_of([other, slow]), "topic"))
        slow.kill()
        slow.slow = True
        world.run_for(12_000)
        for _ in range(2):
            slow.start()
            assert slow.node is not None
            assert world.run_until(lambda: _recovers(slow), limit_ms=20_000)
            ended: list[bool] = []
            slow.node.stop(lambda done=ended: done.append(True))  # type: ignore[misc]
            assert world.run_until(lambda done=ended: bool(done), limit_ms=1_000)  # type: ignore[misc]
            slow.stop()
            assert slow.failure is None
            assert ".kafka_cleanshutdown" not in slow.disk.list("/data")
            world.run_for(12_000)
        slow.slow = False
        slow.start()
        assert world.run_until(lambda: slow.is_ready, limit_ms=20_000)
