"""A batch that is wrong in two ways: which error its producer gets, in Apache Kafka's order of checks."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.ids import OFFSETS_TOPIC
from ottla.wire.api import produce
from ottla.wire.batch import build
from ottla.wire.codec import Codec
from tests.broker.disk_scene import TOPIC
from tests.broker.test_replicated_produce import Pair, code

_GOOD = build([(1, b"k", b"v", ())])
_ZSTD = build([(1, b"k", b"v" * 100, ())], codec=Codec.ZSTD)
_DAMAGED = _GOOD[:-1] + b"\xff"
_OLD = _GOOD[:16] + b"\x01" + _GOOD[17:]
_LATE = bytes(7) + b"\x05" + _GOOD[8:]
#: Partitions of one topic.
_LED, _ELSEWHERE, _TOO_FEW, _NONE = 0, 1, 2, 9


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A node that leads some partitions and follows others."""
    pair = Pair(partitions=3, min_insync_replicas="2")
    pair.change(_ELSEWHERE, leader=2)
    pair.change(_TOO_FEW, isr=[1])
    pair.scene.machine.create_topic(OFFSETS_TOPIC, 1)
    pair.scene.machine.settle()
    return pair


def _answer(
    pair: Pair, index: int, records: bytes | None, acks: int = -1, version: int = 9, topic: str = TOPIC
) -> list[Any]:
    data = None if records is None else bytearray(records)
    part = produce.PartitionProduceData(index=index, records=data)
    topics = [produce.TopicProduceData(name=topic, partition_data=[part])]
    return pair.send(produce.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), version)


@pytest.mark.parametrize(
    ("index", "records", "acks", "version", "error"),
    [
        pytest.param(_NONE, _GOOD, 2, 9, "UNKNOWN_TOPIC_OR_PARTITION", id="unknown before acks"),
        pytest.param(_NONE, b"", 1, 9, "UNKNOWN_TOPIC_OR_PARTITION", id="unknown before the format"),
        pytest.param(_ELSEWHERE, _GOOD, 2, 9, "INVALID_REQUIRED_ACKS", id="acks before the leader"),
        pytest.param(_ELSEWHERE, b"", 2, 9, "INVALID_RECORD", id="nothing before acks"),
        pytest.param(_ELSEWHERE, None, 1, 9, "INVALID_RECORD", id="null before the leader"),
        pytest.param(_ELSEWHERE, _GOOD + _GOOD, 1, 9, "INVALID_RECORD", id="two batches before the leader"),
        pytest.param(_ELSEWHERE, _OLD, 1, 9, "INVALID_RECORD", id="magic before the leader"),
        pytest.param(_ELSEWHERE, _ZSTD, 1, 6, "UNSUPPORTED_COMPRESSION_TYPE", id="codec before the leader"),
        pytest.param(_ELSEWHERE, _ZSTD, 1, 7, "NOT_LEADER_OR_FOLLOWER", id="a codec of its version"),
        pytest.param(_ELSEWHERE, _DAMAGED, 1, 9, "NOT_LEADER_OR_FOLLOWER", id="the leader before the CRC"),
        pytest.param(_TOO_FEW, _GOOD + _GOOD, -1, 9, "INVALID_RECORD", id="two batches before the replicas"),
        pytest.param(_TOO_FEW, _ZSTD, -1, 6, "UNSUPPORTED_COMPRESSION_TYPE", id="codec before the replicas"),
        pytest.param(_TOO_FEW, _DAMAGED, -1, 9, "NOT_ENOUGH_REPLICAS", id="the replicas before the CRC"),
        pytest.param(_TOO_FEW, _LATE, -1, 9, "NOT_ENOUGH_REPLICAS", id="the replicas before the base offset"),
        pytest.param(_TOO_FEW, _DAMAGED, 1, 9, "CORRUPT_MESSAGE", id="acks 1 counts no replicas"),
        pytest.param(_LED, _GOOD, 2, 9, "INVALID_REQUIRED_ACKS", id="acks"),
    ],
)
def test_the_first_error_is_the_one_of_apache_kafka(
    pair: Pair, index: int, records: bytes | None, acks: int, version: int, error: str
) -> None:
    assert code(_answer(pair, index, records, acks, version)) == error


@pytest.mark.parametrize(
    ("index", "records", "acks", "error"),
    [
        pytest.param(0, _GOOD, 1, "INVALID_TOPIC_EXCEPTION", id="refused"),
        pytest.param(0, _DAMAGED, 1, "INVALID_TOPIC_EXCEPTION", id="before the CRC"),
        pytest.param(0, _GOOD, 2, "INVALID_REQUIRED_ACKS", id="after acks"),
        pytest.param(0, b"", 1, "INVALID_RECORD", id="after the format"),
        pytest.param(1, _GOOD, 1, "UNKNOWN_TOPIC_OR_PARTITION", id="after the unknown"),
    ],
)
def test_a_client_may_not_write_into_an_internal_topic(
    pair: Pair, index: int, records: bytes, acks: int, error: str
) -> None:
    assert code(_answer(pair, index, records, acks, topic=OFFSETS_TOPIC)) == error
