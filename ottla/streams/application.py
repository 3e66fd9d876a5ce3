"""What `StreamsBuilder.build` gives: a checked program with its plan and its topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ottla.flow.engine import Settings
from ottla.flow.handler import ErrorResponse, Handlers, State
from ottla.flow.lanes import lanes
from ottla.flow.plan import Plan
from ottla.flow.serde import Serde
from ottla.flow.topology import Topology
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.spark.streams.query import StoreView
    from ottla.spark.streams.running import Running


#: True while a tool reads the file of a program to find its application: nothing may start then.
reading: ContextVar[bool] = ContextVar("reading", default=False)


class Application:
    """`plan` is what the program says, `topology` what is executed, `settings` what its tasks are told."""

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
        self._running: Running | None = None
        self._state_listeners: list[Callable[[State, State], None]] = []
        self._error_handler: Callable[[BaseException], ErrorResponse | None] | None = None
        self.plan = plan
        self._lanes = lanes(plan, key_serde, value_serde)
        self.topology = topology
        self.settings = Settings(
            application_id, key_serde, value_serde, handlers or Handlers(), configs=dict(config or {})
        )

    def describe(self) -> str:
        """The topology in the words of Kafka Streams' `Topology.describe()`."""
        return self.topology.describe()

    def explain(self) -> str:
        """The plan: each step with its schema, partitioning, times and lane, and the line that made it."""
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
    ) -> Running:
        """Run on Spark, exactly once, and return at once. `await_termination` raises what ends the program.

        `master`: where Spark runs it: `local[N]` (this machine, the default), `spark://HOST:PORT`, `yarn`, `k8s://...`,
        or `sc://HOST:PORT` for Spark Connect. `spark_settings`: Spark's settings by its names. `spark`: a SparkSession
        instead of both. `py_files`: files that the workers need besides the modules that lie beside the program.
        `workers`: how many Spark tasks share the program's tasks, by default the session's cores; all of them must be
        able to run at the same time. `client`: settings of the Kafka clients by Kafka's names (security, timeouts).
        `accept_changes`: start also if state of what the application last ran is lost. `http`: a port, or HOST:PORT,
        that answers queries of stores and serves metrics to Prometheus; without a host it is 127.0.0.1.

        TopologyError if a source topic is missing or topics are not co-partitioned; OttlaError if an internal topic
        or the state of an earlier run does not fit, there is no Spark at `master`, or the program runs already.
        """
        from ottla.spark.streams.running import start

        if reading.get():
            raise OttlaError(
                f"application {self.application_id} is started while its file is read: put that line below "
                'if __name__ == "__main__":'
            )
        if self._running is not None and not self._running.await_termination(0):
            raise OttlaError(f"application {self.application_id} runs already: call stop() first")
        self._running = start(
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
        """CREATED before the start (Kafka Streams: KafkaStreams.state)."""
        return State.CREATED if self._running is None else self._running.state

    def on_state_change(self, listener: Callable[[State, State], None]) -> None:
        """Call `listener(new, old)` at each change of the state of what is started after this."""
        self._state_listeners.append(listener)

    def on_error(self, handler: Callable[[BaseException], ErrorResponse | None]) -> None:
        """Call `handler(error)` when a worker fails (Kafka Streams: setUncaughtExceptionHandler).

        It answers ErrorResponse.REPLACE_THREAD to open the worker's tasks again from what was committed; any other
        answer ends the program. Another instance that has taken over always ends it.
        """
        self._error_handler = handler

    def store(self, name: str) -> StoreView:
        """A store of the running program to read from (Kafka Streams: KafkaStreams.store): get, range, all, fetch."""
        return self._started().store(name)

    @property
    def http(self) -> str | None:
        """HOST:PORT of the running program's HTTP server; None without one."""
        server = self._started().http
        return None if server is None else server.address

    def metrics(self) -> str:
        """What the tasks measure, in Prometheus' text format."""
        return self._started().metrics()

    def pause(self) -> None:
        """Process nothing until `resume`; the tasks stay open and the state stays RUNNING."""
        self._started().pause()

    def resume(self) -> None:
        self._started().resume()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end; raises what ended the program. False if it still runs after `timeout` seconds."""
        return self._started().await_termination(timeout)

    def stop(self) -> None:
        """End the program after the transactions that are open now, and wait for that."""
        self._started().stop()

    def run(self, bootstrap_servers: str = "127.0.0.1:9092", **options: Any) -> None:
        """`start`, then wait until the program fails or is interrupted (Ctrl-C), which stops it in order."""
        self.start(bootstrap_servers, **options)
        try:
            self.await_termination()
        finally:
            self.stop()

    def _started(self) -> Running:
        if self._running is None:
            raise OttlaError(f"application {self.application_id} was not started: call start() or run()")
        return self._running
