"""Ten simulated minutes of a replicated cluster under every kind of fault; histories by seeds.

Rules:
- As in `tests/world/replicated.py`, on three nodes that are broker and voter, whose power goes, too. The clients are
  slower, since a history is ten times as long.
- The kinds of faults are dealt like cards: each comes once before any comes again. A fault waits until a node runs that
  it can break.
- The faults go on until there have been enough of everything (`ENOUGH`): so every history counts.
- Each history has other settings (`tests/world/dealt.py`), and clients with other codecs and group protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from ottla.kernel.named import NamedTuple
from ottla.sim.node import NodeHost
from ottla.sim.workload import consume, produce
from tests.world.cluster import servers_of
from tests.world.dealt import dealt
from tests.world.history import _CALM_MS, _TOPIC
from tests.world.replicated import _REPLICATED, ReplicatedHistory

_BETWEEN_MS = 16_000
_FAULTS_MS = 600_000
_LONGEST_MS = 1_800_000
_PAUSE_S = (0.05, 4.0)
_SETTINGS = _REPLICATED | {
    "log.roll.ms": "60000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "replica.fetch.wait.max.ms": "1000",
}


class Counts(NamedTuple):
    """What a history had."""

    acknowledged: int
    faults: int
    kinds: int
    #: Elections of the leaders of the partitions, and of the quorum's leader after the first one.
    leader_changes: int
    quorum_elections: int


#: The least that a history has.
ENOUGH = Counts(acknowledged=2_000, faults=20, kinds=13, leader_changes=5, quorum_elections=1)


class TenMinutesHistory(ReplicatedHistory):
    """Three nodes that are both, for ten minutes."""

    def __init__(self, seed: int, enough: Counts = ENOUGH) -> None:
        super().__init__(seed, power=True, settings=_SETTINGS | dealt(seed), voters=3)
        self.enough = enough
        self.faults_ms = _FAULTS_MS
        self._dealt: list[Callable[[NodeHost], None]] = []
        self._first_epoch = 0

    def _begin(self) -> None:
        hosts = [self.world.host(what) for what in ("producer", "rival", "consumer", "admin")]
        for host in hosts:
            host.boot()
        self.clients = [hosts]
        servers, [ledger] = servers_of(self.brokers), self.ledgers
        hosts[3].run(self._create(servers), limit_ms=_CALM_MS)
        self._first_epoch = self._epoch
        dealt = Random(f"{self.world.seed} clients")
        for host in hosts[:2]:
            rng, codec = Random(f"{self.world.seed} {host.name}"), dealt.choice(("none", "gzip", "snappy"))
            self._start(
                host, produce(host.name, servers, ledger, rng, lambda: self.going, _PAUSE_S, compression_type=codec)
            )
        rng, protocol = Random(f"{self.world.seed} consumer"), dealt.choice(("classic", "consumer"))
        self._start(
            hosts[2], consume("consumer", "group", servers, ledger, rng, lambda: self.going, group_protocol=protocol)
        )

    @property
    def _epoch(self) -> int:
        """The newest epoch of the quorum that a running node knows."""
        return max(
            (each.running.quorum.raft.quorum.epoch for each in self.nodes if each.running is not None), default=0
        )

    @property
    def counts(self) -> Counts:
        """What the history has had so far. The leader epoch of a partition counts its elections."""
        # A node that has just started knows no topic yet.
        topic = self._image.topics.get(_TOPIC)
        changes = 0 if topic is None else sum(each.leader_epoch for each in topic.partitions)
        faults = sum(self.faults.values())
        return Counts(self.acknowledged, faults, self.kinds_had, changes, self._epoch - self._first_epoch)

    @property
    def kinds_had(self) -> int:
        """The number of kinds of faults that there were. A crash in recovery follows from another fault."""
        return len(self.faults.keys() - {"crash in recovery"})

    @property
    def _is_enough(self) -> bool:
        is_any_up = any(each.running is not None for each in self.nodes)
        return is_any_up and all(had >= least for had, least in zip(self.counts, self.enough, strict=True))

    # ---- faults

    @property
    def kinds(self) -> list[Callable[[NodeHost], None]]:
        own = [self._power_off, self._isolate, self._pause_client, self._kill_all, self._kill_controller]
        return [*super().kinds, *own]

    def _fail_for(self, ms: int) -> None:
        begun_us = self.world.now_us
        while self.world.now_us < begun_us + ms * 1000 or not self._is_enough:
            assert self.world.now_us < begun_us + _LONGEST_MS * 1000, f"it does not come to enough: {self.counts}"
            self.world.run_for(self.rng.randrange(_BETWEEN_MS))
            if not self._dealt:
                self._dealt = self.kinds
                self.rng.shuffle(self._dealt)
            self._wait(lambda: bool(self._breakable), "running node")
            self._dealt.pop()(self.rng.choice(self._breakable))
            for node in self.nodes:
                assert node.failure is None, f"{node.host.name}: {node.failure}"

    @property
    def _breakable(self) -> list[NodeHost]:
        return [each for each in self.nodes if each.node is not None and not each.host.paused]

    def _wait(self, found: Callable[[], bool], what: str) -> None:
        assert self.world.run_until(found, limit_ms=_CALM_MS), f"a fault finds no {what}"

    def _kill(self, node: NodeHost) -> None:
        self._note("kill")
        node.kill()
        self._start_later(node)

    def _power_off(self, node: NodeHost) -> None:
        self._note("power off")
        node.power_off()
        self._start_later(node)

    def _isolate(self, node: NodeHost) -> None:
        """The node sees no other node, and goes on serving clients."""
        self._note("isolate")
        network = self.world.network
        for other in self.nodes:
            if other is not node:
                for source, target in ((node.host, other.host), (other.host, node.host)):
                    network.cut(source, target)
                    self._later(partial(network.heal, source, target))

    def _pause_client(self, node: NodeHost) -> None:
        self._note("client pause")
        host = self.rng.choice(self.clients[0][:3])
        host.pause()
        self._later(host.resume)

    def _kill_all(self, node: NodeHost) -> None:
        """The whole cluster falls at once."""
        self._note("kill all")
        for each in self.nodes:
            if each.host.loop is not None:
                self._down(each)

    def _kill_controller(self, node: NodeHost) -> None:
        self._wait(lambda: any(each.decides for each in self.nodes), "active controller")
        self._note("kill controller")
        self._down(next(each for each in self.nodes if each.decides))

    def _end(self) -> None:
        for host in self.clients[0]:
            host.resume()
        super()._end()


def run_ten_minutes(seed: int, operations: Path | None = None) -> TenMinutesHistory:
    """A history by a seed; AssertionError when a promise is broken. `operations` as of `run_replicated`."""
    history = TenMinutesHistory(seed)
    history.run_recorded(operations)
    return history
