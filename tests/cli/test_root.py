"""`ottla` itself: help, errors, completion."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.tool import Tool, in_process

_TOOLS = ["start", "storage", "topics", "produce", "consume", "groups", "configs", "cluster", "dump-log", "completion"]


def test_help_names_every_tool(tool: Tool) -> None:
    said = tool("--help")
    assert said.code == 0
    for name in _TOOLS:
        assert f"  {name} " in said.out


@pytest.mark.parametrize("name", _TOOLS)
def test_every_tool_has_help_of_its_own(tool: Tool, name: str) -> None:
    said = tool(name, "--help")
    assert said.code == 0
    assert f"Usage: ottla {name}" in said.out


def test_help_loads_no_tool_no_loop_and_nothing_that_draws() -> None:
    code = (
        "import sys\nfrom ottla.cli import main\nsys.argv = ['ottla', '--help']\ntry: main()\nexcept SystemExit: pass\n"
    )
    code += (
        "print([name for name in ('asyncio', 'rich', 'ssl', 'ottla.client', 'ottla.broker') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_wrong_name_gets_the_nearest_right_one(tool: Tool) -> None:
    said = tool("topic")
    assert said.code == 2
    assert said.err == "ottla: there is no tool called topic; did you mean topics?\n       see ottla --help\n"


@pytest.mark.parametrize(
    ("words", "what", "where"),
    [
        ("topics crate", "there is no command crate in ottla topics; did you mean create?", "ottla topics"),
        (
            "storage zzz",
            "there is no command zzz in ottla storage; there are format, info, random-uuid",
            "ottla storage",
        ),
        ("topics list --jsn", "there is no option --jsn; did you mean --json?", "ottla topics list"),
        ("topics create", "missing argument 'NAME...'", "ottla topics create"),
    ],
)
def test_a_wrong_use_says_what_and_where_to_read_on(tool: Tool, words: str, what: str, where: str) -> None:
    said = tool(*words.split())
    assert (said.code, said.err) == (2, f"ottla: {what}\n       see {where} --help\n")


def test_a_topic_that_is_not_there_gets_the_nearest_that_is(tool: Tool, topic: str) -> None:
    said = tool("topics", "describe", f"{topic}x")
    assert (said.code, said.err) == (1, f"ottla: there is no topic {topic}x; did you mean {topic}?\n")


def test_nobody_there_says_how_to_start_a_node(tool: Tool) -> None:
    said = tool("topics", "list", "-b", "127.0.0.1:1")
    assert said.code == 1
    assert said.err.startswith("ottla: no broker at 127.0.0.1:1")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
@pytest.mark.parametrize("words", ["topics list", "produce x", "perf produce x"])
def test_a_port_that_is_no_brokers_is_told_at_once(tool: Tool, answer: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        said = tool(*words.split(), "-b", at)
        thread.join()
    assert said.code == 1
    assert said.err.startswith(f"ottla: no broker at {at} ({at}: not a Kafka broker, or one that requires")


def test_a_broken_address_is_a_usage_error(tool: Tool) -> None:
    assert tool("topics", "list", "-b", "localhost:x").code == 2


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "request.timeout=5",
            "-X request.timeout=5: there is no client setting request.timeout; did you mean request.timeout.ms?",
        ),
        (
            "request.timeout.ms=soon",
            "-X request.timeout.ms=soon: invalid value for request.timeout.ms: 'soon' (expected a whole number",
        ),
        ("request.timeout.ms", "-X request.timeout.ms: expected KEY=VALUE"),
    ],
)
def test_a_wrong_client_setting_is_wrong_usage(tool: Tool, setting: str, sentence: str) -> None:
    """Also where no broker is there to be asked."""
    for words in (("topics", "list", "-b", "127.0.0.1:1"), ("consume", "t", "-b", "127.0.0.1:1")):
        said = tool(*words, "-X", setting)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"ottla: {sentence}")


def test_a_client_setting_of_the_environment_is_checked_with_its_value(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIT_MS", "soon")
    said = tool("topics", "list", "-X", "request.timeout.ms=${env:WAIT_MS}")
    assert said.code == 1 and "invalid value for request.timeout.ms: 'soon'" in said.err


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        (0, "produce TOPIC"),
        (1, "topics list"),
        (1, "consume TOPIC --from earliest -n 1"),
        (2, "topics list"),
        (1, "kafka topics --list --bootstrap-server BOOTSTRAP"),
        (0, "kafka console-producer --topic TOPIC --bootstrap-server BOOTSTRAP"),
    ],
)
def test_a_stream_that_the_caller_has_closed_leads_nowhere(
    bootstrap: str, topic: str, tool: Tool, closed: int, words: str
) -> None:
    tool("produce", topic, "-f", __file__)
    words = words.replace("TOPIC", topic).replace("BOOTSTRAP", bootstrap)
    command = ["ottla", *words.split(), "-b", bootstrap]
    if command[1] == "kafka":
        command = [f"kafka-{command[2]}", *command[3:-2]]
    command[0] = str(Path(sys.executable).with_name(command[0]))
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}{"<" if closed == 0 else ">"}&-', "sh", *command],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_shell_completes_the_names_of_topics(bootstrap: str, tool: Tool, topic: str) -> None:
    said = in_process(
        _OTTLA_COMPLETE="bash_complete",
        COMP_WORDS=f"ottla topics describe {topic[:20]}",
        COMP_CWORD="3",
        OTTLA_BOOTSTRAP_SERVERS=bootstrap,
    )
    assert f"plain,{topic}" in said.out.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_line_for_a_shell(tool: Tool, shell: str) -> None:
    said = tool("completion", shell)
    assert f"_OTTLA_COMPLETE={shell}_source" in said.out
