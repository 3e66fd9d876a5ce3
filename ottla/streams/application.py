"""What `StreamsBuilder.build` gives: a checked program with its plan and its topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.flow.engine import Settings
from ottla.flow.handler import Handlers
from ottla.flow.plan import Plan
from ottla.flow.serde import Serde
from ottla.flow.topology import Topology
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.spark.streams.running import Running


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
        self.plan = plan
        self.topology = topology
        self.settings = Settings(
            application_id, key_serde, value_serde, handlers or Handlers(), configs=dict(config or {})
        )

    def describe(self) -> str:
        """The topology in the words of Kafka Streams' `Topology.describe()`."""
        return self.topology.describe()

    def explain(self) -> str:
        """The plan: each step with its schema, partitioning and times, and the line that made it."""
        return self.plan.explain()

    def start(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        spark: Any = None,
        workers: int | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> Running:
        """Run on Spark, exactly once, and return at once. `await_termination` raises what ends the program.

        `spark`: the SparkSession, by default `ottla.spark.session()`. `workers`: how many Spark tasks share the
        program's tasks, by default the session's cores; all of them must be able to run at the same time. `client`:
        settings of the Kafka clients by Kafka's names (security, timeouts).

        TopologyError if a source topic is missing or topics are not co-partitioned; OttlaError if an internal topic
        does not fit, or the program runs already.
        """
        from ottla.spark.streams.running import start

        if self._running is not None and not self._running.await_termination(0):
            raise OttlaError(f"application {self.application_id} runs already: call stop() first")
        self._running = start(
            self.topology, self.settings, bootstrap_servers, spark=spark, workers=workers, client=client
        )
        return self._running

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
