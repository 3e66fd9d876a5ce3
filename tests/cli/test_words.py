"""What all tools have in common: help, colours, JSON, Ctrl-C."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from ottla.cli.ottla.root import _TOOLS
from ottla.client import Producer
from ottla.wire.batch import build
from tests.cli.tool import CTRL_C, OTTLA, Tool, in_process, on_terminal

#: Read lines from stdin or files for ever, or print what is no result.
_WITHOUT_JSON = {"start", "completion", "streams run"}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, (where, _) in _TOOLS.items():
        module, _, attribute = where.partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", each) for part, each in command.commands.items())
        else:
            yield name, command


def test_every_command_can_answer_in_json() -> None:
    without = {
        name
        for name, command in commands()
        if not any(isinstance(each, click.Option) and each.name == "as_json" for each in command.params)
    }
    assert without == _WITHOUT_JSON


def test_the_first_sentence_of_every_command_stands_whole_in_the_help_of_its_tool(tool: Tool) -> None:
    for name in {name.split()[0] for name, _ in commands() if " " in name}:
        assert "..." not in tool(name, "--help").out.partition("Commands:")[2]


@pytest.mark.parametrize("words", [(), ("configs",), ("perf",), ("storage",)])
def test_a_tool_without_its_command_shows_its_help(tool: Tool, words: tuple[str, ...]) -> None:
    said = tool(*words)
    assert said.code == 2
    assert said.err == tool(*words, "--help").out
    assert said.err.startswith("Usage: ottla")


_COLOUR = re.compile(r"\x1b\[[\d;]*3[1-7]m")


@pytest.mark.parametrize(
    ("words", "environment", "coloured"),
    [
        (("consume", "{topic}", "-e"), {}, True),
        (("consume", "{topic}", "-e"), {"NO_COLOR": "1"}, False),
        (("consume", "{topic}", "-e"), {"TERM": "dumb"}, False),
        (("groups", "describe", "nobody"), {"NO_COLOR": "1"}, False),
        (("disks", "nonsense"), {"TERM": "dumb"}, False),
    ],
)
def test_colours_stay_away_where_they_are_not_wanted(
    bootstrap: str, topic: str, words: tuple[str, ...], environment: dict[str, str], coloured: bool
) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"value", b"key")
    settings = [f"{name}={value}" for name, value in ({"NO_COLOR": ""} | environment).items()]
    command = ["env", *settings, *OTTLA, *(word.format(topic=topic) for word in words)]
    said = on_terminal(command=command, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert bool(_COLOUR.search(said.out)) is coloured
    if "TERM" in environment:
        assert "\x1b" not in said.out


def test_changes_say_what_they_did_in_one_document(tool: Tool, topic: str) -> None:
    assert tool("topics", "grow", topic, "-p", "3", "--json").json == {"topic": topic, "partitions": 3}
    said = tool("configs", "set", "topic", topic, "retention.ms=1000", "--json")
    assert said.json == {"kind": "topic", "name": topic, "set": {"retention.ms": "1000"}}
    assert tool("configs", "unset", "topic", topic, "retention.ms", "--json").json["unset"] == ["retention.ms"]
    said = tool("quotas", "set", "-u", topic, "producer_byte_rate=5", "--json")
    assert said.json == {"entity": {"user": topic}, "set": {"producer_byte_rate": 5.0}}
    assert tool("quotas", "unset", "-u", topic, "producer_byte_rate", "--json").json["entity"] == {"user": topic}
    assert tool("features", "set", "group.version=1", "-n", "--json").json["dry_run"]
    assert len(tool("storage", "random-uuid", "--json").json["uuid"]) == 22
    said = tool("topics", "delete", topic, "-y", "--json")
    assert (said.json, said.err) == ({"deleted": [topic]}, "")


def test_a_terminal_that_is_too_narrow_for_a_table_gets_lists(bootstrap: str) -> None:
    shown = on_terminal("quorum", "-b", bootstrap, COLUMNS="60", NO_COLOR="1").out
    assert re.search(r"role .*leader", shown)
    assert re.search(r"CONTROLLER://[\w.]+:\d+", shown), "no address is folded that has a line for itself"


def test_a_live_view_leaves_columns_out_where_the_terminal_is_too_narrow(bootstrap: str, topic: str) -> None:
    """The first column is what the view is about: it was folded to one letter a line."""
    shown = on_terminal("top", "-b", bootstrap, typed=[("Ctrl-C", CTRL_C)], COLUMNS="50", NO_COLOR="1").out
    shown = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", shown)
    assert re.search(r"\b1 topic, |[2-9]\d* topics, ", shown)
    assert re.search(r"topic +partitions +records", shown)
    assert "hottest" not in shown


def test_a_long_work_shows_a_bar_on_a_terminal_and_nothing_in_a_pipe(tool: Tool, bootstrap: str, topic: str) -> None:
    words = ("perf", "produce", topic, "-n", "3000")
    shown = on_terminal(*words, OTTLA_BOOTSTRAP_SERVERS=bootstrap).out
    assert "\u2501" in shown
    assert "MiB/s" in shown
    said = tool(*words, "--json")
    assert (said.json["records"], said.err) == (3000, "")


def test_a_dump_into_a_file_shows_a_bar_on_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"".join(build([(0, None, b"x" * 1000, ())], base_offset=offset) for offset in range(500)))
    shown = on_terminal(command=["sh", "-c", f"{shlex.join(OTTLA)} dump-log {log} --json > {tmp_path}/out"])
    assert "\u2501" in shown.out
    assert len((tmp_path / "out").read_text().splitlines()) == 500
    piped = in_process("dump-log", str(log), "--json")
    assert (len(piped.out.splitlines()), piped.err) == (500, "")


@pytest.mark.parametrize("words", ["perf produce {topic} -n 100000000", "consume {topic}"])
def test_ctrl_c_ends_a_tool_without_a_word_of_python(bootstrap: str, tool: Tool, topic: str, words: str) -> None:
    before = "records" if words.startswith("perf") else "Ctrl-C to stop"
    said = on_terminal(
        *words.format(topic=topic).split(), typed=[(before, CTRL_C)], OTTLA_BOOTSTRAP_SERVERS=bootstrap, NO_COLOR="1"
    )
    assert "Traceback" not in said.out
    assert said.code == (130 if words.startswith("perf") else 0)


def test_bash_completes_tools_options_and_names(bootstrap: str, tool: Tool, topic: str) -> None:
    line = tool("completion", "bash").out.strip()
    asked = {"to": "topics", "topics desc": "describe", "produce --comp": "--compression"}
    asked[f"consume {topic[:20]}"] = topic
    script = [line.replace("bash_source ottla", "bash_source ./ottla")]
    for words in asked:
        script.append(f"COMP_WORDS=(ottla {words}); COMP_CWORD={len(words.split())}; COMPREPLY=()")
        script.append('_ottla_completion ./ottla; echo "${COMPREPLY[@]}"')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": bootstrap},
        cwd=_here(),
        check=False,
    )
    assert [words.split()[0] for words in done.stdout.splitlines()] == list(asked.values()), done.stderr


def _here() -> Path:
    """The directory of the console script."""
    return Path(sys.executable).parent


def test_json_of_a_list_is_one_document_for_every_tool(tool: Tool) -> None:
    for words in ("topics", "groups", "transactions", "quotas", "users", "cluster", "quorum", "partitions", "disks"):
        json.loads(tool(*words.split(), "--json").out)


def test_the_table_of_jobs_names_commands_that_are_there_and_all_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs/internals/tools.md").read_text()
    table = page.partition("## Tasks and their commands")[2].partition("\n## ")[0]
    named = set(re.findall(r"`ottla ([a-z -]+)`", table))
    # What belongs to a command that the table names, or to no job.
    beside = {"storage info", "storage random-uuid", "completion"}
    assert {name for name, _ in commands()} - beside == named
