"""kafka-reassign-partitions before a cluster of three brokers, with moves under way: its words, and what it asks for.

The cluster is a table of answers; nothing is sent. `tests/cli/console/reassign.txt` has what one node can show.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.cli.kafka.topics import reassignment
from ottla.client import TopicPartition
from ottla.client.admin.replica import Reassignment, Replica
from ottla.client.admin.result import (
    ClusterDescription,
    LogDirDescription,
    PartitionDescription,
    ReplicaLogDir,
    Results,
    TopicDescription,
)
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Said

NODES = {number: ClusterNode(number, f"b{number}", 9092, None) for number in (1, 2, 3)}
ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
MOVE = Reassignment((1, 2, 3), (3,), (1,))
REFUSED = KafkaError(ErrorCode.NOT_CONTROLLER, "not here")
THROTTLES = "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic t\n"


class Cluster:
    """The topic `t` of three partitions on the brokers 1 and 2, and what is asked of it."""

    def __init__(self, moving: Mapping[TopicPartition, Reassignment] | None = None, **refused: KafkaError) -> None:
        self.moving = dict(moving or {})
        self.refused = {TopicPartition("t", int(name[1:])): error for name, error in refused.items()}
        self.asked: list[dict[TopicPartition, Any]] = []
        self.directory_moves: list[dict[Replica, str]] = []
        #: Broker 1's directories with the partitions that move there.
        self.directories: dict[str, list[TopicPartition]] = {}
        self.client = mock.Mock(
            list_partition_reassignments=self._moves,
            alter_partition_reassignments=self._alter,
            alter_replica_log_dirs=self._alter_directories,
            describe_topics=self._topics,
            describe_log_dirs=self._directories,
        )
        self.client.describe_cluster.return_value = ClusterDescription("c", None, tuple(NODES.values()))

    def _moves(self, of: Any = None) -> dict[TopicPartition, Reassignment]:
        return {tp: move for tp, move in self.moving.items() if of is None or tp in of}

    def _alter(self, wanted: Mapping[TopicPartition, Any], **_: object) -> Results[TopicPartition, None]:
        self.asked.append(dict(wanted))
        return Results({tp: None for tp in wanted if tp not in self.refused}, self.refused)

    def _alter_directories(self, wanted: Mapping[Replica, str]) -> Results[Replica, None]:
        self.directory_moves.append(dict(wanted))
        return Results(dict.fromkeys(wanted), {})

    def _topics(self, names: Any) -> Results[str, TopicDescription]:
        replicas = NODES[1], NODES[2]
        parts = tuple(PartitionDescription(number, NODES[1], 0, replicas, replicas, ()) for number in range(3))
        return Results({name: TopicDescription(name, Uuid(b"\1" * 16), False, parts) for name in names}, {})

    def _directories(self, brokers: Any, _: object) -> Results[int, tuple[LogDirDescription, ...]]:
        here = tuple(ReplicaLogDir(tp, 0, 0, False) for tp in (ONE, TWO, THREE))
        first = [LogDirDescription("/a", None, here, -1, -1)] + [
            LogDirDescription(path, None, tuple(ReplicaLogDir(tp, 0, 9, True) for tp in coming), -1, -1)
            for path, coming in self.directories.items()
        ]
        return Results({broker: tuple(first if broker == 1 else first[:1]) for broker in brokers}, {})


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Said]:
    """Runs the tool with a plan: a partition's number -> its replicas, or (replicas, directories)."""

    def said(cluster: Cluster, *words: str, plan: dict[int, Any] | None = None, **files: object) -> Said:
        @contextmanager
        def opened(*_: object) -> Iterator[Any]:
            yield cluster.client

        entries = [
            {"topic": "t", "partition": number, "replicas": to[0], "log_dirs": to[1]}
            if isinstance(to, tuple)
            else {"topic": "t", "partition": number, "replicas": to}
            for number, to in (plan or {}).items()
        ]
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(files or {"version": 1, "partitions": entries}))
        file = ["--topics-to-move-json-file" if files else "--reassignment-json-file", str(path)]
        with mock.patch.object(reassignment, "admin", opened):
            return kafka(
                "kafka-reassign-partitions", "--bootstrap-server", "b:1", *words, *(file if plan or files else ())
            )

    return said


Run = Callable[..., Said]


def test_moves_are_listed_with_what_they_add_and_remove(run: Run) -> None:
    cluster = Cluster({TWO: Reassignment((1, 2), (), (2,)), ONE: MOVE, THREE: Reassignment((1, 3), (3,), ())})
    assert run(cluster, "--list").out.splitlines() == [
        "Current partition reassignments:",
        "t-0: replicas: 1,2,3. adding: 3. removing: 1.",
        "t-1: replicas: 1,2. removing: 2.",
        "t-2: replicas: 1,3. adding: 3.",
    ]


@pytest.mark.parametrize(
    ("moving", "words"),
    [
        ([ONE], "Successfully cancelled partition reassignment for: t-0"),
        ([TWO, ONE], "Successfully cancelled partition reassignments for: t-0,t-1"),
    ],
)
def test_only_what_moves_is_cancelled(run: Run, moving: list[TopicPartition], words: str) -> None:
    cluster = Cluster(dict.fromkeys(moving, MOVE))
    said = run(cluster, "--cancel", plan={1: [2, 3], 0: [2, 3], 2: [2, 3]})
    first, second = said.out.split("None of the specified partition moves are active.")
    assert (said.code, first, second) == (0, words + "\n", THROTTLES)
    assert cluster.asked == [dict.fromkeys(moving)]


