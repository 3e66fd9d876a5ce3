"""Programs without a JVM: a session whose Spark tasks are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import pyarrow as pa

from ottla.spark.streams.running import Running, prepare
from ottla.streams import Application

ATTEMPTS = 4
Body = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Session:
    """Runs each Spark task up to `ATTEMPTS` times, as a master of local[N,4]. `cores=False`: no task ever starts."""

    def __init__(self, *, cores: bool = True) -> None:
        self.conf = self
        self.failures: list[BaseException] = []
        self._cores = cores
        self._slots = 0
        self._body: Body | None = None
        self._tags = threading.local()
        self._interrupted = threading.Event()

    def get(self, name: str, default: str | None) -> str | None:
        return default

    def addTag(self, tag: str) -> None:
        self._tags.tag = tag

    def interruptTag(self, tag: str) -> None:
        self._interrupted.set()

    def range(self, start: int, end: int, step: int, partitions: int) -> Self:
        self._slots = end
        return self

    def mapInArrow(self, body: Body, schema: str) -> Self:
        self._body = body
        return self

    def collect(self) -> None:
        assert self._tags.tag
        if not self._cores:
            self._interrupted.wait()
            raise RuntimeError("the job was cancelled")
        tasks = [threading.Thread(target=self._attempt, args=(slot,), daemon=True) for slot in range(self._slots)]
        failed = len(self.failures)
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        if len(self.failures) - failed >= ATTEMPTS:
            raise RuntimeError("a task failed too often")

    def _attempt(self, slot: int) -> None:
        assert self._body is not None
        for _ in range(ATTEMPTS):
            try:
                list(self._body(iter([pa.record_batch([pa.array([slot])], ["id"])])))
                return
            except BaseException as error:
                self.failures.append(error)


def start(app: Application, servers: str, session: Session | None = None, slots: int = 1, **options: Any) -> Running:
    """Start a program with this many workers."""
    program = prepare(app.topology, app.settings, servers, {}, accept_changes=False)
    return Running(cast(Any, session or Session()), program, slots, **options)
