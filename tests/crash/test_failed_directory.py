"""A log directory that goes away under a real node: its partitions are offline, the others and the node go on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.kernel.error import ErrorCode
from ottla.wire.api import create_topics, describe_log_dirs, produce
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient
from tests.interop import server as servers
from tests.interop.server import Server

TOPIC = "spread"
TRIES = 20_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    dirs = f"{tmp_path}/one,{tmp_path}/two"
    server = Server(
        servers.ottla(), tmp_path / "node", {"log.dirs": dirs, "log.flush.offset.checkpoint.interval.ms": "50"}
    )
    server.start()
    yield server
    server.stop()


def write(client: WireClient, partition: int) -> ErrorCode:
    part = produce.PartitionProduceData(index=partition, records=build([(1_700_000_000_000, b"k", b"v", ())]))
    topics = [produce.TopicProduceData(name=TOPIC, partition_data=[part])]
    response = client.ask(produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def until(holds: Callable[[], bool]) -> None:
    """Each try is a request: the node has had a turn."""
    for _ in range(TRIES):
        if holds():
            return
    raise AssertionError("it never came")


def directories(client: WireClient) -> dict[str, describe_log_dirs.DescribeLogDirsResult]:
    response = client.ask(describe_log_dirs.DescribeLogDirsRequest(topics=None), 4)
    return {Path(each.log_dir).name: each for each in response.results}


def partition_in(client: WireClient, name: str) -> int:
    [topic] = [each for each in directories(client)[name].topics if each.name == TOPIC]
    return int(topic.partitions[0].partition_index)


def test_a_directory_that_goes_away_takes_only_its_own_partitions_offline(server: Server, tmp_path: Path) -> None:
    with WireClient(server.bootstrap) as client:
        wanted = create_topics.CreatableTopic(name=TOPIC, num_partitions=4, replication_factor=1)
        client.ask(create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7)
        lost, kept = partition_in(client, "two"), partition_in(client, "one")
        assert write(client, lost) is ErrorCode.NONE
        (tmp_path / "two").rename(tmp_path / "two, taken away")
        (tmp_path / "two").write_text("a file where the directory was")
        until(lambda: write(client, lost) is ErrorCode.KAFKA_STORAGE_ERROR)
        assert write(client, kept) is ErrorCode.NONE
        assert ErrorCode(directories(client)["two"].error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        server.stop()
    (tmp_path / "two").unlink()
    (tmp_path / "two, taken away").rename(tmp_path / "two")
    server.start()
    with WireClient(server.bootstrap) as client:
        assert write(client, lost) is ErrorCode.NONE
