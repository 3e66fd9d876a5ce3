"""The nodes of a chaos run: processes in their namespaces, of Ottla or of Apache Kafka, from the same settings.

Rules:
- A node's data lie in a file system of its own (tmpfs), so that its disk can be filled.
- With `moved_clocks` a node's wall clock is the machine's plus what its file says (libfaketime): all of its processes
  read it at least once a second. The monotonic clock stays.
- A node that ended by itself is noted and started again by `revive`.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.kernel.error import OttlaError
from ottla.settings.properties import write
from tests.chaos.network import Network
from tests.node_processes import NodeProcesses

_CLUSTER_ID = "Ottla-Chaos-Cluster-01"
_DISK_MIB = 192
_LIBRARIES = Path("/usr/lib")
_JVM = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_PORT, _CONTROLLER_PORT = 9092, 9093
_SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "65536",
}


class ChaosNodes:
    """`kind`: "ottla" or "apache". The first `voters` nodes are controllers, too. `product`: where Ottla is run."""

    def __init__(
        self,
        kind: str,
        network: Network,
        directory: Path,
        voters: int,
        *,
        moved_clocks: bool = False,
        product: Path | None = None,
    ) -> None:
        self.kind = kind
        self._product = product
        self._library = _library() if moved_clocks else None
        self._network = network
        self._voters = range(1, voters + 1)
        self._processes = NodeProcesses(directory, _JVM)
        self._mounted: list[Path] = []
        self.paused: set[int] = set()
        #: Nodes that ended without being told to.
        self.ended: list[int] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{self._network.address(each)}:{_PORT}" for each in self._network.nodes)

    def data(self, node: int) -> Path:
        return self._home(node) / "disk" / "data"

    def output(self, node: int) -> Path:
        return self._processes.output(node)

    # ---- life

    def __enter__(self) -> Self:
        try:
            for node in self._network.nodes:
                self._make(node)
            for node in self._network.nodes:
                self.start(node)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()
        for disk in self._mounted:
            subprocess.run(["umount", str(disk)], capture_output=True, check=False)
        self._mounted.clear()

    def start(self, node: int) -> None:
        """Start its process and return at once."""
        self._processes.start(
            node, self.kind, inside=self._network.inside(node), environment=self._clock(node), where=self._product
        )

    def runs(self, node: int) -> bool:
        return self._processes.runs(node)

    def kill(self, node: int) -> None:
        """kill -9."""
        self._processes.kill(node)
        self.paused.discard(node)

    def stop(self, node: int) -> bool:
        """SIGTERM; False when it did not end in its time and was killed."""
        return not self._processes.stop(node)

    def pause(self, node: int) -> None:
        self.paused.add(node)
        self._processes.signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        if node in self.paused:
            self.paused.discard(node)
            self._processes.signal(node, signal.SIGCONT)

    def revive(self) -> list[int]:
        """Start every node that does not run; return those that had ended by themselves."""
        ended = self._processes.ended()
        self.ended += ended
        for node in self._network.nodes:
            if not self.runs(node):
                self.start(node)
        return ended

    # ---- clocks

    def move_clock(self, node: int, seconds: float) -> None:
        """The node's wall clock is ahead of the machine's by so much, or behind it."""
        file = self._home(node) / "clock"
        new = file.with_suffix(".new")
        new.write_text(f"{seconds:+}\n")
        new.replace(file)

    def _clock(self, node: int) -> dict[str, str]:
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._home(node) / "clock"),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Its default, 1, lets every timed wait of a JVM return at once: Apache's nodes spin and hardly start.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    # ---- disks

    def fill(self, node: int) -> None:
        """Take all the room that its disk has left."""
        with (self._home(node) / "disk" / "filler").open("wb", buffering=0) as filler:
            block = bytes(1 << 16)
            try:
                while True:
                    filler.write(block)
            except OSError:
                pass

    def empty(self, node: int) -> None:
        """Give the room back."""
        (self._home(node) / "disk" / "filler").unlink(missing_ok=True)

    # ---- parts

    def _home(self, node: int) -> Path:
        return self._processes.home(node)

    def _make(self, node: int) -> None:
        home = self._home(node)
        disk = home / "disk"
        disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(disk)], check=True)
        self._mounted.append(disk)
        self.move_clock(node, 0)
        address = self._network.address(node)
        listeners = f"PLAINTEXT://{address}:{_PORT}"
        if node in self._voters:
            listeners += f",CONTROLLER://{address}:{_CONTROLLER_PORT}"
        voters = [f"{each}@{self._network.address(each)}:{_CONTROLLER_PORT}" for each in self._voters]
        own = {
            "process.roles": "broker,controller" if node in self._voters else "broker",
            "node.id": str(node),
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{address}:{_PORT}",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": str(self.data(node)),
        }
        self._processes.properties(node).write_text(write({**_SETTINGS, **own}))
        self._processes.format(node, self.kind, _CLUSTER_ID)

    def keep(self, where: Path) -> None:
        """Copy outputs and data to `where`, for who looks for what went wrong."""
        for node in self._network.nodes:
            shutil.copytree(self._home(node), where / f"node-{node}", dirs_exist_ok=True)

    def wait_until_ended(self, node: int, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.runs(node) and time.monotonic() < until:
            time.sleep(0.05)
        return not self.runs(node)


def _library() -> str:
    found = sorted(_LIBRARIES.glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise OttlaError("FAULTS=clock needs libfaketime (Debian: apt-get install libfaketime), or name other faults")
    return str(found[0])
