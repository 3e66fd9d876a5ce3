"""The operations that the clients of a world record have the shape that Jepsen's kafka checker needs."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ottla.kernel.named import NamedTuple
from ottla.sim.checker import Broken
from tests.world.__main__ import main
from tests.world.cluster import ClusterHistory
from tests.world.replicated import run_replicated
from tests.world.ten_minutes import Counts, TenMinutesHistory

_LINE = re.compile(r"\{:index (\d+), :time (\d+), :type :(\w+), :process (\d+|:nemesis), :f :(\w+), :value (.*)\}")
_SENT = re.compile(r"\[:send \d+ (?:\[\d+ )?(\d+)\]")
_POLLED = re.compile(r"\[\d+ (\d+)\]")
_ONE_SEED = "HISTORY is that of one seed: give SEEDS=1 FIRST=n, without RESUME"


class _Operation(NamedTuple):
    at: int
    time: int
    type: str
    process: str
    f: str
    value: str


def _operations(file: Path) -> list[_Operation]:
    found = []
    for line in file.read_text().splitlines():
        match = _LINE.fullmatch(line)
        assert match, line
        index, time, kind, process, what, value = match.groups()
        found.append(_Operation(int(index), int(time), kind, process, what, value))
    return found


def test_operations_of_a_world_are_a_history_of_jepsens_kafka_workload(tmp_path: Path) -> None:
    ClusterHistory(1, power=True).run_recorded(tmp_path / "file.edn")
    operations = _operations(tmp_path / "file.edn")
    assert [each.at for each in operations] == list(range(len(operations)))
    assert [each.time for each in operations] == sorted(each.time for each in operations)
    processes: dict[str, list[_Operation]] = defaultdict(list)
    assert {each.type for each in operations if each.process == ":nemesis"} == {"info"}
    operations = [each for each in operations if each.process != ":nemesis"]
    for each in operations:
        processes[each.process].append(each)
    for mine in processes.values():
        # Each invocation has its completion, and a process ends with the first that is not :ok.
        assert [each.type for each in mine[::2]] == ["invoke"] * (len(mine) // 2)
        assert all(each.type == "ok" for each in mine[1:-1:2])
        assert mine[-1].type in ("ok", "info")
        assert all(begun.f == done.f for begun, done in zip(mine[::2], mine[1::2], strict=True))
        # A consumer is one process from its subscription on.
        assert "poll" not in {each.f for each in mine} or mine[0].f in ("subscribe", "assign")
    # A poll whose commit got no answer is of unknown outcome, and its records were read.
    assert any(each.type == "info" and each.f == "poll" and _POLLED.search(each.value) for each in operations)
    completed = [each for each in operations if each.type != "invoke"]
    sent = [value for each in completed if each.f == "send" for value in _SENT.findall(each.value)]
    assert len(sent) == len(set(sent)), "values are not unique"
    polled = {value for each in completed if each.f == "poll" for value in _POLLED.findall(each.value)}
    assert polled and polled <= set(sent)


def test_ten_minutes_have_their_faults_and_a_last_read_among_the_operations(tmp_path: Path) -> None:
    history = TenMinutesHistory(1, Counts(acknowledged=50, faults=4, kinds=4, leader_changes=0, quorum_elections=0))
    history.faults_ms = 1_000
    history.run_recorded(tmp_path / "file.edn")
    operations = _operations(tmp_path / "file.edn")
    faults = [each.f for each in operations if each.process == ":nemesis"]
    assert sorted(faults) == sorted(
        kind.replace(" ", "") for kind, count in history.faults.items() for _ in range(count)
    )
    last = operations[-4:]
    assert [f"{each.type} {each.f}" for each in last] == ["invoke assign", "ok assign", "invoke poll", "ok poll"]
    assert len(_POLLED.findall(last[-1].value)) >= history.acknowledged


def test_the_operations_of_a_broken_promise_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise Broken("a record is lost")

    monkeypatch.setattr("tests.world.cluster.check", broken)
    monkeypatch.setattr("tests.world.history._FAULTS_MS", 1_000)
    with pytest.raises(Broken):
        run_replicated(2, tmp_path / "file.edn")
    assert {each.f for each in _operations(tmp_path / "file.edn")} >= {"send", "poll"}


def _main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["tests.world", *arguments])
    return main()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--profile eos --seeds 1", "PROFILE=eos has no HISTORY (expected replicated or ten-minutes)"),
        ("--profile replicated --seeds 2", _ONE_SEED),
        (
            "--profile replicated --seeds 1 --resume",
            _ONE_SEED,
        ),
    ],
)
def test_operations_that_cannot_be_written_are_refused_in_a_line(
    arguments: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, *arguments.split(), "--history", str(tmp_path / "file.edn")) == 2
    assert capsys.readouterr() == ("", f"world: {why}\n")
    assert not [*tmp_path.iterdir()]
