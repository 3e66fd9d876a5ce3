"""A disk that takes no more: the node says so, keeps what it has, and goes on when there is room again.

The limit is RLIMIT_FSIZE, set on the running process from outside and taken away again: a write behind it fails as one
on a full disk does, half written where it crosses the limit. It needs neither a file system of its own nor root.
"""

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.kernel.error import ErrorCode
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.api.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient
from tests.crash.check import committed_values
from tests.crash.content import OpenTransaction
from tests.crash.inventory import Entry, Marks, again, fetch, marks, read_batches, records
from tests.interop import server as servers
from tests.interop.server import Server

#: Of today: a batch of another week would begin a new segment.
_NOW_MS = time.time_ns() // 1_000_000
_SETTINGS = {"log.segment.bytes": "1048576", "offsets.topic.num.partitions": "1"}
#: Log to fill up, and another one that is small.
_FULL, _SMALL = "full", "small"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(servers.ottla(), tmp_path, _SETTINGS)
    one.start()
    with WireClient(one.bootstrap) as client:
        for name in (_FULL, _SMALL):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == 0
    try:
        yield one
    finally:
        one.kill()


def limit_files(server: Server, bytes_max: int) -> None:
    """No file of the node may grow beyond this."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (bytes_max, hard))


def lift_limit(server: Server) -> None:
    limit_files(server, resource.RLIM_INFINITY)
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))


def forbid_new_files(server: Server) -> None:
    """The node may go on with the files that it has open, and open no other."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, hard))


