"""A peer: one foreign program, driven by lines of JSON.

The protocol. A job is one line on stdin: `{"op": ..., "bootstrap": ..., ...}`. The program answers with lines on stdout
and ends a job with `{"done": true}` or `{"error": {"code": Kafka's number or null, "name": ..., "message": ...}}`.
Jobs run one after another. Bytes are base64, absent bytes are null.

about            -> {"client": name and version}
produce          topic, codec, acks, idempotent, each, records: [{p, t, k, v, h}]
                 -> {"p", "o"} a record, in order; `each` waits for every ack before it sends the next
consume          topic, from: {partition: offset}, count, timeout_ms, isolation: "read_committed" or "read_uncommitted"
                 -> {"p", "o", "t", "k", "v", "h"} a record
transact         topic, id, records, group, offsets: {partition: offset}, commit
                 -> one transaction: the records, the group's offsets of this topic, and its end. {"open": true}
                 says that all but the end is done; the end waits for the next line, {"op": "leave"}
group            group, topics, protocol, assignor
                 -> records, and {"assigned": [[topic, partition]]}, {"revoked": ...} at a change, or {"all": ...};
                 it commits what it printed; a next line {"op": "leave"} ends it
offsets          topic, partition, at: "earliest", "latest" or ms -> {"offset"}
create, add_partitions, delete   topic, partitions, configs
topics, describe topic -> {"topics": [...]}, {"partitions": [{"p", "leader", "replicas"}]}
configs          topic -> {"configs": {name: value}}
alter, replace   topic, configs
groups           -> {"groups": [...]}
committed        group, topic -> {"offsets": {partition: offset}}
delete_group     group
delete_records   topic, partition, offset -> {"low_watermark"}
secured          topic, group, id, security (Kafka's security.protocol), mechanism, user, password, token, tokenauth
                 (user and password are a delegation token's), keytab (of the user), realm, krb5 (Kerberos'
                 configuration), and the PEM files ca, certificate, key
                 -> {"read"}: it writes a record whose value is the id, and reads it

Rules:
- A program that says nothing for `timeout_s` fails the test with the last lines of its stderr.
- Programs live as long as the session: a JVM is not started for every scene.
"""

import base64
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.interop import toolchain

Json = dict[str, Any]
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: What every admin client in use can do; a peer that can less says so.
ADMIN = frozenset(
    {"create", "delete", "topics", "describe", "configs", "alter", "add_partitions", "groups", "committed"}
)

#: A topic that is being made: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
#: UNKNOWN_LEADER_EPOCH, and librdkafka's own word for "no leaders found".
NOT_YET_THERE = (3, 5, 6, 75, -156)


class Record(NamedTuple):
    """A record as a client sees it."""

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def to_json(self) -> Json:
        headers = [[name, _text(value)] for name, value in self.headers]
        return {"p": self.partition, "t": self.timestamp, "k": _text(self.key), "v": _text(self.value), "h": headers}

    @classmethod
    def from_json(cls, line: Json) -> Self:
        headers = tuple((name, _bytes(value)) for name, value in line["h"])
        return cls(line["p"], line["t"], _bytes(line["k"]), _bytes(line["v"]), headers)


class PeerError(Exception):
    """The client reported an error. `code` is Kafka's number where the client knows it."""

    def __init__(self, peer: str, error: Json) -> None:
        super().__init__(f"{peer}: {error.get('name')} ({error.get('code')}): {error.get('message')}")
        self.code: int | None = error.get("code")
        #: The class of the error by the client's own name, with what it wraps where the client tells that.
        self.kind: str = error.get("name") or ""


@dataclass(frozen=True)
class Kind:
    """One client library: how its program is started, and what the library can do."""

    name: str
    command: Callable[[], list[str]]
    codecs: tuple[str, ...] = ALL_CODECS
    acks: tuple[str, ...] = ("0", "1", "all")
    idempotent: bool = True
    #: group protocols: "classic", and "consumer" for KIP-848
    protocols: tuple[str, ...] = ("classic",)
    transactions: bool = True
    #: can be told to use the range assignor, so that members of several libraries share a group
    ranges: bool = True
    admin: frozenset[str] = ADMIN
    #: writes headers of the same name more than once
    repeated_headers: bool = True
    #: writes a header whose value is null (every client must read one)
    null_headers: bool = True
    #: what the client says where no record is as late as the timestamp; None: it does not tell
    no_offset: int | None = -1
    #: sends a bad topic name to the server instead of refusing it itself
    checks_names_at_server: bool = True
    #: needs more than PyPI: marked `interop`
    foreign: bool = True


