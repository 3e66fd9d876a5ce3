"""Growth and rolling restarts of a cluster, with an admin client and processes that only keep a list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.embedded.cluster import change
from ottla.embedded.cluster.change import grow, roll
from ottla.embedded.cluster.local import LocalCluster
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid


class Place:
    """What the nodes of a cluster agree on. A node is behind for two pauses after it was started."""

    def __init__(self) -> None:
        self.cluster: LocalCluster
        self.running: set[int] = set()
        self.did: list[str] = []
        self.leader = 1
        self.voters = {1}
        #: Pauses until a node is known to the quorum, in sync and registered.
        self.catching_up: dict[int, int] = {}
        self.replicas: dict[tuple[str, int], list[int]] = {("orders", 0): [1], ("orders", 1): [1]}
        self.leaderless = 0
        self.moving: set[tuple[str, int]] = set()
        #: What `add_raft_voter` fails with, one after another.
        self.failures: list[ErrorCode] = []
        self.now = 0.0

    def look(self) -> None:
        for node_id, looks in list(self.catching_up.items()):
            if looks:
                self.catching_up[node_id] = looks - 1
            else:
                del self.catching_up[node_id]

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    def sync(self) -> bool:
        behind = {each for held in self.replicas.values() for each in held} & set(self.catching_up)
        return not behind and not self.moving and not self.leaderless


class Processes(LocalCluster):
    """A cluster whose nodes are names in a set."""

    place: Place

    def running(self) -> list[int]:
        return sorted(self.place.running)

    def start(self, nodes: Iterable[int] | None = None) -> list[int]:
        wanted = [each.node_id for each in self.plan.nodes] if nodes is None else list(nodes)
        started = [each for each in wanted if each not in self.place.running]
        for each in started:
            self.place.running.add(each)
            self.place.catching_up[each] = 2
            self.place.did.append(f"start {each}")
        return started

    def stop(self, nodes: Iterable[int] | None = None) -> list[int]:
        for each in nodes or ():
            assert self.place.sync(), f"node {each} is stopped while another one is behind"
            self.place.running.remove(each)
            self.place.did.append(f"stop {each}")
        return list(nodes or ())


class Described:
    """The admin client of such a cluster."""

    place: Place

    def __init__(self, servers: str) -> None:
        plan = self.place.cluster.plan
        assert servers == ",".join(plan.node(each).address for each in sorted(self.place.running))

    def __enter__(self) -> Described:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_quorum(self) -> Any:
        known = [each for each in sorted(self.place.running) if each not in self.place.catching_up]
        replicas = {each: SimpleNamespace(id=each, directory_id=Uuid(bytes([each]) * 16)) for each in known}
        return SimpleNamespace(
            leader_id=self.place.leader,
            voters=[replicas[each] for each in known if each in self.place.voters],
            observers=[replicas[each] for each in known if each not in self.place.voters],
        )

    def add_raft_voter(self, node_id: int, directory_id: Uuid, listeners: dict[str, tuple[str, int]]) -> None:
        if self.place.failures:
            raise KafkaError(self.place.failures.pop(0), "not now")
        assert directory_id == Uuid(bytes([node_id]) * 16)
        assert listeners == {"CONTROLLER": ("127.0.0.1", self.place.cluster.plan.node(node_id).controller_port)}
        self.place.voters.add(node_id)

    def describe_cluster(self) -> Any:
        there = [each for each in sorted(self.place.running) if each not in self.place.catching_up]
        return SimpleNamespace(nodes=[SimpleNamespace(id=each) for each in there])

    def list_topics(self, *, internal: bool) -> Any:
        return [SimpleNamespace(name=name) for name in sorted({name for name, _ in self.place.replicas})]

    def describe_topics(self, names: list[str]) -> Any:
        def view(number: int, held: list[int]) -> Any:
            here = [each for each in held if each not in self.place.catching_up]
            leader = None if self.place.leaderless or not here else SimpleNamespace(id=here[0])
            return SimpleNamespace(
                partition=number,
                leader=leader,
                replicas=[SimpleNamespace(id=each) for each in held],
                isr=[SimpleNamespace(id=each) for each in here],
            )

        held = self.place.replicas.items()
        return SimpleNamespace(
            succeeded={
                name: SimpleNamespace(partitions=[view(number, on) for (topic, number), on in held if topic == name])
                for name in names
            }
        )

    def alter_partition_reassignments(self, wanted: dict[Any, list[int]]) -> Any:
        for tp, held in wanted.items():
            self.place.replicas[tp.topic, tp.partition] = held
            self.place.did.append(f"{tp.topic}-{tp.partition}: {held}")
        return SimpleNamespace(check=lambda: None)

    def list_partition_reassignments(self) -> Any:
        return {ottla.client.TopicPartition(*each): None for each in self.place.moving}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A cluster of one node, which runs."""
    place = Place()
    monkeypatch.setattr(Processes, "place", place, raising=False)
    monkeypatch.setattr(Described, "place", place, raising=False)
    monkeypatch.setattr(change, "Admin", Described)
    monkeypatch.setattr(change, "time", SimpleNamespace(monotonic=lambda: place.now, sleep=place.sleep))
    place.cluster = Processes.create(tmp_path, 1)
    place.running.add(1)
    return place


def settings(place: Place, node_id: int) -> dict[str, str]:
    text = (place.cluster.directory / f"node-{node_id}" / "server.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_a_grown_cluster_has_voters_replicas_and_settings_as_if_made_so(place: Place) -> None:
    told: list[str] = []
    assert grow(place.cluster, 4, told.append) == [2, 3, 4]
    assert told == [
        "started nodes 2, 3, 4",
        "node 2 votes in the metadata quorum",
        "node 3 votes in the metadata quorum",
        "2 partitions get more replicas",
        "node 1 was restarted",
    ]
    assert place.did == [
        *("start 2", "start 3", "start 4", "orders-0: [1, 2, 3]", "orders-1: [1, 4, 2]"),
        *("stop 1", "start 1"),
    ]
    assert place.voters == {1, 2, 3}
    assert [settings(place, each)["process.roles"] for each in (1, 2, 3, 4)] == ["broker,controller"] * 3 + ["broker"]
    assert {settings(place, each)["default.replication.factor"] for each in (1, 2, 3, 4)} == {"3"}
    assert len({settings(place, each)["controller.quorum.bootstrap.servers"] for each in (1, 2, 3, 4)}) == 1
    assert LocalCluster.open(place.cluster.directory).plan == place.cluster.plan


def test_a_cluster_that_has_grown_is_left_alone(place: Place) -> None:
    grow(place.cluster, 3)
    told: list[str] = []
    place.did.clear()
    assert grow(place.cluster, 3, told.append) == []
    assert (told, place.did) == ([], [])


def test_growth_that_was_interrupted_goes_on(place: Place) -> None:
    place.cluster.add(votes=False)
    told: list[str] = []
    assert grow(place.cluster, 2, told.append) == []
    assert told == ["started node 2", "2 partitions get more replicas", "node 1 was restarted"]
    assert place.replicas == {("orders", 0): [1, 2], ("orders", 1): [1, 2]}


def test_growth_that_cannot_be_is_refused(place: Place) -> None:
    grow(place.cluster, 2)
    with pytest.raises(OttlaError, match="the cluster has 2 nodes already; `ottla cluster drain` empties one"):
        grow(place.cluster, 1)
    place.running.clear()
    with pytest.raises(OttlaError, match="no node of this cluster is running"):
        grow(place.cluster, 3)
    assert [each.node_id for each in place.cluster.plan.nodes] == [1, 2]


@pytest.mark.parametrize(
    "failures",
    [
        [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER],
        [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER],
    ],
)
def test_a_voter_that_cannot_be_added_yet_is_tried_again(place: Place, failures: list[ErrorCode]) -> None:
    """One that was added although its request timed out is added, too."""
    place.failures = failures
    told: list[str] = []
    grow(place.cluster, 3, told.append)
    assert place.failures == []
    assert "node 2 votes in the metadata quorum" in told
    assert place.now < 60


def test_a_voter_that_is_refused_is_told_at_once(place: Place) -> None:
    place.failures = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError) as refused:
        grow(place.cluster, 3)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_what_takes_too_long_is_told_with_the_last_error(place: Place) -> None:
    place.failures = [ErrorCode.NOT_CONTROLLER] * 10_000
    with pytest.raises(OttlaError, match=r"took longer than 300 s for node 2 to become a voter: .*not now"):
        grow(place.cluster, 3)
    assert 300 < place.now < 302


def test_nodes_are_restarted_one_by_one_with_the_controllers_leader_last(place: Place) -> None:
    grow(place.cluster, 5)
    place.did.clear()
    place.leader = 2
    told: list[str] = []
    assert roll(place.cluster, told.append) == [4, 5, 1, 3, 2]
    assert told == [f"node {each} was restarted" for each in (4, 5, 1, 3, 2)]
    assert place.did == [f"{what} {each}" for each in (4, 5, 1, 3, 2) for what in ("stop", "start")]
    assert place.sync()
    assert roll(place.cluster, nodes=[2, 5]) == [5, 2]


def test_a_node_that_is_down_stops_a_roll_before_it_begins(place: Place) -> None:
    grow(place.cluster, 3)
    place.did.clear()
    place.running -= {2, 3}
    with pytest.raises(OttlaError, match="node 2 is not running; `ottla cluster up` starts it"):
        roll(place.cluster)
    assert place.did == []
    assert roll(place.cluster, nodes=[1]) == [1]


@pytest.mark.parametrize("trouble", ["leaderless", "moving"])
def test_no_node_is_stopped_while_a_partition_has_no_leader_or_moves(place: Place, trouble: str) -> None:
    setattr(place, trouble, {("orders", 1)} if trouble == "moving" else 1)
    with pytest.raises(OttlaError, match=r"took longer than 300 s for all replicas to be in sync$"):
        roll(place.cluster)
    assert place.did == []


def test_a_cluster_of_a_program_grows_and_rolls(place: Place) -> None:
    cluster = ottla.Cluster(data=place.cluster.directory)
    assert repr(cluster) == "<ottla.Cluster, not running>"
    cluster._local = place.cluster
    assert cluster.grow(2) == (2,)
    assert cluster.add_node("b") == 3
    assert place.cluster.plan.node(3).rack == "b"
    assert cluster.address(3) == place.cluster.plan.node(3).address
    place.did.clear()
    cluster.roll()
    assert place.did == ["stop 2", "start 2", "stop 3", "start 3", "stop 1", "start 1"]
    servers = ",".join(place.cluster.plan.node(each).address for each in (1, 2, 3))
    assert repr(cluster) == f"<ottla.Cluster of nodes 1, 2, 3 on {servers}>"
