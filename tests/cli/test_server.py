"""kafka-server-start and kafka-server-stop: a node behind the terminal, by a server.properties."""

import os
import re
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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


def test_a_process_that_is_gone_is_passed_and_one_of_another_user_is_told(
    stopped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(pid: int, number: int) -> None:
        if pid == 11:
            raise ProcessLookupError
        if pid == 12:
            raise PermissionError
        stopped.append((pid, number))

    monkeypatch.setattr(os, "kill", kill)
    assert kafka("kafka-server-stop", "--node-id=1") == (0, "", "")
    assert kafka("kafka-server-stop") == (1, "", "kill: (12) - Operation not permitted\n")
    assert stopped == [(13, signal.SIGTERM)]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("kill", signal.SIGKILL),
        ("SIGHUP", signal.SIGHUP),
        ("2", signal.SIGINT),
        ("", signal.SIGTERM),
        ("9999", None),
        ("NO", None),
    ],
)
def test_a_signal_has_a_name_or_a_number(
    name: str, number: int | None, stopped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNAL", name)
    said = kafka("kafka-server-stop", "--node-id=2")
    if number is None:
        assert (said, stopped) == ((1, "", f"{name}: invalid signal specification\n"), [])
    else:
        assert (said, stopped) == ((0, "", ""), [(12, number)])


def test_a_choice_that_no_server_meets_is_told(stopped: list[tuple[int, int]]) -> None:
    assert kafka("kafka-server-stop", "--node-id=9") == (0, "", "No kafka server to stop has node.id 9\n")
    said = kafka("kafka-server-stop", "--process-role", "gardener")
    assert said == (0, "", "No kafka server to stop has process.roles gardener\n")
    assert kafka("kafka-server-stop", "--node-id").code == 0, "an option without its value is none"
    assert [pid for pid, _ in stopped] == [11, 12, 13]


def test_a_file_that_is_gone_or_wrong_chooses_no_server(
    stopped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = Process(15, ("python3", "kafka-server-start", "one", "--sideways"), str(tmp_path))
    gone = Process(16, ("python3", "kafka-server-start", "away"), str(tmp_path))
    monkeypatch.setattr(server_stop, "processes", lambda: [wrong])
    assert kafka("kafka-server-stop", "--node-id=1").code == 0
    monkeypatch.setattr(server_stop, "processes", lambda: [gone])
    said = kafka("kafka-server-stop", "--node-id=1")
    assert (said.code, said.err.startswith("Can not find the configuration file in the current directory.")) == (
        1,
        True,
    )
    assert stopped == []
    assert kafka("kafka-server-stop").code == 0
    assert stopped == [(16, signal.SIGTERM)]


@pytest.mark.parametrize("proc", [True, False])
def test_processes_are_found_with_and_without_proc(proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not proc:
        monkeypatch.setattr(server_stop, "_PROCESSES", "/nowhere")
    with subprocess.Popen(["cat", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        try:
            # Popen may return before /proc shows the command line; a program that answers has one.
            reader.stdin.write(b"x")
            reader.stdin.flush()
            assert reader.stdout.read(1) == b"x"
            found = {process.pid: process for process in server_stop.processes()}
        finally:
            reader.kill()
    assert found[reader.pid] == Process(reader.pid, ("cat", "-"), os.getcwd())
    assert os.getpid() not in found


def _served(monkeypatch: pytest.MonkeyPatch, file: str, *words: str) -> tuple[list[Any], str]:
    calls: list[Any] = []

    def run(settings: Any, say: Callable[[str], None], began: float) -> int:
        calls.append(settings)
        say("ottla: node 7 ready on 127.0.0.1:9092 in 7 ms, data in d")
        say("ottla: node 7 stopped")
        return 3

    monkeypatch.setattr("ottla.broker.serve.run", run)
    said = kafka("kafka-server-start", file, *words)
    assert (said.code, said.err) == (3, "")
    return calls, said.out


@pytest.mark.parametrize(("roles", "brokers"), [("broker,controller", 1), ("controller", 0)])
def test_a_server_says_the_lines_that_harnesses_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roles: str, brokers: int
) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0" if brokers else "CONTROLLER://127.0.0.1:0"
    file = server_properties(tmp_path, process_roles=roles, listeners=listeners)
    calls, out = _served(monkeypatch, file, "--override", "num.partitions=5", "--override", "node.id=8")
    assert [(settings.node_id, settings.num_partitions) for settings in calls] == [(8, 5)]
    ready, *apaches, stopped = out.splitlines()
    assert (ready, stopped) == ("ottla: node 7 ready on 127.0.0.1:9092 in 7 ms, data in d", "ottla: node 7 stopped")
    assert [re.sub(r"^\[\d{4}(-\d\d){2} \d\d(:\d\d){2},\d{3}\] ", "", line) for line in apaches] == [
        (
            "INFO [BrokerLifecycleManager id=8] The broker has been unfenced. Transitioning from RECOVERY to RUNNING. "
            "(kafka.server.BrokerLifecycleManager)"
        ),
        "INFO [KafkaRaftServer nodeId=8] Kafka Server started (kafka.server.KafkaRaftServer)",
    ][1 - brokers :]


def test_a_daemon_has_its_own_session_and_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Mock()
    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "a" / "b"))
    file = server_properties(tmp_path)
    assert kafka("kafka-server-start", "-daemon", file, "--override", "num.partitions=5") == (0, "", "")
    ((command,), keywords) = started.call_args
    assert command == [*_START, file, "--override", "num.partitions=5"]
    assert keywords.pop("stdout").name == str(tmp_path / "a" / "b" / "kafkaServer.out")
    assert keywords == {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True}
    monkeypatch.setenv("LOG_DIR", "")
    monkeypatch.chdir(tmp_path)
    assert kafka("kafka-server-start", "-daemon", file).code == 0
    assert (tmp_path / "logs" / "kafkaServer.out").exists()
    monkeypatch.setenv("LOG_DIR", file)
    said = kafka("kafka-server-start", "-daemon", file)
    assert (said.code, said.err) == (1, f"{file}: File exists\n")
    assert started.call_count == 2