class Process:
    """A running program of one kind. `Crew` makes and ends it."""

    def __init__(self, kind: Kind, stderr: Path) -> None:
        self.kind = kind
        self._stderr = stderr
        with stderr.open("wb") as errors:
            self._process = subprocess.Popen(
                kind.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        #: a job is under way; its answers must be read to the end before the next
        self.busy = False

    def begin(self, op: str, **job: Any) -> None:
        assert not self.busy, f"{self.kind.name} is still at its last job"
        self.busy = True
        self.tell(op=op, **job)

    def tell(self, **line: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def answers(self, timeout_s: float) -> Iterator[Json]:
        """The job's lines up to its end; raises PeerError for the client's error."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                self.close()
                raise AssertionError(f"{self.kind.name} said nothing for {timeout_s:.0f} s\n{self.errors()}") from None
            if line is None:
                raise AssertionError(f"{self.kind.name} ended with {self._process.wait(10)}\n{self.errors()}")
            answer = json.loads(line)
            if "done" in answer or "error" in answer:
                self.busy = False
            if "error" in answer:
                raise PeerError(self.kind.name, answer["error"])
            if "done" in answer:
                return
            yield answer

    def waiting(self) -> list[Json]:
        """The lines that are there already. Used while several members of a group are watched."""
        lines: list[Json] = []
        while not self._lines.empty():
            line = self._lines.get()
            assert line is not None, f"{self.kind.name} ended\n{self.errors()}"
            answer = json.loads(line)
            if "error" in answer:
                self.busy = False
                raise PeerError(self.kind.name, answer["error"])
            if "done" in answer:
                self.busy = False
            lines.append(answer)
        return lines

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL in the middle of its job: the client says goodbye to nobody."""
        self._process.kill()
        self._process.wait()
        self.busy = False

    def close(self) -> None:
        """End the program. Its stdin closes first, so that one without a job ends by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            if self.busy:
                self._process.kill()
            self._process.wait(5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        self._process.stdout.close()

    def errors(self) -> str:
        return "\n".join(self._stderr.read_text(errors="replace").splitlines()[-25:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


@dataclass
class Crew:
    """All programs of a session: one of each kind that is wanted, more when a group needs more members."""

    directory: Path
    processes: list[Process] = field(default_factory=list)

    def idle(self, kind: Kind) -> Process:
        for process in self.processes:
            if process.kind is kind and process.alive and not process.busy:
                return process
        process = Process(kind, self.directory / f"{kind.name}-{len(self.processes)}.stderr")
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.close()


@dataclass(frozen=True)
class Peer:
    """One client library against one server: what a scene works with."""

    kind: Kind
    bootstrap: str
    crew: Crew
    timeout_s: float = 60.0

    @property
    def name(self) -> str:
        return self.kind.name

    def call(self, op: str, **job: Any) -> list[Json]:
        process = self.crew.idle(self.kind)
        process.begin(op, bootstrap=self.bootstrap, **job)
        return list(process.answers(self.timeout_s))

    def begin(self, op: str, **job: Any) -> Process:
        """Start a job and go on without its end."""
        process = self.crew.idle(self.kind)
        process.begin(op, bootstrap=self.bootstrap, **job)
        return process

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> list[int]:
        """The offsets, in the order of the records."""
        lines = [record.to_json() for record in records]
        acked = self.call(
            "produce", topic=topic, codec=codec, acks=acks, idempotent=idempotent, each=False, records=lines
        )
        return [line["o"] for line in acked]

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        """Create a topic and wait until its partitions can be read: clients meet a topic that is there."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        self.call("create", topic=topic, partitions=partitions, configs=settings)
        for partition in range(partitions):
            self.await_partition(topic, partition)

    def await_partition(self, topic: str, partition: int) -> None:
        """Wait until a partition that was made can be read."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                self.call("offsets", topic=topic, partition=partition, at="earliest")
                return
            except PeerError as problem:
                if problem.code not in NOT_YET_THERE or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        count: int,
        *,
        start: Mapping[int, int] | None = None,
        isolation: str = "read_uncommitted",
    ) -> dict[tuple[int, int], Record]:
        """Records by (partition, offset), from the beginning of each partition or from `start`."""
        job: Json = {"partitions": list(partitions), "count": count, "timeout_ms": 30_000, "isolation": isolation}
        job["from"] = {str(partition): (start or {}).get(partition, 0) for partition in partitions}
        lines = self.call("consume", topic=topic, **job)
        return {(line["p"], line["o"]): Record.from_json(line) for line in lines}

    def ask(self, op: str, **job: Any) -> Json:
        """A job with one line of answer, or none."""
        lines = self.call(op, **job)
        assert len(lines) <= 1, lines
        return lines[0] if lines else {}


def _python(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.interop.python.{name}"]


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("librdkafka", _python("librdkafka"), protocols=("classic", "consumer"), foreign=False),
        Kind("kafka-python", _python("kafka_python"), transactions=False, null_headers=False, foreign=False),
        Kind("aiokafka", _python("aio_kafka"), admin=ADMIN - {"alter"}, foreign=False),
        Kind(
            "java",
            toolchain.java_peer,
            protocols=("classic", "consumer"),
            admin=ADMIN | {"delete_records", "delete_group"},
        ),
        Kind(
            "franz-go",
            lambda: toolchain.go_peer("franz"),
            protocols=("classic", "consumer"),
            admin=ADMIN | {"delete_records", "delete_group"},
            no_offset=None,
        ),
        Kind("sarama", lambda: toolchain.go_peer("sarama"), admin=ADMIN | {"delete_group"}),
        Kind(
            "kafkajs",
            toolchain.node_peer,
            codecs=("none", "gzip", "snappy"),
            ranges=False,
            admin=ADMIN - {"alter"} | {"replace", "delete_group"},
            null_headers=False,
            no_offset=None,
        ),
    )
}


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
