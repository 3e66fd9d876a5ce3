"""Clusters of processes: the plan, the processes, and a cluster of one node through its whole life."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, Consumer, NewTopic, Producer
from ottla.embedded.cluster import local
from ottla.embedded.cluster.local import LocalCluster
from ottla.embedded.cluster.plan import ClusterPlan, PlannedNode, rack_of, voters_of
from ottla.embedded.cluster.process import NodeProcess
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.operations.drain import plan_drain
from ottla.operations.widen import plan_widening


def _plan(count: int, voters: int) -> ClusterPlan:
    nodes = [PlannedNode(n + 1, 9000 + n, 9100 + n if n < voters else 0, f"dir{n + 1}") for n in range(count)]
    return ClusterPlan("cluster", nodes)


@pytest.mark.parametrize(("nodes", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (9, 3)])
def test_an_odd_number_up_to_three_votes(nodes: int, voters: int) -> None:
    assert voters_of(nodes, None) == voters


@pytest.mark.parametrize(("nodes", "controllers"), [(0, None), (3, 4), (3, 0)])
def test_a_plan_that_cannot_be_is_refused(nodes: int, controllers: int | None) -> None:
    with pytest.raises(OttlaError):
        voters_of(nodes, controllers)


def test_nodes_replicate_as_far_as_there_are_nodes() -> None:
    alone, three = _plan(1, 1), _plan(5, 3)
    one = alone.properties(alone.nodes[0], "/data")
    assert (one["default.replication.factor"], one["min.insync.replicas"]) == ("1", "1")
    of_three = three.properties(three.nodes[4], "/data")
    assert (of_three["offsets.topic.replication.factor"], of_three["min.insync.replicas"]) == ("3", "2")
    assert of_three["process.roles"] == "broker"
    assert "CONTROLLER://" not in of_three["listeners"]
    assert of_three["controller.quorum.bootstrap.servers"] == "127.0.0.1:9100,127.0.0.1:9101,127.0.0.1:9102"
    assert three.initial_controllers() == "1@127.0.0.1:9100:dir1,2@127.0.0.1:9101:dir2,3@127.0.0.1:9102:dir3"


def test_settings_of_the_user_go_before_the_plans_own() -> None:
    plan = _plan(3, 3)
    plan.settings["min.insync.replicas"] = "1"
    assert plan.properties(plan.nodes[0], "/data")["min.insync.replicas"] == "1"


def test_a_plan_is_what_its_document_says() -> None:
    plan = _plan(3, 1)
    assert ClusterPlan.of_document(plan.as_document()) == plan


def test_racks_are_dealt_in_turn() -> None:
    assert [rack_of(["a", "b"], n) for n in range(3)] == ["a", "b", "a"]
    assert rack_of([], 0) == ""


def test_a_drained_node_gives_each_replica_to_the_one_with_the_fewest() -> None:
    replicas = {TopicPartition("t", n): [1, 2] for n in range(4)} | {TopicPartition("u", 0): [3]}
    plan = plan_drain(replicas, dict.fromkeys((1, 2, 3, 4)), 1)
    assert [plan[TopicPartition("t", n)] for n in range(4)] == [[4, 2], [3, 2], [4, 2], [3, 2]]
    assert TopicPartition("u", 0) not in plan


def test_a_drained_nodes_replica_goes_to_another_rack_first() -> None:
    replicas = {TopicPartition("t", 0): [1, 2], TopicPartition("u", 0): [4], TopicPartition("u", 1): [4]}
    assert plan_drain(replicas, {1: "a", 2: "b", 3: "b", 4: "a"}, 1) == {TopicPartition("t", 0): [4, 2]}


def test_a_node_that_cannot_be_drained_is_told_why() -> None:
    with pytest.raises(OttlaError, match="t-0 has 3 replicas, but without node 2 there are 2 nodes: add a node first"):
        plan_drain({TopicPartition("t", 0): [1, 2, 3]}, dict.fromkeys((1, 2, 3)), 2)


def test_partitions_get_their_new_replicas_behind_the_old_ones_and_in_other_racks_first() -> None:
    replicas = {TopicPartition("t", 0): [1], TopicPartition("t", 1): [1, 3], TopicPartition("u", 0): [2, 1, 3]}
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    plan = plan_widening(replicas, racks, 3)
    assert plan == {TopicPartition("t", 0): [1, 4, 3], TopicPartition("t", 1): [1, 3, 4]}
    assert plan_widening({TopicPartition("t", 0): [1]}, dict.fromkeys((1, 2)), 3) == {TopicPartition("t", 0): [1, 2]}


def test_a_process_with_the_same_number_that_began_at_another_time_is_left_alone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        other = NodeProcess(child.pid, 1)
        assert not other.runs
        other.send(signal.SIGKILL)
        assert child.poll() is None
        assert NodeProcess(child.pid, 0).runs
    finally:
        child.communicate(b"\n")
    assert child.returncode == 0


def test_a_cluster_keeps_its_data_through_kills_and_stops(tmp_path: Path) -> None:
    with ottla.Cluster(nodes=1, data=tmp_path, settings={"num.partitions": 2}) as cluster:
        with Producer(cluster.bootstrap_servers, acks="all") as producer:
            producer.send("orders", b"one", partition=1).result(30)
        cluster.kill(1)
        assert not cluster.running
        cluster.restart(1)
        cluster.pause(1)
        assert list(cluster.running) == [1]
        cluster.resume(1)
        cluster.stop(1)
        assert not cluster.running
    with ottla.Cluster(data=tmp_path) as cluster:
        assert cluster.nodes == (1,)
        with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([ottla.client.TopicPartition("orders", 1)])
            assert [each.value for each in consumer.poll(timeout=30)] == [b"one"]
    assert LocalCluster.open(tmp_path).running() == []


def test_a_temporary_cluster_leaves_nothing() -> None:
    with ottla.Cluster(nodes=1) as cluster:
        home = cluster.log(1).parents[1]
        (pid,) = [int(each.split()[0]) for each in [(home / "node-1" / "process").read_text()]]
    assert not home.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_node_that_cannot_start_is_told_in_its_own_words(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, 1)
    file = tmp_path / "node-1" / "server.properties"
    file.write_text(file.read_text() + "log.retention.hours=soon\n")
    with pytest.raises(OttlaError, match=r"node 1 cannot start: .*log\.retention\.hours"):
        cluster.start()
    assert LocalCluster.open(tmp_path).running() == []


def test_a_node_is_formatted_with_its_first_start_if_the_command_that_planned_it_was_interrupted(
    tmp_path: Path,
) -> None:
    LocalCluster.create(tmp_path, 1).add(votes=True)
    shutil.rmtree(tmp_path / "node-2")
    cluster = LocalCluster.open(tmp_path)
    try:
        assert cluster.start() == [1, 2]
    finally:
        cluster.stop()
    # A node that has run knows what it voted for; an empty directory does not.
    shutil.rmtree(tmp_path / "node-1" / "data")
    with pytest.raises(OttlaError, match=r"node 1 cannot start: .*format it first"):
        cluster.start([1])


def test_of_two_commands_that_start_a_cluster_one_starts_its_nodes(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path, 1)
    try:
        with ThreadPoolExecutor() as both:
            started = list(both.map(lambda _: LocalCluster.open(tmp_path).start(), range(2)))
        assert sorted(started) == [[], [1]]
        assert LocalCluster.open(tmp_path).running() == [1]
    finally:
        assert LocalCluster.open(tmp_path).stop() == [1]


def test_a_cluster_that_another_command_makes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as other:
        with local._alone(tmp_path):
            made = other.submit(LocalCluster.create, tmp_path, 3)
            (tmp_path / "cluster.json").write_text("of the other command")
        with pytest.raises(OttlaError, match="holds a cluster already"):
            made.result(30)
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.json"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(OttlaError, match="there is no cluster in"):
        LocalCluster.open(tmp_path)
    with pytest.raises(OttlaError, match="the cluster is not running"):
        ottla.Cluster().kill(1)
    ottla.Cluster(data=tmp_path).close()
    cluster = LocalCluster.create(tmp_path, 1)
    with pytest.raises(OttlaError, match="there is no node 4 in this cluster; its nodes are 1"):
        cluster.kill(4)
    with pytest.raises(OttlaError, match="node 1 is not running"):
        cluster.kill(1)
    with pytest.raises(OttlaError, match="holds a cluster already"):
        LocalCluster.create(tmp_path, 3)


@pytest.mark.ottla(nodes=1, settings={"num.partitions": 2})
def test_the_fixture_gives_a_cluster(ottla_cluster: ottla.Cluster) -> None:
    with Producer(ottla_cluster.bootstrap_servers) as producer:
        assert producer.send("orders", b"one", partition=1).result(30).offset == 0


@pytest.mark.ottla(nodes=3, settings={"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 200})
def test_no_acknowledged_record_goes_with_a_leader_that_is_killed(ottla_cluster: ottla.Cluster) -> None:
    servers = ottla_cluster.bootstrap_servers
    with Admin(servers) as admin, Producer(servers, acks="all") as producer:
        admin.create_topics([NewTopic("orders", partitions=3, replication_factor=3)]).check()
        sent = [producer.send("orders", b"%d" % number, partition=number % 3) for number in range(90)]
        # Not the controller's node: with one voter it is the cluster's.
        victim = next(
            each.leader.id
            for each in admin.describe_topic("orders").partitions
            if each.leader is not None and each.leader.id != 1
        )
        ottla_cluster.kill(victim)
        sent += [producer.send("orders", b"%d" % number, partition=number % 3) for number in range(90, 180)]
        places = {(number % 3, delivery.result(50).offset): b"%d" % number for number, delivery in enumerate(sent)}
        ottla_cluster.restart(victim)
    with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.client.TopicPartition("orders", index) for index in range(3)])
        found: dict[tuple[int, int], bytes | None] = {}
        while len(found) < len(places) and (records := consumer.poll(timeout=30)):
            found |= {(each.partition, each.offset): each.value for each in records}
    assert found == places
