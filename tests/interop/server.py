"""The server under test: one process, one data directory, one port, from one server.properties.

Apache Kafka and our node are started from the same file, because our node takes Kafka's settings by Kafka's names.
Rules:
- The port is chosen once and stays through restarts: clients must find the node again where it was.
- `restart` ends the process with SIGTERM, `kill` with SIGKILL; data stays.
- A server that does not come up says so with the last lines of its output.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.interop import toolchain

CLUSTER_ID = "Ottla-Interop-Cluster1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0

#: One node that is its own controller, with the replication of its internal topics brought down to it.
SINGLE_NODE: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

#: Rebalances start at once, sessions are short and internal topics small, so that scenes are not mostly waiting.
SETTINGS: Mapping[str, str] = {
    **SINGLE_NODE,
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "8",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.session.timeout.ms": "10000",
    "group.min.session.timeout.ms": "5000",
    # A broker that was killed is back when the session of its last life has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
#: Nothing is deleted for its age while tests run. By default Apache's broker looks 30 s after its start and then every
#: five minutes, and a record stamped long ago goes when that look falls into its test.
KEPT: Mapping[str, str] = {"log.initial.task.delay.ms": "86400000", "log.retention.check.interval.ms": "86400000"}
#: For a server that nothing kills: a broker that a busy machine holds up is not fenced, and keeps its partitions.
HELD: Mapping[str, str] = {**KEPT, "broker.session.timeout.ms": "120000"}


@dataclass(frozen=True)
class Kind:
    """How one kind of server is formatted and started, each given the path of a server.properties."""

    name: str
    format: tuple[str, ...]
    start: tuple[str, ...]

    def format_command(self, properties: Path) -> list[str]:
        return [part.replace("{file}", str(properties)) for part in self.format]

    def start_command(self, properties: Path) -> list[str]:
        return [part.replace("{file}", str(properties)) for part in self.start]


def apache(jvm: tuple[str, ...] = ()) -> Kind:
    """Apache Kafka from Maven's jars, in a JVM that starts fast if no options are given."""
    java = [
        "java",
        *(jvm or toolchain.quick_jvm()),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        toolchain.classpath(),
    ]
    storage = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", "{file}"]
    return Kind("apache", (*java, *storage), (*java, "kafka.Kafka", "{file}"))


def ottla() -> Kind:
    """Our node, as a user starts it."""
    program = (sys.executable, "-m", "ottla.cli")
    return Kind(
        "ottla",
        (*program, "storage", "format", "--standalone", "-t", CLUSTER_ID, "-c", "{file}"),
        (*program, "start", "{file}"),
    )


def kind(name: str) -> Kind:
    kinds = {"apache": apache, "ottla": ottla}
    if name not in kinds:
        raise ValueError(f"OTTLA_INTEROP_SERVER names {name!r}; it takes {', '.join(kinds)}")
    return kinds[name]()


class Process(Protocol):
    """As much of `subprocess.Popen` as is used here."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


@dataclass
class Server:
    """One server. Whoever makes it calls `start`, and `stop` at the end."""

    kind: Kind
    #: holds server.properties, the data directory and the process's output
    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[str, str] = field(default_factory=lambda: SETTINGS)
    port: int = 0
    process: Process | None = None
    #: how often it was started; a test may compare it to see that a restart happened
    starts: int = 0

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dir(self) -> Path:
        return self.directory / "data"

    @property
    def output(self) -> Path:
        return self.directory / "output.txt"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was not started"
        return self.process.pid

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def format(self) -> None:
        """Choose the ports, write server.properties, format the data directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, controller_port = self.choose_ports(2)
        self.properties.write_text(self._properties(controller_port))
        self._run_once(self.kind.format_command(self.properties))

    def choose_ports(self, count: int) -> list[int]:
        """Which ones are taken, once."""
        return free_ports(count)

    def launch(self) -> None:
        """Start the process and return at once."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.kind.start_command(self.properties), stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        self.starts += 1

    def start(self) -> None:
        """Format on the first start; return when the node answers Metadata and names itself in it."""
        if not self.properties.exists():
            self.format()
        self.launch()
        self._await_ready()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """A clean stop: SIGTERM, and the process must end by itself."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"{self.name} did not end within {timeout_s:.0f} s of SIGTERM\n{self.tail()}"
            ) from None
        finally:
            self.process = None

    def kill(self) -> None:
        """SIGKILL: nothing is written on the way out."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def tail(self, lines: int = 30) -> str:
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _properties(self, controller_port: int) -> str:
        addresses = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.log_dir),
        }
        return "".join(f"{name}={value}\n" for name, value in {**self.base, **addresses, **self.settings}.items())

    def _run_once(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, timeout=START_TIMEOUT_S, stdin=subprocess.DEVNULL)
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace")
            raise AssertionError(f"{' '.join(command[-6:])} ended with {done.returncode}:\n{said}")

    def _await_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise AssertionError(f"{self.name} ended with {code} while starting:\n{self.tail()}")
            if serves(self.port):
                return
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"{self.name} does not serve {START_TIMEOUT_S:.0f} s after its start:\n{self.tail()}")


def serves(port: int) -> bool:
    """Does a broker answer on this port, and is it registered? Asked with raw bytes, so that no client is needed."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            # Metadata v1 of no topics: header v1 (key 3, version 1, correlation 7, client id null), empty array.
            request = struct.pack(">hhihi", 3, 1, 7, -1, 0)
            connection.sendall(struct.pack(">i", len(request)) + request)
            size = struct.unpack(">i", _exactly(connection, 4))[0]
            body = _exactly(connection, size)
    except OSError:
        return False
    brokers: int = struct.unpack_from(">i", body, 4)[0]
    return brokers > 0


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed in the middle of a reply")
        data += chunk
    return data


def free_ports(count: int) -> list[int]:
    """Ports that nothing has now, each given once by this process.

    They lie below those that the kernel takes for outgoing connections, if there is room: one of these could have the
    port before the server listens on it.
    """
    found: list[int] = []
    while len(found) < count:
        with _choosing, socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", next(_PORTS)))
            port: int = one.getsockname()[1]
            if port not in found:
                found.append(port)
    return found


def _ports() -> Iterator[int]:
    """The ports below the kernel's again and again, from one that differs from process to process; else 0, for any."""
    first, last = 10_000, 0
    with suppress(OSError):
        last = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    start = os.getpid() * 97 % 5_000
    while True:
        yield from range(first + start, last) if last > 20_000 else (0,)
        start = 0


_PORTS = _ports()
#: Servers are started on several threads.
_choosing = threading.Lock()


def resident_bytes(pid: int) -> int:
    """The resident memory of a process, from /proc."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
