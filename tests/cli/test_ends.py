"""How a tool ends that is interrupted or refused by the machine: its words, its exit code, what it leaves."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.broker.call.handler import Call
from ottla.cli.kafka.groups import streams_group
from ottla.cli.ottla import export, root
from ottla.client import Admin, ConfigResource, Producer, ResourceType
from ottla.client.admin.result import GroupListing, GroupType
from ottla.embedded.fault_rule import Fault, Where
from ottla.wire.api import ApiKey
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Tool
from tests.interop.server import KEPT


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when two records have been read."""
    over = export._Progress.over

    def two(self: Any, records: Any) -> Iterator[Any]:
        for count, record in enumerate(over(self, records)):
            if count == 2:
                raise KeyboardInterrupt
            yield record

    monkeypatch.setattr(export._Progress, "over", two)


def _fill(topic: str, tool: Tool, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    assert tool("produce", topic, "-p", "0", "-f", str(lines)).code == 0
    lines.unlink()


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_export_onto_stdout_says_where_to_go_on(tool: Tool, topic: str, tmp_path: Path) -> None:
    _fill(topic, tool, tmp_path)
    said = tool("export", topic, "-F", "json")
    assert said.code == 130
    assert [json.loads(line)["value"] for line in said.out.splitlines()] == ["a", "b"]
    assert "2 records are written to stdout; continue with --from 0:2,1:0 and another file" in said.err


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_export_into_a_file_leaves_none(tool: Tool, topic: str, tmp_path: Path) -> None:
    _fill(topic, tool, tmp_path)
    path = tmp_path / "out.json"
    said = tool("export", topic, str(path))
    assert (said.code, said.out) == (130, "")
    assert f"{path} was not written" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "/data/x"), "ottla: /data/x: No space left on device\n"),
        (OSError(28, "No space left on device"), "ottla: No space left on device\n"),
        (OSError("no such thing"), "ottla: no such thing\n"),
    ],
)
def test_what_the_machine_refuses_is_one_line(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, error: OSError, line: str
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(root.ottla, "main", refuses)
    said = tool("topics")
    assert (said.code, said.out, said.err) == (1, "", line)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str] | None]:
    """Two streams groups; the states that were asked for."""
    asked: list[list[str] | None] = []

    def listed(_: object, states: list[str] | None = None) -> list[GroupListing]:
        asked.append(states)
        return [GroupListing(name, GroupType.STREAMS, "Stable", "") for name in ("short", "one-of-a-longer-name")]

    monkeypatch.setattr(streams_group, "streams_groups", listed)
    return asked


def test_streams_groups_are_listed_by_name_and_with_state_as_a_table(
    bootstrap: str, groups: list[list[str] | None]
) -> None:
    def said(*words: str) -> list[str]:
        answer = kafka("kafka-streams-groups", "--bootstrap-server", bootstrap, "--list", *words)
        assert (answer.code, answer.err) == (0, "")
        return answer.out.splitlines()

    assert said() == ["short", "one-of-a-longer-name"]
    assert said("--state") == [
        "GROUP                STATE",
        "short                Stable",
        "one-of-a-longer-name Stable",
    ]
    said("--state", "stable, NOT_READY")
    assert groups == [None, [], ["Stable", "NotReady"]]


def test_a_cluster_is_shown_with_its_disks_and_its_quorum(tool: Tool) -> None:
    said = tool("cluster", "show")
    document = tool("cluster", "show", "--json").json
    assert said.code == 0
    (row,) = (row for row in said.rows if row[0] == "1")
    (node,) = document["nodes"]
    assert (row[1], row[2]) == (f"{node['host']}:{node['port']}", node["rack"] or "")
    assert all(cell.rpartition(" ")[2] in {"B", "KiB", "MiB", "GiB", "TiB"} for cell in row[3:])
    assert 0 <= node["log_bytes"] <= node["free_bytes"]


class _Creations(Fault):
    """Notes of each metadata request that names topics whether it may create them."""

    def __init__(self) -> None:
        super().__init__(Where(frozenset({ApiKey.METADATA})), None, 0)
        self.seen: list[bool] = []

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        if request.topics:
            self.seen.append(request.allow_auto_topic_creation)
        return go_on()


@pytest.fixture(scope="module")
def creations() -> Iterator[tuple[str, _Creations]]:
    """A node with records in topic t, and what tools ask of it."""
    with ottla.Node(settings=KEPT) as node:
        node.create_topic("t")
        with Producer(node.bootstrap_servers) as producer:
            producer.send("t", b"v").result(30)
        with Admin(node.bootstrap_servers) as admin:
            admin.alter_config(ConfigResource(ResourceType.GROUP, "s"), {"share.auto.offset.reset": "earliest"})
        yield node.bootstrap_servers, node.faults._add(_Creations())


@pytest.mark.parametrize(
    "words",
    [
        "produce t -f {lines}",
        "import {lines} t",
        "consume t -e",
        "consume t -e -g g",
        "consume t --share s -n 1",
        "consume t --tail 1 -e",
        "export t -F json",
        "perf produce t -n 1",
        "perf consume t -n 1",
        "perf latency t -n 1",
    ],
)
def test_no_tool_creates_a_topic_again_that_is_deleted_while_it_is_used(
    words: str, tool: Tool, creations: tuple[str, _Creations], tmp_path: Path
) -> None:
    bootstrap, asked = creations
    (tmp_path / "lines.jsonl").write_text("{}\n")
    command = words.format(lines=tmp_path / "lines.jsonl").split()
    for more in ((), ("-X", "allow.auto.create.topics=true")):
        asked.seen.clear()
        said = tool(*command, "-b", bootstrap, *more)
        assert said.code == 0, said.err
        assert any(asked.seen) is bool(more), "unless it is told to"
        assert asked.seen
