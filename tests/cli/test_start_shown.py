"""`ottla start` in this process: what it makes of its options and files, and what it says. The node is played."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shown_scene import run
from tests.cli.test_start import server_properties

Said = tuple[int, str, str]
READY = "ottla: node 1 ready on {at} in 7 ms, data in d"


class Node:
    """What was run, and how its log was set up."""

    def __init__(self) -> None:
        self.settings: Any = None
        self.log: tuple[Any, ...] = ()
        self.formatted: list[Any] = []
        self.at = "127.0.0.1:9092"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Node]:
    played = Node()

    def serve(settings: Any, say: Callable[[str], None], began: float) -> int:
        played.settings = settings
        assert not gc.isenabled()
        say(READY.format(at=played.at))
        say("ottla: node 1 stopped")
        return 5

    monkeypatch.setattr("ottla.broker.serve.run", serve)
    monkeypatch.setattr("ottla.broker.log_output.configure", lambda *words: setattr(played, "log", words))
    monkeypatch.setattr(
        "ottla.broker.metadata.format.format_if_empty", lambda _, settings: played.formatted.append(settings)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    yield played
    gc.enable()


def start(*words: str, terminal: bool = False) -> Said:
    return run("ottla", ["start", *words], "", terminal=terminal)


def test_a_node_without_a_file_is_formatted_here(node: Node, tmp_path: Path) -> None:
    assert start() == (5, f"{READY.format(at=node.at)}\nottla: node 1 stopped\n", "")
    assert node.formatted == [node.settings]
    assert node.settings.log_dirs == (str(tmp_path / "ottla-data"),)
    listeners = {listener.name: (listener.host, listener.port) for listener in node.settings.listeners}
    assert sorted(listeners.values()) == [("127.0.0.1", 9092), ("127.0.0.1", 9093)]
    assert node.log == ("INFO", None, "text")


def test_options_choose_where_a_node_listens_and_writes(node: Node, tmp_path: Path) -> None:
    words = ("--host", "127.0.0.2", "--port", "7000", "--data", "here/../there", "--set", "num.partitions=4")
    assert start(*words, "--log-level", "debug", "--log-format", "json")[0] == 5
    assert node.settings.log_dirs == (str(tmp_path / "here/../there"),)
    listeners = [(listener.host, listener.port) for listener in node.settings.listeners]
    assert sorted(listeners) == [("127.0.0.1", 7001), ("127.0.0.2", 7000)]
    assert node.settings.num_partitions == 4
    assert node.log == ("DEBUG", None, "json")
    assert start("--port", "0")[0] == 5
    assert {listener.port for listener in node.settings.listeners} == {0}


def test_a_node_of_a_file_is_not_formatted_and_its_settings_can_be_set(node: Node, tmp_path: Path) -> None:
    file = server_properties(tmp_path)
    assert start(file, "--set", "num.partitions=4", "--log-level", "WARN")[0] == 5
    assert (node.settings.node_id, node.settings.num_partitions, node.formatted) == (7, 4, [])
    for option in (("--port", "1"), ("--host", "h"), ("--data", "d")):
        code, out, err = start(file, *option)
        assert (code, out) == (2, "")
        assert err.startswith("ottla: --port, --host and --data are for a node without a file; use --set with a file\n")


def test_a_file_that_is_no_file_is_told(node: Node, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("a=\\u12\n")
    said = {
        str(tmp_path): f"ottla: {tmp_path} is a directory; name the server.properties in it\n",
        str(tmp_path / "none"): f"ottla: cannot read {tmp_path / 'none'}: No such file or directory\n",
    }
    for path, words in said.items():
        assert start(path, "--log-level", "INFO") == (2, "", words)
    code, _, err = start(str(wrong), "--log-level", "INFO")
    assert (code, err.startswith(f"ottla: {wrong}, line 1")) == (2, True), err


@pytest.mark.parametrize(
    ("at", "where"),
    [
        ("127.0.0.1:9092", ""),
        ("localhost:9092", ""),
        ("127.0.0.1:9093", " -b 127.0.0.1:9093"),
        ("10.0.0.1:9092", " -b 10.0.0.1:9092"),
        ("127.0.0.1:9092, 127.0.0.1:9094", ""),
    ],
)
def test_a_person_is_told_how_to_reach_the_node(node: Node, at: str, where: str) -> None:
    node.at = at
    code, out, err = start(terminal=True)
    assert (code, out) == (5, f"{READY.format(at=at)}\nottla: node 1 stopped\n")
    hint = f"       Ctrl-C to stop. In another terminal: ottla topics create hello{where}"
    assert err.replace("\x1b[2m", "").replace("\x1b[0m", "") == hint + "\n"


def test_a_log_file_has_these_lines_too(node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.broker"):
        start("--log-file", str(tmp_path / "log"))
        start()
    assert node.log == ("INFO", None, "text")
    assert [record.getMessage() for record in caplog.records] == [
        READY.format(at=node.at).removeprefix("ottla: "),
        "node 1 stopped",
    ]
