"""A program in Spark's real-time mode: one long-running query from topics to topics, without Python.

`real_time_plan.py` makes the query's SQL. Spark processes each record when it arrives, and takes stock every
`commit.interval.ms`: then the positions of what has been written are committed for the application's group.

Rules:
- Each start goes on at the group's offsets; the query's own checkpoint is temporary. So records since the last commit
  are processed again, and none is lost (at least once).
- Each source partition occupies a task slot of the session until the query ends.
- A query that fails is started again if it has made progress, except after a record that cannot be processed.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.client.admin.client import Admin
from ottla.client.membership.commit import CommittedOffset
from ottla.flow.engine import Settings
from ottla.flow.error import StreamsError
from ottla.flow.handler import ErrorResponse, State
from ottla.flow.plan import Plan
from ottla.flow.setting import guarantee
from ottla.flow.topology import Topology
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.spark import driver
from ottla.spark.streams import last_run
from ottla.spark.streams.alive import Heartbeat
from ottla.spark.streams.handle import Handle, OnError, OnStateChange
from ottla.spark.streams.layout import Program
from ottla.spark.streams.place import is_connect, slots_of
from ottla.spark.streams.real_time_plan import Projection, project
from ottla.spark.streams.running import prepare
from ottla.spark.streams.start_offset import initial_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

#: Kafka Streams' default for at least once, and Spark's minimum.
COMMIT, COMMIT_MS, COMMIT_MIN_MS = "commit.interval.ms", 30_000, 5_000
#: Seconds between looks at whether another run has taken over.
CHECK_S = 5
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?) SQLSTATE: P0001", re.DOTALL)
#: Settings of our clients that Java's, which Spark uses, do not have.
_NOT_JAVAS = re.compile(r"sasl\.(username|password)$|ssl\.(ca|certificate|key)\.location$|ssl\.context$")


class RealTime(Handle):
    """A program that runs in real-time mode, made by `Application.start`."""

    #: There is no HTTP server.
    http = None

    def __init__(
        self,
        spark: SparkSession,
        program: Program,
        projection: Projection,
        on_state_change: Sequence[OnStateChange] = (),
        on_error: OnError | None = None,
    ) -> None:
        super().__init__(program, len(_sources(program)), on_state_change, on_error)
        # A session of its own: the user's settings may change the meaning of SQL.
        self._spark = spark.newSession()
        self._projection = projection
        self._query: StreamingQuery | None = None
        self._heartbeat = Heartbeat(program.connection(), program.application_id, self._heartbeat_fields)
        self._run_on_thread(self._run)

    def stop(self) -> None:
        """End the program. Records since the last commit will be processed again at the next start."""
        self._set_state(State.PENDING_SHUTDOWN)
        while not self._over.is_set():
            if self._query is not None:
                self._query.stop()
            if self._caller == threading.get_ident():
                return
            self._over.wait(1)

    def pause(self) -> NoReturn:
        """Not in real-time mode."""
        raise OttlaError("a program in real-time mode cannot pause; stop it, or run it without real_time")

    resume = pause

    def store(self, name: str, max_behind: int | None = None) -> NoReturn:
        """Not in real-time mode."""
        raise OttlaError(f"there is no store {name}: a program in real-time mode has no state")

    def metrics(self) -> NoReturn:
        """Not in real-time mode."""
        raise OttlaError("a program in real-time mode has no metrics of its own; its group's lag shows its progress")

    def _run(self) -> None:
        self._set_state(State.REBALANCING)
        try:
            while self._run_query():
                self._set_state(State.REBALANCING)
                time.sleep(1)
        except Exception as error:
            self._fail(error)
        finally:
            self._set_state(State.NOT_RUNNING if self.error is None else State.ERROR)
            self._heartbeat.close()

    def _run_query(self) -> bool:
        """Run the query to its end. True if it must be started again."""
        from ottla.spark.progress import commit_for

        checkpoint = tempfile.mkdtemp(prefix="ottla-real-time-")
        try:
            self._query = query = self._started(checkpoint)
            commits = commit_for(self._spark, query, self.program.application_id, self.program.connection())
            try:
                if self._ending:
                    query.stop()
                self._set_state(State.RUNNING)
                while not query.awaitTermination(CHECK_S):
                    self._check_run(query)
                return False
            except Exception as error:
                return self._goes_on(error, progressed=bool(commits.committed))
            finally:
                if query.lastProgress is not None:
                    commits.commit(query.lastProgress)
                commits.close()
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _started(self, checkpoint: str) -> StreamingQuery:
        program = self.program
        places: dict[str, dict[str, int]] = {}
        for place, offset in start_offsets(program).items():
            places.setdefault(place.topic, {})[str(place.partition)] = offset
        java = {f"kafka.{name}": str(setting) for name, setting in program.connection().items()}
        source = {
            **java,
            "assign": json.dumps({topic: sorted(map(int, offsets)) for topic, offsets in places.items()}),
            "startingOffsets": json.dumps(places),
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
        }
        frame = projected(self._spark.readStream.format("kafka").options(**source).load(), self._projection)
        interval = commit_interval_ms(program.settings.configs)
        writer = frame.writeStream.format("kafka").options(**java, checkpointLocation=checkpoint)
        # PySpark's type hints lack realTime.
        query: StreamingQuery = (
            writer.outputMode("update").trigger(realTime=f"{interval} milliseconds").start()  # type: ignore[call-overload]
        )
        return query

    def _check_run(self, query: StreamingQuery) -> None:
        """End the query if another run has taken over."""
        try:
            with Admin(self.program.connection()) as admin:
                last_run.check_run(admin, self.program)
        except last_run.Replaced as replaced:
            application = self.program.application_id
            self._fail(StreamsError(f"another instance of application {application} has taken over: {replaced}"))
            query.stop()
        except (KafkaError, OttlaError) as error:
            log.debug("cannot read the plan of %s: %s", self.program.application_id, error)

    def _goes_on(self, error: Exception, *, progressed: bool) -> bool:
        """Whether to start the query again after an error."""
        if self._ending:
            return False
        application = self.program.application_id
        raised = _RAISED.search(str(error))
        if raised is None and progressed:
            log.warning("the query of %s failed and starts again: %s", application, _first_line(error))
            return True
        told: OttlaError = (
            StreamsError(raised[1])
            if raised
            else OttlaError(f"the query of {application} failed: {_first_line(error)}")
        )
        told.__cause__ = error
        if raised and self._respond(told) is ErrorResponse.REPLACE_THREAD:
            return True
        self._fail(told)
        return False

    @property
    def _ending(self) -> bool:
        return self.state in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._set_state(State.PENDING_ERROR)

    def _heartbeat_fields(self) -> dict[str, Any]:
        return {"state": self.state.value, "workers": self.slots, "http": None}


def projected(source: DataFrame, projection: Projection) -> DataFrame:
    """The records to write, from those of Spark's Kafka source."""
    for name, sql in projection.columns:
        source = source.selectExpr("*", f"{sql} AS {name}")
    outputs = f"filter(array({', '.join(projection.outputs)}), each -> each IS NOT NULL)"
    value = "IF(output.error IS NULL, output.value, CAST(raise_error(output.error) AS BINARY)) AS value"
    each = source.selectExpr("headers", f"explode({outputs}) AS output")
    return each.selectExpr("output.topic", "output.key", value, "headers")


