"""kafka-server-start and kafka-server-stop: a node behind the terminal, by a server.properties."""

import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ottla.cli.kafka.server import server_stop
from ottla.cli.kafka.server.server_stop import Process, server_words
from ottla.client import Admin
from tests.cli.kafka_tool import kafka
from tests.cli.test_start import server_properties
from tests.interop.server import free_ports

_SECONDS_MAX = 30
_START = (sys.executable, "-m", "ottla.cli.kafka.server.server_start")


def _formatted(directory: Path, port: int) -> tuple[str, str]:
    """(its file, its node id): an id that no other node on this machine has."""
    node_id = str(uuid.uuid4().int % 2_000_000_000 + 1000)
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    file = server_properties(directory, node_id=node_id, listeners=listeners)
    said = kafka("kafka-storage", "format", "-t", "Ottla-Interop-Cluster1", "-c", file, "--standalone")
    assert said.code == 0, said
    return file, node_id


def _ends(pid: int) -> bool:
    process = os.pidfd_open(pid)
    try:
        return bool(select.select([process], [], [], _SECONDS_MAX)[0])
    finally:
        os.close(process)


def _processes_of(file: str) -> list[Process]:
    return [each for each in server_stop.processes() if file in each.words and server_words(each.words)]


def test_a_daemon_is_started_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    file, node_id = _formatted(tmp_path, port)
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    began = subprocess.run([*_START, "-daemon", file], capture_output=True, timeout=_SECONDS_MAX, check=False)
    assert (began.returncode, began.stdout, began.stderr) == (0, b"", b"")
    console = tmp_path / "logs" / "kafkaServer.out"
    (server,) = _processes_of(file)
    try:
        with Admin(f"127.0.0.1:{port}") as admin:
            assert [node.id for node in admin.describe_cluster().nodes] == [int(node_id)]
        assert "Kafka Server started (kafka.server.KafkaRaftServer)" in console.read_text()
        assert f"[BrokerLifecycleManager id={node_id}] The broker has been unfenced." in console.read_text()
        assert kafka("kafka-server-stop", f"--node-id={node_id}") == (0, "", "")
        assert _ends(server.pid)
    finally:
        if _processes_of(file):
            os.kill(server.pid, signal.SIGKILL)
    assert console.read_text().endswith(f"ottla: node {node_id} stopped\n")


def test_a_wrong_setting_is_told_to_who_starts_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = server_properties(tmp_path)
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    said = kafka("kafka-server-start", "-daemon", file, "--override", "node.id=seven")
    assert said.code == 1
    assert "node.id" in said.err
    assert not (tmp_path / "logs").exists()


def test_a_directory_without_format_is_refused(tmp_path: Path) -> None:
    said = kafka("kafka-server-start", server_properties(tmp_path))
    assert (said.code, said.out) == (1, "")
    assert "kafka-storage format" in said.err or "ottla storage format" in said.err


def test_usage_is_on_stdout_as_apaches_script_has_it() -> None:
    said = kafka("kafka-server-start")
    assert (said.code, said.err) == (1, "")
    assert said.out.startswith("USAGE: ")
    assert said.out.endswith(" [-daemon] server.properties [--override property=value]*\n")


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("/v/bin/python3 /v/bin/kafka-server-start a.properties", ["a.properties"]),
        ("/v/bin/python /v/bin/kafka-server-start.sh a --override b=c", ["a", "--override", "b=c"]),
        ("python3.11 -m ottla.cli.kafka.server.server_start a", ["a"]),
        ("python3 /v/bin/kafka-server-start -daemon a", None),
        ("python3 /v/bin/kafka-server-start", None),
        ("python3 /v/bin/ottla start a", None),
        ("python3 -m pytest ottla.cli.kafka.server.server_start a", None),
        ("bash bin/kafka-server-start.sh a", None),
        ("java -cp libs kafka.Kafka a", None),
        ("", None),
    ],
)
def test_only_processes_of_our_server_are_stopped(line: str, given: list[str] | None) -> None:
    assert server_words(line.split()) == given


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, int]]:
    """Of three processes that look like servers: which were sent what."""
    sent: list[tuple[int, int]] = []
    for name, text in (("one", "process.roles=broker\nnode.id=1\n"), ("two", "process.roles=controller\nnode.id=2\n")):
        (tmp_path / name).write_text(text)
    words = ("python3", "kafka-server-start")
    found = [
        Process(11, (*words, "one"), str(tmp_path)),
        Process(12, (*words, str(tmp_path / "two")), "/"),
        Process(13, (*words, "one", "--override", "node.id=3"), str(tmp_path)),
        Process(14, ("python3", "else"), "/"),
    ]
    monkeypatch.setattr(server_stop, "processes", lambda: found)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.delenv("SIGNAL", raising=False)
    return sent


@pytest.mark.parametrize(
    ("words", "pids"),
    [
        ([], [11, 12, 13]),
        (["--node-id=1"], [11]),
        (["--node-id", "2"], [12]),
        (["--node-id=3"], [13]),
        (["--process-role=broker"], [11, 13]),
        (["--process-role=broker", "--node-id=2"], [12]),
        (["--node-id=9"], []),
    ],
)
def test_servers_are_chosen_by_what_their_files_say(
    words: list[str], pids: list[int], stopped: list[tuple[int, int]]
) -> None:
    said = kafka("kafka-server-stop", *words)
    assert said.code == 0
    assert stopped == [(pid, signal.SIGTERM) for pid in pids]
    both = "When both node-id and process-role are provided, the value for node-id will take precedence\n"
    assert said.out == (both if len(words) == 2 and "--process-role=broker" in words else "")


def test_the_signal_comes_from_the_environment(stopped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNAL", "INT")
    assert kafka("kafka-server-stop", "--node-id=1").code == 0
    assert stopped == [(11, signal.SIGINT)]


def test_no_server_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_stop, "processes", list)
    assert kafka("kafka-server-stop") == (1, "No kafka server to stop\n", "")
