"""Periodic jobs: an error ends none, every partition has its turn, and a failed disk goes offline, a full one not."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.partitions.housekeeping import Housekeeping
from ottla.kernel.ids import TopicPartition

_NEVER_MS = (1 << 63) - 1


class _Log:
    """A log as far as housekeeping knows it."""

    def __init__(self, scene: _Scene, name: str, error: OSError | None = None, **answers: bool) -> None:
        self.name, self.error, self.answers = name, error, answers
        self.settings = SimpleNamespace(producer_expiration_ms=5)
        self.producers = SimpleNamespace(expire=lambda now, after: scene.said.append(("expire", name, now, after)))
        self.path = f"/a/{name}-0"
        #: Deleted segments whose files are due, and how many segments retention deletes.
        self.pending_removals: list[object] = []
        self.old_segments = 0
        self._scene = scene

    def delete_old_segments(self, now_ms: int) -> int:
        self._scene.said.append(("retain", self.name, now_ms))
        if self.error is not None:
            raise self.error
        return self.old_segments

    def remove_deleted(self, now_ms: int, most: int) -> list[object]:
        if self.error is not None:
            raise self.error
        removed, self.pending_removals = self.pending_removals[:most], self.pending_removals[most:]
        self._scene.said.append(("unlink", self.name, len(removed)))
        return removed

    @property
    def wants_flush(self) -> bool:
        return self.answers.get("rolled", False)

    def flush_is_overdue(self, now_ms: int) -> bool:
        assert now_ms == 1000
        return self.answers.get("overdue", False)


class _Scene:
    """The parts that housekeeping uses; `said` is what it told them."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.timers: list[tuple[float, Any]] = []
        self.logs: list[_Log] = []
        #: The directories of deleted logs, and why they cannot be removed.
        self.deleted: list[str] = []
        self.removal_error: OSError | None = None
        #: What waits for a turn of the loop.
        self.turns: list[Callable[[], None]] = []
        #: The error of writing each directory's checkpoints.
        self.errors: dict[str, Exception | None] = {"/a": None}
        self.closed = False
        self.delete_delay_ms = 45_000

    @property
    def jobs(self) -> Housekeeping:
        scene = self
        settings = SimpleNamespace(
            log_retention_check_interval_ms=300_000,
            log_segment_delete_delay_ms=self.delete_delay_ms,
            producer_id_expiration_check_interval_ms=600_000,
            log_flush_offset_checkpoint_interval_ms=60_000,
            log_flush_start_offset_checkpoint_interval_ms=0,
            replica_high_watermark_checkpoint_interval_ms=5_000,
            log_flush_scheduler_interval_ms=_NEVER_MS,
        )

        def call_later(seconds: float, run: Any) -> Any:
            scene.timers.append((seconds, run))
            return SimpleNamespace(cancel=lambda: scene.said.append(("cancelled", seconds)))

        def take_deleted(now_ms: int) -> list[tuple[int, str]]:
            say("take", now_ms)
            return [(now_ms, path) for path in scene.deleted]

        def remove(due: list[tuple[int, str]]) -> list[tuple[tuple[int, str], OSError]]:
            say("remove", len(due))
            error = scene.removal_error
            return [] if error is None else [(each, error) for each in due]

        def submit(job: Any, *given: Any) -> Future[Any]:
            task: Future[Any] = Future()
            if callable(job):
                task.set_result(job(*given))
            else:
                task.set_exception(error) if (error := scene.errors[job]) else task.set_result(None)
            return task

        def call_soon(call: Any, *given: Any) -> None:
            scene.turns.append(lambda: call(*given))

        def say(*words: Any) -> None:
            scene.said.append(words)

        def changed_tasks(name: str) -> dict[str, str]:
            say(name)
            return {path: path for path in self.errors if path == "/b"}

        runtime: Any = SimpleNamespace(
            settings=settings,
            clock=SimpleNamespace(now_ms=lambda: 1000),
            closed=self.closed,
            pool=SimpleNamespace(submit=submit),
            loop=SimpleNamespace(
                call_later=call_later, call_soon=call_soon, call_soon_threadsafe=lambda call, *given: call(*given)
            ),
        )
        store: Any = SimpleNamespace(
            take_deleted=take_deleted,
            unrenamed=list,
            removals=SimpleNamespace(remove=remove, put_back=lambda left: say("put back", len(left))),
            logs=lambda: dict(enumerate(scene.logs)),
            directories=list(self.errors),
            checkpoint_tasks=lambda: list(self.errors),
            changed_tasks=changed_tasks,
        )
        hosted = {
            TopicPartition("t", number): SimpleNamespace(log=log, tp=TopicPartition("t", number))
            for number, log in enumerate(self.logs)
        }
        leadership: Any = SimpleNamespace(hosted=hosted, retry_creation=lambda: say("retry creation"))
        flusher: Any = SimpleNamespace(flush=lambda logs, done: say("flush", [log.name for log in logs]))
        log_dirs: Any = SimpleNamespace(
            check=lambda log, error: say("check", log.name, error.errno),
            suspect=lambda path, error: say("suspect", path, error.errno),
        )
        return Housekeeping(runtime, store, leadership, flusher, log_dirs)


