"""What a producer and a consumer are promised, request by request."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

import ottla
from ottla.host.clock import HostClock
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.batch import build, read
from tests.broker.wire_client import WireClient

_names = (f"topic-{number}" for number in count())


@pytest.fixture
def topic(node: ottla.Node) -> str:
    name = next(_names)
    node.create_topic(name, partitions=2)
    return name


def batch(*values: bytes, time_ms: int = 1_700_000_000_000, **fields: Any) -> bytes:
    return build([(time_ms + index, None, value, []) for index, value in enumerate(values)], **fields)


def produce_request(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def produced(client: WireClient, request: ProduceRequest, version: int = 9) -> PartitionProduceResponse:
    answer: PartitionProduceResponse = client.ask(request, version).responses[0].partition_responses[0]
    return answer


def fetch_request(topic: str, offset: int, **fields: Any) -> FetchRequest:
    partition = FetchPartition(
        partition=fields.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
    )
    return FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        max_bytes=fields.pop("max_bytes", 1 << 20),
        session_epoch=fields.pop("session_epoch", -1),
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        **fields,
    )


def only(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for each in read(bytes(data.records or b"")) for record in each.records()]


# ---- produce


def test_offsets_follow_each_other_and_what_was_written_is_read(client: WireClient, topic: str) -> None:
    assert produced(client, produce_request(topic, batch(b"a", b"b"))).base_offset == 0
    assert produced(client, produce_request(topic, batch(b"c"))).base_offset == 2
    data = only(client.ask(fetch_request(topic, 0), 12))
    assert values(data) == [b"a", b"b", b"c"]
    assert data.high_watermark == 3


def test_a_batch_larger_than_the_receive_buffer_survives(node: ottla.Node, client: WireClient) -> None:
    node.create_topic("large", settings={"max.message.bytes": 8 << 20})
    value = bytes(range(256)) * (5 << 12)
    assert produced(client, produce_request("large", batch(value))).error_code == 0
    data = only(client.ask(fetch_request("large", 0, max_bytes=16 << 20, partition_max_bytes=16 << 20), 12))
    assert values(data) == [value]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 61, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x")[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x" * (2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["null", "empty", "zeros", "bad crc", "too large"],
)
def test_bad_records_are_refused_and_harm_nothing(
    client: WireClient, topic: str, records: bytes | None, code: ErrorCode
) -> None:
    assert produced(client, produce_request(topic, records)).error_code == code
    assert produced(client, produce_request(topic, batch(b"good"))).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 77])
def test_acks_are_zero_one_or_all(client: WireClient, topic: str, acks: int) -> None:
    answer = produced(client, produce_request(topic, batch(b"x"), acks=acks))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_partition_fails_alone(client: WireClient, topic: str) -> None:
    request = produce_request(topic, batch(b"x"))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=9, records=batch(b"y")))
    first, second = client.ask(request, 9).responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (0, 0)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_zero_has_no_reply(client: WireClient, topic: str) -> None:
    client.send(produce_request(topic, batch(b"quiet"), acks=0), 9)
    assert values(only(client.ask(fetch_request(topic, 0), 12))) == [b"quiet"]


def test_a_failed_acks_zero_closes_its_connection(node: ottla.Node, client: WireClient) -> None:
    client.send(produce_request("nowhere", batch(b"x"), acks=0), 9)
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_a_sequence_that_is_sent_again_keeps_its_offset(client: WireClient, topic: str) -> None:
    records = batch(b"once", producer_id=4000, producer_epoch=0, base_sequence=0)
    assert produced(client, produce_request(topic, records)).base_offset == 0
    assert produced(client, produce_request(topic, records)).base_offset == 0
    gap = batch(b"later", producer_id=4000, producer_epoch=0, base_sequence=5)
    assert produced(client, produce_request(topic, gap)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert only(client.ask(fetch_request(topic, 0), 12)).high_watermark == 1


def test_version_13_names_topics_by_id(client: WireClient, topic: str) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = client.ask(asked, 12).topics[0].topic_id
    request = produce_request("", batch(b"by id"))
    request.topic_data[0].topic_id = topic_id
    assert produced(client, request, 13).base_offset == 0
    request.topic_data[0].topic_id = Uuid(b"\7" * 16)
    assert produced(client, request, 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    fetch = fetch_request("", 0)
    fetch.topics[0].topic_id = topic_id
    assert values(only(client.ask(fetch, 17))) == [b"by id"]


def test_with_flush_messages_every_ack_comes_after_its_sync(node: ottla.Node, client: WireClient) -> None:
    node.create_topic("synced", settings={"flush.messages": 1})
    for number in range(20):
        client.send(produce_request("synced", batch(b"%d" % number)), 9)
    offsets = [client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].base_offset for _ in range(20)]
    assert offsets == list(range(20))


# ---- fetch


def test_a_fetch_waits_for_records_and_an_append_wakes_it(node: ottla.Node, client: WireClient, topic: str) -> None:
    client.send(fetch_request(topic, 0, max_wait_ms=20_000), 12)
    with WireClient(node.bootstrap_servers) as other:
        produced(other, produce_request(topic, batch(b"at last")))
    assert values(only(client.receive(ApiKey.FETCH, 12))) == [b"at last"]


def test_a_fetch_with_too_little_waits_until_there_is_enough(node: ottla.Node, client: WireClient, topic: str) -> None:
    client.send(fetch_request(topic, 0, max_wait_ms=20_000, min_bytes=150), 12)
    with WireClient(node.bootstrap_servers) as other:
        produced(other, produce_request(topic, batch(b"x" * 10)))
        produced(other, produce_request(topic, batch(b"y" * 100)))
    assert values(only(client.receive(ApiKey.FETCH, 12))) == [b"x" * 10, b"y" * 100]


def test_a_fetch_whose_time_is_over_is_answered_empty(client: WireClient, topic: str) -> None:
    data = only(client.ask(fetch_request(topic, 0, max_wait_ms=10), 12))
    assert (data.error_code, data.high_watermark, bytes(data.records or b"")) == (0, 0, b"")


@pytest.mark.parametrize("behind", ["Fetch", "ListOffsets"])
def test_a_client_that_asks_for_other_records_ends_its_waiting_fetch(
    client: WireClient, topic: str, behind: str
) -> None:
    client.send(fetch_request(topic, 0, max_wait_ms=60_000), 12)
    if behind == "Fetch":
        client.send(fetch_request(topic, 0, max_wait_ms=0), 12)
    else:
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        client.send(ListOffsetsRequest(topics=[asked]), 7)
    assert values(only(client.receive(ApiKey.FETCH, 12))) == []


def test_other_requests_wait_behind_a_waiting_fetch(node: ottla.Node, client: WireClient, topic: str) -> None:
    client.send(fetch_request(topic, 0, max_wait_ms=60_000), 12)
    client.send(MetadataRequest(topics=[]), 12)
    with WireClient(node.bootstrap_servers) as other:
        # Its answer comes after the node has seen both requests.
        other.ask(MetadataRequest(topics=[]), 12)
        produced(other, produce_request(topic, batch(b"came")))
    assert values(only(client.receive(ApiKey.FETCH, 12))) == [b"came"]
    client.receive(ApiKey.METADATA, 12)


def test_deleting_a_topic_ends_the_fetches_that_wait_at_it(node: ottla.Node, client: WireClient) -> None:
    from ottla.wire.api.delete_topics import DeleteTopicsRequest

    node.create_topic("short-lived")
    client.send(fetch_request("short-lived", 0, max_wait_ms=60_000), 12)
    with WireClient(node.bootstrap_servers) as other:
        assert other.ask(DeleteTopicsRequest(topic_names=["short-lived"]), 5).responses[0].error_code == 0
    assert only(client.receive(ApiKey.FETCH, 12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _beside(topic: str, offset: int, absent: str, **session: int) -> FetchRequest:
    """A fetch that would wait a minute, about a partition and others that do not exist."""
    request = fetch_request(topic, offset, max_wait_ms=60_000, **session)
    if absent == "topic":
        request.topics.insert(0, FetchTopic(topic="nowhere", partitions=[FetchPartition(partition=0)]))
    else:
        indexes = [7] if absent == "partition" else range(7, 1100)
        request.topics[0].partitions[:0] = [FetchPartition(partition=index) for index in indexes]
    return request


@pytest.mark.parametrize("absent", ["topic", "partition", "a thousand partitions"])
def test_a_fetch_waits_for_records_beside_partitions_that_do_not_exist(
    node: ottla.Node, client: WireClient, topic: str, absent: str
) -> None:
    requests = [_beside(topic, 0, absent, session_epoch=0), fetch_request(topic, 1, max_wait_ms=60_000)]
    session_id = 0
    for epoch, request in enumerate(requests):
        request.session_id, request.session_epoch = session_id, epoch
        client.send(request, 12)
        with WireClient(node.bootstrap_servers) as other:
            # Its answer comes after the node has seen the fetch.
            other.ask(MetadataRequest(topics=[]), 12)
            produced(other, produce_request(topic, batch(b"came")))
        response = client.receive(ApiKey.FETCH, 12)
        found = {(each.topic, data.partition_index): data for each in response.responses for data in each.partitions}
        assert values(found.pop((topic, 0))) == [b"came"]
        assert {data.error_code for data in found.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        session_id = response.session_id
        assert session_id


def test_a_fetch_of_nothing_that_exists_is_answered_at_once(client: WireClient) -> None:
    client.sock.settimeout(30)
    data = only(client.ask(fetch_request("nowhere", 0, max_wait_ms=60_000), 12))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("offset", [-1, 2, 1000])
def test_an_offset_outside_of_the_log_is_out_of_range(client: WireClient, topic: str, offset: int) -> None:
    produced(client, produce_request(topic, batch(b"one")))
    assert only(client.ask(fetch_request(topic, offset), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_batch_comes_whole_and_limits_hold_behind_it(client: WireClient, topic: str) -> None:
    for _ in range(4):
        produced(client, produce_request(topic, batch(b"x" * 1000)))
    assert len(values(only(client.ask(fetch_request(topic, 0, max_bytes=1), 12)))) == 1
    assert len(values(only(client.ask(fetch_request(topic, 0, partition_max_bytes=2500), 12)))) == 2


def test_a_leader_epoch_that_is_not_ours_is_refused(client: WireClient, topic: str) -> None:
    newer = only(client.ask(fetch_request(topic, 0, current_leader_epoch=7), 12))
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_incremental_session_tells_only_what_changed(client: WireClient, topic: str) -> None:
    first = client.ask(fetch_request(topic, 0, session_epoch=0), 12)
    assert first.session_id != 0
    quiet = FetchRequest(max_wait_ms=1, max_bytes=1 << 20, session_id=first.session_id, session_epoch=1)
    assert client.ask(quiet, 12).responses == []
    produced(client, produce_request(topic, batch(b"news")))
    quiet.session_epoch = 2
    assert values(only(client.ask(quiet, 12))) == [b"news"]
    quiet.session_epoch = 9
    assert client.ask(quiet, 12).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    quiet.session_id = 123
    assert client.ask(quiet, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_full_fetch_ends_the_session_that_it_names(client: WireClient, topic: str, session_epoch: int) -> None:
    first = client.ask(fetch_request(topic, 0, session_epoch=0), 12)
    full = client.ask(fetch_request(topic, 0, session_epoch=session_epoch, session_id=first.session_id), 12)
    assert (full.error_code, full.session_id != first.session_id) == (ErrorCode.NONE, True)
    again = FetchRequest(max_wait_ms=1, max_bytes=1 << 20, session_id=first.session_id, session_epoch=1)
    assert client.ask(again, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_the_bytes_of_a_fetch_are_bounded_over_all_of_its_partitions(
    node: ottla.Node, client: WireClient, session_epoch: int
) -> None:
    name = next(_names)
    node.create_topic(name, partitions=4)
    records = batch(bytes(1000))
    for number in range(4):
        for _ in range(3):
            produced(client, produce_request(name, records, partition=number))
    partitions = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(4)]
    for bytes_max, wanted in (
        (1, [1, 0, 0, 0]),
        (len(records), [1, 0, 0, 0]),
        (5 * len(records) - 1, [3, 1, 0, 0]),
        (5 * len(records), [3, 2, 0, 0]),
        (1 << 20, [3, 3, 3, 3]),
    ):
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=bytes_max,
            session_epoch=session_epoch,
            topics=[FetchTopic(topic=name, partitions=partitions)],
        )
        (topic,) = client.ask(request, 12).responses
        assert [len(values(each)) for each in topic.partitions] == wanted
    small = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(4)]
    request = FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic(topic=name, partitions=small)])
    (topic,) = client.ask(request, 12).responses
    assert [len(values(each)) for each in topic.partitions] == [1, 0, 0, 0], "only the first is whole at any limit"


# ---- list offsets


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-2, 0), (-1, 3), (-3, 2), (-4, 0), (-5, -1), (1_700_000_000_001, 1), (1_800_000_000_000, -1)],
)
def test_offsets_by_time(client: WireClient, topic: str, timestamp: int, expected: int) -> None:
    produced(client, produce_request(topic, batch(b"a", b"b", b"c")))
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    found = client.ask(request, 9).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (0, expected)


# ---- restart


def test_a_restart_keeps_every_record_and_every_producer(tmp_path: object) -> None:
    with ottla.Node(str(tmp_path)) as node:
        node.create_topic("kept")
        # A producer is remembered for a day after its last record, by the record's own time.
        now_ms = HostClock().now_ms()
        records = batch(b"a", time_ms=now_ms, producer_id=1, producer_epoch=0, base_sequence=0)
        with WireClient(node.bootstrap_servers) as client:
            produced(client, produce_request("kept", records))
        node.restart()
        with WireClient(node.bootstrap_servers) as client:
            assert produced(client, produce_request("kept", records)).base_offset == 0
            assert values(only(client.ask(fetch_request("kept", 0), 12))) == [b"a"]


def test_two_nodes_live_side_by_side() -> None:
    before = threading.active_count()
    with ottla.Node() as one, ottla.Node() as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        one.create_topic("only-here")
        with WireClient(two.bootstrap_servers) as client:
            assert [topic.name for topic in client.ask(MetadataRequest(topics=None), 12).topics] == []
    assert threading.active_count() == before
