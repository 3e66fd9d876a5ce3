"""Long requests: what they leave behind, and how many are read at once."""

from __future__ import annotations

import gc
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

import ottla
from ottla.broker.dispatch import dispatch
from ottla.broker.handlers import config
from ottla.broker.handlers.fetch import ParkedFetch
from ottla.broker.metadata.config_view import describe_group
from ottla.kernel.error import ErrorCode
from ottla.replica.fetch_session import CachedPartition
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.sim.machine import Machine
from ottla.sim.net import SimConnection
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.batch import build, read
from ottla.wire.compile import decode, step_decoder
from ottla.wire.header import ResponseHeader
from ottla.wire.record.metadata import ClientQuotaRecord, EntityData
from tests.abuse.served import frame
from tests.broker.wire_client import WireClient

_PARTITIONS = 5000


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No collection in a test, and `gc.get_objects` knows only what was made in it: tests before it leave theirs."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def _alive(*kinds: type) -> int:
    return sum(type(each) in kinds for each in gc.get_objects())


def _wide(max_wait_ms: int = 0) -> bytes:
    partitions = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(_PARTITIONS)]
    topics = [FetchTopic(topic="x", partitions=partitions)]
    return frame(FetchRequest(max_wait_ms=max_wait_ms, session_epoch=-1, topics=topics), 11)


def _raw(node: ottla.Node) -> socket.socket:
    host, port = node.bootstrap_servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def _answer(sock: socket.socket) -> bytes:
    with sock.makefile("rb") as file:
        return file.read(int.from_bytes(file.read(4), "big"))


@pytest.mark.usefixtures("uncollected")
def test_a_long_request_leaves_nothing_for_the_collector(node: ottla.Node) -> None:
    sent, small = _wide(), frame(MetadataRequest(topics=[]), 9)
    with _raw(node) as sock:
        sock.sendall(sent)
        assert len(_answer(sock)) > 20 * _PARTITIONS
        # Its answer says that the long request is over.
        sock.sendall(small)
        assert _answer(sock)
        assert _alive(FetchPartition, PartitionData, CachedPartition) == 0


@pytest.mark.usefixtures("uncollected")
def test_a_fetch_that_waited_leaves_nothing_for_the_collector(node: ottla.Node, client: WireClient) -> None:
    client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="waited", num_partitions=1, replication_factor=1)]), 7)
    topics = [FetchTopic(topic="waited", partitions=[FetchPartition(partition=0, partition_max_bytes=1)])]
    for max_wait_ms in (1, 50):
        client.ask(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics), 11)
    client.ask(MetadataRequest(topics=[]), 9)
    assert _alive(ParkedFetch) == 0


def _many_topics() -> bytes:
    topics = [MetadataRequestTopic(name=f"{number:06d}") for number in range(20_000)]
    return frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


