"""A system under the bench: Apache Kafka or our node as a process, its cold start and its memory."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import raw
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.server import Server, resident_bytes

#: What Apache's kafka-server-start.sh and kafka-run-class.sh give to the JVM.
APACHE_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
TOOL_TIMEOUT_S = 900
SAMPLE_S = 0.1
SYSTEMS = ("apache", "ottla")


@dataclass
class System:
    """One started system. `start` makes it, `stop` ends it."""

    server: Server
    #: from the start of the process to the first acknowledged record, in an empty formatted directory
    cold_start_ms: float
    idle_bytes: int

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    def topic(self, name: str, partitions: int) -> str:
        raw.create_topic(self.server.port, name, partitions)
        return name

    def tool(self, main: str, *arguments: str) -> str:
        """Run one of Apache's tools against the system; what it printed."""
        return run(["java", "-Xmx512m", "-cp", toolchain.classpath(), f"org.apache.kafka.tools.{main}", *arguments])

    def program(self, module: str, *arguments: str) -> str:
        """Run one of our programs against the system; what it printed."""
        return run([sys.executable, "-m", module, *arguments])

    def watch(self) -> "Watch":
        return Watch(self.server.pid)

    def stop(self) -> None:
        self.server.stop()


def start(name: str, directory: Path) -> System:
    """Format, start, and measure on the way."""
    kind = servers.apache(APACHE_JVM) if name == "apache" else servers.kind(name)
    server = Server(kind, directory / name, base=servers.SINGLE_NODE)
    server.format()
    began = time.perf_counter()
    server.launch()
    raw.first_record(server.port, "first-record", deadline_s=60)
    cold_start_ms = (time.perf_counter() - began) * 1000
    time.sleep(1.0)  # what is done after the start is done, and counts as idle memory
    return System(server, cold_start_ms, resident_bytes(server.pid))


class Watch:
    """The largest resident memory of a process while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))
            if self._over.wait(SAMPLE_S):
                return


def run(command: Sequence[str]) -> str:
    """Run a command to its end; what it printed. Raises with its last words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[-8:])} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout
