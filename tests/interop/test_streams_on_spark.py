"""Our Streams programs against Apache Kafka's broker: exactly once through kills of the driver, its JVM and workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import server as servers
from tests.interop.server import Server
from tests.spark.test_streams_kills import run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[Server]:
    one = Server(servers.apache(), tmp_path)
    one.start()
    yield one
    one.stop()


def test_results_come_once_across_kills_with_apaches_broker(apache: Server, name: str, tmp_path: Path) -> None:
    run(apache.bootstrap, name, tmp_path, 1, ["driver", "all", "worker"])
