"""The loop inside a Spark task: a worker runs its slot's share of the stream tasks until the driver stops it.

Rules:
- One consumer reads the partitions of all tasks of the slot, committed records only.
- A task with several partitions runs when each of them has a queued record or is read to its end, as in Kafka Streams.
- The slot ends on an error of the program (StreamsError), when it is fenced, and when a source was truncated below what
  a task has read (LogTruncation: the task's state contains lost records). After any other error it reopens its tasks
  from the last commit, for at most `PATIENCE_S` without progress.
- The worker reads the application's plan beside its sources and ends when another run has written it (decision 0627).
  It reads the plan once more after opening its tasks: it then sees any run written before; a run written later fences
  these tasks when it opens its own.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ottla.client.admin.client import Admin
from ottla.client.consumer.sync import Consumer
from ottla.client.membership.commit import CommittedOffset
from ottla.flow.engine import GlobalTask, Task
from ottla.flow.error import StreamsError, TopologyError
from ottla.flow.vector.columns import Batch, objects
from ottla.kernel.client_error import Fenced, LogTruncation
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams import last_run
from ottla.spark.streams.control import PATIENCE_S, DriverLine, Message
from ottla.spark.streams.error_log import with_log
from ottla.spark.streams.last_run import Replaced
from ottla.spark.streams.layout import Program
from ottla.spark.streams.purge import Purge
from ottla.spark.streams.query import QUERYABLE, answer
from ottla.spark.streams.restore import read_to
from ottla.spark.streams.start_offset import initial_offsets
from ottla.spark.streams.task import HostedTask

log = logging.getLogger(__name__)
POLL_S = 0.1
POLL_RECORDS = 20_000
#: A partition with more queued records than this is paused.
WAITING_MAX = 40_000
#: The threshold of the garbage collector: outputs are many, and live until their transaction.
COLLECT_EVERY = 200_000
REPORT_S = 1.0


def work(program: Program, slot: int, slots: int, address: tuple[str, int], secret: str) -> None:
    """Run the slot's tasks until the driver stops them. Reports errors of the program to the driver, raises others.

    OttlaError if the connection to the driver is lost, so that Spark starts the worker again.
    """
    driver = DriverLine(address, secret, slot)
    patience = time.monotonic() + PATIENCE_S
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        while not driver.stopped.is_set():
            share = TaskShare(program, slot, slots, driver)
            driver.send({"opening": True})
            try:
                with share:
                    share.run()
            except (StreamsError, TopologyError, Fenced, Replaced, LogTruncation) as error:
                kind = "fenced" if isinstance(error, Fenced) else "over" if isinstance(error, Replaced) else "failed"
                text = "".join(traceback.format_exception(error))
                driver.send({"error": str(error), "kind": kind, "traceback": text})
                driver.wait_for_reopen()
            except (KafkaError, OttlaError) as error:
                if share.progressed:
                    patience = time.monotonic() + PATIENCE_S
                over = time.monotonic() > patience
                driver.send({"trouble": f"{type(error).__name__}: {error}", "over": over})
                if over:
                    raise
                driver.stopped.wait(1)
        if driver.is_lost:
            raise OttlaError("the connection to the driver was lost; Spark starts this worker again if the driver runs")
    finally:
        gc.set_threshold(*before)
        driver.close()


class TaskShare:
    """A slot's share of the tasks. Opens the tasks on entry and closes them on exit."""

    def __init__(self, program: Program, slot: int, slots: int, driver: DriverLine) -> None:
        self._program = program
        self._plans = program.tasks[slot::slots]
        self._plan_partition = last_run.plan_partition(program)
        self._driver = driver
        self._open = contextlib.ExitStack()
        self._tasks: list[HostedTask] = []
        self._readers: dict[TopicPartition, HostedTask] = {}
        self._paused: set[TopicPartition] = set()
        self._reported = 0.0
        #: The end offsets of the sources, looked up once per report.
        self._ends: dict[TopicPartition, int] = {}
        #: Held while the state has changes that are not committed, so that queries wait.
        self._stepping = threading.Lock()
        #: Whether records were processed, or all input was.
        self.progressed = False

    def __enter__(self) -> TaskShare:
        with contextlib.ExitStack() as opened:
            settings = self._program.connection()
            admin = opened.enter_context(Admin(settings))
            self._globals = opened.enter_context(Globals(self._program)) if self._program.globals_ else None
            for plan in self._plans:
                task = HostedTask(self._program, plan, admin, self._globals.task if self._globals else None, _now())
                opened.callback(task.close, _quietly)
                self._tasks.append(task)
                self._readers |= dict.fromkeys(plan.sources, task)
            self._purge = Purge(self._program, admin, _now())
            opened.callback(self._purge.close)
            reading = self._program.connection(
                isolation_level="read_committed", auto_offset_reset="none", allow_auto_create_topics=False
            )
            self._consumer: Consumer[Any, Any] = opened.enter_context(Consumer(reading))
            self._begin(admin)
            last_run.check_run(admin, self._program)
            self._open = opened.pop_all()
        self._look_up_ends()
        self._driver.answer = self._answer
        self._driver.send({"open": [plan.id for plan in self._plans]})
        return self

    def __exit__(self, *error: object) -> None:
        self._driver.answer = None
        self._open.close()

    def run(self) -> None:
        """Process records until the driver says stop. While it pauses the worker, read only the application's plan."""
        while not self._driver.stopped.is_set():
            rests = self._driver.paused.is_set()
            self._pause_sources(every=rests)
            if self._globals is not None and not rests:
                with self._stepping:
                    self._globals.read()
            for batch in read(self._consumer, POLL_S):
                partition = TopicPartition(batch.topic, batch.partition)
                if partition == self._plan_partition:
                    self._check_run(batch)
                else:
                    self._readers[partition].add_batch(batch, _now())
            if not rests:
                self._step(self._consumer.next_offsets())
            self._report()

    def _pause_sources(self, *, every: bool) -> None:
        """Read no more of the partitions with many queued records, or of any source."""
        wanted = {
            partition
            for partition, task in self._readers.items()
            if every or task.task.queued(*partition)[0] > WAITING_MAX
        }
        if wanted != self._paused:
            self._consumer.resume(self._paused - wanted)
            self._consumer.pause(wanted - self._paused)
            self._paused = wanted

    def _run(self, task: HostedTask, positions: dict[TopicPartition, CommittedOffset]) -> None:
        due = task.task.next_wall_clock()
        is_due = due is not None and due <= _now()
        if task.idle and not is_due:
            return
        lagging = []
        if not task.idle and len(task.plan.sources) > 1:
            ends = self._consumer.end_offsets(task.plan.sources)
            lagging = [partition for partition, end in ends.items() if positions[partition].offset < end]
            if not is_due and not set(lagging).isdisjoint(task.empty()):
                return
        task.run(positions, lagging, _now())
        self.progressed = True

    def _begin(self, admin: Admin) -> None:
        """Seek to the committed offsets or each source's initial offset, and to the end of the application's plan."""
        consumer, plan = self._consumer, self._plan_partition
        consumer.assign([*self._readers, plan])
        consumer.seek(plan, consumer.end_offsets([plan])[plan])
        committed = {partition: at for task in self._tasks for partition, at in task.committed.items()}
        resets = {partition: task.plan.sources[partition] for partition, task in self._readers.items()}
        new = initial_offsets(admin, resets, committed, _now())
        for partition in self._readers:
            consumer.seek(partition, new[partition] if partition in new else committed[partition])

    def _check_run(self, batch: Batch) -> None:
        for key, value in zip(objects(batch.keys), objects(batch.values), strict=True):
            last_run.check_record(self._program, key, value)

    def _step(self, positions: dict[TopicPartition, CommittedOffset]) -> None:
        self._for_each_task(lambda task: self._run(task, positions))

    def _for_each_task(self, call: Callable[[HostedTask], None]) -> None:
        with self._stepping:
            try:
                for task in self._tasks:
                    call(task)
            except BaseException:
                self._driver.answer = None  # the task's state has changes that are not committed
                raise

    def _report(self) -> None:
        if time.monotonic() - self._reported > REPORT_S:
            self._settle()
            committed = {partition: at.offset for task in self._tasks for partition, at in task.committed.items()}
            self._purge.purge_if_due(committed, _now())
            self._look_up_ends()
            # A program without input makes no other progress.
            self.progressed |= not any(self._lag(task) for task in self._tasks)
            tasks = {task.plan.id: self._metrics_of(task) for task in self._tasks}
            self._driver.send({"tasks": tasks, "progressed": self.progressed})

    def _settle(self) -> None:
        """Commit the positions of idle tasks, which are past transaction markers, so that their lag is 0. Repeat old
        commits.
        """
        positions = self._consumer.next_offsets()
        now = _now()
        self._for_each_task(lambda task: task.settle(positions, now))

    def _metrics_of(self, hosted: HostedTask) -> dict[str, Any]:
        """A task's metrics since it was opened, by the names in metric.py."""
        task, seen = hosted.task, hosted.task.stream_time
        return {
            "processed": hosted.processed,
            "dropped": task.dropped,
            "dropped_at": dict(task.dropped_at),
            "process_s": hosted.process_s,
            "commits": hosted.committer.commits,
            "commit_s": hosted.committer.seconds,
            "lag": self._lag(hosted),
            "stream_time_s": seen / 1000 if seen >= 0 else None,
            "latency_s": hosted.latency_ms / 1000 if hosted.latency_ms is not None else None,
            "stores": {name: _size(task, name) for name in task.store_names if _is_readable(task, name)},
        }

    def _look_up_ends(self) -> None:
        self._ends = self._consumer.end_offsets([*self._readers, self._plan_partition])
        if self._globals is not None:
            self._globals.count_lag()
        self._reported = time.monotonic()

    def _lag(self, task: HostedTask) -> int:
        at = {partition: offset.offset for partition, offset in task.committed.items()}
        return sum(max(0, self._ends[partition] - at.get(partition, 0)) for partition in task.plan.sources)

    def _answer(self, question: Message) -> Message:
        """Answer a query, on the thread of the driver's connection."""
        with self._stepping:
            if self._driver.answer is None:
                return {"error": "its tasks are being opened"}
            is_global = question["store"] in self._program.topology.global_stores
            lags = {task: self._globals.lag if is_global and self._globals else self._lag(task) for task in self._tasks}
            tasks = {task.plan.id: (task.task, lag, self._reported) for task, lag in lags.items()}
            return answer(tasks, question)


