"""`ottla dump-log`: files, without a node."""

import json
from pathlib import Path

import click
import pytest

import ottla
from ottla.cli.ottla import dump
from tests.cli.kafka_tool import kafka
from tests.cli.shown_scene import run
from tests.cli.test_interrupted import Bars
from tests.cli.tool import Tool, in_process


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a node that has stopped; its topic `flights` holds three records in two batches."""
    directory = tmp_path_factory.mktemp("data")
    with ottla.Node(directory) as node:
        node.create_topic("flights")
        for lines in (b"a:1\nb:2\n", b"c:3\n"):
            wrote = in_process(
                "produce",
                "flights",
                "-K",
                ":",
                "-z",
                "zstd",
                stdin=lines,
                OTTLA_BOOTSTRAP_SERVERS=node.bootstrap_servers,
            )
            assert wrote.code == 0, wrote.err
    return directory


def test_a_partitions_batches_are_shown(tool: Tool, data: Path) -> None:
    said = tool("dump-log", str(data / "flights-0"))
    assert [row[:3] for row in said.rows] == [["0-1", "2", "zstd"], ["2", "1", "zstd"]]
    assert [row[-1] for row in said.rows] == ["ok", "ok"]


def test_a_directory_of_many_partitions_is_told_from_that_of_one(tool: Tool, data: Path) -> None:
    said = tool("dump-log", str(data))
    assert (said.code, said.out) == (1, "")
    assert "partitions (__cluster_metadata-0, " in said.err
    assert f"name one of them: {data}/__cluster_metadata-0" in said.err


def test_a_partitions_records_are_shown(tool: Tool, data: Path) -> None:
    said = tool("dump-log", str(data / "flights-0"), "--records", "--json")
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [(each["offset"], each["key"], each["value"]) for each in found] == [
        (0, "a", "1"),
        (1, "b", "2"),
        (2, "c", "3"),
    ]
    assert tool("dump-log", str(data / "flights-0"), "-r", "-n", "1").out.count("\n") == 1


def test_the_metadata_log_is_decoded_by_its_directory(tool: Tool, data: Path) -> None:
    said = tool("dump-log", str(data / "__cluster_metadata-0"), "-r", "--json")
    values = [json.loads(line)["value"] for line in said.out.splitlines()]
    assert any('"type":"TOPIC_RECORD"' in value and '"name":"flights"' in value for value in values if value)


def test_kafkas_own_words_are_there_for_all_files(tool: Tool, data: Path) -> None:
    log = data / "flights-0" / f"{0:020}.log"
    said = tool("dump-log", "--kafka", str(log))
    assert said.out.splitlines()[1] == "Log starting offset: 0"
    assert "baseOffset: 2 lastOffset: 2 count: 1" in said.out
    assert "Dumping" in tool("dump-log", str(log.with_suffix(".timeindex"))).out


def test_damage_is_shown_up_to_and_named(tool: Tool, data: Path, tmp_path: Path) -> None:
    whole = (data / "flights-0" / f"{0:020}.log").read_bytes()
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(whole[:-1])
    cut = tool("dump-log", str(log))
    assert cut.code == 1
    assert cut.out.startswith("0-1\t")
    assert "after the last whole batch" in cut.err
    log.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    flipped = tool("dump-log", str(log))
    assert flipped.code == 1
    assert [row[-1] for row in flipped.rows] == ["ok", "WRONG"]


def test_a_file_of_another_kind_is_refused(tool: Tool, data: Path) -> None:
    said = tool("dump-log", str(data / "meta.properties"))
    assert said.code == 1
    assert "not a log file" in said.err


@pytest.mark.parametrize(
    "name", ["nowhere.log", "nowhere.index", "nowhere.timeindex", "5.checkpoint", "a-b.checkpoint"]
)
def test_a_file_whose_name_has_no_offset_is_refused(tool: Tool, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    expected = "00000000000000000005-0000000001" if name.endswith(".checkpoint") else f"{0:020}"
    why = f"{path}: the name has no offset (expected a name such as {expected}{path.suffix}; rename the file)\n"
    said = kafka("kafka-dump-log", "--files", str(path))
    assert (said.code, said.out, said.err) == (1, f"Dumping {path}\n", why)
    assert tool("dump-log", "--kafka", str(path)) == (1, f"Dumping {path}\n", f"ottla: {why}")


def test_a_directory_without_segments_and_an_empty_file_are_told(tool: Tool, data: Path, tmp_path: Path) -> None:
    said = tool("dump-log", str(tmp_path))
    why = f"{tmp_path} has no segments (expected the directory of one partition)"
    assert said == (1, "", f"ottla: {why}\n")
    log = tmp_path / f"{0:020}.log"
    log.touch()
    assert tool("dump-log", str(log)) == (0, "", "")
    code, out, err = run("ottla", ["dump-log", str(log)], "", terminal=True)
    assert (code, click.unstyle(err)) == (0, "the file is empty\n")
    assert click.unstyle(out).replace("\n", "") == f"{log}  0 B"
    # Segments are shown in their order, checkpoints among them.
    whole = (data / "flights-0" / log.name).read_bytes()
    for name in (f"{2:020}.log", f"{0:020}.log", f"{5:020}-0000000001.checkpoint"):
        (tmp_path / name).write_bytes(whole)
    assert [row[0] for row in tool("dump-log", str(tmp_path)).rows] == ["0-1", "2"] * 3


def test_a_limit_is_of_each_file_and_leaves_kafkas_headings(tool: Tool, data: Path) -> None:
    log = str(data / "flights-0" / f"{0:020}.log")
    assert [row[0] for row in tool("dump-log", log, log, "-n", "1").rows] == ["0-1", "0-1"]
    lines = tool("dump-log", "--kafka", log, "-n", "1").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"Dumping {log}", "Log starting offset", "baseOffset"]
    lines = tool("dump-log", "--kafka", log, "-r").out.splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("| ")] == [
        ["|", "offset:", str(number)] for number in range(3)
    ]


def test_a_file_whose_batches_stop_making_sense_is_shown_up_to_there(tool: Tool, data: Path, tmp_path: Path) -> None:
    whole = (data / "flights-0" / f"{0:020}.log").read_bytes()
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(whole + b"\0" * 8 + b"\xff" * 60)
    for more in ((), ("--json",), ("-r",)):
        said = tool("dump-log", str(log), *more)
        assert said.code == 1
        assert f"{len(whole):,}" in said.err or "bytes after the last whole batch" in said.err
        assert len(said.out.splitlines()) == (3 if "-r" in more else 2)


def test_a_large_file_moves_a_bar_now_and_then(
    tool: Tool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (data / "flights-0" / f"{0:020}.log").read_bytes()
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(whole * 3)
    bars = Bars(monkeypatch)
    monkeypatch.setattr(dump, "_STRIDE", len(whole))
    assert tool("dump-log", str(log)).code == 0
    assert bars.made == [(log.name, 3 * len(whole), "bytes")]
    assert bars.updates == [{"completed": at * len(whole), "count": at * len(whole)} for at in (1, 2)]
