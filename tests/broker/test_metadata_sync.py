"""When the metadata log is synced, and what is said of it: on a thread that the test holds, or at once."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.log.durability import OutOfResources
from ottla.raft.effect import Answer, AppendNoOp, Commit, SaveElection
from ottla.raft.event import TimerExpired
from ottla.raft.role import Election

_DISK_FULL = OSError(28, "No space left on device")
_NO_DESCRIPTOR = OutOfResources(24, "Too many open files")


class _Log:
    """Its end, and what was asked of it."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.closed = False
        self.durable = 0
        self.flushes = 0
        self.failure: OSError | None = None

    def sync(self) -> None:
        raise AssertionError("the test's pool runs nothing")

    def synced(self, end_offset: int, now_ms: int) -> None:
        assert now_ms == 7
        self.durable = end_offset

    def flush(self, now_ms: int) -> None:
        assert now_ms == 7
        self.flushes += 1
        if self.failure is not None:
            raise self.failure
        self.durable = self.end_offset


class _Scene:
    """A sync with its log; `running` are the syncs on the thread, which the test ends."""

    def __init__(self, *, beside: bool = True) -> None:
        self.log = _Log()
        self.running: list[Future[None]] = []
        self.told: list[int] = []
        self.failures: list[OSError] = []
        self.retry: Any = None
        self.sync = MetadataSync(lambda: 7, self.told.append, self.failures.append)
        self.sync.log = cast(Any, self.log)
        if beside:
            self.sync.start_threads(cast(Any, self), cast(Any, SimpleNamespace(submit=self.submit)))

    def submit(self, work: object) -> Future[None]:
        """The pool runs a sync. The scene itself is the loop."""
        assert work == self.log.sync
        self.running.append(Future())
        return self.running[-1]

    def call_soon_threadsafe(self, told: Any, *arguments: object) -> None:
        told(*arguments)

    def call_later(self, seconds: float, retry: Any) -> None:
        assert seconds == 1
        self.retry = retry

    def append(self, count: int = 1) -> None:
        self.log.end_offset += count
        self.sync.want()
        self.sync.later()


def test_what_is_appended_during_a_sync_is_durable_after_the_next_one_only() -> None:
    scene = _Scene()
    scene.append(3)
    scene.append(2)
    scene.append(1)
    assert len(scene.running) == 1, "one at a time"
    scene.running[0].set_result(None)
    assert (scene.told, scene.log.durable) == ([3], 3)
    assert len(scene.running) == 2, "the rest together"
    scene.running[1].set_result(None)
    assert (scene.told, scene.log.durable, len(scene.running)) == ([3, 6], 6, 2)


def test_nothing_is_synced_of_which_nothing_was_appended() -> None:
    scene = _Scene()
    scene.sync.later()
    assert scene.running == []
    scene = _Scene(beside=False)
    scene.sync.later()
    assert scene.log.flushes == 0 and scene.told == []


def test_a_sync_that_began_before_a_cut_says_nothing_and_is_done_again() -> None:
    scene = _Scene()
    scene.append(5)
    scene.log.end_offset = 2
    scene.sync.cut()
    scene.running[0].set_result(None)
    assert (scene.told, scene.log.durable) == ([], 0)
    scene.running[1].set_result(None)
    assert (scene.told, scene.log.durable) == ([2], 2)


def test_a_sync_that_ends_after_the_log_was_closed_says_nothing() -> None:
    scene = _Scene()
    scene.append()
    scene.log.closed = True
    scene.running[0].set_result(None)
    assert (scene.told, scene.log.durable, len(scene.running)) == ([], 0, 1)


def test_a_sync_that_fails_is_told_once_and_is_the_last() -> None:
    scene = _Scene()
    scene.append()
    scene.append()
    scene.running[0].set_exception(_DISK_FULL)
    assert scene.failures == [_DISK_FULL] and scene.sync.failure is _DISK_FULL
    scene.append()
    assert (scene.told, len(scene.running)) == ([], 1)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            scene.sync.now()
    scene.sync.fail(OSError(5, "Input/output error"))
    assert scene.failures == [_DISK_FULL] and scene.sync.failure is _DISK_FULL
    assert scene.log.flushes == 0


def test_a_sync_without_descriptors_is_tried_again() -> None:
    scene = _Scene()
    scene.append(3)
    scene.running[0].set_exception(_NO_DESCRIPTOR)
    assert (scene.failures, scene.told, len(scene.running)) == ([], [], 1)
    scene.retry()
    scene.running[1].set_result(None)
    assert (scene.told, scene.log.durable, len(scene.running)) == ([3], 3, 2)