def _is_readable(task: Task, name: str) -> bool:
    return task.topology.stores[name].kind in QUERYABLE


def _size(task: Task, name: str) -> int:
    """The number of entries of a store. A session store also orders its sessions by time."""
    store = task.store(name)
    return len(store.entries) // (2 if store.spec.kind == "session" else 1)


class Globals:
    """The global stores of a worker. Reads their topics from the beginning, then keeps up with them."""

    def __init__(self, program: Program) -> None:
        handlers = with_log(program.settings.handlers)
        self.task = GlobalTask(program.topology, replace(program.settings, handlers=handlers))
        settings = program.connection(isolation_level="read_committed", auto_offset_reset="none")
        self._partitions = program.globals_
        self._consumer: Consumer[Any, Any] = Consumer(settings)
        #: The number of records that the stores do not reflect, as of the last `count_lag`.
        self.lag = 0

    def __enter__(self) -> Globals:
        """Read everything that the topics have now."""
        try:
            self._consumer.assign(self._partitions)
            ends = self._consumer.end_offsets(self._partitions)
            for partition, begin in self._consumer.beginning_offsets(self._partitions).items():
                self._consumer.seek(partition, begin)
            for batch in read_to(self._consumer, ends):
                self._apply([batch])
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def read(self) -> None:
        """Apply the records that have arrived."""
        self._apply(read(self._consumer, 0))

    def count_lag(self) -> None:
        """Look up the ends of the topics."""
        ends = self._consumer.end_offsets(self._partitions)
        self.lag = sum(max(0, end - self._consumer.position(partition)) for partition, end in ends.items())

    def _apply(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.task.add_columns(batch, _now())
        for letter in self.task.run((), _now()):
            # Each worker reads the topics from the beginning and would write it again.
            log.warning("the dead letter of a global store is not written to %s: key %r", letter.topic, letter.key)
        self.task.take_changes()


def read(consumer: Consumer[Any, Any], timeout: float) -> Iterator[Batch]:
    """Poll for records and yield them one partition at a time."""
    for batch in consumer.poll_table(timeout, max_records=POLL_RECORDS).to_batches():
        if batch.num_rows:
            yield Batch.of(batch)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _quietly(call: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        call()
