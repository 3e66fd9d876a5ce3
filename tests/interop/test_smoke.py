"""Apache's own system test of Kafka Streams, StreamsSmokeTest, on three nodes: instances and nodes die while it runs.

Its driver writes 20,000 records in 90 seconds, reads what the application made of them, and judges it.
"""

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import pytest

import ottla
from ottla.client import Admin
from tests.interop import toolchain
from tests.interop.program import running

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(900)]

_TOPICS = [
    "echo",
    "data",
    "fk",
    "min",
    "min-suppressed",
    "min-raw",
    "max",
    "sum",
    "sws-raw",
    "sws-suppressed",
    "dif",
    "cnt",
    "avg",
    "wcnt",
    "tagg",
]
#: While the driver writes.
_KILLS_S = 110.0
_PATIENCE_S = 600.0
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def cluster() -> Iterator[ottla.Cluster]:
    with ottla.Cluster(nodes=3) as one:
        with Admin(one.bootstrap_servers) as admin:
            for topic in _TOPICS:
                admin.create_topic(topic, 5, replication_factor=3, configs={"min.insync.replicas": "2"})
        yield one


@pytest.fixture
def start(cluster: ottla.Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts the driver (`run`) or an instance of the application (`process`)."""
    settings = tmp_path / "settings.properties"
    settings.write_text(
        f"bootstrap.servers={cluster.bootstrap_servers}\nprocessing.guarantee=exactly_once_v2\nreplication.factor=3\n"
        f"num.stream.threads=2\ncommit.interval.ms=1000\nsession.timeout.ms=10000\ngroup.protocol={request.param}\n"
    )
    numbers = count()
    with ExitStack() as stack:

        def one(command: str) -> subprocess.Popen[bytes]:
            output = tmp_path / f"{command}-{next(numbers)}.txt"
            return stack.enter_context(running([*toolchain.streams_smoke(), str(settings), command], output))

        yield one


@pytest.mark.parametrize("start", ["classic", "streams"], indirect=True)
def test_no_result_is_lost_or_doubled_while_instances_and_nodes_die(
    cluster: ottla.Cluster, start: Start, tmp_path: Path
) -> None:
    chance = random.Random(os.environ.get("SEED", "1"))
    driver, instances = start("run"), [start("process"), start("process")]
    began, down = monotonic(), None
    while driver.poll() is None:
        assert monotonic() - began < _PATIENCE_S, (tmp_path / "run-0.txt").read_text()[-4000:]
        sleep(chance.uniform(6.0, 12.0))
        if down is not None:
            cluster.restart(down)
            down = None
        if monotonic() - began > _KILLS_S:
            continue
        if chance.random() < 0.5:
            down = chance.choice((1, 2, 3))
            chance.choice((cluster.kill, cluster.stop))(down)
        else:
            index = chance.randrange(len(instances))
            instances[index].send_signal(chance.choice((signal.SIGKILL, signal.SIGTERM)))
            instances[index].wait(90)
            instances[index] = start("process")
    verdict = (tmp_path / "run-0.txt").read_text()
    assert "ALL-RECORDS-DELIVERED" in verdict, verdict[-4000:]
    assert "SUCCESS" in verdict.splitlines(), verdict[-4000:]
    # The state directory of an instance that is told to end may go before its threads do.
    lives = [path.read_text().split("-> PENDING_SHUTDOWN")[0] for path in tmp_path.glob("process-*")]
    failed = [life for life in lives if "CLIENT-EXCEPTION" in life]
    assert not failed, failed[0][-4000:]
