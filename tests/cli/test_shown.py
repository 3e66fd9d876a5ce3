"""The tools say what the scenes of tests/cli/shown show."""

import logging
import os
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import ottla
from tests.cli.kafka_tool import SCRIPTS
from tests.cli.shown_scene import Player, read, scenes
from tests.cli.shown_state import State
from tests.cli.test_words import commands

_TERMINAL = {"COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"}


@pytest.mark.parametrize("path", scenes(), ids=lambda path: path.stem)
def test_the_tools_say_what_they_said(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith(("OTTLA_", "XDG_")) and each != "OTTLA_WRITE_SCENES"]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    # Nothing of 2001 is deleted while a busy machine plays.
    settings = {"log.retention.check.interval.ms": "86400000"}
    settings |= dict(step.rest.split("=", 1) for step in read(path)[1] if step.command == "node")
    with ExitStack() as stack, ottla.Node(settings=settings) as node:
        # A node's loggers are those of its process, which a scene may change.
        stack.callback(logging.getLogger().setLevel, logging.getLogger().level)
        for name, value in {
            **_TERMINAL,
            "HOME": str(tmp_path),
            "OTTLA_BOOTSTRAP_SERVERS": node.bootstrap_servers,
        }.items():
            monkeypatch.setenv(name, value)
        with closing(State(node.bootstrap_servers)) as state:
            Player(node, tmp_path, monkeypatch, state).play(path)


def test_the_help_of_every_tool_is_in_a_scene() -> None:
    asked = {step.rest for path in scenes() for step in read(path)[1]}
    tools = {name for name in SCRIPTS if name.startswith("kafka-") and not name.endswith(".sh")}
    # As Apache's: a shell script that reads no options.
    tools -= {"kafka-server-stop"}
    tools |= {f"ottla {part}" for name, _ in commands() for part in (name, name.split()[0])}
    assert {tool for tool in tools if f"{tool} --help" not in asked} == set()
