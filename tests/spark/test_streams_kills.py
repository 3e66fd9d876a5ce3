"""A Streams program is killed with SIGKILL again and again: its driver, its JVM, its Python workers. Each result comes
once.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ottla.client import Admin, Consumer, Producer, TopicPartition

pytestmark = pytest.mark.timeout(600)

KEYS = 7
WAIT_S = 90
PROGRAM = """\
import sys
from ottla.streams import StreamsBuilder
from words import word

servers, lines, counts, application_id, master = sys.argv[1:]
builder = StreamsBuilder()
(
    builder.stream(lines, key_serde="string", value_serde="string")
    .group_by(word)
    .count(materialized="counts")
    .to_stream()
    .to(counts, value_serde="long")
)
app = builder.build(application_id=application_id, key_serde="string", value_serde="string")
app.run(servers, master=master, workers=2)
"""
#: A module beside the program, which no worker could import.
WORDS = """\
def word(key, value):
    return value
"""


def children(pid: int) -> list[int]:
    """All processes below this one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found


def kill(*pids: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Killed:
    """A program in a process of its own, and the topics that it reads and writes."""

    def __init__(self, servers: str, own: str, directory: Path, master: str = "local[2]", replicas: int = 1) -> None:
        self.servers, self.lines, self.counts, self.application_id = servers, f"in-{own}", f"out-{own}", f"kills-{own}"
        self.path = directory / "program.py"
        self.path.write_text(PROGRAM)
        (directory / "words.py").write_text(WORDS)
        self.master = master
        self.sent = 0
        with Admin(servers) as admin:
            for topic in (self.lines, self.counts):
                admin.create_topic(topic, 2, replicas)
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        self.process = subprocess.Popen(
            [sys.executable, str(self.path), self.servers, self.lines, self.counts, self.application_id, self.master]
        )
        return self.process

    def send(self, count: int) -> None:
        with Producer(self.servers) as producer:
            for number in range(self.sent, self.sent + count):
                producer.send(self.lines, b"word-%d" % (number % KEYS), b"%d" % number)
        self.sent += count

    def kill(self, what: str) -> None:
        below = children(self.process.pid)
        if what == "worker":  # a Python worker is a leaf: Spark starts it again
            leaves = [pid for pid in below if not children(pid)]
            return kill(leaves[-1])
        kill(self.process.pid, *(below if what == "all" else ()))
        self.process.wait()
        self.start()

    def results(self, deadline: float) -> Iterator[dict[str, list[int]]]:
        """What a reader of committed records has seen so far, again and again."""
        seen: dict[str, list[int]] = {}
        with Consumer(self.servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(self.counts, number) for number in range(2)])
            while time.monotonic() < deadline:
                for record in consumer.poll(0.2):
                    seen.setdefault(record.key.decode(), []).append(int.from_bytes(record.value, "big"))
                assert self.process.poll() is None, "the program ended by itself"
                yield seen

    def wait(self, count: int) -> dict[str, list[int]]:
        """What is seen once there are at least so many results."""
        for seen in self.results(time.monotonic() + WAIT_S):
            if sum(map(len, seen.values())) >= count:
                return seen
        raise AssertionError(f"{sum(map(len, seen.values()))} of {count} results within {WAIT_S} s")


def run(
    servers: str,
    own: str,
    directory: Path,
    seed: int,
    kills: Sequence[str | Callable[[], None]],
    master: str = "local[2]",
    replicas: int = 1,
) -> None:
    """`kills`: of this machine's processes by name, or anything else that ends one."""
    draw = random.Random(seed)
    program = Killed(servers, own, directory, master, replicas)
    try:
        for what in kills:
            before = program.sent
            program.send(draw.randrange(200, 3_000))
            program.wait(before + draw.randrange(1, program.sent - before))
            program.send(draw.randrange(200, 3_000))
            if isinstance(what, str):
                program.kill(what)
            else:
                what()
        seen = program.wait(program.sent)
        assert sorted(seen) == [f"word-{number}" for number in range(KEYS)]
        for number in range(KEYS):
            count = len(range(number, program.sent, KEYS))
            assert seen[f"word-{number}"] == list(range(1, count + 1))
    finally:
        kill(program.process.pid, *children(program.process.pid))
        program.process.wait()


def test_results_come_once_across_kills(bootstrap_servers: str, topics: Iterator[int], tmp_path: Path) -> None:
    run(bootstrap_servers, f"{next(topics)}-{os.getpid()}", tmp_path, 1, ["worker", "all"])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_results_come_once_across_many_kills(
    bootstrap_servers: str, topics: Iterator[int], tmp_path: Path, seed: int
) -> None:
    kills = random.Random(seed).choices(["all", "driver", "worker"], k=6)
    run(bootstrap_servers, f"{next(topics)}-{os.getpid()}", tmp_path, seed, kills)
