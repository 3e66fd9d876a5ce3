"""The driver's side: starts, watches and stops a Spark job whose tasks are workers.

A job that fails after its workers have made progress (an executor was lost too often) is submitted again.
"""

from __future__ import annotations

import copyreg
import logging
import struct
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.client.admin.client import Admin
from ottla.flow.engine import Settings
from ottla.flow.error import StreamsError
from ottla.flow.handler import ErrorResponse, State
from ottla.flow.setting import guarantee, purge_interval_ms, replication_factor
from ottla.flow.topology import Topology
from ottla.kernel.error import KafkaError, OttlaError
from ottla.spark import driver
from ottla.spark.streams import last_run
from ottla.spark.streams.alive import Heartbeat
from ottla.spark.streams.control import PATIENCE_S, Message, Workers
from ottla.spark.streams.handle import Handle, OnError, OnStateChange
from ottla.spark.streams.http import HttpServer, HttpSources, parse
from ottla.spark.streams.layout import Program, check_internal, check_outputs, create_topics, lay_out
from ottla.spark.streams.metric import prometheus
from ottla.spark.streams.place import driver_address, ship, slots_of
from ottla.spark.streams.query import QUERYABLE, NotReadable, StoreView
from ottla.spark.streams.setting import warn_unserved

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Seconds until a warning about workers that Spark has not started.
WAITING_S = 30
#: Seconds that a query waits for the workers.
ANSWER_S = 30
#: Seconds that `stop` waits for the workers before it cancels the Spark job.
STOP_S = 30
# Serdes hold compiled structs, and programs are sent to the workers by cloudpickle.
copyreg.pickle(struct.Struct, lambda compiled: (struct.Struct, (compiled.format,)))


