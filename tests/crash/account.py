"""A producer of two topics and a committer of a group that know what was acknowledged: for disks that take no more."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.api.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient, make_coordinators
from tests.crash.inventory import Entry, again, fetch, marks, read_batches, records
from tests.interop.server import Server

#: Of today: a batch of another week would begin a new segment.
_NOW_MS = time.time_ns() // 1_000_000
#: A log to fill up, and another one that is small.
FULL, SMALL = "full", "small"
#: How a node comes to its end: a test takes it as `end`.
ENDS = pytest.mark.parametrize("end", [Server.stop, Server.kill], ids=["stopped in good order", "killed"])


def create(client: WireClient) -> None:
    """Make the two topics."""
    for name in (FULL, SMALL):
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == 0
    make_coordinators(client)


class Producer:
    """An idempotent producer of one partition of each topic, which knows what was acknowledged."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        found = client.ask(InitProducerIdRequest(transactional_id=None), 5)
        self.identity = (found.producer_id, found.producer_epoch)
        self.acknowledged: dict[str, list[bytes]] = {FULL: [], SMALL: []}

    def send(self, values: dict[str, bytes], key: bytes | None = None) -> dict[str, PartitionProduceResponse]:
        """One request with one record for each of these topics."""
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=0, records=self._batch(topic, value, key))]
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

    def _batch(self, topic: str, value: bytes, key: bytes | None) -> bytes:
        return build(
            [(_NOW_MS, key, value, ())],
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


def go_on_after(end: Callable[[Server], None], server: Server, producer: Producer) -> None:
    """End the node, start it, and find and continue everything."""
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        check(client, producer)
        producer.client = client
        answers = producer.send({FULL: b"after", SMALL: b"after"})
        assert [each.error_code for each in answers.values()] == [0, 0]
        check(client, producer)


def offer(client: WireClient, offset: int) -> int:
    """Commit once for a group without members; the error code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=FULL, partitions=[partition])])
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
