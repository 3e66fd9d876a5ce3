"""`ottla cluster health` and `ottla top`."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.operations.health import DEGRADED, FAILING, DirectoryState, PartitionState, judge
from ottla.operations.rates import ClusterSample, group_rows, topic_rows
from tests.cli.tool import CTRL_C, Tool, on_terminal

_DISK = DirectoryState(1, "/data", None, 50, 100)


@pytest.mark.parametrize(
    ("partitions", "directories", "leader", "found"),
    [
        ([PartitionState("t-0", 1, 1, 1)], [_DISK], 1, []),
        ([PartitionState("t-0", None, 1, 0)], [_DISK], 1, [(FAILING, "1 partition without a leader: t-0")]),
        (
            [PartitionState("t-0", 1, 3, 2, 2)],
            [_DISK],
            1,
            [(DEGRADED, "1 partition with replicas that are behind: t-0")],
        ),
        ([PartitionState("t-0", 1, 3, 1, 2)], [_DISK], None, [(FAILING, "fewer replicas in sync than min.insync")]),
        ([], [_DISK], -1, [(FAILING, "no leader")]),
        ([], [DirectoryState(1, "/d", "KAFKA_STORAGE_ERROR", -1, -1)], 1, [(FAILING, "/d of node 1 is offline")]),
        ([], [DirectoryState(1, "/d", None, 5, 100)], 1, [(DEGRADED, "/d of node 1 has 5.0 % free")]),
        ([], [DirectoryState(1, "/d", None, 1, 100)], 1, [(FAILING, "1.0 % free")]),
        (
            [PartitionState(f"t-{n}", None, 1, 0) for n in range(5)] + [PartitionState("u-0", 1, 2, 1)],
            [],
            1,
            [(FAILING, "5 partitions without a leader: t-0, t-1, t-2 and 2 more"), (DEGRADED, "u-0")],
        ),
    ],
)
def test_a_verdict_has_its_reasons(
    partitions: Sequence[PartitionState],
    directories: Sequence[DirectoryState],
    leader: int | None,
    found: list[tuple[int, str]],
) -> None:
    reasons = judge(partitions, directories, quorum_leader=leader, voters_silent={}, nodes_silent={})
    assert [each.level for each in reasons] == [level for level, _ in found]
    assert all(text in each.what for each, (_, text) in zip(reasons, found, strict=True))


def test_a_node_says_whether_it_is_well_and_the_exit_code_too(tool: Tool, topic: str, tmp_path: Path) -> None:
    said = tool("cluster", "health", "--json")
    free = shutil.disk_usage(tmp_path)
    assert said.code in ((0,) if free.free / free.total > 0.1 else (1, 2))
    assert said.json["partitions"] >= 2
    gone = tool("cluster", "health", "-b", "127.0.0.1:1")
    assert (gone.code, gone.out.splitlines()[0]) == (2, "failing")
    assert "nothing listens there" in gone.out


def test_rates_come_from_two_looks() -> None:
    before = ClusterSample(10.0, {("t", 0): 5, ("t", 1): 5, ("u", 0): 9}, {}, {"t": 100}, {"g": ("Stable", 1, 50)})
    now = ClusterSample(
        12.0, {("t", 0): 25, ("t", 1): 6, ("new", 0): 3}, {("t", 0): 2}, {"t": 300}, {"g": ("Stable", 1, 10)}
    )
    rows = {row["topic"]: row for row in topic_rows(before, now)}
    assert rows["t"]["records_per_s"] == 10.5
    assert rows["t"]["bytes_per_s"] == 100
    assert (rows["t"]["hottest_partition"], rows["t"]["records"]) == (0, 29)
    assert (rows["new"]["records_per_s"], "u" in rows) == (None, False)
    assert group_rows(before, now) == [{"group": "g", "state": "Stable", "members": 1, "lag": 10, "lag_per_s": -20}]
    assert group_rows(None, now)[0]["lag_per_s"] is None


def test_top_shows_rates_once_in_json_and_live_on_a_terminal(tool: Tool, bootstrap: str, topic: str) -> None:
    once = tool("top", "--once", "--json", "--interval", "0.1")
    assert once.code == 0
    assert topic in {row["topic"] for row in once.json["topics"]}
    live = on_terminal(
        "top", "--interval", "0.1", typed=[("Ctrl-C to stop", CTRL_C)], OTTLA_BOOTSTRAP_SERVERS=bootstrap, NO_COLOR="1"
    )
    assert live.code == 0
    assert "records/s" in live.out
    assert "Traceback" not in live.out
