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
#: A program hangs that has shown no new result and no new phase for so long.
QUIET_S = 90
PROGRAM = """\
import sys
import time
from pathlib import Path


def phase(name):
    with Path(__file__).with_name("phases").open("a") as file:
        file.write(f"{time.time()} {name}\\n")


phase("python")
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
app.on_state_change(lambda new, old: phase(new.name))
app.run(servers, master=master, workers=2)
"""
FIRST_RESULT = "first result"
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
        #: What was killed, and the seconds from there to each phase that followed.
        self.recoveries: list[tuple[str, dict[str, float]]] = []
        #: When that was, and where the results ended; None once a new one was seen.
        self._killed: tuple[float, dict[TopicPartition, int]] | None = None
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

    def kill(self, what: str | Callable[[], None]) -> None:
        """`what`: processes of the program by name, or anything else that ends something."""
        with Consumer(self.servers, isolation_level="read_committed") as consumer:
            self._killed = time.time(), consumer.end_offsets(self._places())
        self.recoveries.append((what if isinstance(what, str) else "node", {}))
        if not isinstance(what, str):
            return what()
        below = children(self.process.pid)
        if what == "worker":  # a Python worker is a leaf: Spark starts it again
            leaves = [pid for pid in below if not children(pid)]
            return kill(leaves[-1])
        kill(self.process.pid, *(below if what == "all" else ()))
        self.process.wait()
        self.start()

    def phases(self) -> list[tuple[float, str]]:
        """What the program has written down so far: its start and each new state, with the time."""
        path = self.path.with_name("phases")
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(at), name) for at, _, name in (line.partition(" ") for line in lines)]

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self.counts, number) for number in range(2)]

    def wait(self, count: int) -> dict[str, list[int]]:
        """What a reader of committed records has seen once there are at least so many results."""
        seen: dict[str, list[int]] = {}
        quiet, phases = time.monotonic(), self.phases()
        with Consumer(self.servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign(self._places())
            while sum(map(len, seen.values())) < count:
                for record in (found := consumer.poll(0.2)):
                    seen.setdefault(record.key.decode(), []).append(int.from_bytes(record.value, "big"))
                    place = TopicPartition(record.topic, record.partition)
                    if self._killed is not None and record.offset >= self._killed[1][place]:
                        self._recovered(self._killed[0])
                assert self.process.poll() is None, "the program ended by itself"
                before, phases = phases, self.phases()
                if found or phases != before:
                    quiet = time.monotonic()
                assert time.monotonic() - quiet < QUIET_S, (
                    f"{sum(map(len, seen.values()))} of {count} results and nothing new for {QUIET_S} s; "
                    f"the program's last phase: {phases[-1:]}"
                )
        return seen

    def _recovered(self, killed: float) -> None:
        """Note the phases since the kill, each when it came last."""
        self._killed = None
        after = {name: at - killed for at, name in [*self.phases(), (time.time(), FIRST_RESULT)] if at > killed}
        self.recoveries[-1][1].update(after)


def run(
    servers: str,
    own: str,
    directory: Path,
    seed: int,
    kills: Sequence[str | Callable[[], None]],
    master: str = "local[2]",
    replicas: int = 1,
) -> list[tuple[str, dict[str, float]]]:
    """`kills`: of this machine's processes by name, or anything else that ends one. Returns `Killed.recoveries`."""
    draw = random.Random(seed)
    program = Killed(servers, own, directory, master, replicas)
    try:
        for what in kills:
            before = program.sent
            program.send(draw.randrange(200, 3_000))
            program.wait(before + draw.randrange(1, program.sent - before))
            program.send(draw.randrange(200, 3_000))
            program.kill(what)
        seen = program.wait(program.sent)
        assert sorted(seen) == [f"word-{number}" for number in range(KEYS)]
        for number in range(KEYS):
            count = len(range(number, program.sent, KEYS))
            assert seen[f"word-{number}"] == list(range(1, count + 1))
        return program.recoveries
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