def test_retention_goes_on_after_a_log_that_fails_and_has_its_disk_checked_last() -> None:
    scene = _Scene()
    scene.logs = [_Log(scene, "a"), _Log(scene, "b", OSError(errno.EIO, "broken")), _Log(scene, "c")]
    scene.jobs.retain()
    done = [("retain", name, 1000) for name in "abc"]
    assert scene.said == [*done, ("check", "b", errno.EIO)]


def test_retention_of_one_partition_leaves_the_others_alone_and_a_partition_that_went_is_none() -> None:
    scene = _Scene()
    scene.logs = [_Log(scene, "a"), _Log(scene, "b")]
    scene.jobs.retain_one(TopicPartition("t", 1))
    assert scene.said == [("retain", "b", 1000)]
    scene.jobs.retain_one(TopicPartition("t", 2))
    assert len(scene.said) == 1


def test_idle_producers_of_all_partitions_are_forgotten_in_steps() -> None:
    scene = _Scene()
    scene.logs = [_Log(scene, str(number)) for number in range(1200)]
    scene.jobs.expire_producers()
    assert len(scene.said) == 500
    while scene.turns:
        assert len(scene.turns) == 1
        scene.turns.pop()()
    assert scene.said == [("expire", str(number), 1000, 5) for number in range(1200)]


def test_logs_that_have_rolled_are_flushed_before_each_checkpoint() -> None:
    scene = _Scene()
    scene.logs = [_Log(scene, "a", rolled=True), _Log(scene, "b"), _Log(scene, "c", rolled=True)]
    scene.jobs.checkpoint()
    assert scene.said == [("retry creation",), ("flush", ["a", "c"])]
    scene.logs = scene.logs[1:2]
    scene.said.clear()
    scene.jobs.checkpoint()
    assert scene.said == [("retry creation",)]


def test_files_that_cannot_be_removed_are_tried_again_and_hold_up_no_others() -> None:
    scene = _Scene()
    scene.deleted, scene.removal_error = ["/a/x-0.1-delete", "/a/x-1.1-delete"], OSError(errno.EACCES, "not yours")
    scene.logs = [_Log(scene, "a", OSError(errno.EACCES, "not yours"), rolled=True), _Log(scene, "b")]
    for log in scene.logs:
        log.pending_removals = [object()]
    scene.jobs.remove_deleted()
    assert scene.said == [("take", 1000), ("remove", 2), ("put back", 2), ("unlink", "b", 1)]
    scene.turns.pop()()
    assert scene.said[-1] == ("unlink", "b", 0)


@pytest.mark.parametrize(("delay_ms", "seconds"), [(0, 1), (2000, 2), (60_000, 60), (_NEVER_MS, 60)])
def test_what_is_deleted_is_looked_at_as_often_as_the_delay_says_that_is_set_now(delay_ms: int, seconds: int) -> None:
    scene = _Scene()
    jobs = scene.jobs
    jobs.start()
    (at,) = [at for at, (after, _) in enumerate(scene.timers) if after == 45]
    jobs._runtime.settings.log_segment_delete_delay_ms = delay_ms
    scene.timers[at][1]()
    assert scene.said == [("take", 1000)]
    assert scene.timers[-1][0] == seconds


