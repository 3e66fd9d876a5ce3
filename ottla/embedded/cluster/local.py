"""A cluster in a directory: made, started, stopped, and looked at, by a program or by one command after another.

Rules:
- `cluster.json` is written before a node is started, and node-N/process after it: a command that is cut short leaves
  what the next one can go on with.
- Directories of nodes are formatted once, by `ottla storage format`'s own means.
- All nodes start side by side. When one of them cannot, those that this call has started are stopped again.
- A cluster that cannot be made leaves nothing. `remove` deletes what `create` and `add` made, and nothing beside it.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from errno import EADDRINUSE
from pathlib import Path
from random import SystemRandom

from ottla.broker.metadata.format import format_directories
from ottla.broker.metadata.registration import random_uuid
from ottla.embedded.cluster.plan import HOST, ClusterPlan, PlannedNode, rack_of, voters_of
from ottla.embedded.cluster.process import NodeProcess, start, wait_until_ready
from ottla.host.clock import HostClock
from ottla.host.disk import HostDisk
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import uuid_text
from ottla.settings.properties import write
from ottla.settings.server.settings import ServerSettings

_FILE = "cluster.json"
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_KILL_SECONDS = 10.0
_PORT_MAX = 65_535


class LocalCluster:
    """The cluster of one directory. `create` makes one, `open` finds one that was made before."""

    def __init__(self, directory: Path, plan: ClusterPlan) -> None:
        self.directory = directory
        self.plan = plan
        #: Gets a line about a node that is waited for, when that takes longer than a second.
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
        """Plan a cluster of `nodes` in a directory and format it. `port`: of the first node, or 0 for free ones.

        Clients' ports are `port`, `port` + 1 ..., the controllers' behind them. OttlaError when there is one already,
        when the directory of a node is there, or when a port is taken.
        """
        path = Path(directory).absolute()
        if (path / _FILE).exists():
            raise OttlaError(f"{path} holds a cluster already; `ottla cluster up` without --nodes starts it")
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
        for node in plan.nodes:
            if cluster._of(node.node_id).exists():
                raise OttlaError(f"{cluster._of(node.node_id)} is there already; name a new directory, or delete it")
        path.mkdir(parents=True, exist_ok=True)
        try:
            cluster._save()
            for node in plan.nodes:
                cluster._format(node, founds=True)
        except BaseException:
            cluster.remove()
            raise
        return cluster

    @classmethod
    def open(cls, directory: str | Path) -> LocalCluster:
        """The cluster that was made in this directory. OttlaError when there is none."""
        path = Path(directory).absolute()
        try:
            document = json.loads((path / _FILE).read_text())
            return cls(path, ClusterPlan.of_document(document))
        except FileNotFoundError:
            raise OttlaError(f"there is no cluster in {path}; `ottla cluster up --nodes 3` makes one") from None
        except (ValueError, KeyError, TypeError) as error:
            raise OttlaError(f"{path / _FILE} is damaged: {error}") from error

    # ---- what runs

    def process(self, node_id: int) -> NodeProcess | None:
        """The process of a node, if it runs."""
        self.plan.node(node_id)
        try:
            process = NodeProcess.of_text((self._of(node_id) / "process").read_text())
        except (OSError, ValueError):
            return None
        return process if process.runs else None

    def log(self, node_id: int) -> Path:
        """The file that holds the node's log."""
        return self._of(node_id) / "node.log"

    def running(self) -> list[int]:
        """The nodes whose processes are there."""
        return [each.node_id for each in self.plan.nodes if self.process(each.node_id) is not None]

    # ---- what is done

    def start(self, nodes: Iterable[int] | None = None) -> list[int]:
        """Start those of the nodes (all) that do not run, and return them when they serve. OttlaError names the first
        that cannot, with its own words.
        """
        wanted = [each.node_id for each in self.plan.nodes] if nodes is None else list(nodes)
        wanted = [each for each in wanted if self.process(each) is None]
        until = time.monotonic() + _START_SECONDS
        with ExitStack() as undo:
            started = []
            for node_id in wanted:
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
        """Stop nodes (all that run) in good order, by SIGTERM. OttlaError names one that does not end.

        The last of all nodes have none that takes over, and after the majority of controllers none that could decide
        it: they end without (Apache's would wait for minutes).
        """
        wanted = self.running() if nodes is None else list(nodes)
        all_of_them = set(wanted) >= set(self.running())
        # Brokers end first: the quorum is there for them until then.
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
                if not process.wait(1.0):
                    if all_of_them and not self._has_quorum():
                        process.send(signal.SIGTERM)
                    else:
                        self.tell(f"waiting for node {node_id} to hand over its partitions and stop")
                if not process.wait(_STOP_SECONDS):
                    raise OttlaError(f"node {node_id} (pid {process.pid}) did not stop within {_STOP_SECONDS:.0f} s")
                stopped.append(node_id)
        return stopped

    def _has_quorum(self) -> bool:
        voters = [each.node_id for each in self.plan.nodes if each.is_controller]
        return 2 * len(set(voters) & set(self.running())) > len(voters)

    def kill(self, node_id: int) -> None:
        """End a node as kill -9 does."""
        process = self._running(node_id)
        process.send(signal.SIGKILL)
        if not process.wait(_KILL_SECONDS):
            raise OttlaError(f"node {node_id} (pid {process.pid}) did not end within {_KILL_SECONDS:.0f} s of SIGKILL")

    def pause(self, node_id: int) -> None:
        """Stop a node's process where it is (SIGSTOP); `resume` lets it go on."""
        self._running(node_id).send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self._running(node_id).send(signal.SIGCONT)

    def restart(self, node_id: int) -> None:
        """Stop a node in good order, if it runs, and start it again."""
        self.stop([node_id])
        self.start([node_id])

    def add(self, rack: str = "", *, votes: bool = False) -> PlannedNode:
        """Plan another node and format it; `start` starts it. `votes`: a controller, too, which joins the quorum."""
        port, controller_port = _free_ports(2)
        number = max(each.node_id for each in self.plan.nodes) + 1
        node = PlannedNode(number, port, controller_port if votes else 0, rack=rack)
        self.plan.nodes.append(node)
        self._save()
        self._format(node, founds=False)
        return node

    def has_old_settings(self, node: PlannedNode) -> bool:
        """Do the settings of a node differ from what is planned now?"""
        return (self._of(node.node_id) / "server.properties").read_text() != self._properties(node)

    def refresh(self, node_id: int) -> None:
        """Write the settings of a node as they are planned now; they count from its next start."""
        (self._of(node_id) / "server.properties").write_text(self._properties(self.plan.node(node_id)))

    def remove(self) -> None:
        """Delete the nodes with all data, and the directory unless something else is in it. The nodes must have been
        stopped.
        """
        running = self.running()
        if running:
            raise OttlaError(f"node {running[0]} is running; stop the cluster first")
        for node in self.plan.nodes:
            shutil.rmtree(self._of(node.node_id), ignore_errors=True)
        (self.directory / _FILE).unlink(missing_ok=True)
        with suppress(OSError):
            self.directory.rmdir()

    # ---- parts

    def _of(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

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
        (home / "process").write_text(str(process))
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

    def _format(self, node: PlannedNode, *, founds: bool) -> None:
        home = self._of(node.node_id)
        home.mkdir(exist_ok=True)
        self.refresh(node.node_id)
        format_directories(
            HostDisk(),
            ServerSettings.parse(self.plan.properties(node, str(home / "data"))),
            self.plan.cluster_id,
            clock=HostClock(),
            rng=SystemRandom(),
            initial_controllers=self.plan.initial_controllers() if founds and node.is_controller else None,
            no_initial_controllers=node.is_controller and not founds,
        )

    def _properties(self, node: PlannedNode) -> str:
        return write(self.plan.properties(node, str(self._of(node.node_id) / "data")))


def _ports_from(first: int, count: int) -> range:
    """`count` ports from `first` on. OttlaError names the first that cannot be had."""
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
    """Ports that are free now. Another program may take one before the node does, which then says so."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
