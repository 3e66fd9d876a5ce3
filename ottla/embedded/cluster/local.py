"""A cluster in a directory: create, start, stop and inspect it, from one program or by separate commands.

Rules:
- `cluster.json` is written before a node is started, and node-N/process after it: the next command can continue after
  an interrupted one.
- Node directories are formatted once, by the code of `ottla storage format`: when the node is planned, or at its first
  start if that was interrupted. A node that has run is never formatted again: an empty directory forgets its votes.
- All nodes start in parallel. If one fails, those that this call started are stopped again.
- A failed `create` leaves nothing behind. `remove` deletes what `create` and `add` created, and nothing else.
- A command that creates or starts nodes waits for another one that does so in the same directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EADDRINUSE
from pathlib import Path
from random import SystemRandom

from ottla.broker.metadata.format import format_directories
from ottla.embedded.cluster.plan import HOST, ClusterPlan, PlannedNode, rack_of, voters_of
from ottla.embedded.cluster.process import NodeProcess, start, wait_until_ready
from ottla.host.clock import HostClock
from ottla.host.disk import HostDisk
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import random_uuid, uuid_text
from ottla.settings.properties import write
from ottla.settings.server.settings import ServerSettings

_FILE = "cluster.json"
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
#: How often a stopping node is looked at, and after how many looks the user is told what it waits for.
_LOOK_SECONDS = 0.25
_QUIET_LOOKS = 3
_KILL_SECONDS = 10.0
_PORT_MAX = 65_535


class LocalCluster:
    """The cluster in one directory. `create` creates a new one, `open` opens an existing one."""

    def __init__(self, directory: Path, plan: ClusterPlan) -> None:
        self.directory = directory
        self.plan = plan
        #: Called with a progress line when waiting for a node takes longer than a second.
        self.tell: Callable[[str], None] = lambda _: None

    @classmethod
    def create(
        cls,
        directory: str | Path,
        nodes: int,
        *,
        controllers: int | None = None,
        racks: Sequence[str] = (),
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> LocalCluster:
        """Plan a cluster of `nodes` in a directory and format it. `port`: that of the first node, or 0 for free ones.

        Clients' ports are `port`, `port` + 1 ..., followed by the controllers'. OttlaError if the directory holds a
        cluster or a node's directory already, or if a port is taken.
        """
        path = Path(directory).absolute()
        voters = voters_of(nodes, controllers)
        ports = _ports_from(port, nodes + voters) if port else _free_ports(nodes + voters)
        rng = SystemRandom()
        plan = ClusterPlan(uuid_text(random_uuid(rng)), settings=dict(settings or {}))
        for index in range(nodes):
            votes = index < voters
            plan.nodes.append(
                PlannedNode(
                    index + 1,
                    ports[index],
                    ports[nodes + index] if votes else 0,
                    uuid_text(random_uuid(rng)) if votes else "",
                    rack_of(racks, index),
                )
            )
        cluster = cls(path, plan)
        path.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            cluster._found()
        return cluster

    @classmethod
    def open(cls, directory: str | Path) -> LocalCluster:
        """Open the cluster in this directory. OttlaError if there is none."""
        path = Path(directory).absolute()
        try:
            document = json.loads((path / _FILE).read_text())
            return cls(path, ClusterPlan.of_document(document))
        except FileNotFoundError:
            raise OttlaError(f"there is no cluster in {path}; `ottla cluster up --nodes 3` makes one") from None
        except (ValueError, KeyError, TypeError) as error:
            raise OttlaError(f"{path / _FILE} is damaged: {error}") from error

    # ---- state

    def process(self, node_id: int) -> NodeProcess | None:
        """The process of a node, or None if it does not run."""
        self.plan.node(node_id)
        try:
            process = NodeProcess.of_text(self._process_file(node_id).read_text())
        except (OSError, ValueError):
            return None
        return process if process.runs else None

    def log(self, node_id: int) -> Path:
        """The log file of a node."""
        return self._of(node_id) / "node.log"

    def running(self) -> list[int]:
        """The ids of the running nodes."""
        return [each.node_id for each in self.plan.nodes if self.process(each.node_id) is not None]

    # ---- actions

    def start(self, nodes: Iterable[int] | None = None) -> list[int]:
        """Start the nodes (default: all) that do not run; returns their ids when they serve. OttlaError names the first
        that cannot start, with its error.
        """
        wanted = [each.node_id for each in self.plan.nodes] if nodes is None else list(nodes)
        with _alone(self.directory), ExitStack() as undo:
            wanted = [each for each in wanted if self.process(each) is None]
            until, started = time.monotonic() + _START_SECONDS, []
            for node_id in wanted:
                if not self._process_file(node_id).exists():
                    self._format(self.plan.node(node_id))
                process = self._launch(node_id)
                undo.callback(self._end, process)
                started.append((node_id, process))
            for node_id, process in started:
                try:
                    wait_until_ready(process, self._output(node_id), until, self._teller(node_id))
                except OttlaError as error:
                    raise OttlaError(f"node {node_id} cannot start: {error}") from error
            undo.pop_all()
        return wanted

    def stop(self, nodes: Iterable[int] | None = None) -> list[int]:
        """Stop nodes (default: all that run) cleanly, by SIGTERM. OttlaError names one that does not end.

        When the whole cluster stops and the controllers have lost their majority, no one can take over partitions: the
        remaining nodes get a second SIGTERM and end without controlled shutdown (Apache's would wait for minutes).
        """
        wanted = self.running() if nodes is None else list(nodes)
        all_of_them = set(wanted) >= set(self.running())
        # Brokers first, while the quorum is available.
        wanted.sort(key=lambda each: (self.plan.node(each).is_controller, each))
        stopped = []
        for brokers in (
            [each for each in wanted if not self.plan.node(each).is_controller],
            [each for each in wanted if self.plan.node(each).is_controller],
        ):
            ending = [(each, process) for each in brokers if (process := self.process(each)) is not None]
            for _, process in ending:
                process.send(signal.SIGCONT)
                process.send(signal.SIGTERM)
            for node_id, process in ending:
                if not self._ends(node_id, process, hurries=all_of_them):
                    raise OttlaError(f"node {node_id} (pid {process.pid}) did not stop within {_STOP_SECONDS:.0f} s")
                stopped.append(node_id)
        return stopped

    def _ends(self, node_id: int, process: NodeProcess, *, hurries: bool) -> bool:
        """Wait for a node that got SIGTERM. With `hurries`, it gets another one when the quorum is lost."""
        waits = True
        for look in range(round(_STOP_SECONDS / _LOOK_SECONDS)):
            if process.wait(_LOOK_SECONDS):
                return True
            if waits and hurries and not self._has_quorum():
                process.send(signal.SIGTERM)
                waits = False
            elif waits and look == _QUIET_LOOKS:
                self.tell(f"waiting for node {node_id} to hand over its partitions and stop")
        return False

    def _has_quorum(self) -> bool:
        voters = [each.node_id for each in self.plan.nodes if each.is_controller]
        return 2 * len(set(voters) & set(self.running())) > len(voters)

    def kill(self, node_id: int) -> None:
        """Kill a node (SIGKILL)."""
        process = self._running(node_id)
        process.send(signal.SIGKILL)
        if not process.wait(_KILL_SECONDS):
            raise OttlaError(f"node {node_id} (pid {process.pid}) did not end within {_KILL_SECONDS:.0f} s of SIGKILL")

    def pause(self, node_id: int) -> None:
        """Suspend a node's process (SIGSTOP); `resume` continues it."""
        self._running(node_id).send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Continue a paused node."""
        self._running(node_id).send(signal.SIGCONT)

    def restart(self, node_id: int) -> None:
        """Stop a node cleanly if it runs, and start it again."""
        self.stop([node_id])
        self.start([node_id])

    def add(self, rack: str = "", *, votes: bool = False) -> PlannedNode:
        """Plan another node and format it; `start` starts it. `votes`: also a controller, which joins the quorum."""
        port, controller_port = _free_ports(2)
        number = max(each.node_id for each in self.plan.nodes) + 1
        node = PlannedNode(number, port, controller_port if votes else 0, rack=rack)
        self.plan.nodes.append(node)
        self._save()
        self._format(node)
        return node

    def has_old_settings(self, node: PlannedNode) -> bool:
        """Whether a node's server.properties differs from the current plan."""
        return (self._of(node.node_id) / "server.properties").read_text() != self._properties(node)

    def refresh(self, node_id: int) -> None:
        """Write a node's server.properties by the current plan; it takes effect at the next start."""
        (self._of(node_id) / "server.properties").write_text(self._properties(self.plan.node(node_id)))

    def remove(self) -> None:
        """Delete the nodes with all data, and the directory if nothing else is in it. The nodes must be stopped."""
        running = self.running()
        if running:
            raise OttlaError(f"node {running[0]} is running; stop the cluster first")
        for node in self.plan.nodes:
            shutil.rmtree(self._of(node.node_id), ignore_errors=True)
        (self.directory / _FILE).unlink(missing_ok=True)
        with suppress(OSError):
            self.directory.rmdir()

    # ---- parts

    def _found(self) -> None:
        """Write and format a new cluster, or leave the directory as it was."""
        if (self.directory / _FILE).exists():
            raise OttlaError(f"{self.directory} holds a cluster already; `ottla cluster up` without --nodes starts it")
        for node in self.plan.nodes:
            if self._of(node.node_id).exists():
                raise OttlaError(f"{self._of(node.node_id)} is there already; name a new directory, or delete it")
        try:
            self._save()
            for node in self.plan.nodes:
                self._format(node)
        except BaseException:
            self.remove()
            raise

    def _of(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def _process_file(self, node_id: int) -> Path:
        """Names the process of a node; it is there from the node's first start on."""
        return self._of(node_id) / "process"

    def _teller(self, node_id: int) -> Callable[[str], None]:
        return lambda said: self.tell(f"waiting for node {node_id}" + (f": {said}" if said else ""))

    def _output(self, node_id: int) -> Path:
        return self._of(node_id) / "output"

    def _running(self, node_id: int) -> NodeProcess:
        process = self.process(node_id)
        if process is None:
            raise OttlaError(f"node {node_id} is not running; `ottla cluster restart {node_id}` starts it")
        return process

    def _launch(self, node_id: int) -> NodeProcess:
        home = self._of(node_id)
        process = start(home / "server.properties", self.log(node_id), self._output(node_id))
        self._process_file(node_id).write_text(str(process))
        return process

    def _end(self, process: NodeProcess) -> None:
        process.send(signal.SIGTERM)
        if not process.wait(_KILL_SECONDS):
            process.send(signal.SIGKILL)
            process.wait(_KILL_SECONDS)

    def _save(self) -> None:
        whole = self.directory / f"{_FILE}.new"
        whole.write_text(json.dumps(self.plan.as_document(), indent=2) + "\n")
        whole.replace(self.directory / _FILE)

    def _format(self, node: PlannedNode) -> None:
        home = self._of(node.node_id)
        home.mkdir(exist_ok=True)
        if not (home / "server.properties").exists():
            self.refresh(node.node_id)
        format_directories(
            HostDisk(),
            ServerSettings.parse(self.plan.properties(node, str(home / "data"))),
            self.plan.cluster_id,
            clock=HostClock(),
            rng=SystemRandom(),
            initial_controllers=self.plan.initial_controllers() if node.directory_id else None,
            no_initial_controllers=node.is_controller and not node.directory_id,
            ignore_formatted=True,
        )

    def _properties(self, node: PlannedNode) -> str:
        return write(self.plan.properties(node, str(self._of(node.node_id) / "data")))


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Wait until no other command is in such a block for this directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _ports_from(first: int, count: int) -> range:
    """`count` ports from `first` on. OttlaError names the first unavailable one."""
    ports = range(first, first + count)
    if ports[-1] > _PORT_MAX:
        raise OttlaError(f"{count} ports from {first} on end at {ports[-1]} (a port is at most {_PORT_MAX})")
    for port in ports:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError as error:
                why = (
                    "is taken by another process" if error.errno == EADDRINUSE else f"cannot be used: {error.strerror}"
                )
                raise OttlaError(
                    f"{HOST}:{port} {why}; the cluster needs the ports {first} to {ports[-1]}: "
                    "choose others with --port (0: any)"
                ) from error
    return ports


def _free_ports(count: int) -> list[int]:
    """Ports that are free now. If another program takes one before the node does, the node reports it."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
