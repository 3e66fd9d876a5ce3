"""A Streams program on a standalone Spark cluster of two workers, and through Spark Connect: exactly once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.standalone import ConnectServer, Standalone
from tests.spark.test_streams_kills import run

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    started = Standalone(tmp_path)
    yield started
    started.close()


def test_results_come_once_on_a_cluster_that_loses_executors(
    cluster: Standalone, bootstrap_servers: str, topics: Iterator[int], tmp_path: Path
) -> None:
    def lose() -> None:
        os.kill(cluster.executors[-1], signal.SIGKILL)

    directory = tmp_path / "program"
    directory.mkdir()
    run(bootstrap_servers, f"{next(topics)}-{os.getpid()}", directory, 3, [lose, "all", lose], cluster.master)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[ConnectServer]:
    started = ConnectServer(tmp_path)
    yield started
    started.close()


def test_results_come_once_through_spark_connect(
    connect: ConnectServer, bootstrap_servers: str, topics: Iterator[int], tmp_path: Path
) -> None:
    directory = tmp_path / "program"
    directory.mkdir()
    run(bootstrap_servers, f"{next(topics)}-{os.getpid()}", directory, 4, ["driver", "driver"], connect.master)
