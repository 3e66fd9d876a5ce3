"""`ottla start` and `ottla storage`: a node as a process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.cli.tool import OTTLA, in_process

_READY = re.compile(r"ottla: node (\d+) ready on 127\.0\.0\.1:(\d+) in \d+ ms, data in (.+)\n")
_SECONDS_MAX = 30


@contextmanager
def running(*arguments: str, interpreter: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A node that has said that it is ready, and its port."""
    command = [OTTLA[0], *interpreter, *OTTLA[1:], *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready = _READY.fullmatch(process.stdout.readline())
        assert ready, process.communicate(timeout=_SECONDS_MAX)
        yield process, int(ready[2])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=_SECONDS_MAX)


def server_properties(directory: Path, **changes: str) -> str:
    """A file for one node, as Kafka's kraft/server.properties has it."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "7",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:0",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    path = directory / "server.properties"
    path.write_text("# a node\n" + "".join(f"{name} = {value}\n" for name, value in lines.items()))
    return str(path)


def test_a_node_that_crashes_leaves_no_core_file_with_its_secrets(tmp_path: Path) -> None:
    with running("start", "--port", "0", "--data", str(tmp_path / "data")) as (process, _):
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE), limits


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_says_one_line_when_it_serves_and_one_when_it_stops(tmp_path: Path, number: signal.Signals) -> None:
    with running("start", "--port", "0", "--data", str(tmp_path / "data")) as (process, port):
        socket.create_connection(("127.0.0.1", port), 5).close()
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=_SECONDS_MAX)
    assert (process.returncode, out, err) == (0, "ottla: node 1 stopped\n", "")


def test_what_was_written_is_there_after_a_new_start(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    kept = []
    for _ in range(2):
        with running("start", "--port", "0", "--data", data) as (process, port):
            address = f"127.0.0.1:{port}"
            assert in_process("topics", "create", "kept", "--if-not-exists", OTTLA_BOOTSTRAP_SERVERS=address).code == 0
            wrote = in_process("produce", "kept", stdin=b"one\ntwo\n", OTTLA_BOOTSTRAP_SERVERS=address)
            assert wrote.code == 0, wrote.err
            kept.append(in_process("topics", OTTLA_BOOTSTRAP_SERVERS=address).rows[0][:4])
            os.kill(process.pid, signal.SIGTERM)
            process.communicate(timeout=_SECONDS_MAX)
    assert kept == [["kept", "1", "1", "2"], ["kept", "1", "1", "4"]]


def test_a_file_is_formatted_and_started(tmp_path: Path) -> None:
    path = server_properties(tmp_path)
    unformatted = in_process("start", path)
    assert unformatted.code == 1
    assert unformatted.err.count("\n") == 1
    assert in_process("storage", "info", "-c", path).code == 1
    cluster_id = in_process("storage", "random-uuid").out.strip()
    formatted = in_process("storage", "format", "-t", cluster_id, "-c", path, "--standalone")
    assert formatted.code == 0, formatted.err
    again = in_process("storage", "format", "-t", cluster_id, "-c", path, "--standalone")
    assert again.code == 1
    assert "already formatted" in again.err
    info = in_process("storage", "info", "-c", path, "--json").json
    assert [(each["state"], each["cluster.id"], each["node.id"]) for each in info] == [("formatted", cluster_id, "7")]
    with running("start", path, "--set", "num.partitions=4") as (_, port):
        shown = in_process("configs", "show", "broker", "7", "-b", f"127.0.0.1:{port}")
    assert ["num.partitions", "4", "file"] in shown.rows


def test_a_node_from_a_file_starts_without_what_only_other_tools_need(tmp_path: Path) -> None:
    path = server_properties(tmp_path)
    cluster_id = in_process("storage", "random-uuid").out.strip()
    assert in_process("storage", "format", "-t", cluster_id, "-c", path, "--standalone").code == 0
    with running("start", path, interpreter=("-X", "importtime")) as (process, port):
        wrote = in_process("topics", "create", "first", "-b", f"127.0.0.1:{port}")
        assert wrote.code == 0, wrote.err
        os.kill(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=_SECONDS_MAX)
    assert (process.returncode, out) == (0, "ottla: node 7 stopped\n")
    imported = set(re.findall(r"\| +([\w.]+)$", err, re.MULTILINE))
    assert {"ottla.broker.node", "ottla.wire.api.create_topics"} <= imported
    assert not imported & {"click", "rich", "platform", "ottla.cli.ottla.root", "ottla.cli.option"}


@pytest.mark.parametrize("options", [(), ("--log-level", "INFO")])
def test_a_file_that_is_wrong_ends_the_start_the_same_with_and_without_options(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    missing = str(tmp_path / "missing")
    said = in_process("start", missing, *options)
    assert said == (2, "", f"ottla: cannot read {missing}: No such file or directory\n")
    wrong = in_process("start", server_properties(tmp_path, num_partitions="none"), *options)
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "num.partitions" in wrong.err


def test_a_node_formatted_to_join_a_quorum_does_not_begin_its_own(tmp_path: Path) -> None:
    path = server_properties(tmp_path)
    cluster_id = in_process("storage", "random-uuid").out.strip()
    formatted = in_process("storage", "format", "-t", cluster_id, "-c", path, "--no-initial-controllers")
    assert formatted.code == 0, formatted.err
    said = in_process("start", path)
    assert said.code == 1
    assert said.err.endswith("names no other controller: name one, or format it with --standalone\n")


def test_a_data_directory_of_another_node_is_not_touched(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running("start", "--port", "0", "--data", data):
        pass
    other = in_process("start", "--port", "0", "--data", data, "--set", "node.id=2")
    assert other.code == 1
    assert other.err.startswith("ottla: ")
    assert other.err.count("\n") == 1
    assert "2" in other.err


def test_a_data_directory_in_use_is_not_touched(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running("start", "--port", "0", "--data", data):
        second = in_process("start", "--port", "0", "--data", data)
    assert second.code == 1
    assert data in second.err
    assert second.err.count("\n") == 1


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = in_process(
            "start",
            "--data",
            str(tmp_path / "data"),
            "--set",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        )
    assert said.code == 1
    assert f"127.0.0.1:{port}" in said.err
    assert said.err.count("\n") == 1


def test_a_wrong_setting_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    said = in_process("start", "--data", str(tmp_path / "data"), "--set", "num.partitions=many")
    sentence = "ottla: invalid value for num.partitions: many (expected a whole number, 1 or more)\n"
    assert (said.code, said.out, said.err) == (2, "", sentence)
    assert not (tmp_path / "data").exists()


def test_an_authorizer_in_java_stops_the_start_in_one_line(tmp_path: Path) -> None:
    authorizer = "authorizer.class.name=com.example.OwnAuthorizer"
    said = in_process("start", "--data", str(tmp_path / "data"), "--port", "0", "--set", authorizer)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("ottla: authorizer.class.name=com.example.OwnAuthorizer: this node runs no Java class")
    assert said.err.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    said = in_process("start", str(tmp_path / "nowhere.properties"))
    assert said.code == 2
    assert "cannot read" in said.err


def test_a_node_without_security_imports_none_of_it() -> None:
    program = (
        "import sys, ottla\n"
        "with ottla.Node() as node:\n"
        "    print([name for name in sys.modules if name.startswith(('ottla.security', 'ottla.broker.guard')) "
        "or name == 'ottla.broker.dispatch.sign_in'])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "[]", said


def test_a_node_that_waits_for_controllers_says_so(tmp_path: Path) -> None:
    """A broker whose controllers are not there: the process lives, and it is not ready."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {
        "process.roles": "broker",
        "node.id": "7",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "log.dirs": str(tmp_path / "data"),
        "metrics.listener": f"127.0.0.1:{port}",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={each}\n" for name, each in settings.items()))
    subprocess.run([*OTTLA, "storage", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", file], check=True)
    with subprocess.Popen([*OTTLA, "start", file]) as process:
        try:
            status, told = _answer(port, "/ready")
            assert (status, told["state"]) == (503, "starting")
            assert _answer(port, "/health")[0] == 200
        finally:
            process.terminate()


def _answer(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """The answer, as soon as somebody listens there."""
    deadline = monotonic() + 60
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except ConnectionError:
            assert monotonic() < deadline
        finally:
            connection.close()


def test_sigterm_ends_the_first_process_of_a_container_before_the_node_serves(tmp_path: Path) -> None:
    """Linux ignores signals that process 1 does not handle. Here a file that does not end holds up the start."""
    file = tmp_path / "server.properties"
    os.mkfifo(file)
    as_first = "import os, sys; os.getpid = lambda: 1; os.getppid = lambda: 0; from ottla.cli import main; main()"
    with subprocess.Popen([sys.executable, "-c", as_first, "start", str(file)]) as process, file.open("w"):
        process.send_signal(signal.SIGTERM)
        assert process.wait(_SECONDS_MAX) == 128 + signal.SIGTERM
