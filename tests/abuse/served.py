"""A node in a process of its own, a well-behaved client beside the attack, and what both cost."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader, request_header_version
from tests.broker.wire_client import WireClient, _key_of
from tests.client import certificate

#: On a machine at rest no answer to the good client takes longer, and the node has no more memory than this.
SECONDS_MAX = 0.25
BYTES_MAX = 150 << 20
#: The share of its rate that the good client keeps during an attack, on two cores that it shares with the attacker.
KEPT_MIN = 0.8
_RATE_ANSWERS_MIN = 30
_ROOT = Path(__file__).parents[2]
#: `ottla start`, which says its address and then, for each line that it reads, the most memory that it has had. What it
#: imports soon after it serves is there from the beginning: the attack is on a node that has been up for a while.
_PROGRAM = """
import os, resource, signal, sys, threading
import ottla.broker.serve
from ottla.kernel.lazy import load_all

def answer():
    for _ in sys.stdin:
        if sys.platform == "linux":
            # ru_maxrss begins with what the parent had.
            (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
            peak = int(line.split()[1]) * 1024
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(peak, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

list(load_all())
threading.Thread(target=answer, daemon=True).start()
from ottla.cli import main
sys.argv = ["ottla", "start", "--port", "0", "--data", *sys.argv[1:]]
main()
"""


class Served:
    """The node's process. A test opens and closes it. `secured`: also with listeners of SASL_PLAINTEXT and SSL."""

    def __init__(self, *, secured: bool = False) -> None:
        self._is_secured = secured

    def __enter__(self) -> Served:
        self._data = TemporaryDirectory()
        more = _secured(Path(self._data.name)) if self._is_secured else []
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, f"{self._data.name}/data", *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        ready = next((line for line in self._process.stdout if " ready on " in line), "")
        assert ready, "the node did not start"
        addresses = ready.split(" ready on ")[1].split(" in ")[0].split(", ")
        #: PLAINTEXT; then SASL_PLAINTEXT and SSL.
        self.bootstrap_servers, *self.secured = addresses
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._data.cleanup()

    def peak_bytes(self) -> int:
        """The most memory that the node has had."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def client(self) -> WireClient:
        return WireClient(self.bootstrap_servers)

    def raw(self, address: str | None = None) -> socket.socket:
        host, port = (address or self.bootstrap_servers).rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=60)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        with self.client() as client:
            client.sock.settimeout(60)
            entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
            (answer,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def _secured(directory: Path) -> list[str]:
    """The options of a node with SASL_PLAINTEXT and SSL besides PLAINTEXT."""
    files = certificate.make(directory / "certificates")
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "CONTROLLER")
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="right";'
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in names[:3]) + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.broker),
    }
    changes = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    # Each refused sign-in is a line.
    return ["--log-file", f"{directory}/log", *changes]


def frame(request: Any, version: int) -> bytes:
    """A whole request with its length."""
    key = _key_of(request)
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="abuse")
    body = encode(header, request_header_version(key, version)) + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def produced(name: str, records: bytes, acks: int = 1) -> ProduceRequest:
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])


@dataclass
class Beside:
    """What the good client saw: seconds of each answer."""

    seconds: list[float] = field(default_factory=list)
    failure: BaseException | None = None
    began: float = field(default_factory=time.monotonic)
    _answered: threading.Condition = field(default_factory=threading.Condition)

    def add(self, seconds: float) -> None:
        with self._answered:
            self.seconds.append(seconds)
            self._answered.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._answered:
            self.failure = error
            self._answered.notify_all()

    def wait_for(self, answers: int) -> None:
        """Until the good client has had so many more answers, which is how long an attack lasts."""
        with self._answered:
            goal = len(self.seconds) + answers
            done = self._answered.wait_for(lambda: len(self.seconds) >= goal or self.failure is not None, 60)
        assert done, "the good client is not answered any more"

    def rate(self) -> float:
        """Answers a second so far; an attack that is over at once is too short for a rate."""
        if len(self.seconds) < _RATE_ANSWERS_MIN:
            self.wait_for(_RATE_ANSWERS_MIN - len(self.seconds))
        return len(self.seconds) / (time.monotonic() - self.began)

    @property
    def worst(self) -> float:
        return max(self.seconds)


@contextmanager
def good_client(served: Served) -> Iterator[Beside]:
    """While the block runs, a client produces a record, reads it back and asks for metadata, fifty times a second.

    It is a process of its own (`tests.abuse.good_client`): the attacker's work must not slow it down.
    """
    served.create("good")
    command = [sys.executable, "-m", "tests.abuse.good_client", served.bootstrap_servers]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_ROOT
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    beside = Beside()

    def run() -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            beside.add(float(line))
        failure = process.stderr.read()
        if process.wait():
            beside.fail(AssertionError(f"the good client failed: {failure}"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield beside
    finally:
        process.stdin.close()
        thread.join(120)
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
    if beside.failure is not None:
        raise beside.failure
    assert beside.seconds


def send(sock: socket.socket, data: bytes) -> None:
    """Send what the node takes: it may close the connection, or stop reading."""
    with suppress(OSError):
        sock.sendall(data)


def drain(sock: socket.socket, seconds: float) -> int:
    """Read whatever comes within this time, or until the node closes."""
    end, count = time.monotonic() + seconds, 0
    with suppress(OSError):
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            piece = sock.recv(1 << 20)
            if not piece:
                break
            count += len(piece)
    return count


def drain_frame(sock: socket.socket) -> None:
    """Read one whole answer, or until the node closes."""
    sock.settimeout(120)
    data = b""
    while len(data) < 4:
        piece = sock.recv(4 - len(data))
        if not piece:
            return
        data += piece
    left = int.from_bytes(data, "big")
    while left:
        piece = sock.recv(min(left, 1 << 20))
        if not piece:
            return
        left -= len(piece)
