"""`ottla streams`: what it says of programs and applications; running one is tested in tests/spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client import Admin, TopicPartition
from ottla.spark.streams import last_run
from ottla.spark.streams.alive import Heartbeat
from ottla.spark.streams.last_run import LastRun
from tests.cli.tool import Tool, in_process

PROGRAM = """\
from ottla.streams import StreamsBuilder

builder = StreamsBuilder()
builder.stream("{topic}", key_serde="string", value_serde="string").group_by_key().count(materialized="counts")
app = builder.build("{topic}-app")
"""


@pytest.fixture
def program(topic: str, tmp_path: Path) -> Path:
    path = tmp_path / f"program_{topic.replace('-', '_')}.py"
    path.write_text(PROGRAM.format(topic=topic))
    return path


@pytest.fixture
def application(bootstrap: str, topic: str) -> str:
    """One that has counted 2 of 10 records of partition 0, and has seen nothing of the other."""
    name = f"{topic}-app"
    in_process("produce", topic, "-p", "0", stdin=b"x\n" * 10, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    tasks = [{"id": f"0_{number}", "sources": [[topic, number]], "stores": ["counts"]} for number in range(2)]
    form = {"kind": "timestamped_key_value", "key": "string", "value": "long", "window_ms": 0, "stage": 0}
    with Admin(bootstrap) as admin:
        last_run.write(
            admin,
            {"bootstrap.servers": bootstrap},
            LastRun(name, 0, "Topologies:\n", "exactly_once_v2", tasks, {"counts": form}, []),
        )
        admin.create_topic(f"{name}-counts-changelog", 2)
        admin.alter_group_offsets(name, {TopicPartition(topic, 0): 2}).check()
    return name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file {path}: `ottla streams run` takes the Python file of a program"),
        ("x = 1\n", "{path} has no application: assign the result of StreamsBuilder.build to a name, as in app ="),
        ("x = 1\nraise ValueError('y')\n", "{path}:2: ValueError: y"),
        ("x = (\n", "{path}:1: '(' was never closed"),
        (PROGRAM + "b = builder.build('b')\n", "{path} has several applications (app, b): name one, as in {path}:app"),
        (PROGRAM + "app.run()\n", "application {topic}-app must not start while its file is imported; move the"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_program_is_told_in_one_line(
    tool: Tool, topic: str, program: Path, text: str | None, said: str
) -> None:
    if text is None:
        program.unlink()
    else:
        program.write_text(text.replace("{topic}", topic))
    ran = tool("streams", "run", str(program))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"ottla: {said.format(path=program, topic=topic)}")
    assert ran.err.count("\n") == 1


def test_a_name_that_is_no_application_is_told(tool: Tool, program: Path) -> None:
    assert "does not define fraud; it defines app" in tool("streams", "run", f"{program}:fraud").err
    assert "builder in" in tool("streams", "run", f"{program}:builder").err


def test_a_missing_topic_is_told_before_spark_starts(tool: Tool, program: Path, topic: str) -> None:
    tool("topics", "delete", topic, "-y")
    said = tool("streams", "run", str(program))
    assert said.code == 1
    assert said.err == f"ottla: source topic {topic} does not exist: create it first ({program}:4)\n"


def test_a_program_is_described_without_a_cluster(tool: Tool, program: Path, topic: str) -> None:
    assert f"(topics: [{topic}])" in tool("streams", "describe", str(program)).out
    assert "count" in tool("streams", "describe", f"{program}:app", "--explain").out
    described = tool("streams", "describe", str(program), "--json").json
    assert described["application"] == f"{topic}-app"


def test_an_application_is_described_with_its_lag(tool: Tool, topic: str, application: str) -> None:
    found = tool("streams", "describe", application, "--json").json
    assert [(each["task"], each["lag"]) for each in found["tasks"]] == [("0_0", 8), ("0_1", 0)]
    assert found["lag"] == 8
    assert found["stores"][0]["changelog"] == f"{application}-counts-changelog"
    assert tool("streams", "describe", application).rows[0][:3] == ["0_0", f"{topic}-0", "8"]
    assert application in [row[0] for row in tool("streams").rows]
    said = tool("streams", "describe", application[:-1])
    assert (said.code, said.err) == (
        1,
        f"ottla: no application {application[:-1]} has run on this cluster; did you mean {application}?\n",
    )


def test_a_reset_application_begins_anew(tool: Tool, bootstrap: str, topic: str, application: str) -> None:
    dry = tool("streams", "reset", application, "-n", "--json").json
    assert dry["deleted_topics"] == [f"{application}-counts-changelog", f"{application}-ottla-plan-changelog"]
    assert tool("streams", "describe", application, "--json").json["lag"] == 8
    assert tool("streams", "reset", application).code == 2
    said = tool("streams", "reset", application, "--to", "-3", "-y")
    assert said.rows == [[topic, "0", "2", "7"], [topic, "1", "", "0"]]
    with Admin(bootstrap) as admin:
        assert admin.list_group_offsets(application)[TopicPartition(topic, 0)].offset == 7
        assert not [each for each in admin.list_topics() if each.name.startswith(f"{application}-")]
    assert tool("streams", "reset", application, "-y").code == 1


def test_an_application_that_runs_is_left_alone(tool: Tool, bootstrap: str, application: str) -> None:
    heartbeat = Heartbeat({"bootstrap.servers": bootstrap}, application, lambda: {"state": "RUNNING", "workers": 2})
    heartbeat.close()
    said = tool("streams", "reset", application, "-y")
    assert said.code == 1
    assert f"{application} is running on " in said.err and "stop it first" in said.err
    assert tool("streams", "describe", application, "--json").json["state"] == "RUNNING"
    heartbeat = Heartbeat({"bootstrap.servers": bootstrap}, application, lambda: {"state": "NOT_RUNNING", "workers": 2})
    heartbeat.close()
    assert tool("streams", "reset", application, "-y").code == 0


def test_a_look_at_an_application_starts_without_arrow_and_pandas() -> None:
    code = (
        "import sys; import ottla.cli.streams.view; "
        "print([name for name in ('pandas', 'pyarrow', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