def test_long_requests_that_wait_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is read, two wait, and the next loses its connection; the request of a client that left takes no room."""
    sent = _many_topics()[4:]
    monkeypatch.setattr(dispatch, "_LONG_BYTES_AT_ONCE", len(sent))
    monkeypatch.setattr(dispatch, "_LONG_BYTES_WAITING", 2 * len(sent))
    machine = Machine(Random(1))
    machine.start()
    answers: list[tuple[str, int]] = []
    lost: list[str] = []

    def client(name: str) -> SimConnection:
        return machine.connect(lambda reply: answers.append((name, len(reply))), lambda: lost.append(name))

    clients = {name: client(name) for name in ("read", "waits", "leaves", "refused", "later", "too late")}
    for name in ("read", "waits", "leaves", "refused"):
        clients[name].send(sent)
    machine.run(lambda: clients["refused"].closed)
    assert [name for name, each in clients.items() if each.closed] == ["refused"]
    clients["leaves"].close("it leaves")
    for name in ("later", "too late"):
        clients[name].send(sent)
    machine.run(lambda: len(answers) == 3)
    assert [name for name, size in answers if size > 10 * 20_000] == ["read", "waits", "later"]
    assert sorted(lost) == ["leaves", "refused", "too late"]


def test_one_long_request_may_wait_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = _many_topics()[4:]
    monkeypatch.setattr(dispatch, "_LONG_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(dispatch, "_LONG_BYTES_WAITING", 1)
    machine = Machine(Random(1))
    machine.start()
    answers: list[bytes] = []
    for _ in range(2):
        machine.connect(answers.append, lambda: None).send(sent)
    machine.run(lambda: len(answers) == 2)
    assert len(answers) == 2


def test_long_requests_beyond_the_bound_are_read_one_after_another(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, most = 0, 0

    def watched(cls: type, version: int) -> Any:
        def read(*arguments: Any) -> Generator[None, None, Any]:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            try:
                return (yield from step_decoder(cls, version)(*arguments))
            finally:
                reading -= 1

        return read

    sent = _many_topics()
    monkeypatch.setattr(dispatch, "step_decoder", watched)

    monkeypatch.setattr(dispatch, "_LONG_BYTES_AT_ONCE", len(sent))
    with ExitStack() as stack:
        socks = [stack.enter_context(_raw(node)) for _ in range(6)]
        for sock in socks:
            sock.sendall(sent)
        # One that goes while it waits holds nobody up.
        socks.pop(2).close()
        assert all(len(_answer(sock)) > 10 * 20_000 for sock in socks)
    assert (reading, most) == (0, 1)


def test_very_many_requests_that_waited_and_are_read_in_one_step_are_all_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are long because of one field."""
    sent = _many_topics()[4:]
    monkeypatch.setattr(dispatch, "_LONG_BYTES_AT_ONCE", len(sent))
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=bytes(70_000))
    waits = frame(SyncGroupRequest(group_id="g", member_id="m", assignments=[assignment]), 5)[4:]
    machine = Machine(Random(1))
    machine.start()
    answered: list[str] = []
    machine.connect(lambda _: answered.append("read"), lambda: None).send(sent)
    for _ in range(300):
        machine.connect(lambda _: answered.append("waits"), lambda: None).send(waits)
    machine.run(lambda: len(answered) == 301)
    assert answered.count("read") == 1


@pytest.mark.parametrize("secured", [False, True], ids=["open", "with an authorizer"])
@pytest.mark.parametrize(
    ("topics", "partitions", "asked"),
    [(1, 600, None), (1, 600, ["t0"]), (20, 30, None), (260, 1, None)],
    ids=["one of many partitions", "the same by its name", "many with some partitions", "very many"],
)
def test_a_short_question_about_many_partitions_does_not_hold_up_others(
    topics: int, partitions: int, asked: list[str] | None, secured: bool
) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"} if secured else {}
    machine = Machine(Random(1), settings)
    machine.start()
    for number in range(topics):
        machine.create_topic(f"t{number}", partitions)
    machine.settle()
    named = None if asked is None else [MetadataRequestTopic(name=name) for name in asked]
    answers: list[bytes] = []
    machine.connect(answers.append, lambda: None).send(frame(MetadataRequest(topics=named), 9)[4:])
    machine.connect(answers.append, lambda: None).send(frame(ApiVersionsRequest(), 0)[4:])
    machine.run(lambda: len(answers) == 2)
    short, long = answers
    assert len(short) < 1000
    response = decode(MetadataResponse, 9, long, 5)[0]
    assert {topic.name: [each.partition_index for each in topic.partitions] for topic in response.topics} == {
        f"t{number}": [*range(partitions)] for number in range(topics)
    }


# ---- Produce


def _produced(*parts: PartitionProduceData, topic: str, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[*parts])]
    )


def _record(value: bytes, **more: Any) -> bytes:
    return build([(1, None, value, [])], **more)


