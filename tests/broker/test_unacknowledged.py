"""A producer with acks=0 reads no answer. When a part of its request is refused, the node closes the connection, which
is all that such a producer can notice; what it may write is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.broker.handlers import produce
from ottla.client import Admin
from ottla.client.admin.acl import Acl
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.inbound import PeerError
from ottla.security.acl import AclOperation, AclResource
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build, read
from tests.broker.sasl_scene import PASSWORD, SETTINGS, plaintext, secured, sign_in
from tests.broker.wire_client import WireClient

OPEN, HIDDEN = "open", "hidden"
#: More than one step takes.
PARTITIONS = 300


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    settings = SETTINGS | {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with ottla.Node(settings=settings) as node:
        for name in (OPEN, HIDDEN):
            node.create_topic(name, PARTITIONS)
        with Admin(plaintext(node)) as admin:
            rule = Acl(AclResource.TOPIC, OPEN, "User:ann", AclOperation.WRITE)
            admin.create_acls([rule]).check()
        yield node


@pytest.fixture
def ann(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(secured(node)) as client:
        assert sign_in(client, "PLAIN", "ann", PASSWORD).error_code == 0
        yield client


def _record(value: bytes, **more: Any) -> bytes:
    return build([(1, None, value, [])], **more)


def _asked(*topics: str, value: bytes, count: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    """A record for each of the first `count` partitions of each topic."""
    of_transaction: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    records = _record(value, **(of_transaction if transactional_id else {}))
    parts = [PartitionProduceData(index=index, records=records) for index in range(count)]
    named = [TopicProduceData(name=topic, partition_data=parts) for topic in topics]
    return ProduceRequest(acks=0, timeout_ms=1000, transactional_id=transactional_id, topic_data=named)


def _values(node: ottla.Node, topic: str, value: bytes) -> int:
    """How many records with this value are in the topic."""
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(PARTITIONS)
    ]
    request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=asked)], max_bytes=1 << 20, max_wait_ms=0)
    with WireClient(plaintext(node)) as client:
        parts = client.ask(request, 11).responses[0].partitions
    batches = [batch for part in parts for batch in read(part.records)]
    return sum(record.value == value for batch in batches for record in batch.records())


def _serves(client: WireClient) -> bool:
    """Whether the next answer on this connection is the one of the next request."""
    try:
        client.ask(MetadataRequest(topics=[]), 9)
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("count", [1, PARTITIONS], ids=["at once", "in steps"])
@pytest.mark.parametrize(
    ("topics", "written", "goes_on"),
    [
        ((OPEN,), True, True),
        ((OPEN, HIDDEN), True, False),
        ((HIDDEN, OPEN), True, False),
        ((HIDDEN,), False, False),
    ],
    ids=["open", "open and hidden", "hidden and open", "hidden"],
)
def test_a_denied_topic_costs_the_connection_and_no_record_of_another(
    node: ottla.Node, ann: WireClient, topics: tuple[str, ...], count: int, written: bool, goes_on: bool
) -> None:
    value = f"{topics} {count}".encode()
    ann.send(_asked(*topics, value=value, count=count), 9)
    assert _serves(ann) is goes_on
    assert _values(node, OPEN, value) == count * written
    assert _values(node, HIDDEN, value) == 0


def test_a_denied_transaction_costs_the_connection(node: ottla.Node, ann: WireClient) -> None:
    ann.send(_asked(OPEN, value=b"denied id", transactional_id="t"), 9)
    assert not _serves(ann)
    assert _values(node, OPEN, b"denied id") == 0


# ---- what fails without a cause of the client's


@pytest.mark.parametrize("error", [ValueError("a bug"), KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)], ids=repr)
@pytest.mark.parametrize("count", [1, PARTITIONS], ids=["at once", "in steps"])
def test_a_bug_costs_the_connection(
    node: ottla.Node, error: Exception, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireClient(plaintext(node)) as client:
        assert _serves(client)
        calls = iter(range(count))

        def breaks(*given: Any) -> Any:
            # In the last partition, when some steps are done.
            if next(calls) == count - 1:
                raise error
            return append(*given)

        append = produce._append
        monkeypatch.setattr(produce, "_append", breaks)
        client.send(_asked(OPEN, value=b"x", count=count), 9)
        assert not _serves(client)


def test_there_is_no_error_response_without_acks() -> None:
    refuse = HANDLERS[ApiKey.PRODUCE].error_response
    for acks in (1, -1):
        request = _asked(OPEN, value=b"x")
        request.acks = acks
        (topic,) = refuse(request, 9, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)).responses
        assert [each.error_code for each in topic.partition_responses] == [ErrorCode.KAFKA_STORAGE_ERROR]
    with pytest.raises(PeerError):
        refuse(_asked(OPEN, value=b"x"), 9, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
