"""How a tool ends that is interrupted or refused by the machine: its words, its exit code, what it leaves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.kafka.groups import streams_group
from ottla.cli.ottla import export, root
from ottla.client.admin.result import GroupListing, GroupType
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Tool


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