@pytest.mark.parametrize(
    ("refused", "lines"),
    [
        (["t0"], ["Error cancelling partition reassignment for:", "t-0: not here"]),
        (["t1", "t0"], ["Error cancelling partition reassignments for:", "t-0: not here", "t-1: not here"]),
    ],
)
def test_a_move_that_cannot_be_cancelled_is_named(run: Run, refused: list[str], lines: list[str]) -> None:
    cluster = Cluster({ONE: MOVE, TWO: MOVE}, **dict.fromkeys(refused, REFUSED))
    said = run(cluster, "--cancel", plan={0: [2, 3], 1: [2, 3]})
    assert (said.code, said.out.splitlines()) == (1, lines)
    cluster.client.incremental_alter_configs.assert_not_called()


def test_a_cancelled_move_between_directories_goes_back(run: Run) -> None:
    cluster = Cluster()
    cluster.directories = {"/b": [ONE]}
    said = run(cluster, "--cancel", "--preserve-throttles", plan={0: ([1, 2], ["/b", "any"]), 1: ([1], ["/b"])})
    assert said.out.splitlines() == [
        "None of the specified partition reassignments are active.",
        "Successfully started moving log directory to /a for replica t-0 with broker 1 ",
    ]
    assert cluster.directory_moves == [{Replica("t", 0, 1): "/a"}]


def test_nothing_is_started_beside_other_moves_unless_that_is_said(run: Run) -> None:
    cluster = Cluster({THREE: MOVE})
    said = run(cluster, "--execute", plan={0: [2, 3]})
    assert said.code == 1
    assert said.out.startswith("Cannot execute because there is an existing partition assignment.  Use --additional")
    assert cluster.asked == []
    said = run(cluster, "--execute", "--additional", plan={0: [2, 3]})
    assert (said.code, said.out.splitlines()[-1]) == (0, "Successfully started partition reassignment for t-0")
    assert cluster.asked == [{ONE: [2, 3]}]


def test_a_plan_with_directories_moves_between_them_too(run: Run) -> None:
    cluster = Cluster()
    said = run(cluster, "--execute", plan={0: ([1, 2], ["/b", "any"]), 1: ([2, 1], ["any", "/c"])})
    assert (said.code, said.out.splitlines()[-3:]) == (
        0,
        [
            "Successfully started partition reassignments for t-0,t-1",
            "Successfully started moving log directory to /b for replica t-0 with broker 1 ",
            "Successfully started moving log directory to /c for replica t-1 with broker 1 ",
        ],
    )
    assert cluster.asked == [{ONE: [1, 2], TWO: [2, 1]}]
    assert cluster.directory_moves == [{Replica("t", 0, 1): "/b", Replica("t", 1, 1): "/c"}]


def test_moves_that_cannot_be_started_are_named(run: Run) -> None:
    said = run(Cluster(t1=REFUSED, t0=REFUSED), "--execute", plan={0: [2], 1: [3]})
    assert (said.code, said.out.splitlines()[-3:]) == (
        1,
        ["Error reassigning partition(s):", "t-0: not here", "t-1: not here"],
    )


def test_throttles_stay_while_anything_moves(run: Run) -> None:
    plan = {0: [2, 3], 1: [1, 2], 2: [3]}
    cluster = Cluster({ONE: MOVE})
    assert run(cluster, "--verify", plan=plan).out.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is still in progress.",
        "Reassignment of partition t-1 is completed.",
        "There is no active reassignment of partition t-2, but replica set is 1,2 rather than 3.",
        "",
    ]
    cluster.client.incremental_alter_configs.assert_not_called()
    assert run(Cluster(), "--verify", plan=plan).out.endswith("\n\n" + THROTTLES)


@pytest.mark.parametrize(
    ("target", "coming", "line", "over"),
    [
        ("/a", "", "Reassignment of replica t-0-1 completed successfully.", True),
        ("/b", "/b", "Reassignment of replica t-0-1 is still in progress.", False),
        ("/b", "/c", "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.", False),
        ("/b", "", "Partition t-0 on broker 1 is not being moved from log dir /a to /b.", True),
    ],
)
def test_a_move_between_directories_is_verified(run: Run, target: str, coming: str, line: str, over: bool) -> None:
    cluster = Cluster()
    cluster.directories = {coming: [ONE]} if coming else {}
    said = run(cluster, "--verify", plan={0: ([1, 2], [target, "any"])}).out
    assert said.splitlines()[2] == line
    assert said.endswith(THROTTLES) is over


def test_a_proposal_begins_at_any_broker(run: Run) -> None:
    """Otherwise the first replicas of all topics with few partitions would go to one broker."""
    random.seed(5)
    firsts = set()
    for _ in range(20):
        said = run(Cluster(), "--generate", "--broker-list", "1,2,3", topics=[{"topic": "t"}])
        proposed = json.loads(said.out.splitlines()[-1])
        firsts.add(proposed["partitions"][0]["replicas"][0])
    assert firsts == {1, 2, 3}
