"""A system under the bench: Apache Kafka or our node as a process, its starts, its memory, and tools run against it."""

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import ottla
from bench import ROOT, raw
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.server import Server

SYSTEMS = ("apache", "ottla")
#: Both get Kafka's defaults, as a node that is its own controller. A group does not wait before its first rebalance, so
#: that a consumer's total time is not dominated by three fixed seconds.
SETTINGS: Mapping[str, str] = {**servers.SINGLE_NODE, "group.initial.rebalance.delay.ms": "0"}
#: The options that Apache's kafka-run-class.sh gives to every JVM.
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
#: The options that kafka-server-start.sh adds.
SERVER_HEAP = ("-Xmx1G", "-Xms1G")
#: What kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh add.
TOOL_HEAP = ("-Xmx512M",)
#: For --quick: a JVM that starts quickly and never becomes fast.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
START_TIMEOUT_S = 90.0
TOOL_TIMEOUT_S = 240.0
#: The background work of a start is done by then, and counts as idle memory.
IDLE_AFTER_S = 1.0


@dataclass
class System:
    """A system under test. `start` starts it in an empty directory; its creator must always call `stop`."""

    name: str
    directory: Path
    quick: bool = False
    server: Server = field(init=False)
    #: from the start of the formatting process to its end
    format_ms: float = 0.0
    #: from the start of the process in a formatted directory to the first acknowledged record
    cold_start_ms: float = 0.0
    idle_bytes: int = 0
    #: topic -> the number and size of the records that the bench has written
    written: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jvm = QUICK_JVM if self.quick else (*SERVER_HEAP, *JVM)
        kind = servers.apache(jvm) if self.name == "apache" else servers.kind(self.name)
        self.server = Server(kind, self.directory / self.name, base=SETTINGS)

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    @property
    def port(self) -> int:
        return self.server.port

    def start(self) -> None:
        """Format, start, and measure on the way."""
        _compile()
        began = time.perf_counter()
        self.server.format()
        self.format_ms = (time.perf_counter() - began) * 1000
        self.cold_start_ms = self._launch("first-record", 1, create=True)
        time.sleep(IDLE_AFTER_S)
        self.idle_bytes = memory_bytes(self.server.pid, "VmRSS")

    def restart_ms(self, topic: str, partitions: int) -> float:
        """Restart cleanly; returns the ms until every partition of the topic has acknowledged a record."""
        self.server.stop()
        return self._launch(topic, partitions, create=False)

    def topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> str:
        """Create a topic unless it exists; returns its name."""
        raw.create_topic(self.port, name, partitions, settings, START_TIMEOUT_S)
        return name

    def peak_bytes(self) -> int:
        """The peak resident memory since the start."""
        return memory_bytes(self.server.pid, "VmHWM")

    def tool(self, main: str, *arguments: str) -> str:
        """Run one of Apache's tools against the system; returns its output."""
        jvm = QUICK_JVM if self.quick else (*TOOL_HEAP, *JVM)
        return run(["java", *jvm, LOGGING, "-cp", toolchain.classpath(), f"org.apache.kafka.tools.{main}", *arguments])

    def program(self, module: str, *arguments: str) -> str:
        """Run one of our programs against the system; returns its output."""
        return run([sys.executable, "-m", module, *arguments])

    def alive(self) -> bool:
        process = self.server.process
        return process is not None and process.poll() is None

    def stop(self) -> None:
        """Stop it cleanly; SIGKILL if it does not end in time."""
        try:
            self.server.stop()
        except AssertionError as error:
            print(f"bench: {error}", file=sys.stderr, flush=True)

    def _launch(self, topic: str, partitions: int, *, create: bool) -> float:
        began = time.perf_counter()
        self.server.launch()
        try:
            raw.until_acknowledged(self.port, topic, partitions, create=create, within_s=START_TIMEOUT_S)
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"{self.name} does not serve: {error}\n{self.server.tail()}") from error
        return (time.perf_counter() - began) * 1000


@cache
def _compile() -> None:
    """Compile the package as pip does at installation; otherwise a start would compile every imported module."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(str(Path(ottla.__file__).parent), quiet=1)


def memory_bytes(pid: int, figure: str) -> int:
    """`VmRSS` (resident memory) or `VmHWM` (its peak) of a process and its children."""
    total = 0
    for each in (pid, *_children(pid)):
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
        except FileNotFoundError:  # the process has ended
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{figure}:"))
    return total


def _children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except FileNotFoundError:
            continue
    return [each for child in found for each in (child, *_children(child))]


def run(command: Sequence[str]) -> str:
    """Run a command and return its output. It is killed after a timeout."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, stdin=subprocess.DEVNULL, cwd=ROOT
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise RuntimeError(f"{' '.join(command[-8:])} ended with {done.returncode}:\n{said}")
    return done.stdout


def settle() -> None:
    """Write the page cache out, so that later works do not pay for earlier ones."""
    os.sync()
