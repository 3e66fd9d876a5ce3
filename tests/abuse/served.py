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
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader, request_header_version
from tests.broker.wire_client import WireClient, _key_of

#: On a machine at rest no answer to the good client takes longer, and the node has no more memory than this.
SECONDS_MAX = 0.25
BYTES_MAX = 150 << 20
_PAUSE_SECONDS = 0.02
#: `ottla start`, which says its address and then, for each line that it reads, the most memory that it has had. What it
#: imports a second after it serves is there from the beginning: the attack is on a node that has been up for a while.
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
sys.argv = ["ottla", "start", "--port", "0", "--data", sys.argv[1]]
main()
"""


class Served:
    """The node's process. A test opens and closes it."""

    def __enter__(self) -> Served:
        self._data = TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, f"{self._data.name}/data"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        ready = next((line for line in self._process.stdout if " ready on " in line), "")
        assert ready, "the node did not start"
        self.bootstrap_servers = ready.split(" ready on ")[1].split()[0]
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

    def raw(self) -> socket.socket:
        host, port = self.bootstrap_servers.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=60)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        with self.client() as client:
            entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
            (answer,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


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

    @property
    def worst(self) -> float:
        return max(self.seconds)


@contextmanager
def good_client(served: Served) -> Iterator[Beside]:
    """While the block runs, a client produces a record, reads it back and asks for metadata, again and again."""
    served.create("good")
    beside, stop = Beside(), threading.Event()

    def run() -> None:
        try:
            with served.client() as client:
                client.sock.settimeout(120)
                while True:
                    _round(client, beside)
                    if stop.wait(_PAUSE_SECONDS):
                        return
        except BaseException as error:
            beside.fail(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield beside
    finally:
        stop.set()
        thread.join(120)
    if beside.failure is not None:
        raise beside.failure
    assert beside.seconds


def _round(client: WireClient, beside: Beside) -> None:
    offset = -1

    def timed(request: Any, version: int) -> Any:
        began = time.monotonic()
        reply = client.ask(request, version)
        beside.add(time.monotonic() - began)
        return reply

    records = build([(int(time.time() * 1000), b"k", b"good", ())])
    (answer,) = timed(produced("good", records), 9).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE, "a good request was lost"
    offset = answer.base_offset
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="good", partitions=[wanted])])
    (fetched,) = timed(request, 11).responses[0].partitions
    assert fetched.records, "what was written was not read back"
    assert timed(MetadataRequest(topics=[MetadataRequestTopic(name="good")]), 9).topics[0].error_code == ErrorCode.NONE


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
