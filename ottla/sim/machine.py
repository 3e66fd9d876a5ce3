"""A simulated machine: a disk, a clock and a loop, with an unmodified node on them.

    machine = Machine(Random(seed), {"log.flush.interval.messages": "1"})
    machine.start()
    connection = machine.connect(on_reply, on_lost)
    machine.run(lambda: done)
    machine.power_off()

Rules:
- One seed gives one history: the loop, the threads, the disk and the node draw from the same random generator.
- `kill` is SIGKILL: the page cache stays. `power_off` may lose unsynced data. `stop` is SIGTERM.
- After any of them, `start` starts the next process on the remaining data.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, cast

from ottla.broker.coordinators.topic_spec import new_topic
from ottla.broker.metadata.format import format_directories
from ottla.broker.node import BrokerNode, Ports
from ottla.broker.partitions.clean_worker import Cleaned
from ottla.controller.controller import NEWEST
from ottla.kernel.error import KafkaError
from ottla.kernel.ports import Disk
from ottla.log.cleaning.job import Cleaning, Job
from ottla.settings.server.settings import ServerSettings
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import SimLoop, SimPool
from ottla.sim.net import SimConnection, new_listener

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_TURNS_MAX = 1_000_000
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Machine:
    """A machine with one node. `settings` override those of a standalone node.

    With `release` it is formatted as by that release, for a static quorum (`controller.quorum.voters`).
    """

    def __init__(self, rng: Random, settings: Mapping[str, str] | None = None, release: str | None = None) -> None:
        self.rng = rng
        self.disk = SimDisk(rng)
        self.clock = SimClock()
        self.settings = ServerSettings.parse(_SETTINGS | dict(settings or {}))
        self.loop = SimLoop(self.clock, rng)
        self.node: BrokerNode | None = None
        #: Why the node shut itself down; None if it did not.
        self.failure: str | None = None
        for directory in self.settings.log_dirs:
            self.disk.make_directory(directory)
        self.disk.sync_directory("/")
        format_directories(
            self.disk,
            self.settings,
            _CLUSTER_ID,
            clock=self.clock,
            rng=rng,
            standalone=release is None,
            release_version=release,
        )

    def start(self) -> None:
        """Start a new process. Exceptions of the disk propagate; the process is dead then."""
        assert self.node is None, "one node at a time"
        self.failure = None
        loop = self.loop = SimLoop(self.clock, self.rng)
        ports = Ports(self.disk, self.clock, self.rng, lambda *_: SimPool(loop), new_listener, loop.time, SimWorker)
        node = BrokerNode(self.settings, cast(asyncio.AbstractEventLoop, loop), ports)
        node.on_failure = self._fail
        node.open()
        self.node = node

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why

    def connect(self, on_reply: Callable[[bytes], None], on_lost: Callable[[], None]) -> SimConnection:
        """Open a client's connection to the node."""
        if self.node is None:
            raise ConnectionRefusedError
        listener: Any = self.node.listeners[0]
        connection: SimConnection = listener.connect(on_reply, on_lost)
        return connection

    def ask(self, request: Any, version: int = NEWEST) -> Any:
        """Send a request to the controller and run until it answers. Raises the KafkaError that it answers with."""
        assert self.node is not None, "no node runs"
        answers: list[Any] = []
        self.node.quorum.ask(request, answers.append, version)
        self.run(lambda: bool(answers))
        assert answers, f"no answer: {self.failure}"
        if isinstance(answers[0], KafkaError):
            raise answers[0]
        return answers[0]

    def create_topic(self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic and run until it is usable. Raises KafkaError as a client would see it."""
        assert self.node is not None, "no node runs"
        answers: list[dict[str, KafkaError]] = []
        self.node.create_topics([new_topic(name, partitions, configs)], answers.append)
        self.run(lambda: bool(answers))
        assert answers, f"no answer: {self.failure}"
        for error in answers[0].values():
            raise error

    def run(self, done: Callable[[], bool]) -> None:
        """Run until `done`, or the node shuts itself down."""
        for _ in range(_TURNS_MAX):
            if done() or self.failure is not None:
                return
            if not self.loop.turn():
                return
        raise AssertionError(f"nothing comes to an end: {_TURNS_MAX} turns")

    def settle(self) -> None:
        """Run everything that needs no time to pass."""
        self.run(lambda: not self.loop.busy)

    def stop(self) -> None:
        """SIGTERM: shut the node down cleanly."""
        assert self.node is not None, "no node runs"
        node, self.node = self.node, None
        node.close()

    def kill(self) -> None:
        """SIGKILL: end the process; its writes stay in the page cache."""
        self.node = None
        self.disk.kill()

    def power_off(self) -> None:
        """Fail the power: unsynced writes are lost, kept or torn."""
        self.node = None
        self.disk.crash()


class SimWorker:
    """A compaction beside the loop: each step runs atomically, at a moment that the seed chooses."""

    def __init__(self, loop: Any, disk: Disk) -> None:
        self._loop: SimLoop = loop
        self._disk = disk
        self._stopped = False

    def start(self, job: Job, bytes_per_second: float, before: Callable[[], None], listener: Cleaned) -> None:
        # The real worker is a process and gets the job as JSON; do the same here.
        self._job = Job.of_json(job._asdict())
        self._listener = listener
        self._cleaning = Cleaning(self._disk, self._job, lambda _: None)
        self._groups = self._cleaning.run()
        self._beside(before)

    def answer(self, in_place: bool) -> None:
        if in_place:
            self._beside(lambda: self._disk.sync_directory(self._job.directory))
        else:
            self._tell(self._listener.on_end, {})

    def stop(self) -> None:
        self._stopped = True

    def _beside(self, first: Callable[[], None]) -> None:
        def step() -> None:
            if not self._stopped:
                self._step(first)

        self._loop.beside(step)

    def _step(self, first: Callable[[], None]) -> None:
        cleaning = self._cleaning
        try:
            first()
            bases = next(self._groups, None)
        except (KafkaError, OSError) as error:
            self._tell(self._listener.on_end, {"error": str(error), "corrupt": isinstance(error, KafkaError)})
            return
        if bases is None:
            numbers = {"read": cleaning.bytes_read, "written": cleaning.bytes_written}
            self._tell(self._listener.on_end, {"end_offset": cleaning.end_offset, **numbers})
        else:
            self._tell(self._listener.on_ready, bases)

    def _tell(self, what: Callable[[Any], None], value: Any) -> None:
        self._loop.call_soon(lambda: None if self._stopped else what(value))
