"""The driver's side: a Spark job whose tasks are workers, started, watched and stopped."""

from __future__ import annotations

import copyreg
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.flow.engine import Settings
from ottla.flow.error import StreamsError, TopologyError
from ottla.flow.topology import Topology
from ottla.kernel.error import OttlaError
from ottla.spark.driver import session
from ottla.spark.streams.control import Message, Workers
from ottla.spark.streams.layout import Program, plan
from ottla.spark.streams.worker import work

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

RESETS = ("earliest", "latest", "none")
# Serdes hold compiled structs, and programs travel to the workers by cloudpickle.
copyreg.pickle(struct.Struct, lambda one: (struct.Struct, (one.format,)))


class Running:
    """A program that runs. Made by `start`."""

    def __init__(self, spark: SparkSession, program: Program, slots: int) -> None:
        self.program = program
        self.slots = slots
        self.error: BaseException | None = None
        #: By task: records processed since its worker opened it, and how many of them were dropped.
        self.progress: dict[str, tuple[int, int]] = {}
        self._spark = spark
        self._workers = Workers(spark.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1", self._told)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"ottla-streams-{program.application_id}")
        self._thread.start()

    def stop(self) -> None:
        """End after the transactions that are open now; returns when all workers have ended."""
        self._workers.stop()
        self._thread.join()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end; raises what ended it. False if it still runs after `timeout` seconds."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self.error is not None:
            raise self.error
        return True

    def _run(self) -> None:
        program, slots, address, secret = self.program, self.slots, self._workers.address, self._workers.secret

        def body(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                for slot in batch.column(0).to_pylist():
                    work(program, slot, slots, address, secret)
                yield batch.slice(0, 0)

        try:
            self._spark.range(0, slots, 1, slots).mapInArrow(body, "id long").collect()
        except Exception as error:
            if self.error is None:
                self.error = OttlaError(f"the Spark job of {program.application_id} failed: {error}")
                self.error.__cause__ = error
        finally:
            self._workers.close()

    def _told(self, slot: int, message: Message) -> None:
        if "tasks" in message:
            self.progress |= {task: (counts[0], counts[1]) for task, counts in message["tasks"].items()}
        if "error" in message and self.error is None:
            text = message["error"]
            if message["kind"] == "fenced":
                text = f"another instance of application {self.program.application_id} has taken over: {text}"
            self.error = StreamsError(text)
            self.error.add_note(message["traceback"])
            self._workers.stop()


def start(
    topology: Topology,
    settings: Settings,
    bootstrap_servers: str,
    *,
    spark: SparkSession | None = None,
    workers: int | None = None,
    client: Mapping[str, Any] | None = None,
) -> Running:
    """Run a program on Spark. `Application.start` in ottla.streams describes the arguments."""
    for source in topology.sources.values():
        if source.reset not in (None, *RESETS):
            takes = ", ".join(RESETS)
            raise TopologyError(
                f"offset_reset {source.reset} does not run on Spark yet (expected {takes})", source.where
            )
    program = plan(topology, settings, bootstrap_servers, client or {})
    spark = spark or session(settings.application_id)
    slots = workers or spark.sparkContext.defaultParallelism
    return Running(spark, program, max(1, min(slots, len(program.tasks))))