class Producer:
    """An idempotent producer of one partition of each topic, which knows what was acknowledged."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        found = client.ask(InitProducerIdRequest(transactional_id=None), 5)
        self.identity = (found.producer_id, found.producer_epoch)
        self.acknowledged: dict[str, list[bytes]] = {_FULL: [], _SMALL: []}

    def send(self, values: dict[str, bytes]) -> dict[str, PartitionProduceResponse]:
        """One request with one record for each of these topics."""
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=0, records=self._batch(topic, value))]
                )
                for topic, value in values.items()
            ],
        )
        answers = {each.name: each.partition_responses[0] for each in self.client.ask(request, 9).responses}
        for topic, answer in answers.items():
            if answer.error_code == 0:
                assert answer.base_offset == len(self.acknowledged[topic])
                self.acknowledged[topic].append(values[topic])
        return answers

    def _batch(self, topic: str, value: bytes) -> bytes:
        return build(
            [(_NOW_MS, None, value, ())],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=len(self.acknowledged[topic]),
        )


def check(client: WireClient, producer: Producer) -> None:
    """Exactly what was acknowledged is there."""
    for topic, values in producer.acknowledged.items():
        found: list[Entry] = list(records(client, (topic, 0), marks(client, (topic, 0))))
        assert [each.value for each in found] == values
        assert [each.offset for each in found] == list(range(len(values)))
        for offset in range(len(values)):
            header, _ = next(iter(read_batches(fetch(client, (topic, 0), offset, wait_ms=0))))
            assert header.base_offset == offset, "a read that begins here does not find what is here"


def _again(server: Server, end: Callable[[Server], None], producer: Producer) -> None:
    """End the node, start it, and find and continue everything."""
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        check(client, producer)
        producer.client = client
        answers = producer.send({_FULL: b"after", _SMALL: b"after"})
        assert [each.error_code for each in answers.values()] == [0, 0]
        check(client, producer)


_ENDS = pytest.mark.parametrize("end", [Server.stop, Server.kill], ids=["stopped in good order", "killed"])


@_ENDS
def test_a_full_disk_is_a_storage_error_of_its_partition_alone(server: Server, end: Callable[[Server], None]) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for number in range(20):
            producer.send({_FULL: bytes([number]) * 1000, _SMALL: b"%d" % number})
        # The next batch crosses the limit: a part of it is written.
        limit_files(server, 20_000 + 20 * 80)
        answers = producer.send({_FULL: b"x" * 2000, _SMALL: b"small"})
        assert answers[_FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answers[_SMALL].error_code == 0
        check(client, producer)
        # A retry of the same sequence fails again and leaves no trace; with room it is written once.
        assert producer.send({_FULL: b"x" * 2000})[_FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        lift_limit(server)
        assert producer.send({_FULL: b"y" * 100})[_FULL].error_code == 0
        check(client, producer)
    _again(server, end, producer)


@_ENDS
def test_a_segment_that_cannot_be_begun_leaves_nothing_behind(server: Server, end: Callable[[Server], None]) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        while len(producer.acknowledged[_FULL]) < 10:
            producer.send({_FULL: b"f" * 100_000})
        forbid_new_files(server)
        assert producer.send({_FULL: b"r" * 100_000})[_FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # What still fits into the old segment is taken, and what has been taken is kept.
        assert producer.send({_FULL: b"fits"})[_FULL].error_code == 0
        assert producer.send({_FULL: b"r" * 100_000})[_FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        check(client, producer)
        lift_limit(server)
        assert producer.send({_FULL: b"r" * 100_000})[_FULL].error_code == 0
        assert producer.send({_FULL: b"after the roll"})[_FULL].error_code == 0
        check(client, producer)
    _again(server, end, producer)


@_ENDS
@pytest.mark.parametrize("room_for_record", [False, True], ids=["no room for its record", "no room for its files"])
def test_a_topic_that_could_not_be_made_can_be_made_later(
    server: Server, room_for_record: bool, end: Callable[[Server], None]
) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="later", num_partitions=2, replication_factor=1)], timeout_ms=5000
    )
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        producer.send({_FULL: b"a", _SMALL: b"b"})
        forbid_new_files(server) if room_for_record else limit_files(server, 1)
        code = client.ask(request, 7).topics[0].error_code
        # Without room for its files there is a topic, but nobody leads it yet.
        assert code == (ErrorCode.NONE if room_for_record else ErrorCode.KAFKA_STORAGE_ERROR)
        check(client, producer)
        lift_limit(server)
        assert producer.send({_SMALL: b"c"})[_SMALL].error_code == 0
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        code = client.ask(request, 7).topics[0].error_code
        assert code == (ErrorCode.TOPIC_ALREADY_EXISTS if room_for_record else ErrorCode.NONE)
        assert [marks(client, ("later", index)).latest for index in (0, 1)] == [0, 0]
        check(client, producer)


@_ENDS
def test_offsets_that_could_not_be_committed_are_not_committed(server: Server, end: Callable[[Server], None]) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for number in range(50):
            producer.send({_FULL: b"%d" % number})
        commit(client, 5)
        limit_files(server, 1)
        assert offer(client, 7) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        # The coordinator comes back from what its log has, with the disk still full, and goes on when it is not.
        assert committed(client) == 5
        assert offer(client, 8) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        lift_limit(server)
        commit(client, 9)
        assert committed(client) == 9
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        assert committed(client) == 9
        check(client, producer)


@pytest.mark.parametrize("dies", [False, True], ids=["the node lives", "the node is killed"])
def test_a_transaction_whose_marker_has_no_room_ends_when_there_is_some(server: Server, *, dies: bool) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for _ in range(20):
            producer.send({_FULL: b"x" * 1000})
        begun = OpenTransaction(server.bootstrap, "t", _FULL)
        size = (server.log_dir / f"{_FULL}-0" / f"{0:020}.log").stat().st_size
        # The coordinator's log is shorter, so that the decision is written and the marker is not.
        limit_files(server, size)
        request = EndTxnRequest(
            transactional_id="t", producer_id=begun.producer_id, producer_epoch=begun.epoch, committed=True
        )
        client.ask(request, 5)
        undecided = marks(client, (_FULL, 0))
        assert undecided.last_stable_offset == begun.base_offset < undecided.latest
        lift_limit(server)
    if dies:
        server.kill()
        server.start()
    begun.end(server.bootstrap, committed=True)
    with WireClient(server.bootstrap) as client:
        again(lambda: marks(client, (_FULL, 0)), _still_open)
        values = committed_values(client, _FULL, 0)
        assert values == [b"x" * 1000] * 20 + [b"open"]


def _still_open(found: Marks) -> tuple[int]:
    """COORDINATOR_LOAD_IN_PROGRESS while a transaction has no end."""
    return (0 if found.last_stable_offset == found.latest else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)


def offer(client: WireClient, offset: int) -> int:
    """Commit once for a group without members; the error code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=_FULL, partitions=[partition])])
    code: int = client.ask(request, 8).topics[0].partitions[0].error_code
    return code


def commit(client: WireClient, offset: int) -> None:
    """Commit, as soon as there is a coordinator."""
    again(lambda: offer(client, offset), lambda code: (code,))


def committed(client: WireClient) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = again(lambda: client.ask(request, 8).groups[0], lambda found: (found.error_code,))
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset
