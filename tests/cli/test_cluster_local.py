"""`ottla cluster up` and its kin: what stays behind, what is deleted, and what a person hears while a command waits."""

import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

import ottla
from ottla.cli.ottla.cluster.local import up
from ottla.client import Admin, NewTopic, OffsetSpec, Producer, TopicPartition
from ottla.embedded.cluster.local import LocalCluster
from ottla.embedded.cluster.process import wait_until_ready
from ottla.kernel.error import OttlaError
from tests.cli.tool import Tool, in_process


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "num.partitions=abc"], "invalid value for num.partitions: abc"),
        (["--set", "log.dirs=/proc/nowhere"], "/proc/nowhere"),
        (["--port", "{taken}"], "127.0.0.1:{taken} is taken by another process"),
        (["--port", "65000", "--nodes", "600"], "a port is at most 65535"),
    ],
)
def test_a_cluster_that_cannot_start_leaves_nothing(tmp_path: Path, options: list[str], words: str) -> None:
    home = tmp_path / "cluster"
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        chosen = [each.format(taken=taken) for each in options]
        port = [] if "--port" in options else ["--port", "0"]
        said = in_process("cluster", "up", "-d", str(home), "--nodes", "1", *port, *chosen)
    assert said.code == 1
    assert words.format(taken=taken) in said.err
    assert not home.exists()


def test_a_first_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port is free when the cluster is planned, and taken when its node starts."""
    home = tmp_path / "cluster"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr("ottla.embedded.cluster.local._free_ports", lambda count: [port, port + 1])
        with pytest.raises(OttlaError, match=f"node 1 cannot start: .*{port} is taken"):
            up.callback(str(home), 1, None, "", 0, (), True)  # type: ignore[misc]
    assert not home.exists()


def test_deleting_a_cluster_leaves_what_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    LocalCluster.create(tmp_path, 1)
    assert in_process("cluster", "down", "-d", str(tmp_path), "--delete").code == 0
    assert [each.name for each in tmp_path.iterdir()] == ["notes.md"]
    (tmp_path / "node-1").mkdir()
    with pytest.raises(OttlaError, match="node-1 is there already"):
        LocalCluster.create(tmp_path, 1)
    assert (tmp_path / "node-1").is_dir()


class Process:
    """Ends after so many SIGTERMs, and so many looks at it after the last of them."""

    pid = 0

    def __init__(self, needs: int, looks: int = 0) -> None:
        self.needs, self.looks, self.sent = needs, looks, 0

    def send(self, number: int) -> None:
        self.sent += number == signal.SIGTERM

    def wait(self, seconds: float) -> bool:
        if self.sent < self.needs:
            return False
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize(
    ("stopped", "needs", "sent"),
    [
        pytest.param(None, {1: 1, 2: 1, 3: 2}, {1: 1, 2: 1, 3: 2}, id="the last of all has none that takes over"),
        pytest.param(None, {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 1}, id="none waits"),
        pytest.param([3], {1: 1, 2: 1, 3: 2}, {1: 0, 2: 0, 3: 1}, id="the others take over"),
    ],
)
def test_a_node_hands_over_while_there_is_a_quorum(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped: list[int] | None,
    needs: dict[int, int],
    sent: dict[int, int],
) -> None:
    processes = {node_id: Process(count) for node_id, count in needs.items()}

    def running(_: LocalCluster, node_id: int) -> Process | None:
        one = processes[node_id]
        return None if one.wait(0) else one

    LocalCluster.create(tmp_path, 3)
    cluster, told = LocalCluster.open(tmp_path), list[str]()
    cluster.tell = told.append
    monkeypatch.setattr(LocalCluster, "process", running)
    if stopped is None:
        assert cluster.stop() == [1, 2, 3]
        assert told == []
    else:
        with pytest.raises(OttlaError, match=r"node 3 .* did not stop within"):
            cluster.stop(stopped)
        assert told == ["waiting for node 3 to hand over its partitions and stop"]
    assert {node_id: one.sent for node_id, one in processes.items()} == sent


def test_a_node_that_loses_the_quorum_later_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two others hand over and end while node 1, which is waited for first, still hands over."""
    processes = {1: Process(2), 2: Process(1, looks=2), 3: Process(1, looks=2)}
    monkeypatch.setattr(
        LocalCluster, "process", lambda _, node_id: None if processes[node_id].wait(0) else processes[node_id]
    )
    LocalCluster.create(tmp_path, 3)
    cluster, told = LocalCluster.open(tmp_path), list[str]()
    cluster.tell = told.append
    for process in processes.values():
        process.looks += 2  # `stop` looks at each of them twice before it sends anything
    assert cluster.stop() == [1, 2, 3]
    assert {node_id: one.sent for node_id, one in processes.items()} == {1: 2, 2: 1, 3: 1}


def test_no_option_of_up_is_ignored_for_a_cluster_that_is_there(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path, 1)
    said = in_process("cluster", "up", "-d", str(tmp_path), "--port", "0")
    assert (said.code, "already holds a cluster" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "called", "number", "state", "more"),
    [
        (["kill", "2"], ("kill", 2), 2, "killed", ""),
        (["stop", "2"], ("stop", [2]), 2, "stopped", ""),
        (["restart", "2"], ("restart", 2), 2, "up", ""),
        (["add-node", "--rack", "r"], ("start", [3]), 3, "up", " on 127.0.0.1:"),
    ],
)
def test_a_command_for_one_node_does_it_and_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    called: tuple[str, object],
    number: int,
    state: str,
    more: str,
) -> None:
    calls: list[tuple[str, object]] = []
    for name in ("kill", "stop", "restart", "start"):

        def call(_: LocalCluster, node: object, name: str = name) -> list[object]:
            calls.append((name, node))
            return [node]

        monkeypatch.setattr(LocalCluster, name, call)
    tool = Tool("", monkeypatch, capfd)
    cluster = LocalCluster.create(tmp_path / "cluster", 2)
    shutil.copytree(cluster.directory, tmp_path / "again")
    said = tool("cluster", *words, "-d", str(cluster.directory), "--json")
    assert (said.code, said.json, calls) == (0, {"node": number, "state": state}, [called])
    said = tool("cluster", *words, "-d", str(tmp_path / "again"))
    assert (said.code, f"node {number} {state}{more}" in said.err, calls) == (0, True, [called, called])
    assert LocalCluster.open(cluster.directory).plan.node(number).rack == ("r" if number == 3 else "")


def test_a_drained_node_has_no_replica_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "cluster"
    topic = NewTopic("t", assignments={0: [2], 1: [1], 2: [2]})
    with ottla.Cluster(nodes=2, data=home) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([topic]).check()
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("t", b"kept", partition=2).result(30)
        tool = Tool("", monkeypatch, capfd)
        assert tool("cluster", "drain", "2", "-d", str(home), "--json").json == {"node": 2, "moved": 2, "left": 0}
        replicas = [[node.id for node in part.replicas] for part in admin.describe_topic("t").partitions]
        assert replicas == [[1], [1], [1]]
        kept = TopicPartition("t", 2)
        assert admin.list_offsets({kept: OffsetSpec.LATEST}).check()[kept].offset == 1
        assert "0 replicas moved away from node 2" in tool("cluster", "drain", "2", "-d", str(home)).err


def test_a_node_that_does_not_run_cannot_be_stopped(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path, 1)
    said = in_process("cluster", "stop", "1", "-d", str(tmp_path))
    assert (said.code, said.out, "node 1 is not running" in said.err) == (1, "", True)


def test_a_node_that_keeps_a_command_waiting_is_named(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, 1)
    told: list[str] = []
    cluster.start()
    cluster.tell = told.append
    try:
        process = cluster.process(1)
        assert process is not None
        output = tmp_path / "waiting"
        output.write_text("ottla: node 1 waits for the controllers\n")
        with pytest.raises(OttlaError, match="not ready yet; it says: node 1 waits"):
            wait_until_ready(process, output, time.monotonic() + 1.5, cluster._teller(1))
    finally:
        cluster.kill(1)
    assert told == ["waiting for node 1: node 1 waits for the controllers"]
