"""Brokers under a controller of their own, simulated: they register, live, are shown to clients, and stop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.broker.controllers.lifecycle import LifeState
from ottla.client import AsyncAdmin, ConfigResource, ResourceType
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.image import BrokerImage, Image
from ottla.net.outbound import Outbound
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from ottla.wire.api import share_acknowledge, share_fetch
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build

SESSION_MS = 9_000


class Cluster:
    """A controller, some brokers, and a client."""

    def __init__(
        self, seed: int, brokers: int = 2, log_dirs: str = "/data", interval_ms: int = 2000, **settings: str
    ) -> None:
        self.world = world = World(seed)
        self.controller = NodeHost(world, "controller", {"process.roles": "controller", "node.id": "9"})
        self.brokers = [
            NodeHost(
                world,
                f"broker-{number}",
                {
                    "process.roles": "broker",
                    "node.id": str(number),
                    "log.dirs": log_dirs,
                    "broker.heartbeat.interval.ms": str(interval_ms),
                    "controller.quorum.bootstrap.servers": self.controller.controller_address,
                    **{name.replace("_", "."): text for name, text in settings.items()},
                },
            )
            for number in range(1, brokers + 1)
        ]
        self.client = world.host("client")
        self.client.boot()

    def start(self) -> Cluster:
        self.controller.start()
        for each in self.brokers:
            each.start()
        self.until(lambda: all(each.is_ready for each in self.brokers))
        return self

    def until(self, done: Callable[[], bool], limit_ms: int = 30_000) -> None:
        assert self.world.run_until(done, limit_ms=limit_ms), [each.failure for each in self.brokers]

    def ask(self, work: Callable[[AsyncAdmin], Any], broker: int = 0) -> Any:
        async def run() -> Any:
            async with AsyncAdmin(self.brokers[broker].bootstrap_servers) as admin:
                return await work(admin)

        return self.client.run(run(), limit_ms=120_000)

    def known(self, number: int) -> BrokerImage:
        """The broker as the controller has it."""
        assert self.controller.running is not None
        return self.controller.running.quorum.image.brokers[number]

    def shown(self) -> list[int]:
        """The brokers that a client of the first one sees."""
        found = self.ask(lambda admin: admin.describe_cluster())
        return [each.id for each in found.nodes]


@pytest.fixture
def cluster() -> Any:
    made = Cluster(1)
    with Clients(made.world):
        yield made.start()


def test_brokers_register_and_stay(cluster: Cluster) -> None:
    cluster.world.run_for(60_000)
    for number, each in enumerate(cluster.brokers, 1):
        assert each.node is not None and each.failure is None
        assert each.node.life.state == LifeState.RUNNING
        assert each.node.life.epoch == cluster.known(number).epoch
        assert not cluster.known(number).fenced
    assert cluster.shown() == [1, 2]


def test_a_broker_far_away_registers_though_a_round_trip_takes_longer_than_its_heartbeats_interval() -> None:
    far = Cluster(2, brokers=1, interval_ms=300)
    with Clients(far.world):
        for source, target in ((0, 1), (1, 0)):
            far.world.network.slow(far.world.hosts[source], far.world.hosts[target], 200_000)
        far.start()
        far.world.run_for(30_000)
    assert not far.known(1).fenced


def test_changes_are_forwarded_from_any_broker_and_refused_in_the_controller_s_words(cluster: Cluster) -> None:
    for broker, name in enumerate(("one", "two")):
        cluster.ask(lambda admin, name=name: admin.create_topic(name, partitions=4), broker)  # type: ignore[misc]
    assert cluster.controller.running is not None
    topics = cluster.controller.running.quorum.image.topics
    assert sorted(topics) == ["one", "two"]
    assert {each.leader for each in topics["one"].partitions} == {1, 2}
    with pytest.raises(KafkaError) as caught:
        cluster.ask(lambda admin: admin.create_topic("one"), 1)
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError) as caught:
        cluster.ask(lambda admin: admin.create_topic("three", replication_factor=3))
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.ask(lambda admin: admin.delete_topics(["one"]), 1)
    assert sorted(cluster.controller.running.quorum.image.topics) == ["two"]


def test_a_killed_broker_is_fenced_and_is_back_when_it_is_started(cluster: Cluster) -> None:
    epoch = cluster.known(2).epoch
    cluster.brokers[1].kill()
    cluster.world.run_for(SESSION_MS // 2)
    assert cluster.shown() == [1, 2]
    cluster.world.run_for(SESSION_MS)
    assert cluster.known(2).fenced
    assert cluster.shown() == [1]
    cluster.brokers[1].start()
    cluster.until(lambda: cluster.brokers[1].is_ready)
    assert cluster.known(2).epoch > epoch
    assert cluster.shown() == [1, 2]


def test_a_broker_that_is_started_at_once_waits_for_its_old_session_to_end(cluster: Cluster) -> None:
    cluster.brokers[1].kill()
    cluster.brokers[1].start()
    began_us = cluster.world.now_us
    cluster.until(lambda: cluster.brokers[1].is_ready)
    # Its last incarnation was heard of within a heartbeat's interval before.
    assert SESSION_MS - 2_000 <= (cluster.world.now_us - began_us) / 1000 <= SESSION_MS + 4_000


def test_a_controlled_shutdown_ends_and_the_next_start_is_clean(cluster: Cluster) -> None:
    cluster.ask(lambda admin: admin.create_topic("one", partitions=4))
    node, ended = cluster.brokers[1].node, list[bool]()
    assert node is not None
    epoch = node.life.epoch
    node.stop(lambda: ended.append(True))
    cluster.until(lambda: bool(ended))
    assert cluster.known(2).fenced
    cluster.brokers[1].stop()
    cluster.brokers[1].start()
    cluster.until(lambda: cluster.brokers[1].is_ready)
    assert cluster.brokers[1].node is not None
    assert cluster.brokers[1].node.life._previous_epoch == epoch
    assert cluster.shown() == [1, 2]


def test_brokers_live_through_a_controller_that_is_away(cluster: Cluster) -> None:
    cluster.controller.kill()
    cluster.world.run_for(5_000)
    cluster.controller.start()
    cluster.world.run_for(30_000)
    assert not cluster.known(1).fenced and not cluster.known(2).fenced
    cluster.ask(lambda admin: admin.create_topic("after"))


def test_a_broker_cut_off_is_fenced_and_unfenced_when_it_is_heard_again(cluster: Cluster) -> None:
    epoch = cluster.known(2).epoch
    cluster.world.network.isolate(cluster.brokers[1].host)
    cluster.world.run_for(3 * SESSION_MS)
    assert cluster.known(2).fenced and not cluster.known(1).fenced
    cluster.world.network.heal_all()
    cluster.until(lambda: not cluster.known(2).fenced)
    assert cluster.known(2).epoch == epoch
    assert cluster.brokers[1].failure is None


def test_an_unregistered_broker_that_lives_registers_again(cluster: Cluster) -> None:
    cluster.world.network.isolate(cluster.brokers[1].host)
    cluster.world.run_for(3 * SESSION_MS)
    epoch = cluster.known(2).epoch
    cluster.ask(lambda admin: admin.unregister_broker(2))
    cluster.world.network.heal_all()

    def is_back() -> bool:
        assert cluster.controller.running is not None
        found = cluster.controller.running.quorum.image.brokers.get(2)
        return found is not None and not found.fenced

    cluster.until(is_back)
    assert cluster.known(2).epoch > epoch
    assert cluster.brokers[1].node is not None
    assert cluster.brokers[1].node.life.epoch == cluster.known(2).epoch


def test_a_failed_and_a_cordoned_directory_are_told_by_heartbeats() -> None:
    cluster = Cluster(3, log_dirs="/data,/other")
    with Clients(cluster.world):
        cluster.start()
        cluster.ask(lambda admin: admin.create_topic("one", partitions=8))
        node = cluster.brokers[1].node
        assert node is not None
        resource = ConfigResource(ResourceType.BROKER, "2")
        cluster.ask(lambda admin: admin.alter_config(resource, {"cordoned.log.dirs": "/data"}))
        cluster.until(lambda: len(cluster.known(2).cordoned_log_dirs or ()) == 1)
        node.log_dirs.failed("/other", OSError(5, "Input/output error"))
        cluster.until(lambda: len(cluster.known(2).log_dirs) == 1)
        cluster.world.run_for(100)
        image = node.quorum.image
        online = set(cluster.known(2).log_dirs)
        led = {each.leader for each in image.topics["one"].partitions if not set(each.directories) <= online}
        assert 2 not in led and -1 in led
        assert not cluster.known(2).fenced
        assert cluster.brokers[1].failure is None


def test_a_broker_with_a_cordoned_directory_is_unfenced_with_it() -> None:
    cluster = Cluster(3, brokers=1, log_dirs="/data,/other", cordoned_log_dirs="/other")
    cordoned: list[int] = []
    with Clients(cluster.world):
        cluster.controller.start()
        cluster.until(lambda: cluster.controller.running is not None and cluster.controller.decides)
        assert cluster.controller.running is not None

        def note(old: Image, new: Image) -> None:
            broker = new.brokers.get(1)
            if broker is not None and not broker.fenced:
                cordoned.append(len(broker.cordoned_log_dirs or ()))

        cluster.controller.running.quorum.subscribe(note)
        cluster.brokers[0].start()
        cluster.until(lambda: cluster.brokers[0].is_ready)
        cluster.world.run_for(5000)
    assert set(cordoned) == {1}


def test_who_leads_instead_is_said_beside_the_error(cluster: Cluster) -> None:
    cluster.ask(lambda admin: admin.create_topic("one", partitions=2))
    image = cluster.brokers[0].node.quorum.image if cluster.brokers[0].node else None
    assert image is not None
    elsewhere = next(index for index, each in enumerate(image.topics["one"].partitions) if each.leader == 2)
    topic_id = image.topics["one"].topic_id

    loop: Any = cluster.client.loop
    where = cluster.brokers[0].host.address
    direct = Outbound(loop, where, 9092, client_id="me", rng=cluster.world.rng, new_socket=cluster.client.socket)
    told: list[Any] = []
    part = PartitionProduceData(index=elsewhere, records=build([(1, None, b"x", ())]))
    topic = TopicProduceData(topic_id=topic_id, partition_data=[part])
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=elsewhere)])
    shared = share_fetch.FetchTopic(
        topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=elsewhere)]
    )
    batch = share_acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    said = share_acknowledge.AcknowledgePartition(partition_index=elsewhere, acknowledgement_batches=[batch])
    member: dict[str, Any] = {"group_id": "share", "member_id": "member"}
    for request in (
        ProduceRequest(acks=1, topic_data=[topic]),
        FetchRequest(topics=[wanted], session_epoch=-1),
        share_fetch.ShareFetchRequest(**member, share_session_epoch=0, max_records=5, max_bytes=1, topics=[shared]),
        share_acknowledge.ShareAcknowledgeRequest(
            **member,
            share_session_epoch=1,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[said])],
        ),
    ):
        loop.call_soon(partial(direct.ask, request, told.append, timeout_ms=1_000))
    cluster.until(lambda: len(told) == 4)
    parts = [told[0].responses[0].partition_responses, *(each.responses[0].partitions for each in told[1:])]
    # A share partition that no fetch has made here is unknown to an acknowledgement, as in Apache Kafka: no hint.
    assert parts[3][0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not told[3].node_endpoints
    for response, found in zip(told[:3], parts[:3], strict=True):
        assert found[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (found[0].current_leader.leader_id, found[0].current_leader.leader_epoch) == (2, 0)
        assert [(each.node_id, each.host) for each in response.node_endpoints] == [(2, cluster.brokers[1].host.address)]


def test_a_controller_s_listener_tells_of_controllers(cluster: Cluster) -> None:
    loop: Any = cluster.client.loop
    host, port = cluster.controller.controller_address.split(":")
    direct = Outbound(loop, host, int(port), client_id="me", rng=cluster.world.rng, new_socket=cluster.client.socket)
    told: list[Any] = []
    for kind in (2, 1, 3):
        request = DescribeClusterRequest(endpoint_type=kind)
        loop.call_soon(partial(direct.ask, request, told.append, timeout_ms=1_000))
    cluster.until(lambda: len(told) == 3)
    assert [each.error_code for each in told] == [
        ErrorCode.NONE,
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
    ]
    assert told[0].controller_id == 9
    assert [(each.broker_id, each.host, each.port) for each in told[0].brokers] == [(9, host, int(port))]


@pytest.mark.parametrize("seed", range(11, 17))
def test_after_any_faults_every_broker_is_known_and_unfenced(seed: int) -> None:
    cluster = Cluster(seed)
    world, rng = cluster.world, cluster.world.rng
    nodes = [cluster.controller, *cluster.brokers]
    with Clients(world):
        cluster.start()
        for _ in range(40):
            node = rng.choice(nodes)
            match rng.randrange(9):
                case 0 if node.running is not None:
                    node.kill()
                case 1 if node.running is not None:
                    node.power_off()
                case 2 | 3 if node.running is None:
                    node.start()
                case 4:
                    world.network.cut(*rng.sample([each.host for each in nodes], 2))
                case 5:
                    world.network.heal_all()
                case 6 if node.running is not None:
                    rng.choice((node.host.pause, node.host.resume))()
                case 7 if node.running is not None and node.is_ready and not node.host.paused:
                    # Asked to stop, it may be killed before it may go.
                    node.running.stop(lambda: None)
                case 8:
                    node.host.clock.step(rng.randrange(-60_000, 60_000))
            world.run_for(rng.randrange(4_000))
        world.network.heal_all()
        for node in nodes:
            node.host.resume()
            if node.running is not None:
                node.kill()
            node.start()

        def is_whole() -> bool:
            assert cluster.controller.running is not None
            known = cluster.controller.running.quorum.image.brokers
            return all(
                each.is_ready
                and each.node is not None
                and each.node.life.state == LifeState.RUNNING
                and known[each.node.node_id].epoch == each.node.life.epoch
                and not known[each.node.node_id].fenced
                for each in cluster.brokers
            )

        cluster.until(is_whole, 60_000)
        epochs = [cluster.known(number).epoch for number in (1, 2)]
        world.run_for(30_000)
        assert is_whole()
        # Nobody had to register again.
        assert epochs == [cluster.known(number).epoch for number in (1, 2)]
        assert [each.failure for each in cluster.brokers] == [None, None]
        assert cluster.shown() == [1, 2]