def _wide_produce(topic: str, count: int, value: bytes, acks: int = 1, **more: Any) -> ProduceRequest:
    """Partitions that are not there, and the one that is in their middle."""
    parts = [PartitionProduceData(index=7 + number, records=None) for number in range(count)]
    parts[count // 2] = PartitionProduceData(index=0, records=_record(value, **more))
    return _produced(*parts, topic=topic, acks=acks)


#: More than a step, in a frame below and in one above 64 KiB.
WIDE = (2_000, 20_000)


def _values(client: WireClient, topic: str) -> list[bytes]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    answer = client.ask(FetchRequest(topics=[FetchTopic(topic=topic, partitions=[partition])], max_bytes=1 << 20), 11)
    return [
        record.value or b"" for batch in read(answer.responses[0].partitions[0].records) for record in batch.records()
    ]


@pytest.mark.parametrize("count", WIDE)
def test_a_produce_of_very_many_partitions_is_appended_in_its_place(
    node: ottla.Node, client: WireClient, count: int
) -> None:
    topic = f"wide-{count}"
    node.create_topic(topic)
    # The second request is there before the first is done, and lies in the buffer where the first one lay.
    client.send(_wide_produce(topic, count, b"first"), 9)
    client.send(_produced(PartitionProduceData(index=0, records=_record(b"second" * 9_000)), topic=topic), 9)
    answers = client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses
    assert [each.index for each in answers] == [7 + n if n != count // 2 else 0 for n in range(count)]
    assert {each.error_code for each in answers if each.index} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (answers[count // 2].error_code, answers[count // 2].base_offset) == (0, 0)
    assert client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].base_offset == 1
    assert _values(client, topic) == [b"first", b"second" * 9_000]


@pytest.mark.parametrize("count", WIDE)
def test_a_wide_produce_without_acks_loses_its_connection_when_a_part_fails(
    node: ottla.Node, client: WireClient, count: int
) -> None:
    topic = f"unacknowledged-{count}"
    node.create_topic(topic)
    with WireClient(node.bootstrap_servers) as other:
        other.send(_wide_produce(topic, count, b"v", acks=0), 9)
        with pytest.raises(ConnectionError):
            other.receive_frame()
    assert _values(client, topic) == [b"v"]


@pytest.mark.parametrize("count", [1, 2_000])
def test_a_produce_of_a_transaction_without_an_id_is_refused_whole(
    node: ottla.Node, client: WireClient, count: int
) -> None:
    topic = f"refused-{count}"
    node.create_topic(topic)
    sent = _wide_produce(topic, count, b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    answers = client.ask(sent, 9).responses[0].partition_responses
    assert {each.error_code for each in answers} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert len(answers) == count
    assert _values(client, topic) == []


@pytest.mark.parametrize("count", WIDE)
def test_others_have_their_turns_during_a_wide_produce(count: int) -> None:
    machine = Machine(Random(1))
    machine.start()
    answers: list[str] = []
    wide = machine.connect(lambda reply: answers.append("wide"), lambda: None)
    other = machine.connect(lambda reply: answers.append("other"), lambda: None)
    wide.send(frame(_wide_produce("wide", count, b"v"), 9)[4:])
    other.send(frame(MetadataRequest(topics=[]), 9)[4:])
    machine.run(lambda: len(answers) == 2)
    assert answers == ["other", "wide"]


def test_others_have_their_turns_while_many_quotas_are_described() -> None:
    """The request is short, and what there is of them is not."""
    machine = Machine(Random(1))
    machine.start()
    assert machine.node is not None
    records = [
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=f"{number}")], key="producer_byte_rate", value=1.0
        )
        for number in range(1000)
    ]
    machine.node.quorum.append(records)
    machine.settle()
    answers: list[bytes] = []
    many = machine.connect(answers.append, lambda: None)
    other = machine.connect(lambda reply: answers.append(b""), lambda: None)
    many.send(frame(DescribeClientQuotasRequest(components=[]), 1)[4:])
    other.send(frame(MetadataRequest(topics=[]), 9)[4:])
    machine.run(lambda: len(answers) == 2)
    assert answers[0] == b""
    _, position = decode(ResponseHeader, 1, answers[1])
    response, _ = decode(DescribeClientQuotasResponse, 1, answers[1], position)
    assert len(response.entries or ()) == 1000


def test_others_have_their_turns_while_the_configs_of_much_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    described = 0

    def counted(*arguments: Any) -> Any:
        nonlocal described
        described += 1
        return describe_group(*arguments)

    monkeypatch.setattr(config, "describe_group", counted)
    machine = Machine(Random(1))
    machine.start()
    asked = [DescribeConfigsResource(resource_type=32, resource_name=f"group-{number}") for number in range(100)]
    answers: list[bytes] = []
    many = machine.connect(answers.append, lambda: None)
    other = machine.connect(lambda reply: answers.append(b"%d" % described), lambda: None)
    many.send(frame(DescribeConfigsRequest(resources=asked), 4)[4:])
    other.send(frame(MetadataRequest(topics=[]), 9)[4:])
    machine.run(lambda: len(answers) == 2)
    assert int(answers[0]) < 50
    _, position = decode(ResponseHeader, 1, answers[1])
    response, _ = decode(DescribeConfigsResponse, 4, answers[1], position)
    assert [each.resource_name for each in response.results] == [each.resource_name for each in asked]
    assert len({len(each.configs) for each in response.results} - {0}) == 1
