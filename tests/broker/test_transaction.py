"""What a transactional producer that was replaced is told, by the requests that write."""

from __future__ import annotations

from itertools import count

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient

_names = (f"transaction-{number}" for number in count())
_BUSY = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS)


def begun(client: WireClient, name: str) -> InitProducerIdResponse:
    """A producer that takes this transactional id over."""
    for key_type in (0, 1):
        client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name]), 4)
    while True:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        reply: InitProducerIdResponse = client.ask(request, 4)
        if reply.error_code not in _BUSY:
            assert reply.error_code == ErrorCode.NONE
            return reply


@pytest.mark.parametrize("version", [11, 12])
def test_a_replaced_producer_is_told_that_its_epoch_is_old(node: ottla.Node, client: WireClient, version: int) -> None:
    """Not PRODUCER_FENCED, though the coordinator says so: librdkafka would take it for a transaction to abort."""
    name = next(_names)
    node.create_topic(name)
    older = begun(client, name)
    begun(client, name)
    records = build(
        [(1_700_000_000_000, b"k", b"v", [])],
        producer_id=older.producer_id,
        producer_epoch=older.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[data])
    (answer,) = client.ask(request, version).responses[0].partition_responses
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [4, 5])
def test_a_replaced_producers_offsets_are_refused_for_its_old_epoch(
    node: ottla.Node, client: WireClient, version: int
) -> None:
    name = next(_names)
    node.create_topic(name)
    older = begun(client, name)
    begun(client, name)
    topic = TxnOffsetCommitRequestTopic(
        name=name, partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=older.producer_id,
        producer_epoch=older.producer_epoch,
        topics=[topic],
    )
    (answer,) = client.ask(request, version).topics[0].partitions
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_coordinator_itself_says_fenced(node: ottla.Node, client: WireClient) -> None:
    name = next(_names)
    node.create_topic(name)
    older = begun(client, name)
    begun(client, name)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=older.producer_id,
        v3_and_below_producer_epoch=older.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
    )
    (answer,) = client.ask(request, 3).results_by_topic_v3_and_below[0].results_by_partition
    assert answer.partition_error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(("ahead", "coordinator_epoch"), [(0, 7), (3, 0)])
def test_a_marker_that_somebody_else_sent_does_not_stop_the_coordinator(
    node: ottla.Node, client: WireClient, ahead: int, coordinator_epoch: int
) -> None:
    """A wandering history found it: the coordinator failed at its own marker, and everybody's transactions with it."""
    name = next(_names)
    node.create_topic(name)
    mine = begun(client, name)
    client.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=mine.producer_id,
            v3_and_below_producer_epoch=mine.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
        ),
        3,
    )
    marker = WritableTxnMarker(
        producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch + ahead,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    (result,) = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    assert result.topics[0].partitions[0].error_code == ErrorCode.NONE
    end = EndTxnRequest(transactional_id=name, producer_id=mine.producer_id, producer_epoch=mine.producer_epoch)
    assert client.ask(end, 4).error_code == ErrorCode.NONE
    assert begun(client, name).producer_epoch == mine.producer_epoch + 1
