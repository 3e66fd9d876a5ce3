"""Logs that threads create and turns of the loop delete: who waits for them, and a topic that goes in the meantime."""

from __future__ import annotations

import errno
from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.partitions.leadership import Leadership
from ottla.kernel.ids import TopicPartition

_FULL = OSError(errno.ENOSPC, "No space left on device")


class _Log:
    """A planned log; `begin` is what a thread does."""

    def __init__(self, scene: _Scene, tp: TopicPartition) -> None:
        self.scene, self.tp, self.directory, self.path = scene, tp, "/a", f"/a/{tp}"
        self.failure: OSError | None = None
        self.topic_id = scene.topics[tp.topic].topic_id

    def begin(self) -> None:
        if self.tp in self.scene.refused:
            raise _FULL

    def adopt(self) -> _Log:
        self.scene.told.append(("adopt", self.tp.partition))
        self.scene.logs[self.tp] = self
        return self

    def give_up(self) -> None:
        self.scene.told.append(("give up", self.tp.partition))


class _Scene:
    """A node of topic "t" with `count` partitions, which it leads; the test runs its threads and its loop."""

    def __init__(self, count: int) -> None:
        self.told: list[Any] = []
        self.jobs: list[tuple[Any, Any, Future[Any]]] = []
        self.turns: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self.refused: set[TopicPartition] = set()
        self.fails: OSError | None = None
        self.is_offline = False
        self.logs: dict[TopicPartition, _Log] = {}
        self.topics: dict[str, Any] = {}
        self.name("t", b"1", count)
        settings: Any = SimpleNamespace(forget=lambda name: None)
        runtime: Any = SimpleNamespace(node_id=1, image=SimpleNamespace(topics=self.topics), pool=self, loop=self)
        store: Any = SimpleNamespace(
            get=self.logs.get,
            take_out=self.logs.pop,
            rename_deleted=self._rename,
            works=lambda path: not self.is_offline,
            forget_move=lambda tp, topic_id: None,
            plan=lambda missing, topic_id, preferred, cordoned: [_Log(self, tp) for tp in missing],
        )
        log_dirs: Any = SimpleNamespace(
            preferred=lambda missing: None,
            cordoned=tuple,
            suspect=lambda path, error: self.told.append(("suspect", path, error)),
        )
        self.hosted: dict[Any, Any] = {}
        unused: Any = None
        self.leadership = Leadership(
            runtime, store, settings, unused, log_dirs, unused,
            hosted=self.hosted, partitions={}, on_led=print, on_resigned=print, on_readable=print,
        )  # fmt: skip
        self.leadership._may_create = lambda tp, topic: True  # type: ignore[method-assign]
        self.leadership._host = self._host  # type: ignore[assignment, method-assign]

    def name(self, name: str, topic_id: bytes, count: int) -> None:
        known = SimpleNamespace(replicas=(1,), leader=1, leader_epoch=0)
        self.topics[name] = SimpleNamespace(name=name, topic_id=topic_id, partitions=[known] * count)

    def _host(self, tp: TopicPartition, topic: Any, log: Any) -> None:
        self.told.append(("host", tp.partition, topic.topic_id))
        self.hosted[tp] = SimpleNamespace(leader_epoch=0, end=lambda error: self.told.append(("end", tp.partition)))

    def _rename(self, log: _Log) -> None:
        self.told.append(("delete", log.tp.partition))
        if self.fails is not None:
            raise self.fails

    def submit(self, work: Any, *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((work, given, future))
        return future

    def call_soon(self, do: Any, *given: Any) -> None:
        self.turns.append((do, given))

    call_soon_threadsafe = call_soon

    def run_threads(self) -> None:
        jobs, self.jobs = self.jobs, []
        for work, given, future in jobs:
            future.set_result(work(*given))

    def turn(self) -> None:
        """One turn of the loop: what is due now, and not what that adds."""
        for _ in range(len(self.turns)):
            do, given = self.turns.popleft()
            do(*given)

    def take(self) -> list[Any]:
        told, self.told = self.told, []
        return told

    def create(self, name: str, topic_id: bytes, count: int) -> None:
        """A topic that this node leads, with its logs."""
        self.name(name, topic_id, count)
        self.leadership.follow(name)
        self.run_threads()
        self.run()
        assert len([tp for tp in self.hosted if tp.topic == name]) == count

    def drop(self, name: str) -> None:
        self.leadership.drop(self.topics.pop(name))

    def run(self) -> None:
        while self.turns:
            do, given = self.turns.popleft()
            do(*given)

    def done(self, *topics: str) -> None:
        self.leadership.on_created(topics, lambda: self.told.append("done"))


def test_logs_are_created_in_jobs_and_hosted_a_job_in_a_turn() -> None:
    scene = _Scene(7)
    scene.leadership.follow("t")
    scene.done("t", "other")
    scene.done("other")
    assert scene.told == ["done"], "nothing is created for the other topic"
    assert [len(given[0]) for _, given, _ in scene.jobs] == [6, 1]
    scene.leadership.follow("t")
    assert len(scene.jobs) == 2, "one creation of a topic at a time"
    scene.run_threads()
    assert scene.told == ["done"]
    for turns in (1, 1):
        for _ in range(turns):
            do, given = scene.turns.popleft()
            do(*given)
    assert [each for each in scene.told if each[0] == "host"] == [("host", at, b"1") for at in range(6)]
    scene.run()
    assert scene.told[-3:] == [("adopt", 6), ("host", 6, b"1"), "done"]
    assert scene.jobs == []


@pytest.mark.parametrize("fails", [None, _FULL], ids=["", "on a disk that fails"])
@pytest.mark.parametrize("successor", [False, True], ids=["deleted", "made anew"])
def test_the_logs_of_a_topic_that_was_deleted_meanwhile_go(successor: bool, fails: OSError | None) -> None:
    """They go on a disk that fails, too, or the topic's name could not be used again until the next start."""
    scene = _Scene(2)
    scene.leadership.follow("t")
    scene.done("t")
    del scene.topics["t"]
    if successor:
        scene.name("t", b"2", 1)
        scene.leadership.follow("t")
        assert len(scene.jobs) == 1, "the successor waits for the end of the first creation"
    scene.fails = fails
    scene.run_threads()
    scene.run()
    went = [
        ("adopt", 0),
        ("adopt", 1),
        ("delete", 0),
        ("suspect", "/a", fails),
        ("delete", 1),
        ("suspect", "/a", fails),
    ]
    went = [each for each in went if fails is not None or each[0] != "suspect"]
    if not successor:
        assert scene.told == [*went, "done"]
        return
    assert scene.told == went, "whoever waits for the name waits for the successor's logs"
    scene.run_threads()
    scene.run()
    assert scene.told == [*went, ("adopt", 0), ("host", 0, b"2"), "done"]


def test_a_log_that_cannot_be_created_leaves_the_others_and_is_tried_again() -> None:
    scene = _Scene(2)
    scene.refused = {TopicPartition("t", 0)}
    scene.leadership.follow("t")
    scene.done("t")
    scene.run_threads()
    scene.run()
    assert scene.told == [("give up", 0), ("suspect", "/a", _FULL), ("adopt", 1), ("host", 1, b"1"), "done"]
    assert scene.leadership.without_log == {"t"} and scene.jobs == []
    scene.refused.clear()
    scene.leadership.retry_creation()
    assert scene.leadership.without_log == set()
    scene.run_threads()
    scene.run()
    assert scene.told[-2:] == [("adopt", 0), ("host", 0, b"1")]
    # A topic that is gone is not tried.
    scene.leadership.without_log = {"u"}
    scene.leadership.retry_creation()
    assert scene.jobs == []


def test_a_replica_that_was_moved_away_meanwhile_is_not_hosted() -> None:
    scene = _Scene(1)
    scene.leadership.follow("t")
    scene.topics["t"].partitions[0].replicas = (2,)
    scene.leadership.started()
    scene.run_threads()
    scene.run()
    # The metadata is followed once more, which drops what was created.
    assert scene.told == [("adopt", 0), ("delete", 0)] and not scene.logs


def test_partitions_that_came_meanwhile_are_created_behind_the_first() -> None:
    scene = _Scene(1)
    scene.leadership.follow("t")
    scene.name("t", b"1", 3)
    scene.run_threads()
    scene.run()
    assert [[tp.tp.partition for tp in given[0]] for _, given, _ in scene.jobs] == [[1, 2]]


# ---- deletion


def _renames(scene: _Scene) -> list[int]:
    """How many directories each turn of the loop renames, until nothing is left to do."""
    renamed = []
    while scene.turns:
        scene.take()
        scene.turn()
        renamed.append(len([each for each in scene.told if each[0] == "delete"]))
    return renamed


@pytest.mark.parametrize("topics", [{"t": 450}, {f"t-{n}": 1 for n in range(450)}], ids=["wide", "many"])
def test_a_turn_of_the_loop_renames_some_of_the_deleted_logs(topics: dict[str, int]) -> None:
    scene = _Scene(0)
    for name, count in topics.items():
        scene.create(name, name.encode(), count)
    scene.take()
    for name in topics:
        scene.drop(name)
    assert scene.told == [("end", index) for count in topics.values() for index in range(count)]
    assert not scene.hosted and not scene.logs, "nothing of the topics is used from now on"
    assert _renames(scene) == [200, 200, 50]


def test_a_topic_waits_for_the_deletion_of_an_earlier_one_of_its_name() -> None:
    scene = _Scene(0)
    scene.create("t", b"1", 201)
    scene.drop("t")
    scene.name("t", b"2", 1)
    scene.leadership.follow("t")
    scene.take()
    scene.done("t")
    scene.turn()
    assert scene.jobs == [] and "done" not in scene.told, "a directory with the new log's name may be left"
    scene.turn()
    assert len(scene.jobs) == 1
    scene.take()
    scene.run_threads()
    scene.run()
    assert scene.told == [("adopt", 0), ("host", 0, b"2"), "done"]
    scene.done("t")
    assert scene.told[-1] == "done" and not scene.turns


def test_a_replica_that_comes_back_while_its_log_is_deleted_gets_a_new_one() -> None:
    scene = _Scene(0)
    scene.create("t", b"1", 1)
    scene.leadership.started()
    known = scene.topics["t"].partitions[0]
    known.replicas = (2,)
    scene.leadership.follow("t")
    assert not scene.hosted
    known.replicas = (1, 2)
    scene.leadership.follow("t")
    assert scene.jobs == []
    scene.take()
    scene.turn()
    scene.run_threads()
    scene.run()
    assert scene.told == [("delete", 0), ("adopt", 0), ("host", 0, b"1")]


def test_a_topic_that_a_full_disk_did_not_take_is_forgotten_with_its_deletion() -> None:
    scene = _Scene(1)
    scene.refused = {TopicPartition("t", 0)}
    scene.leadership.follow("t")
    scene.run_threads()
    scene.run()
    scene.drop("t")
    assert scene.leadership.without_log == set()


def test_a_stop_finishes_the_deletions() -> None:
    scene = _Scene(0)
    scene.create("t", b"1", 201)
    scene.drop("t")
    scene.turn()
    scene.take()
    scene.leadership.finish_deletions()
    assert scene.told == [("delete", 200)]
    scene.run()
    assert scene.told == [("delete", 200)]


def test_deleted_logs_of_a_failed_directory_are_left_alone() -> None:
    scene = _Scene(0)
    scene.create("t", b"1", 2)
    scene.drop("t")
    scene.is_offline = True
    scene.take()
    scene.run()
    assert scene.told == []


def test_a_directory_that_fails_while_a_change_is_followed_takes_its_deleted_logs_along() -> None:
    """Leading a partition may flush its log, which finds that the disk has failed."""
    scene = _Scene(0)
    scene.create("t", b"1", 2)
    scene.leadership.started()
    moved, led = (SimpleNamespace(replicas=(n,), leader=n, leader_epoch=1) for n in (2, 1))
    scene.topics["t"].partitions = [moved, led]
    scene.hosted[TopicPartition("t", 1)].log = None
    scene.leadership._host = lambda *given: scene.logs.clear()  # type: ignore[method-assign]
    scene.leadership.follow("t")
    scene.take()
    scene.done("t")
    scene.run()
    assert scene.told == ["done"]
