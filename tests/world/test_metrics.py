"""What an operator of a cluster sees of it while brokers die and replicas move, in the simulated world."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.observe.cluster_changes import ClusterChanges
from ottla.broker.observe.metrics import lines
from ottla.broker.observe.raft_latency import RaftLatency
from ottla.broker.observe.requests import Requests
from ottla.client import AsyncAdmin, AsyncProducer, ConfigResource, NewTopic, ResourceType, TopicPartition
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of

_SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
    "replica.fetch.max.bytes": "16384",
    "log.segment.bytes": "1048576",
}
_SERVER, _CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_"
_MOVES, _LOST = TopicPartition("moved", 0), "lost"


class Scene:
    """Three brokers under a controller; `moved` lies on 0 alone, `lost` on 1 and 2 and is led by 1."""

    def __init__(self) -> None:
        self.world = world = World(5)
        self.controller, self.brokers = cluster(world, 3, _SETTINGS)
        self.client = world.host("client")
        self.changes = ClusterChanges()
        self.latency = RaftLatency()

    def start(self) -> None:
        for node in (self.controller, *self.brokers):
            node.start()
        assert self.world.run_until(lambda: all(each.is_ready for each in self.brokers), limit_ms=10_000)
        assert self.controller.running is not None
        self.changes.watch(self.controller.running.quorum)
        self.latency.watch(self.controller.running.quorum, self.controller.host.clock)
        self.client.boot()
        self.ask(self._make)

    async def _make(self, admin: AsyncAdmin) -> None:
        await admin.create_topics([NewTopic("moved", assignments={0: [0]}), NewTopic(_LOST, assignments={0: [1, 2]})])
        async with AsyncProducer(servers_of(self.brokers), acks="1") as producer:
            for _ in range(100):
                await (await producer.send("moved", bytes(8_000)))

    def ask(self, work: Any) -> Any:
        async def run() -> Any:
            async with AsyncAdmin(servers_of(self.brokers)) as admin:
                return await work(admin)

        return self.client.run(run(), limit_ms=120_000)

    def shown(self, host: NodeHost) -> dict[str, float]:
        """By name, and for labels by name and their values: `throttle_bytes_per_second leaderreplication`."""
        text: list[str] = []
        node: Any = host.running
        for piece in lines(node, Requests(lambda: 0.0, lambda _: None), self.changes, self.latency):
            text += piece
        return {
            " ".join((sample.name, *sample.labels.values())): sample.value
            for each in text_string_to_metric_families("\n".join(text) + "\n")
            for sample in each.samples
        }

    def until(self, host: NodeHost, name: str, wanted: float) -> None:
        """Look every 200 simulated ms: making what is shown costs more than most events do."""
        for _ in range(300):
            if self.shown(host).get(name) == wanted:
                return
            self.world.run_for(200)
        raise AssertionError((name, wanted, self.shown(host).get(name)))


def test_what_brokers_and_controllers_show_follows_the_faults() -> None:
    scene = Scene()
    with Clients(scene.world):
        scene.start()
        controller, (mover, leader, other) = scene.controller, scene.brokers
        assert scene.shown(leader)[_SERVER + "underreplicatedpartitions"] == 0
        assert _CONTROLLER + "controllerstats_uncleanleaderelections_total" not in scene.shown(leader)
        other.kill()
        scene.until(leader, _SERVER + "underminisrpartitioncount", 1)
        found = scene.shown(leader)
        assert found[_SERVER + "underreplicatedpartitions"] == 1
        assert found["kafka_server_raftmetrics_current_state observer"] == 1
        scene.until(controller, _CONTROLLER + "kafkacontroller_fencedbrokercount", 1)
        before = scene.shown(controller)
        assert before[_CONTROLLER + "controllerstats_uncleanleaderelections_total"] == 0
        assert before["ottla_controller_leader_elections_total"] == 0
        assert before["kafka_server_raftmetrics_number_of_observers"] >= 2
        average, largest = (before[f"kafka_server_raftmetrics_commit_latency_{each}"] for each in ("avg", "max"))
        assert 0 < average <= largest < 1_000
        # The only voter elects itself in one step.
        assert "kafka_server_raftmetrics_election_latency_avg" not in before
        # The last replica in sync dies, and the one that is behind is elected.
        leader.kill()
        scene.until(controller, _CONTROLLER + "kafkacontroller_fencedbrokercount", 2)
        assert scene.shown(controller)[_CONTROLLER + "kafkacontroller_offlinepartitionscount"] == 1
        other.start()
        scene.until(controller, _CONTROLLER + "kafkacontroller_offlinepartitionscount", 0)
        found = scene.shown(controller)
        assert found["ottla_controller_leader_elections_total"] == 1
        assert found[_CONTROLLER + "controllerstats_uncleanleaderelections_total"] == 1
        scene.until(other, _SERVER + "underreplicatedpartitions", 1)
        leader.start()
        scene.until(other, _SERVER + "underreplicatedpartitions", 0)
        scene.until(other, _SERVER + "isrexpands_total", 1)
        assert mover.failure is None


def test_throttled_moves_show_their_rate_and_bound() -> None:
    scene = Scene()
    with Clients(scene.world):
        scene.start()
        rate = "replication.throttled.rate"

        async def move(admin: AsyncAdmin) -> None:
            both = {f"leader.{rate}": "20000", f"follower.{rate}": "20000"}
            await admin.alter_config(ConfigResource(ResourceType.BROKER, "0"), both)
            await admin.alter_config(ConfigResource(ResourceType.BROKER, "1"), both)
            lists = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
            await admin.alter_config(ConfigResource(ResourceType.TOPIC, "moved"), lists)
            await admin.alter_partition_reassignments({_MOVES: [1]})

        source, target, _ = scene.brokers
        assert "ottla_replication_throttle_bytes_per_second leaderreplication" not in scene.shown(source)
        scene.ask(move)
        scene.world.run_for(8_000)
        for host, side in ((source, "leaderreplication"), (target, "followerreplication")):
            found = scene.shown(host)
            assert found[f"ottla_replication_throttle_bytes_per_second {side}"] == 20_000
            assert 5_000 < found[f"kafka_server_{side}_byte_rate"] < 60_000
        assert scene.shown(source)[_SERVER + "reassigningpartitions"] == 1
        scene.until(target, _SERVER + "leadercount", scene.shown(target)[_SERVER + "leadercount"] + 1)
        scene.world.run_for(30_000)
        assert scene.shown(target)["kafka_server_followerreplication_byte_rate"] < 5_000
