"""How a cleaning ends: with a result that counts, with one that does not, or before it began."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.partitions import cleaner
from ottla.broker.partitions.clean_worker import ProcessWorker
from ottla.broker.partitions.log_dirs import LogDirs
from ottla.kernel.ids import TopicPartition
from ottla.log.cleaning import offset_map

_TP = TopicPartition("t", 0)


class _Log:
    """A log that is due for cleaning; `recovery_point` says whether it is flushed."""

    def __init__(self, *, flushed: bool = True) -> None:
        self.tp, self.log, self.path, self.closed, self.generation = _TP, self, "/a/t-0", False, 4
        self.settings = SimpleNamespace(cleanup_policy={"compact"})
        self.recovery_point, self.active = (9 if flushed else 8), SimpleNamespace(base_offset=9)
        self.being_cleaned = False
        self.cleaner_offset: int | None = None


class _Scene:
    """A cleaner of one log; the test ends its flushes and its processes."""

    def __init__(self, log: _Log, monkeypatch: pytest.MonkeyPatch, *, dedupe: int = 1 << 20, threads: int = 2) -> None:
        self.log = log
        self.told: list[Any] = []
        self.flushes: list[Any] = []
        self.runs: list[Any] = []
        self.cannot_discard: OSError | None = None
        self.cannot_start: Exception | None = None
        settings = SimpleNamespace(
            log_cleaner_threads=threads,
            log_cleaner_backoff_ms=15_000,
            log_cleaner_io_max_bytes_per_second=1000.0,
            log_cleaner_dedupe_buffer_size=dedupe,
            log_cleaner_io_buffer_size=4 << 20,
            log_cleaner_io_buffer_load_factor=0.9,
        )
        runtime: Any = SimpleNamespace(
            settings=settings,
            clock=SimpleNamespace(now_ms=lambda: 77),
            loop=self,
            pool=self,
            disk="disk",
        )
        store: Any = SimpleNamespace(
            recovery_task=lambda tp: f"recover {tp}",
            cleaner_task=lambda tp: f"write {tp}",
            future=lambda tp: None,
        )
        flusher: Any = SimpleNamespace(flush=lambda logs, done: self.flushes.append(done))
        monkeypatch.setattr(
            cleaner,
            "plan",
            SimpleNamespace(
                cleanable=lambda log, now: SimpleNamespace(ratio=0.5, first_dirty_offset=3, end_offset=8),
                is_due=lambda cleanable, log: True,
            ),
        )
        monkeypatch.setattr(cleaner, "clean_swap", SimpleNamespace(discard=self._discard))
        monkeypatch.setattr(
            cleaner,
            "job",
            SimpleNamespace(plan=lambda *given, **more: SimpleNamespace(generation=4, given=given, more=more)),
        )
        hosted: Any = {("t", 0): log}
        unused: Any = None
        worker: Any = SimpleNamespace(start=self._start)
        self.cleaner = cleaner.Cleaner(runtime, store, hosted, flusher, unused, self._retain, lambda: worker)

    def call_later(self, seconds: float, do: Any) -> Any:
        self.told.append(("again in", seconds))
        return SimpleNamespace(cancel=lambda: None)

    def _start(self, job: Any, rate: float, before: Any, run: Any) -> None:
        if self.cannot_start is not None:
            raise self.cannot_start
        self.told.append((rate, before, job.given[1:], job.more))
        self.runs.append(run)

    def _retain(self, tp: TopicPartition) -> None:
        assert not self.log.being_cleaned, "retention would wait"
        self.told.append(("retain", tp))

    def _discard(self, disk: Any, path: str) -> None:
        self.told.append(("discard", path))
        if self.cannot_discard is not None:
            raise self.cannot_discard

    def submit(self, task: str) -> Future[None]:
        self.told.append(task)
        return Future()

    def look(self) -> None:
        self.cleaner._start_due()


def test_a_log_is_cleaned_with_its_share_of_what_the_settings_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log()
    scene = _Scene(log, monkeypatch)
    scene.look()
    assert log.being_cleaned
    again, (rate, before, (first, end, now_ms), more) = scene.told
    assert (rate, before, first, end, now_ms, again) == (500.0, "recover t-0", 3, 8, 77, ("again in", 15.0))
    assert more["buffer_bytes"] == 1 << 20, "half of a thread's half"
    scene.look()
    assert len(scene.runs) == 1, "one process for a log"


def test_one_thread_has_all_of_what_the_settings_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _Scene(_Log(), monkeypatch, threads=1)
    scene.look()
    rate, _, _, more = scene.told[1]
    assert (rate, more["buffer_bytes"]) == (1000.0, 2 << 20)
    assert more["keys_max"] == offset_map.keys_of_buffer(1 << 20, 0.9)


def test_a_result_is_remembered_and_the_next_log_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log()
    scene = _Scene(log, monkeypatch)
    scene.look()
    scene.told.clear()
    scene.runs[0].on_end({"end_offset": 8, "read": 100, "written": 50})
    assert log.cleaner_offset == 8
    # Cleanings may follow one another without a pause: retention has its turn between them.
    assert scene.told[:3] == ["write t-0", ("discard", "/a/t-0"), ("retain", _TP)] and len(scene.runs) == 2


def test_a_cleaning_that_cannot_start_is_over_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log()
    scene = _Scene(log, monkeypatch, threads=1)
    scene.cannot_start = RuntimeError("can't start new thread")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        scene.look()
    assert not log.being_cleaned, "retention goes on"
    assert scene.told == [("again in", 15.0), ("discard", "/a/t-0")]
    scene.cannot_start = None
    scene.look()
    assert len(scene.runs) == 1


def test_a_bug_at_one_log_does_not_end_the_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _Scene(_Log(), monkeypatch)
    monkeypatch.setattr(cleaner, "plan", SimpleNamespace(cleanable=lambda log, now: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        scene.look()
    assert scene.told == [("again in", 15.0)]


@pytest.mark.parametrize("changed", ["closed", "generation"])
def test_a_result_about_a_log_that_was_changed_meanwhile_does_not_count(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _Log()
    scene = _Scene(log, monkeypatch)
    scene.look()
    setattr(log, changed, True if changed == "closed" else 5)
    scene.cleaner._hosted = {}
    scene.told.clear()
    scene.runs[0].on_end({"end_offset": 8, "read": 100, "written": 50})
    assert log.cleaner_offset is None and "write t-0" not in scene.told


def test_an_error_about_a_log_that_was_truncated_meanwhile_does_not_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process has read a file while it was truncated: the log may be whole."""
    log = _Log()
    scene = _Scene(log, monkeypatch, threads=1)
    scene.look()
    log.generation = 5
    scene.runs[0].on_end({"error": "no whole batch", "corrupt": True})
    assert not log.being_cleaned and not caplog.text
    scene.look()
    assert len(scene.runs) == 2, "it is cleaned like any other"