def test_who_cannot_wait_is_told_that_there_are_no_descriptors_and_may_try_again() -> None:
    scene = _Scene()
    scene.append(3)
    scene.log.failure = _NO_DESCRIPTOR
    scene.running[0].set_exception(_NO_DESCRIPTOR)
    with pytest.raises(OutOfResources):
        scene.sync.now()
    assert scene.failures == []
    scene.log.failure = None
    scene.sync.now()
    assert (scene.told, scene.failures) == ([3], [])
    scene.sync.stop_threads()
    scene.log.end_offset = 4
    scene.sync.want()
    scene.retry()
    assert scene.told == [3], "the threads have ended"


@pytest.mark.parametrize("beside", [True, False])
def test_who_cannot_wait_has_it_durable_on_return(beside: bool) -> None:
    scene = _Scene(beside=beside)
    scene.log.end_offset = 4
    scene.sync.want()
    scene.sync.now()
    assert (scene.told, scene.log.durable, scene.log.flushes) == ([4], 4, 1)
    scene.sync.now()
    assert scene.log.flushes == 1, "nothing came since"


def test_the_failure_of_a_sync_under_way_stops_one_now() -> None:
    scene = _Scene()
    told: list[tuple[Any, tuple[object, ...]]] = []
    scene.call_soon_threadsafe = lambda each, *arguments: told.append((each, arguments))  # type: ignore[method-assign]
    scene.append(4)
    scene.running[0].set_exception(_DISK_FULL)
    with pytest.raises(OSError, match="No space"):
        scene.sync.now()
    # What the loop hears afterwards changes nothing.
    for each, arguments in told:
        each(*arguments)
    assert (scene.failures, scene.log.flushes, scene.told) == ([_DISK_FULL], 0, [])


def test_a_sync_under_way_is_waited_for_and_what_it_was_about_is_synced_again_now() -> None:
    scene = _Scene()
    told: list[tuple[Any, tuple[object, ...]]] = []
    scene.call_soon_threadsafe = lambda each, *arguments: told.append((each, arguments))  # type: ignore[method-assign]
    scene.append(4)
    scene.running[0].set_result(None)
    scene.sync.now()
    assert (scene.told, scene.log.flushes) == ([4], 1)


def test_a_disk_that_fails_now_is_told_and_raised() -> None:
    scene = _Scene(beside=False)
    scene.log.failure = _DISK_FULL
    with pytest.raises(OSError, match="No space"):
        scene.append()
    assert (scene.told, scene.failures, scene.log.flushes) == ([], [_DISK_FULL], 1)


def test_when_the_threads_end_a_sync_is_waited_for() -> None:
    scene = _Scene()
    scene.sync.stop_threads()
    scene.append(2)
    assert (scene.running, scene.told, scene.log.flushes) == ([], [2], 1)


@pytest.mark.parametrize("failure", [None, _DISK_FULL])
def test_a_voter_whose_log_has_failed_hears_nothing_more(failure: OSError | None) -> None:
    """It would vote, or acknowledge what it does not have."""
    done: list[object] = []
    sync = SimpleNamespace(failure=failure, later=lambda: done.append("sync"))
    driver: Any = SimpleNamespace(sync=sync, step=done.append)
    RaftDriver.receive(driver, TimerExpired())
    assert done == ([TimerExpired(), "sync"] if failure is None else [])


@pytest.mark.parametrize(
    ("effect", "ends"), [(SaveElection(Election(2)), True), (AppendNoOp(2), True), (Answer(1, None), False)]
)
def test_a_node_ends_over_what_it_cannot_save_and_not_over_an_answer(effect: Any, ends: bool) -> None:
    """What follows an answer that cannot be read or sent is carried out: a commit, or a snapshot that is due."""
    done: list[object] = []

    def carry_out(given: object) -> None:
        if given is effect:
            raise _DISK_FULL
        done.append(given)

    sync, commit = _Scene().sync, Commit(9)
    quorum = SimpleNamespace(step=lambda event, now_ms: [effect, commit])
    clock = SimpleNamespace(monotonic_ms=lambda: 7)
    driver: Any = object.__new__(RaftDriver)
    driver.sync, driver.quorum, driver._clock = sync, quorum, clock
    driver._carry_out, driver.on_stepped = carry_out, lambda: done.append("stepped")
    RaftDriver.step(driver, TimerExpired())
    assert (sync.failure is _DISK_FULL) == ends
    assert done == ([] if ends else [commit, "stepped"])