class Running(Handle):
    """A running program, made by `Application.start`."""

    def __init__(
        self,
        spark: SparkSession,
        program: Program,
        slots: int,
        on_state_change: Sequence[OnStateChange] = (),
        on_error: OnError | None = None,
        http: int | str | None = None,
    ) -> None:
        super().__init__(program, slots, on_state_change, on_error)
        self._spark = spark
        self._open: set[int] = set()
        self._warned: set[str] = set()
        self._given_up: str | None = None
        self._progressed = False
        host, bind = driver_address(spark)
        self._workers = Workers(host, self._on_message, bind)
        sources = HttpSources(self.metrics, self.about, self.stores, self.store)
        self.http = None if http is None else HttpServer(http, sources)
        self._heartbeat = Heartbeat(program.connection(), program.application_id, self._heartbeat_fields)
        self._run_on_thread(self._run)

    def stop(self) -> None:
        """Finish the open transactions, end the program, and wait until all workers have ended. A listener may call
        `stop`; it then does not wait.

        The Spark job is cancelled if no worker has started (no core was free), or if workers need more than `STOP_S`.
        """
        self._set_state(State.PENDING_SHUTDOWN)
        started = self._workers.connected
        self._workers.stop()
        if self._caller == threading.get_ident():
            return
        if started and not self._over.wait(STOP_S):
            application = self.program.application_id
            log.warning("the workers of %s need more than %d s to end: they are cancelled", application, STOP_S)
        while not self._over.is_set():
            self._spark.interruptTag(self.program.run)
            self._over.wait(1)

    def pause(self) -> None:
        """Stop processing until `resume`. Tasks stay open."""
        self._workers.pause(True)

    def resume(self) -> None:
        """Continue processing after `pause`."""
        self._workers.pause(False)

    def _run(self) -> None:
        program, slots, address, secret = self.program, self.slots, self._workers.address, self._workers.secret

        def body(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            # Only workers need Arrow; importing it (and pandas) is most of the driver's CPU time at a start.
            from ottla.spark.streams.worker import work

            for batch in batches:
                for slot in batch.column(0).to_pylist():
                    work(program, slot, slots, address, secret)
                yield batch.slice(0, 0)

        self._set_state(State.REBALANCING)
        waiting = threading.Timer(WAITING_S, self._warn_missing_workers)
        waiting.daemon = True
        waiting.start()
        self._spark.addTag(self.program.run)
        try:
            again = True
            while again:
                again = self._submit(body)
        finally:
            waiting.cancel()
            self._workers.close()
            self._set_state(State.NOT_RUNNING if self.error is None else State.ERROR)
            self._heartbeat.close()
            if self.http is not None:
                self.http.close()

    def store(self, name: str, max_behind: int | None = None) -> StoreView:
        """A read-only view of a store over all tasks. OttlaError if there is no queryable store with this name."""
        if name not in self.stores():
            there = ", ".join(self.stores()) or "none"
            raise OttlaError(
                f"application {self.program.application_id} has no store {name} to query (queryable: {there})"
            )
        topology, defaults = self.program.topology, self.program.settings.defaults
        view = StoreView(topology.stores[name], defaults, self._ask, is_global=name in topology.global_stores)
        view.max_behind = max_behind
        return view

    def stores(self) -> list[str]:
        """The names of the queryable stores."""
        return sorted(name for name, spec in self.program.topology.stores.items() if spec.kind in QUERYABLE)

    def metrics(self) -> str:
        """The metrics of the tasks in Prometheus' text format."""
        return prometheus(self.program.application_id, self.state.value, dict(self.tasks))

    def about(self) -> dict[str, Any]:
        """The state of the program and the last report of each task."""
        about = {"application": self.program.application_id, "guarantee": self.program.guarantee}
        return {**about, "state": self.state.value, "workers": self.slots, "tasks": dict(sorted(self.tasks.items()))}

    def _ask(self, question: Message) -> dict[int, Message]:
        if self.state is not State.RUNNING:
            application = self.program.application_id
            raise NotReadable(f"application {application} is {self.state.value}, not RUNNING; try again")
        answers = self._workers.ask(question, ANSWER_S)
        if len(answers) < self.slots:
            raise NotReadable(f"{self.slots - len(answers)} of {self.slots} workers are starting; try again")
        return answers

    def _heartbeat_fields(self) -> dict[str, Any]:
        http = None if self.http is None else self.http.address
        return {"state": self.state.value, "workers": self.slots, "http": http}

    def _submit(self, body: Callable[[Iterator[Any]], Iterator[Any]]) -> bool:
        """Run the job to its end. True if it must be submitted again."""
        self._progressed = False
        try:
            self._spark.range(0, self.slots, 1, self.slots).mapInArrow(body, "id long").collect()
            return False
        except Exception as error:
            if self.error is not None or self.state is State.PENDING_SHUTDOWN:
                return False
            if self._progressed:
                log.warning("the Spark job of %s failed and starts again: %s", self.program.application_id, error)
                time.sleep(1)
                return True
            self.error = OttlaError(f"the Spark job of {self.program.application_id} failed: {error}")
            if self._given_up is not None:
                self.error = OttlaError(
                    f"application {self.program.application_id} made no progress for {PATIENCE_S} s and has ended: "
                    f"{self._given_up}; check that the brokers are reachable and have disk space, then start it again: "
                    "it continues from its last commit"
                )
            self.error.__cause__ = error
            return False

    def _on_message(self, slot: int, message: Message) -> None:
        if message.get("kind") == "fenced" and not self._is_replaced():
            # The transaction timed out, or an earlier worker of this run that is cut off has opened the task again.
            message = {"trouble": message["error"], "over": False}
            self._workers.reopen(slot)
        with self._lock:
            if "tasks" in message:
                self._progressed |= message["progressed"]
                self.tasks |= message["tasks"]
                self._warn_dropped(message["tasks"].values())
            if "open" in message:
                self._open.add(slot)
                if len(self._open) == self.slots:
                    self._set_state(State.RUNNING)
            if message.get("opening") or message.get("gone"):
                self._open.discard(slot)
                self._set_state(State.REBALANCING)
            if "trouble" in message:
                self._on_trouble(message["trouble"], over=message["over"])
            if "error" in message:
                self._on_worker_error(slot, message)

    def _is_replaced(self) -> bool:
        """Whether another run has taken over. False if the brokers cannot tell: workers check it after opening."""
        try:
            with Admin(self.program.connection()) as admin:
                last_run.check_run(admin, self.program)
        except last_run.Replaced:
            return True
        except (KafkaError, OttlaError) as error:
            log.debug("cannot read the plan of %s: %s", self.program.application_id, error)
        return False

    def _warn_dropped(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Warn once about each step that drops records."""
        for name in {name for task in tasks for name in task.get("dropped_at", ())} - self._warned:
            self._warned.add(name)
            processor = self.program.topology.processors.get(name)
            log.warning(
                "%s drops records at %s%s, because their key or value is null or they are late; use filter or "
                "select_key before it, or a longer grace period (metric: ottla_streams_records_dropped_total)",
                *(self.program.application_id, name, f" ({processor.where})" if processor else ""),
            )

    def _on_trouble(self, text: str, *, over: bool) -> None:
        """Handle a worker's temporary error. `over`: it has lasted so long that the worker gives up."""
        application = self.program.application_id
        if over:
            self._given_up = text
        elif text not in self._warned:
            self._warned.add(text)
            log.warning("%s reopens its tasks from the last commit, after %s", application, text)

    def _on_worker_error(self, slot: int, message: Message) -> None:
        if self.error is not None:
            return
        text = message["error"]
        if message["kind"] == "fenced":
            text = f"another instance of application {self.program.application_id} has taken over: {text}"
        error = StreamsError(text)
        error.add_note(message["traceback"])
        response = self._respond(error) if message["kind"] == "failed" else None
        if response is ErrorResponse.REPLACE_THREAD:
            self._workers.reopen(slot)
            return
        self.error = error
        self._set_state(State.PENDING_ERROR)
        self._workers.stop()

    def _warn_missing_workers(self) -> None:
        running = len(self._workers.connected)
        if running < self.slots and self.state is State.REBALANCING:
            log.warning(
                "only %d of %d workers of %s are running, because no cores are free for the others; free some cores, "
                "or start with workers=%d",
                *(running, self.slots, self.program.application_id, max(running, 1)),
            )


def start(
    topology: Topology,
    settings: Settings,
    bootstrap_servers: str,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    spark_settings: Mapping[str, str] | None = None,
    py_files: Sequence[str] = (),
    workers: int | None = None,
    client: Mapping[str, Any] | None = None,
    on_state_change: Sequence[OnStateChange] = (),
    on_error: OnError | None = None,
    accept_changes: bool = False,
    http: int | str | None = None,
) -> Running:
    """Start a program on Spark. `Application.start` in ottla.streams describes the arguments."""
    for name in spark_settings or ():
        if name.startswith("spark.sql.streaming.realTimeMode"):
            raise OttlaError(f"unsupported setting {name}: for Spark's real-time mode, pass real_time=True instead")
    if http is not None:
        parse(http)
    program = prepare(topology, settings, bootstrap_servers, dict(client or {}), accept_changes=accept_changes)
    spark = spark or driver.session(settings.application_id, master=master, settings=spark_settings)
    ship(spark, topology, py_files)
    slots = max(1, min(workers or slots_of(spark, len(program.tasks)), len(program.tasks)))
    return Running(spark, program, slots, on_state_change, on_error, http)


def prepare(
    topology: Topology,
    settings: Settings,
    bootstrap_servers: str,
    client: dict[str, Any],
    *,
    accept_changes: bool,
    serves: Container[str] = (),
) -> Program:
    """Check the program against the cluster and the application's last run, and create its topics. `serves`: settings
    of Kafka Streams that have an effect here only now.

    Fences the tasks of the last run that this one does not fence itself before it reads their partitions.
    """
    guarantee(settings.configs)
    purge_interval_ms(settings.configs)
    replicas = replication_factor(settings.configs)
    warn_unserved({name: value for name, value in settings.configs.items() if name not in serves})
    reach = {"bootstrap.servers": bootstrap_servers, **client}
    with Admin(reach) as admin:
        layout = lay_out(admin, topology, settings)
        program = Program(
            topology, settings, bootstrap_servers, client, layout.tasks(), layout.globals_(), last_run.new_run()
        )
        new, (old, _) = last_run.of_program(program), last_run.read(admin, reach, settings.application_id)
        last_run.check(old, new, accept_changes=accept_changes)
        check_internal(admin, layout, ran=old is not None)
        if old is not None and not accept_changes:
            last_run.check_topics(old, new, layout.sizes, layout.ids)
        check_outputs(layout, settings, reach)
        # Topics before the plan: a topic of the plan that is missing at the next start has been deleted.
        create_topics(admin, layout)
        ids = {topic.name: layout.ids[topic.name] for topic in layout.internal_topics() if topic.name in layout.ids}
        last_run.write(admin, reach, replace(new, topics=ids), replicas)
        # The plan before fencing: a worker of the last run that opens its tasks again after this reads it and ends.
        if old is not None:
            admin.fence_producers(last_run.to_fence(old, new)).check()
    return program
