"""Application: a checked program with its plan and its topology, made by `StreamsBuilder.build`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.flow.check import checked
from ottla.flow.engine import Settings
from ottla.flow.handler import ErrorResponse, Handlers, State
from ottla.flow.lanes import lanes
from ottla.flow.plan import Plan
from ottla.flow.serde import Serde
from ottla.flow.topology import Topology
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.spark.streams.query import StoreView
    from ottla.spark.streams.real_time import RealTime
    from ottla.spark.streams.running import Running


#: True while a tool imports a program's file to find its application; `start` then refuses to run.
reading: ContextVar[bool] = ContextVar("reading", default=False)


@checked
class Application:
    """A program that is ready to run (Kafka Streams: KafkaStreams).

    `plan` is the logical plan, `topology` the executable one, `settings` those of its tasks.
    """

    def __init__(
        self,
        application_id: str,
        plan: Plan,
        topology: Topology,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        handlers: Handlers | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.application_id = application_id
        self._running: Running | RealTime | None = None
        self._state_listeners: list[Callable[[State, State], None]] = []
        self._error_handler: Callable[[BaseException], ErrorResponse | None] | None = None
        self.plan = plan
        self._lanes = lanes(plan, key_serde, value_serde)
        self.topology = topology
        self.settings = Settings(
            application_id, key_serde, value_serde, handlers or Handlers(), configs=dict(config or {})
        )

    def describe(self) -> str:
        """The topology as text, equal to that of Kafka Streams' `Topology.describe()`."""
        return self.topology.describe()

    def explain(self) -> str:
        """The plan as text: each step with its schema, partitioning, times, lane, and line in the program."""
        return self.plan.explain(self._lanes)

    def start(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        master: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        spark: Any = None,
        py_files: Sequence[str] = (),
        workers: int | None = None,
        client: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
        http: int | str | None = None,
        real_time: bool = False,
    ) -> Running | RealTime:
        """Start the program on Spark, exactly once by default, and return without waiting for its end.

        `master`: where Spark runs: `local[N]` (this machine, the default), `spark://HOST:PORT`, `yarn`, `k8s://...`,
        or `sc://HOST:PORT` for Spark Connect. `spark_settings`: Spark's settings by its names. `spark`: a SparkSession
        in place of both. `py_files`: files that the workers need, besides the modules beside the program.
        `workers`: how many Spark tasks share the program's tasks, by default the session's cores; all of them must be
        able to run at the same time. `client`: settings of the Kafka clients by Kafka's names (security, timeouts).
        `accept_changes`: start even if the new plan loses state of the last run. `http`: a port, or HOST:PORT, for an
        HTTP server with store queries and Prometheus metrics; the host defaults to 127.0.0.1. `real_time`: use Spark's
        real-time mode, for stateless programs of column expressions: at least once, with the least latency.

        TopologyError if a source topic is missing or topics are not co-partitioned. OttlaError if an internal topic
        or the state of an earlier run does not fit, no Spark answers at `master`, or the program is already running.
        """
        if reading.get():
            raise OttlaError(
                f"application {self.application_id} must not start while its file is imported; move the call below "
                'if __name__ == "__main__":'
            )
        if workers is not None and workers < 1:
            raise OttlaError(f"invalid number of workers: {workers} (expected at least 1)")
        if spark is not None and (master or spark_settings):
            raise OttlaError(
                "spark= cannot be combined with master= or spark_settings=: pass a running session, or these"
            )
        if self._running is not None and not self._running.await_termination(0):
            raise OttlaError(f"application {self.application_id} is already running; call stop() first")
        self._running = self._starter(real_time)(
            self.topology,
            self.settings,
            bootstrap_servers,
            master=master,
            spark_settings=spark_settings,
            spark=spark,
            py_files=py_files,
            workers=workers,
            client=client,
            on_state_change=self._state_listeners,
            on_error=self._error_handler,
            accept_changes=accept_changes,
            http=http,
        )
        return self._running

    @property
    def state(self) -> State:
        """The state of the program: CREATED before the first start (Kafka Streams: KafkaStreams.state)."""
        return State.CREATED if self._running is None else self._running.state

    def on_state_change(self, listener: Callable[[State, State], None]) -> None:
        """Call `listener(new, old)` on each state change of later starts (Kafka Streams: setStateListener)."""
        self._state_listeners.append(listener)

    def on_error(self, handler: Callable[[BaseException], ErrorResponse | None]) -> None:
        """Call `handler(error)` when a worker fails (Kafka Streams: setUncaughtExceptionHandler).

        The handler returns ErrorResponse.REPLACE_THREAD to reopen the worker's tasks from the last commit; any other
        result ends the program. A takeover by another instance always ends it. Set the handler before `start`.
        """
        self._error_handler = handler

    def store(self, name: str, max_behind: int | None = None) -> StoreView:
        """A read-only view of a state store of the running program (Kafka Streams: KafkaStreams.store).

        With `max_behind`, a read raises NotReadable while more input records than that wait to be processed.
        OttlaError if the program has no such store or was not started.
        """
        if max_behind is not None and max_behind < 0:
            raise OttlaError(f"invalid max_behind: {max_behind} (expected 0 or more)")
        return self._started().store(name, max_behind)

    @property
    def http(self) -> str | None:
        """HOST:PORT of the running program's HTTP server, or None."""
        server = self._started().http
        return None if server is None else server.address

    def metrics(self) -> str:
        """The metrics of the tasks in Prometheus' text format."""
        return self._started().metrics()

    def pause(self) -> None:
        """Stop processing until `resume`. Tasks stay open and the state stays RUNNING."""
        self._started().pause()

    def resume(self) -> None:
        """Continue processing after `pause`."""
        self._started().resume()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the program ends, and raise the error that ended it. False if `timeout` seconds pass first."""
        return self._started().await_termination(timeout)

    def stop(self) -> None:
        """Finish the open transactions, end the program, and wait until all workers have ended."""
        self._started().stop()

    def run(self, bootstrap_servers: str = "127.0.0.1:9092", **options: Any) -> None:
        """Call `start` and wait until the program fails or is interrupted (Ctrl-C); then stop it in order."""
        self.start(bootstrap_servers, **options)
        try:
            self.await_termination()
        finally:
            self.stop()

    def _starter(self, real_time: bool) -> Callable[..., Running | RealTime]:
        if real_time:
            from ottla.spark.streams import real_time as mode

            return partial(mode.start, self.plan)
        from ottla.spark.streams.running import start

        return start

    def _started(self) -> Running | RealTime:
        if self._running is None:
            raise OttlaError(f"application {self.application_id} was not started; call start() or run() first")
        return self._running
