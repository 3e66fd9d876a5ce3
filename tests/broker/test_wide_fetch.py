"""A consumer of many partitions, of which few are at work: what it is told, and what it costs the others."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

import ottla
from ottla.broker.handlers import fetch
from ottla.kernel.error import ErrorCode
from ottla.replica.partition import Partition
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient

_PARTITIONS = 30
_names = (f"wide-{number}" for number in count())


class Wide:
    """A fetch session over every partition of a topic."""

    def __init__(self, client: WireClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=0)
        first = self.fetch(*((index, 0) for index in range(_PARTITIONS)))
        assert len(first.responses[0].partitions) == _PARTITIONS
        self.request.session_id = first.session_id

    def fetch(self, *moved: tuple[int, int]) -> FetchResponse:
        """The next fetch of the session; `moved` are (partition, offset) of which it says something new."""
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in moved
        ]
        self.request.topics = [FetchTopic(topic=self.topic, partitions=partitions)] if moved else []
        answer: FetchResponse = self.client.ask(self.request, 12)
        assert answer.error_code == 0
        self.request.session_epoch += 1
        return answer

    def told(self, *moved: tuple[int, int]) -> list[tuple[int, int, int]]:
        """(partition, error, high watermark) of what the next fetch brings."""
        answer = self.fetch(*moved)
        return [
            (each.partition_index, each.error_code, each.high_watermark)
            for topic in answer.responses
            for each in topic.partitions
        ]


def _produce(client: WireClient, topic: str, partition: int) -> None:
    data = PartitionProduceData(index=partition, records=build([(1, None, b"v", [])]))
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def _made(node: ottla.Node) -> str:
    name = next(_names)
    node.create_topic(name, _PARTITIONS)
    return name


def test_only_partitions_where_something_happened_are_looked_at(
    node: ottla.Node, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = _made(node)
    wide = Wide(client, topic)
    read: list[int] = []
    look = Partition.read

    def noted(self: Partition, *args: int, **more: bool) -> object:
        if self.tp.topic == topic:
            read.append(self.tp.partition)
        return look(self, *args, **more)

    monkeypatch.setattr(Partition, "read", noted)
    assert wide.told() == []
    assert read == []
    _produce(client, topic, 7)
    assert wide.told() == [(7, 0, 1)]
    assert read == [7]
    assert wide.told((7, 1)) == []
    # The client came to the end that it knows already: there is nothing to look for.
    assert read == [7]
    _produce(client, topic, 7)
    _produce(client, topic, 8)
    assert sorted(wide.told()) == [(7, 0, 2), (8, 0, 1)]


def test_a_client_that_goes_back_is_served_again(node: ottla.Node, client: WireClient) -> None:
    topic = _made(node)
    wide = Wide(client, topic)
    _produce(client, topic, 3)
    assert wide.told() == [(3, 0, 1)]
    assert wide.told((3, 1)) == []
    assert wide.told((3, 0)) == [(3, 0, 1)]
    assert wide.told((3, 5)) == [(3, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]


def test_a_log_start_that_moved_is_told(node: ottla.Node, client: WireClient) -> None:
    topic = _made(node)
    wide = Wide(client, topic)
    _produce(client, topic, 4)
    wide.told()
    assert wide.told((4, 1)) == []
    partition = DeleteRecordsPartition(partition_index=4, offset=1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)
    assert client.ask(request, 2).topics[0].partitions[0].error_code == 0
    assert wide.told() == [(4, 0, 1)]
    assert wide.told() == []


def test_a_topic_that_is_deleted_while_a_client_waits_is_told_to_it(node: ottla.Node, client: WireClient) -> None:
    topic = _made(node)
    with WireClient(node.bootstrap_servers) as other:
        wide = Wide(other, topic)
        wide.request.max_wait_ms = 60_000
        other.send(wide.request, 12)
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
        assert client.ask(request, 4).responses[0].error_code == 0
        answer = other.receive(1, 12)
        told = {each.error_code for each in answer.responses[0].partitions}
        assert told == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        # One of the same name is another one: nothing of the old is believed.
        wide.request.max_wait_ms = 0
        wide.request.session_epoch += 1
        node.create_topic(topic, _PARTITIONS)
        _produce(client, topic, 9)
        assert (9, 0, 1) in wide.told()


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of these partitions takes many steps."""
    monkeypatch.setattr(fetch, "_STEPS_FROM", 5)
    monkeypatch.setattr(fetch, "_PARTITIONS_PER_STEP", 2)


