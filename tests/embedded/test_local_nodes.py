"""The commands of a cluster in a directory, with processes that only note their signals; and a process by its pid."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.embedded.cluster import local, process
from ottla.embedded.cluster.local import LocalCluster
from ottla.embedded.cluster.process import NodeProcess
from ottla.kernel.error import OttlaError


class Node:
    """A process that ends by a signal of `ends_by`."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.pid = world, number
        self.ends_by = {signal.SIGTERM, signal.SIGKILL}
        self.runs = True

    def __str__(self) -> str:
        return f"{self.pid} 0"

    def send(self, number: signal.Signals) -> None:
        self.world.did.append(f"{number.name} {self.pid}")
        self.runs = self.runs and number not in self.ends_by

    def wait(self, seconds: float) -> bool:
        self.world.waits.append(seconds)
        return not self.runs


class World:
    """The processes of a cluster by the node's id, and what was done to them."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.did: list[str] = []
        self.waits: list[float] = []
        #: What a node says in place of being ready.
        self.says: dict[int, str] = {}

    def start(self, properties: Path, log: Path, output: Path) -> Node:
        assert (log, output) == (properties.with_name("node.log"), properties.with_name("output"))
        number = int(properties.parent.name.removeprefix("node-"))
        self.did.append(f"start {number}")
        self.nodes[number] = Node(self, number)
        return self.nodes[number]

    def ready(self, node: Node, output: Path, until: float, tell: Callable[[str], None]) -> None:
        self.did.append(f"ready {node.pid}")
        tell("")
        tell("loading")
        if said := self.says.get(node.pid):
            raise OttlaError(said)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(local, "start", world.start)
    monkeypatch.setattr(local, "wait_until_ready", world.ready)

    def found(_: object, text: str) -> Node:
        number, began = text.split()
        assert began == "0"
        return world.nodes[int(number)]

    monkeypatch.setattr(local, "NodeProcess", SimpleNamespace(of_text=lambda text: found(None, text)))
    return world


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """Two controllers (1, 2) and two brokers (3, 4)."""
    made = LocalCluster.create(tmp_path / "cluster", 4, controllers=2, racks=["a", "b"])
    return LocalCluster.open(made.directory)


def test_all_nodes_start_before_one_is_waited_for(world: World, cluster: LocalCluster) -> None:
    told: list[str] = []
    cluster.tell = told.append
    assert cluster.running() == []
    assert cluster.start([2, 3]) == [2, 3]
    assert world.did == ["start 2", "start 3", "ready 2", "ready 3"]
    waits = [f"waiting for node {number}{more}" for number in (2, 3) for more in ("", ": loading")]
    assert told == waits
    assert cluster.running() == [2, 3]
    assert cluster.start() == [1, 4]
    assert cluster.start() == []
    # The next command finds them.
    assert LocalCluster.open(cluster.directory).running() == [1, 2, 3, 4]
    assert (cluster.directory / "node-4" / "process").read_text() == "4 0"


def test_a_node_that_cannot_start_ends_those_that_this_call_started(world: World, cluster: LocalCluster) -> None:
    cluster.start([1])
    world.says[3] = "no disk"
    world.did.clear()
    with pytest.raises(OttlaError, match="node 3 cannot start: no disk"):
        cluster.start()
    assert world.did == [
        *("start 2", "start 3", "start 4", "ready 2", "ready 3"),
        *("SIGTERM 4", "SIGTERM 3", "SIGTERM 2"),
    ]
    assert cluster.running() == [1]


def test_a_node_that_does_not_end_in_time_is_killed(world: World, cluster: LocalCluster) -> None:
    cluster.start([1])
    world.nodes[1].ends_by = {signal.SIGKILL}
    world.did.clear()
    world.waits.clear()
    cluster._end(world.nodes[1])  # type: ignore[arg-type]
    assert (world.did, world.waits) == (["SIGTERM 1", "SIGKILL 1"], [10.0, 10.0])


def test_brokers_stop_before_the_controllers(world: World, cluster: LocalCluster) -> None:
    cluster.start()
    world.did.clear()
    assert cluster.stop() == [3, 4, 1, 2]
    # A paused node goes on, so that it sees the SIGTERM.
    assert world.did == [f"{name} {number}" for number in (3, 4, 1, 2) for name in ("SIGCONT", "SIGTERM")]
    assert (cluster.stop(), cluster.stop([4])) == ([], [])
    cluster.start([1, 4])
    assert cluster.stop([1, 2]) == [1]
    assert cluster.running() == [4]


def test_signals_go_to_nodes_that_run(world: World, cluster: LocalCluster) -> None:
    cluster.start([1, 3])
    world.did.clear()
    world.waits.clear()
    cluster.pause(3)
    cluster.resume(3)
    cluster.kill(3)
    assert world.did == ["SIGSTOP 3", "SIGCONT 3", "SIGKILL 3"]
    assert world.waits == [10.0]
    for act in (cluster.pause, cluster.resume, cluster.kill):
        with pytest.raises(OttlaError, match="node 3 is not running; `ottla cluster restart 3` starts it"):
            act(3)
    world.nodes[1].ends_by = set()
    with pytest.raises(OttlaError, match=r"node 1 \(pid 1\) did not end within 10 s of SIGKILL"):
        cluster.kill(1)
    world.nodes[1].ends_by = {signal.SIGTERM}
    world.did.clear()
    cluster.restart(1)
    cluster.restart(3)
    assert world.did == ["SIGCONT 1", "SIGTERM 1", "start 1", "ready 1", "start 3", "ready 3"]


@pytest.mark.parametrize("text", [None, "", "one two", "1"])
def test_a_note_of_a_process_that_is_none_is_no_process(cluster: LocalCluster, text: str | None) -> None:
    if text is not None:
        (cluster.directory / "node-1" / "process").write_text(text)
    assert cluster.process(1) is None


def test_a_new_node_is_planned_behind_the_others_and_not_yet_a_voter(cluster: LocalCluster) -> None:
    broker = cluster.add("c")
    voter = cluster.add(votes=True)
    assert [(each.node_id, each.rack, each.is_controller) for each in (broker, voter)] == [
        (5, "c", False),
        (6, "", True),
    ]
    assert LocalCluster.open(cluster.directory).plan.nodes == cluster.plan.nodes
    meta = (cluster.directory / "node-5" / "data" / "meta.properties").read_text()
    assert f"cluster.id={cluster.plan.cluster_id}" in meta
    assert "node.id=5" in meta
    # The others do not know of the new voter until they are restarted.
    assert [each.node_id for each in cluster.plan.nodes if cluster.has_old_settings(each)] == [1, 2, 3, 4, 5]
    cluster.refresh(3)
    assert not cluster.has_old_settings(cluster.plan.node(3))


def test_a_cluster_is_removed_with_all_it_made_unless_a_node_runs(world: World, cluster: LocalCluster) -> None:
    cluster.start([2])
    with pytest.raises(OttlaError, match="node 2 is running; stop the cluster first"):
        cluster.remove()
    assert (cluster.directory / "cluster.json").exists()
    cluster.stop()
    cluster.remove()
    assert not cluster.directory.exists()


def test_racks_ports_and_voters_are_planned_in_order(cluster: LocalCluster) -> None:
    plan = cluster.plan
    assert [each.node_id for each in plan.nodes] == [1, 2, 3, 4]
    assert [each.rack for each in plan.nodes] == ["a", "b", "a", "b"]
    assert [bool(each.directory_id) for each in plan.nodes] == [True, True, False, False]
    ports = [port for each in plan.nodes for port in (each.port, each.controller_port) if port]
    assert len(set(ports)) == 6


def ports(monkeypatch: pytest.MonkeyPatch, refused: dict[int, int]) -> list[int]:
    tried: list[int] = []

    class Socket:
        def __enter__(self) -> Socket:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def setsockopt(self, *option: int) -> None:
            # A port whose last connections still wait for their end is free.
            assert option == (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def bind(self, address: tuple[str, int]) -> None:
            assert address[0] == "127.0.0.1"
            tried.append(address[1])
            if number := refused.get(address[1]):
                raise OSError(number, os.strerror(number))

    names = {name: getattr(socket, name) for name in ("SOL_SOCKET", "SO_REUSEADDR")}
    monkeypatch.setattr(local, "socket", SimpleNamespace(socket=Socket, **names))
    return tried


def test_ports_follow_the_first_and_must_be_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = ports(monkeypatch, {})
    plan = LocalCluster.create(tmp_path / "a", 3, controllers=1, port=65_532).plan
    assert [(each.port, each.controller_port) for each in plan.nodes] == [(65_532, 65_535), (65_533, 0), (65_534, 0)]
    assert tried == [65_532, 65_533, 65_534, 65_535]
    with pytest.raises(OttlaError) as raised:
        LocalCluster.create(tmp_path / "b", 3, controllers=1, port=65_533)
    assert str(raised.value) == "4 ports from 65533 on end at 65536 (a port is at most 65535)"
    for number, why in ((98, "is taken by another process"), (13, "cannot be used: Permission denied")):
        ports(monkeypatch, {9093: number})
        with pytest.raises(OttlaError) as raised:
            LocalCluster.create(tmp_path / "b", 3, controllers=1, port=9092)
        needs = "the cluster needs the ports 9092 to 9095: choose others with --port (0: any)"
        assert str(raised.value) == f"127.0.0.1:9093 {why}; {needs}"
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"cluster_id": "c", "nodes": [{"color": 1}], "settings": {}}'])
def test_a_damaged_description_of_a_cluster_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(OttlaError, match=r"/cluster\.json is damaged: "):
        LocalCluster.open(tmp_path)


def test_a_cluster_whose_formatting_fails_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(OttlaError, match=r"num\.partitions"):
        LocalCluster.create(tmp_path, 2, settings={"num.partitions": "many"})
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_the_description_of_a_cluster_is_json_for_other_programs(cluster: LocalCluster) -> None:
    document = json.loads((cluster.directory / "cluster.json").read_text())
    assert (document["cluster_id"], len(document["nodes"])) == (cluster.plan.cluster_id, 4)
    assert not (cluster.directory / "cluster.json.new").exists()


# ---- a cluster of a program


def test_a_cluster_of_a_program_is_stopped_or_killed_by_where_its_data_is(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ottla.Cluster(1, data=tmp_path / "kept")
    with kept:
        world.did.clear()
    assert world.did == ["SIGCONT 1", "SIGTERM 1"]
    assert (tmp_path / "kept" / "cluster.json").exists()
    passing = ottla.Cluster(1)
    with passing:
        home = passing.log(1).parent.parent
        world.did.clear()
    assert world.did == ["SIGKILL 1"]
    assert not home.exists()
    world.says[1] = "no"
    with pytest.raises(OttlaError, match="node 1 cannot start: no"):
        passing.start()
    assert repr(passing) == "<ottla.Cluster, not running>"


def test_a_fork_leaves_the_cluster_to_the_process_that_started_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ottla.Cluster(1, data=tmp_path)
    cluster.start()
    world.did.clear()
    with monkeypatch.context() as fork:
        fork.setattr("ottla.embedded.cluster.cluster.os", SimpleNamespace(getpid=lambda: -1))
        cluster.close()
    assert (world.did, cluster.running) == ([], (1,))
    cluster.close()
    assert world.did == ["SIGCONT 1", "SIGTERM 1"]


# ---- processes


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, int]]:
    """(state, start time) of each process that there is; time passes while a test waits."""
    there: dict[int, tuple[str, int]] = {}
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(process, "_process_state", lambda pid: there.get(pid, ("", 0)))
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(
        process,
        "os",
        SimpleNamespace(
            kill=lambda pid, number: there.update({pid: (f"killed by {number}", 0)}), waitpid=reap, WNOHANG=1
        ),
    )
    return there


def now_of_waits() -> float:
    return float(vars(process)["time"].monotonic())


def reap(*_: int) -> None:
    raise ChildProcessError


@pytest.mark.parametrize(
    ("state", "began", "runs"),
    [("S", 7, True), ("R", 7, True), ("Z", 7, False), ("", 0, False), ("S", 8, False)],
)
def test_a_process_runs_that_has_the_pid_and_the_time(
    proc: dict[int, tuple[str, int]], state: str, began: int, runs: bool
) -> None:
    proc[5] = (state, began)
    assert NodeProcess.of_text("5 7").runs is runs
    # Without /proc there is no start time.
    assert NodeProcess(5, 0).runs is (state in ("S", "R"))
    assert str(NodeProcess(5, 7)) == "5 7"


def test_a_signal_goes_to_a_process_that_runs(proc: dict[int, tuple[str, int]]) -> None:
    proc[5] = ("S", 8)
    NodeProcess(5, 7).send(signal.SIGTERM)
    assert proc[5] == ("S", 8)
    NodeProcess(5, 8).send(signal.SIGTERM)
    assert proc[5] == ("killed by 15", 0)


def test_a_process_is_waited_for_so_long_and_no_longer(
    proc: dict[int, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    proc[5] = ("S", 7)
    assert NodeProcess(5, 7).wait(2) is False
    assert 102.0 < now_of_waits() < 102.05
    looks: Any = iter([("S", 7), ("S", 7), ("Z", 7)])
    monkeypatch.setattr(process, "_process_state", lambda _: next(looks))
    assert NodeProcess(5, 7).wait(2) is True


def wait(output: Path, seconds: float, runs: bool = True) -> list[str]:
    told: list[str] = []
    node: Any = SimpleNamespace(runs=runs, wait=lambda _: True)
    process.wait_until_ready(node, output, now_of_waits() + seconds, told.append)
    return told


@pytest.mark.usefixtures("proc")
def test_a_node_is_waited_for_until_it_says_that_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "output"
    output.write_text("ottla: node 1 ready on b:1\n")
    assert wait(output, 0) == []
    output.write_text("")
    with pytest.raises(OttlaError, match=r"^the node ended without a word$"):
        wait(output, 5, runs=False)
    output.write_text("loading\nottla: no disk\n\n")
    with pytest.raises(OttlaError, match=r"^no disk$"):
        wait(output, 5, runs=False)
    with pytest.raises(OttlaError, match=r"^the node is not ready yet; it says: no disk$"):
        wait(output, 0.5)
    output.write_text("\n")
    with pytest.raises(OttlaError, match=r"^the node is not ready yet; it says: nothing$"):
        wait(output, 0.5)
    # After a second its last line is told, and then each new one.
    lines = {0.9: "loading 1\n", 1.5: "loading 2\n", 2.0: "loading 3\n", 3.0: "x ready on y\n"}
    began = now_of_waits()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        for at in list(lines):
            if now[0] >= began + at:
                with output.open("a") as file:
                    file.write(lines.pop(at))

    now = [began]
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    assert wait(output, 10) == ["loading 1", "loading 2", "loading 3"]
    output.write_text("")
    began = now[0]
    lines[1.5] = "x ready on y\n"
    assert wait(output, 10) == [""]