def test_deleted_segments_are_unlinked_in_steps_and_closed_elsewhere() -> None:
    scene = _Scene()
    log = _Log(scene, "a")
    log.pending_removals = segments = [object() for _ in range(120)]
    scene.logs = [log]
    scene.jobs.remove_deleted()
    while scene.turns:
        scene.turns.pop()()
    assert [each for each in scene.said if each[0] == "unlink"] == [("unlink", "a", n) for n in (50, 50, 20, 0)]
    # The list, and the call itself.
    known_by = sys.getrefcount(segments[0])
    assert known_by == 2


def test_retention_goes_in_steps_and_leaves_partitions_alone_that_end_between_them() -> None:
    scene = _Scene()
    scene.logs = [_Log(scene, str(number)) for number in range(1200)]
    scene.logs[3].old_segments = 30
    jobs = scene.jobs
    jobs.retain()
    assert len(scene.said) == 200, "a deleted segment costs more than a look"
    del jobs._leadership.hosted[TopicPartition("t", 250)]
    while scene.turns:
        assert len(scene.turns) == 1
        scene.turns.pop()()
    retained = [each[1] for each in scene.said if each[0] == "retain"]
    assert retained == [str(number) for number in range(1200) if number != 250]
    scene.closed = True
    scene.said.clear()
    scene.jobs.retain()
    scene.jobs.remove_deleted()
    assert not scene.said


@pytest.mark.parametrize(
    ("error", "closed", "said"),
    [
        (OSError(errno.EIO, "broken"), False, [("suspect", "/b", errno.EIO)]),
        (OSError(errno.EIO, "broken"), True, []),
        (ValueError("a bug"), False, []),
        (None, False, []),
    ],
)
def test_a_checkpoint_that_fails_makes_its_own_directory_suspect(
    error: Exception | None, closed: bool, said: list[Any]
) -> None:
    scene = _Scene()
    scene.errors = {"/a": None, "/b": error, "/c": None}
    scene.closed = closed
    scene.jobs.checkpoint()
    assert scene.said[1:] == said


def test_a_full_disk_is_logged_once_until_a_checkpoint_has_room(caplog: pytest.LogCaptureFixture) -> None:
    scene = _Scene()
    jobs = scene.jobs
    for error in (OSError(errno.ENOSPC, "full"), None, OSError(errno.ENOSPC, "full")):
        caplog.clear()
        scene.errors["/a"] = error
        for _ in range(3):
            jobs.checkpoint()
        wanted = ["cannot write a checkpoint in /a: [Errno 28] full; will retry"] if error else []
        assert [each.getMessage() for each in caplog.records] == wanted


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("checkpoint_high_watermarks", "replication-offset-checkpoint"),
        ("checkpoint_start_offsets", "log-start-offset-checkpoint"),
    ],
)
def test_the_offsets_of_the_directories_that_changed_are_written(job: str, name: str) -> None:
    scene = _Scene()
    # Nothing is written in /a.
    scene.errors = {"/a": OSError(errno.EIO, "broken"), "/b": OSError(errno.EIO, "broken")}
    getattr(scene.jobs, job)()
    assert scene.said == [(name,), ("suspect", "/b", errno.EIO)]


def test_only_overdue_logs_are_flushed() -> None:
    scene = _Scene()
    scene.logs = [_Log(scene, "a"), _Log(scene, "b", overdue=True)]
    scene.jobs.flush_overdue()
    scene.logs = scene.logs[:1]
    scene.jobs.flush_overdue()
    assert scene.said == [("flush", ["b"])]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), ValueError("a bug")])
def test_jobs_run_at_their_intervals_also_after_an_error_until_they_are_stopped(error: Exception) -> None:
    scene = _Scene()
    jobs = scene.jobs
    runs: list[str] = []

    def fails() -> None:
        runs.append("run")
        raise error

    jobs.retain = fails  # type: ignore[method-assign]
    jobs.start()
    # The longest interval means never, as in Apache Kafka, and so does none.
    assert [seconds for seconds, _ in scene.timers] == [300, 45, 600, 60, 5]
    # The loop logs a bug.
    with nullcontext() if isinstance(error, OSError) else pytest.raises(ValueError, match="a bug"):
        scene.timers[0][1]()
    assert (runs, [seconds for seconds, _ in scene.timers]) == (["run"], [300, 45, 600, 60, 5, 300])
    with suppress(ValueError):
        scene.timers[5][1]()
    assert len(runs) == 2
    jobs.stop()
    assert sorted(scene.said) == [("cancelled", seconds) for seconds in (5, 45, 60, 300, 600)]