def test_an_error_about_a_log_that_was_deleted_meanwhile_is_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = _Log()
    scene = _Scene(log, monkeypatch)
    scene.look()
    log.closed = True
    scene.runs[0].on_end({"error": "no such file", "corrupt": False})
    assert not caplog.text and scene.cleaner._runs == {}


@pytest.mark.parametrize("corrupt", [False, True])
def test_a_log_that_cannot_be_cleaned_is_tried_again_unless_its_bytes_are_why(
    corrupt: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = _Log()
    scene = _Scene(log, monkeypatch)
    scene.look()
    scene.runs[0].on_end({"error": "it is broken", "corrupt": corrupt})
    assert not log.being_cleaned and len(scene.runs) == 1, "not at once"
    assert "cannot clean t-0: it is broken" in caplog.text
    scene.look()
    assert len(scene.runs) == (1 if corrupt else 2)
    log.closed = True
    scene.cleaner._hosted = {}
    scene.look()
    assert scene.cleaner._uncleanable | scene.cleaner._failed == set()


def test_a_log_is_flushed_first_and_may_be_gone_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(flushed=False)
    scene = _Scene(log, monkeypatch)
    scene.look()
    assert scene.runs == [] and log.being_cleaned
    scene.flushes[0]()
    assert len(scene.runs) == 1
    gone = _Log(flushed=False)
    scene = _Scene(gone, monkeypatch)
    scene.look()
    gone.closed = True
    scene.flushes[0]()
    assert (scene.runs, gone.being_cleaned, scene.cleaner._runs) == ([], False, {})


def test_what_a_process_left_and_cannot_be_removed_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = _Scene(_Log(), monkeypatch)
    scene.look()
    scene.cannot_discard = OSError(5, "Input/output error")
    scene.runs[0].on_end({"error": "it is broken", "corrupt": False})
    assert "cannot clean t-0: [Errno 5] Input/output error" in caplog.text and scene.cleaner._runs == {}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("bad"), None])
def test_a_worker_whose_first_step_fails_says_so_and_starts_no_process(error: Exception | None) -> None:
    told: list[Any] = []
    worker = ProcessWorker(SimpleNamespace(call_soon_threadsafe=lambda do: do()), Any)  # type: ignore[arg-type]
    worker._run_job = lambda job, rate, listener: {"end_offset": job}  # type: ignore[assignment, method-assign]

    def before() -> None:
        if error is not None:
            raise error

    worker._run(8, 5.0, before, SimpleNamespace(on_end=told.append))  # type: ignore[arg-type]
    assert told == [{"error": str(error), "corrupt": False} if error else {"end_offset": 8}]


def test_a_worker_that_was_stopped_starts_no_process_and_tells_nothing() -> None:
    told: list[Any] = []
    unused: Any = None
    worker = ProcessWorker(SimpleNamespace(call_soon_threadsafe=lambda do: do()), unused)  # type: ignore[arg-type]
    worker.stop()
    worker._run(unused, 5.0, lambda: None, SimpleNamespace(on_end=told.append))
    assert (told, worker._process) == ([], None)


@pytest.mark.parametrize("how", ["closed", "no move", "another move", "no replica"])
def test_a_move_whose_replica_has_gone_is_dropped_and_one_that_is_over_left_alone(how: str) -> None:
    dropped: list[TopicPartition] = []
    future: Any = object()
    move = {"no move": None, "another move": (object(), "/b")}.get(how, (future, "/b"))
    node: Any = SimpleNamespace(
        _runtime=SimpleNamespace(closed=how == "closed"),
        _store=SimpleNamespace(future=lambda tp: move),
        _cancel=dropped.append,
        _leadership=lambda: SimpleNamespace(hosted={}),
    )
    LogDirs._copy(node, _TP, future)
    assert dropped == ([_TP] if how == "no replica" else [])