def start_offsets(program: Program) -> dict[TopicPartition, int]:
    """Where each source partition starts. Commits the offsets that are new, so that a program that fails before its
    first commit starts there again.
    """
    sources, group = _sources(program), program.application_id
    with Admin(program.connection()) as admin:
        # Spark's consumer does not compare leader epochs, so an offset beyond the end is gone.
        known = {
            place: CommittedOffset(one.offset) for place, one in admin.list_group_offsets(group, stable=True).items()
        }
        new = initial_offsets(admin, sources, known, time.time_ns() // 1_000_000)
        if new:
            admin.alter_group_offsets(group, new).check()
    return {place: new[place] if place in new else known[place].offset for place in sources}


def commit_interval_ms(configs: Mapping[str, Any]) -> int:
    """The value of `commit.interval.ms`. OttlaError if it is invalid."""
    given = configs.get(COMMIT, COMMIT_MS)
    if not str(given).isdecimal() or int(given) < COMMIT_MIN_MS:
        raise OttlaError(f"invalid value for {COMMIT}: {given} (real-time mode expects {COMMIT_MIN_MS} or more)")
    return int(given)


def start(
    plan: Plan,
    topology: Topology,
    settings: Settings,
    bootstrap_servers: str,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    spark_settings: Mapping[str, str] | None = None,
    client: Mapping[str, Any] | None = None,
    on_state_change: Sequence[OnStateChange] = (),
    on_error: OnError | None = None,
    accept_changes: bool = False,
    **unused: Any,
) -> RealTime:
    """Start a program in real-time mode. `Application.start` describes the arguments. TopologyError names the first
    step that it cannot run.
    """
    _check_arguments(settings, client or {}, master, spark, unused)
    projection = project(plan, topology, settings)
    program = prepare(
        *(topology, settings, bootstrap_servers, dict(client or {})), accept_changes=accept_changes, serves=(COMMIT,)
    )
    needed = len(_sources(program))
    if master is not None and master.startswith("local"):
        _check_slots(driver.cores_of(master), needed)
    spark = spark or driver.session(
        settings.application_id, cores=max(needed, driver.cores_of(None)), master=master, settings=spark_settings
    )
    running = str(spark.sparkContext.master)
    # A session may have other defaults than its threads.
    slots = driver.cores_of(running) if running.startswith("local[") else slots_of(spark, needed)
    _check_slots(slots, needed)
    return RealTime(spark, program, projection, on_state_change, on_error)


def _check_arguments(
    settings: Settings,
    client: Mapping[str, Any],
    master: str | None,
    spark: SparkSession | None,
    unused: Mapping[str, Any],
) -> None:
    if given := next((name for name, argument in unused.items() if argument), None):
        raise OttlaError(f"{given} does not apply in real-time mode, which has no Python workers; leave it out")
    if guarantee(settings.configs) != "at_least_once":
        raise OttlaError(
            'real-time mode processes records at least once; pass config={"processing.guarantee": "at_least_once"} to '
            "build(), or leave out real_time"
        )
    commit_interval_ms(settings.configs)
    if name := next(filter(_NOT_JAVAS.match, client), None):
        raise OttlaError(
            f"client setting {name} is not known to Java's clients, which real-time mode uses; pass Java's"
        )
    if (master or "").startswith("sc://") or (spark is not None and is_connect(spark)):
        raise OttlaError("real-time mode does not run through Spark Connect; pass another master")


def _check_slots(slots: int, needed: int) -> None:
    if slots < needed:
        raise OttlaError(
            f"real-time mode needs a task slot for each of the {needed} source partitions, but there are {slots}; "
            f'start with master="local[{needed}]" or a larger cluster'
        )


def _sources(program: Program) -> dict[TopicPartition, str]:
    """The source partitions, each with its offset reset."""
    return {place: reset for task in program.tasks for place, reset in task.sources.items()}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