def _waiting(topic: str) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(_PARTITIONS)]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    return FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)


@pytest.mark.usefixtures("stepwise")
def test_what_is_appended_between_the_steps_of_a_fetch_is_not_waited_for(
    node: ottla.Node, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = _made(node)
    look = Partition.read
    with WireClient(node.bootstrap_servers) as other:
        data = PartitionProduceData(index=0, records=build([(1, None, b"v", [])]))
        request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
        sent: list[int] = []

        def appended(self: Partition, *args: int, **more: bool) -> object:
            if self.tp.topic == topic and self.tp.partition == 10 and not sent:
                sent.append(self.tp.partition)
                other.send(request, 9)
            return look(self, *args, **more)

        monkeypatch.setattr(Partition, "read", appended)
        answer = client.ask(_waiting(topic), 12)
        assert sent
        assert [bool(each.records) for each in answer.responses[0].partitions] == [True] + [False] * (_PARTITIONS - 1)


@pytest.mark.usefixtures("stepwise")
def test_a_fetch_in_steps_that_waits_ends_with_the_next_one_and_with_its_client(
    node: ottla.Node, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = _made(node)
    seen: dict[int, Partition] = {}
    look = Partition.read

    def noted(self: Partition, *args: int, **more: bool) -> object:
        if self.tp.topic == topic:
            seen[self.tp.partition] = self
        return look(self, *args, **more)

    monkeypatch.setattr(Partition, "read", noted)
    with WireClient(node.bootstrap_servers) as other:
        other.send(_waiting(topic), 12)
        last = _waiting(topic)
        last.max_wait_ms = 0
        other.send(last, 12)
        for _ in range(2):
            assert len(other.receive(1, 12).responses[0].partitions) == _PARTITIONS
        other.send(_waiting(topic), 12)
        # Between these answers the fetch gets its turns, and then it waits.
        while not seen[_PARTITIONS - 1].waiting:
            client.ask(ApiVersionsRequest(), 0)
    for _ in range(1000):
        if not any(partition.waiting for partition in seen.values()):
            break
        client.ask(ApiVersionsRequest(), 0)
    assert [index for index, partition in seen.items() if partition.waiting] == []


@pytest.mark.usefixtures("stepwise")
def test_a_client_that_leaves_while_its_answer_is_built_leaves_nothing_that_waits(
    node: ottla.Node, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = _made(node)
    seen: dict[int, Partition] = {}
    look, news = Partition.read, fetch.ParkedFetch._add_news

    def appended(self: Partition, *args: int, **more: bool) -> object:
        if self.tp.topic == topic:
            if self.tp.partition == 10 and 10 not in seen:
                # Behind the steps of the first attempt, which has seen nothing of it.
                client.send(request, 9)
            seen[self.tp.partition] = self
        return look(self, *args, **more)

    def left(self: fetch.ParkedFetch, *args: Any) -> Any:
        if self._is_answering:
            self.call.connection.close("it left")
        return news(self, *args)

    data = PartitionProduceData(index=0, records=build([(1, None, b"v", [])]))
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    monkeypatch.setattr(Partition, "read", appended)
    monkeypatch.setattr(fetch.ParkedFetch, "_add_news", left)
    with WireClient(node.bootstrap_servers) as other:
        other.send(_waiting(topic), 12)
        assert client.receive(0, 9).responses[0].partition_responses[0].error_code == 0
        with pytest.raises(ConnectionError):
            other.receive_frame()
    for _ in range(10):
        client.ask(ApiVersionsRequest(), 0)
    assert len(seen) == _PARTITIONS
    assert [index for index, partition in seen.items() if partition.waiting] == []


@pytest.mark.usefixtures("stepwise")
def test_a_fetch_in_steps_with_too_little_waits_until_there_is_enough(node: ottla.Node, client: WireClient) -> None:
    topic = _made(node)
    _produce(client, topic, 0)
    request = _waiting(topic)
    # More than one batch, less than two.
    request.min_bytes = 100
    with WireClient(node.bootstrap_servers) as other:
        # From here on both connections are served alike: what is sent first is looked at first.
        other.ask(ApiVersionsRequest(), 0)
        other.send(request, 12)
        _produce(client, topic, 1)
        answer = other.receive(1, 12)
    assert [bool(each.records) for each in answer.responses[0].partitions[:3]] == [True, True, False]
