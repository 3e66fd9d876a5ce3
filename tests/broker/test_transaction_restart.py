"""Open transactions and a node that ends and comes back: nothing undecided is shown to `read_committed`.

A killed node's directories are a copy of those of the running one: what a SIGKILL leaves is what the files hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build, read
from tests.broker.test_transaction import begun
from tests.broker.wire_client import WireClient

_TOPIC = "t"
_SETTINGS = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
_LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
#: The offset at which the transaction begins in each partition.
_STARTS = (0, 5, 1)


@contextmanager
def _ended(node: ottla.Node, copy: Path, how: str) -> Iterator[ottla.Node]:
    if how == "stopped":
        yield node.restart()
        return
    shutil.copytree(node.data, copy, ignore=shutil.ignore_patterns(".lock"))
    with ottla.Node(copy, settings=_SETTINGS) as other:
        yield other


def _produce(client: WireClient, partition: int, *values: bytes, **fields: int | bool) -> ErrorCode:
    now_ms = 1_700_000_000_000
    records = build([(now_ms, None, value, []) for value in values], **fields)  # type: ignore[arg-type]
    data = TopicProduceData(name=_TOPIC, partition_data=[PartitionProduceData(index=partition, records=records)])
    request = ProduceRequest(
        transactional_id="x" if fields.get("transactional") else None, acks=-1, timeout_ms=1000, topic_data=[data]
    )
    return ErrorCode(client.ask(request, 11).responses[0].partition_responses[0].error_code)


def _fetch(client: WireClient, partition: int, *, committed: bool) -> PartitionData:
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_bytes=1 << 20,
        session_epoch=-1,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=_TOPIC, partitions=[wanted])],
    )
    found: PartitionData = client.ask(request, 12).responses[0].partitions[0]
    assert found.error_code == 0
    return found


def _values(data: PartitionData) -> list[bytes | None]:
    batches = [each for each in read(bytes(data.records or b"")) if not each.header.is_control]
    return [record.value for each in batches for record in each.records()]


def _latest_committed(client: WireClient, partition: int) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=_TOPIC, partitions=[asked])]
    )
    offset: int = client.ask(request, 9).topics[0].partitions[0].offset
    return offset


def _open_transaction(client: WireClient) -> InitProducerIdResponse:
    mine = begun(client, "x")
    for partition, start in enumerate(_STARTS):
        if start:
            assert _produce(client, partition, *[b"before"] * start) is ErrorCode.NONE
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=mine.producer_id,
        v3_and_below_producer_epoch=mine.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=_TOPIC, partitions=list(range(len(_STARTS))))],
    )
    client.ask(request, 3)
    for partition in range(len(_STARTS)):
        assert _write(client, mine, partition, 0, b"one", b"two") is ErrorCode.NONE
        assert _produce(client, partition, b"behind") is ErrorCode.NONE
    return mine


def _write(
    client: WireClient, mine: InitProducerIdResponse, partition: int, sequence: int, *values: bytes
) -> ErrorCode:
    return _produce(
        client,
        partition,
        *values,
        producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )


def _end(client: WireClient, mine: InitProducerIdResponse, *, commit: bool) -> None:
    request = EndTxnRequest(
        transactional_id="x",
        producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch,
        committed=commit,
    )
    while True:
        client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        code = client.ask(request, 4).error_code
        if code not in _LOADING:
            assert code == ErrorCode.NONE
            return


def _assert_open(client: WireClient) -> None:
    for partition, start in enumerate(_STARTS):
        found = _fetch(client, partition, committed=True)
        assert found.last_stable_offset == start
        assert _values(found) == [b"before"] * start
        assert _latest_committed(client, partition) == start
        assert _values(_fetch(client, partition, committed=False))[start:] == [b"one", b"two", b"behind"]


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_transaction_that_is_open_when_the_node_ends_is_open_when_it_is_back(
    tmp_path: Path, how: str, commit: bool
) -> None:
    with ottla.Node(tmp_path / "data", settings=_SETTINGS) as first:
        first.create_topic(_TOPIC, partitions=len(_STARTS))
        with WireClient(first.bootstrap_servers) as client:
            mine = _open_transaction(client)
            _assert_open(client)
        with (
            _ended(first, tmp_path / "copy", how) as node,
            WireClient(node.bootstrap_servers) as client,
        ):
            _assert_open(client)
            # It goes on where it was, and another may not write in between.
            assert _write(client, mine, 0, 2, b"three") is ErrorCode.NONE
            with _ended(node, tmp_path / "second", how) as again, WireClient(again.bootstrap_servers) as other:
                _end(other, mine, commit=commit)
                for partition, start in enumerate(_STARTS):
                    while (found := _fetch(other, partition, committed=True)).last_stable_offset == start:
                        pass  # the marker is under way
                    assert [each.first_offset for each in found.aborted_transactions or []] == (
                        [] if commit else [start]
                    )
                    more = [b"three"] if partition == 0 else []
                    assert _values(found) == [*[b"before"] * start, b"one", b"two", b"behind", *more]
