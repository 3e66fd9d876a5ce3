"""Frameworks in Python that others wrote, on the node."""

import json
import shutil
import signal
from collections import defaultdict
from pathlib import Path
from time import monotonic, sleep

import pytest

from ottla.client import Admin, Consumer, Producer, TopicPartition
from tests.interop import made, toolchain
from tests.interop.program import running
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(300)]

_PATIENCE_S = 90.0
_KEYS = 7


def framework(program: str, *arguments: str) -> list[str]:
    """The command of a program in python/."""
    return [str(toolchain.frameworks()), str(made.HERE / "python" / program), *arguments]


def feed(server: Server, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=server.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"v", key=f"key-{number % _KEYS}".encode())
        producer.flush()


@pytest.fixture
def topics(server: Server, name: str) -> tuple[str, str]:
    """Input and output."""
    with Admin(server.bootstrap) as admin:
        admin.create_topic(f"{name}-in", 3)
        admin.create_topic(f"{name}-out", 3)
    return f"{name}-in", f"{name}-out"


def test_quix_streams_counts_exactly_once_through_a_kill(
    server: Server, name: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    state, output = tmp_path / "state", tmp_path / "output.txt"
    arguments = (server.bootstrap, name, *topics, str(state))
    settings = {"bootstrap.servers": server.bootstrap, "isolation.level": "read_committed"}
    counts: dict[str, list[int]] = defaultdict(list)
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topics[1], index) for index in range(3)])

        def await_counts(count: int) -> None:
            deadline = monotonic() + _PATIENCE_S
            while sum(map(len, counts.values())) < count:
                assert monotonic() < deadline, f"{sum(map(len, counts.values()))} of {count} results"
                for record in consumer.poll(0.5):
                    counts[bytes(record.key or b"").decode()].append(json.loads(bytes(record.value or b"")))

        feed(server, topics[0], 700)
        with running(framework("quix_app.py", *arguments), output):
            await_counts(1)
        # Killed in the middle, and its directory is lost.
        shutil.rmtree(state)
        with running(framework("quix_app.py", *arguments), output) as program:
            feed(server, topics[0], 700)
            await_counts(1400)
            program.send_signal(signal.SIGTERM)
            assert program.wait(30) == 0
        assert consumer.poll(1.0) == []
    assert counts == {f"key-{key}": [*range(1, 201)] for key in range(_KEYS)}


def test_faust_counts_the_records_of_each_key(
    server: Server, name: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Not restarted: against Apache Kafka, too, Faust then repeats or skips single records now and then."""
    written = tmp_path / "counts.txt"

    def counts() -> dict[str, int]:
        """The last whole line."""
        lines = written.read_text().splitlines(keepends=True) if written.exists() else []
        return next((json.loads(line) for line in reversed(lines) if line.endswith("\n")), {})

    arguments = (server.bootstrap, name, topics[0], str(tmp_path / "data"), str(written))
    feed(server, topics[0], 140)
    with running(framework("faust_app.py", *arguments), tmp_path / "output.txt"):
        for each in (20, 40):
            deadline = monotonic() + _PATIENCE_S
            while sum(counts().values()) < each * _KEYS:
                assert monotonic() < deadline, f"{counts()} instead of {each} of each key"
                sleep(0.2)
            assert counts() == {f"key-{key}": each for key in range(_KEYS)}
            feed(server, topics[0], 140)
