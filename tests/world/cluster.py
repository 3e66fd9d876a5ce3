"""A cluster in a world: a controller, brokers that are nothing else, and one history of them by a seed.

Rules:
- As in `tests/world/history.py`; here the nodes make one cluster, and links between the nodes are cut, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random

from ottla.client import AsyncAdmin
from ottla.sim.checker import WorkloadLedger, check
from ottla.sim.history import OperationHistory
from ottla.sim.host import Host
from ottla.sim.node import NodeHost, controller_address
from ottla.sim.workload import PARTITIONS, consume, produce, read_all, read_commits, until_it_works
from ottla.sim.world import World
from tests.world.history import _CALM_MS, _SETTINGS, _TOPIC, History

CONTROLLER_ID = 100
_SETTLE_MS = 15_000


def cluster(world: World, brokers: int, settings: dict[str, str] | None = None) -> tuple[NodeHost, list[NodeHost]]:
    """(the controller, the brokers), none of them started."""
    given = settings or {}
    controller = NodeHost(world, "controller", {"process.roles": "controller", "node.id": str(CONTROLLER_ID)} | given)
    own = {"process.roles": "broker", "controller.quorum.bootstrap.servers": controller.controller_address}
    return controller, [
        NodeHost(world, f"broker{index}", own | {"node.id": str(index)} | given | _rack(index, given))
        for index in range(brokers)
    ]


def combined(world: World, count: int, settings: dict[str, str] | None = None) -> list[NodeHost]:
    """Nodes that are broker and controller in one, all of them voters; none of them started."""
    hosts = [world.host(f"node{index}") for index in range(1, count + 1)]
    voters = ",".join(f"{index}@{controller_address(host)}" for index, host in enumerate(hosts, 1))
    given = {"controller.quorum.voters": voters, "controller.quorum.bootstrap.servers": ""} | (settings or {})
    return [
        NodeHost(world, host, {"node.id": str(index)} | given | _rack(index, given))
        for index, host in enumerate(hosts, 1)
    ]


def _rack(index: int, settings: Mapping[str, str]) -> dict[str, str]:
    """A rack for each broker where consumers read from the replica in theirs."""
    return {"broker.rack": f"rack{index}"} if "replica.selector.class" in settings else {}


def servers_of(brokers: list[NodeHost]) -> str:
    """All brokers, as clients are told them."""
    return ",".join(each.bootstrap_servers for each in brokers)


class ClusterHistory(History):
    """Two brokers under one controller, or three nodes that are both; topics with one replica on all of them."""

    def __init__(self, seed: int, *, power: bool, voters: int = 1) -> None:
        super().__init__(seed, power=power)
        self.world = world = World(seed)
        settings = _SETTINGS | ({"log.flush.interval.messages": "1"} if power else {})
        if voters > 1:
            self.nodes = self.brokers = combined(world, voters, settings)
        else:
            controller, self.brokers = cluster(world, 2, settings)
            self.nodes = [controller, *self.brokers]
        self.ledgers = [WorkloadLedger(_TOPIC)]

    def run_recorded(self, file: Path | None) -> None:
        """Run; write the clients' operations and the faults to the file, if there is one, also of a broken promise.

        The format is that of Jepsen's kafka workload.
        """
        if file is None:
            return self.run()
        [ledger] = self.ledgers
        ledger.history = OperationHistory(lambda: self.world.now_us * 1000)
        try:
            return self.run()
        finally:
            file.write_text(ledger.history.text())

    def _note(self, kind: str) -> None:
        super()._note(kind)
        for ledger in self.ledgers:
            if ledger.history is not None:
                ledger.history.fault(kind.replace(" ", ""), kind)

    def _begin(self) -> None:
        hosts = [self.world.host(what) for what in ("producer", "rival", "consumer", "admin")]
        for host in hosts:
            host.boot()
        self.clients = [hosts]
        servers, [ledger] = servers_of(self.brokers), self.ledgers
        hosts[3].run(self._create(servers), limit_ms=_CALM_MS)
        for host in hosts[:2]:
            rng, given = Random(f"{self.world.seed} {host.name}"), self._given_to_producer(host)
            self._start(host, produce(host.name, servers, ledger, rng, lambda: self.going, given=given))
        rng, given = Random(f"{self.world.seed} consumer"), self._given_to_consumer(hosts[2])
        self._start(hosts[2], consume("consumer", "group", servers, ledger, rng, lambda: self.going, given=given))

    def _given_to_producer(self, host: Host) -> dict[str, str]:
        """More settings of a producer."""
        return {}

    def _given_to_consumer(self, host: Host) -> dict[str, str]:
        """More settings of a consumer."""
        return {}

    async def _create(self, servers: str) -> None:
        async def ask() -> None:
            async with AsyncAdmin(servers) as admin:
                await admin.create_topic(_TOPIC, partitions=PARTITIONS)

        await until_it_works(ask)

    def _cut(self, node: NodeHost) -> None:
        self._note("cut")
        others = [each.host for each in self.nodes if each is not node] + self.clients[0]
        other, network = self.rng.choice(others), self.world.network
        there, back = (other, node.host), (node.host, other)
        for source, target in self.rng.choice([[there], [back], [there, back]]):
            network.cut(source, target)
            self._later(partial(network.heal, source, target))

    def _slow(self, node: NodeHost) -> None:
        self._note("slow link")
        others = [each.host for each in self.nodes if each is not node] + self.clients[0]
        self.world.network.slow(self.rng.choice(others), node.host, self.rng.randrange(200_000))

    def _end(self) -> None:
        self.going = False
        ended = self.world.run_until(lambda: all(each.done() for each in self.tasks), limit_ms=_CALM_MS)
        assert ended, "a client does not end after the faults did"
        for task in self.tasks:
            task.result()
        admin, servers = self.clients[0][3], servers_of(self.brokers)
        logs = admin.run(read_all(servers, _TOPIC), limit_ms=_CALM_MS)
        commits = admin.run(read_commits(servers, "group", _TOPIC), limit_ms=_CALM_MS)
        [ledger] = self.ledgers
        if ledger.history is not None:
            ledger.history.read_to_the_end("last", logs)
        check(ledger, logs, commits)
        self.world.run_for(_SETTLE_MS)
        self._check_metadata()

    def _check_metadata(self) -> None:
        # A record that is under way to some nodes is no difference.
        assert self.world.run_until(self._agree, limit_ms=_SETTLE_MS), "the nodes know different metadata"

    def _agree(self) -> bool:
        images = [each.running.quorum.image for each in self.nodes if each.running is not None]
        assert len(images) == len(self.nodes)
        return all(image == images[0] for image in images)


def run_cluster_history(seed: int, voters: int = 1) -> ClusterHistory:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds lose power, too."""
    history = ClusterHistory(seed, power=seed % 2 == 1, voters=voters)
    history.run()
    return history
