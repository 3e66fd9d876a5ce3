"""Encode and decode of the hot messages, beside kio and kafka-python: `python -m bench.wire`.

Each figure is the best of several rounds, in microseconds per message; the three libraries alternate, so that other
load affects all. All decode the same bytes, and each encodes what it decoded.
"""

from __future__ import annotations

import importlib
import timeit
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any

from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.compile import decoder, encode, encoder

ROUNDS = 5
ROUND_S = 0.02
RECORDS = bytes(1000)
TOPIC_ID: Any = bytes(range(16))

#: One execution of a measured operation.
Call = Callable[[], Any]


def produce(partitions: int, version: int) -> ProduceRequest:
    """A Produce request as a client sends it."""
    data = [PartitionProduceData(index=index, records=RECORDS) for index in range(partitions)]
    topic = TopicProduceData(name="" if version > 12 else "flights", topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produced(partitions: int) -> ProduceResponse:
    """A Produce response."""
    done = [PartitionProduceResponse(index=index, base_offset=1 << 20) for index in range(partitions)]
    return ProduceResponse(responses=[TopicProduceResponse(name="flights", partition_responses=done)])


def fetch(partitions: int) -> FetchRequest:
    """A Fetch request within a session."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=1 << 20, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topic = FetchTopic(topic="flights", partitions=wanted)
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=3, topics=[topic])


def fetched(partitions: int, version: int) -> FetchResponse:
    """A Fetch response."""
    data = [
        PartitionData(
            partition_index=index,
            high_watermark=1 << 20,
            last_stable_offset=1 << 20,
            log_start_offset=0,
            aborted_transactions=None,
            records=RECORDS,
        )
        for index in range(partitions)
    ]
    topic = FetchableTopicResponse(topic="" if version > 12 else "flights", topic_id=TOPIC_ID, partitions=data)
    return FetchResponse(session_id=7, responses=[topic])


def metadata(topics: int, partitions: int) -> MetadataResponse:
    """A Metadata response."""
    brokers = [MetadataResponseBroker(node_id=node, host="127.0.0.1", port=9092 + node) for node in range(3)]
    described = [
        MetadataResponseTopic(
            name=f"topic-{topic}",
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=1, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
                )
                for index in range(partitions)
            ],
        )
        for topic in range(topics)
    ]
    return MetadataResponse(cluster_id="c" * 22, controller_id=1, brokers=brokers, topics=described)


def commit(partitions: int) -> OffsetCommitRequest:
    """A commit of offsets."""
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1 << 20, committed_metadata="")
        for index in range(partitions)
    ]
    topic = OffsetCommitRequestTopic(name="flights", partitions=offsets)
    return OffsetCommitRequest(group_id="group", generation_id_or_member_epoch=3, member_id="m" * 36, topics=[topic])


def offsets(partitions: int) -> ListOffsetsRequest:
    """A ListOffsets request for the ends of partitions."""
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="flights", partitions=wanted)])


CASES: list[tuple[str, Any, int, int, bool]] = [
    ("Produce request, 1 partition", produce(1, 9), 0, 9, True),
    ("Produce request, 1 partition", produce(1, 13), 0, 13, True),
    ("Produce request, 10 partitions", produce(10, 9), 0, 9, True),
    ("Produce response, 10 partitions", produced(10), 0, 9, False),
    ("Fetch request, 10 partitions", fetch(10), 1, 12, True),
    ("Fetch response, 1 partition", fetched(1, 12), 1, 12, False),
    ("Fetch response, 10 partitions", fetched(10, 12), 1, 12, False),
    ("Fetch response, 10 partitions", fetched(10, 16), 1, 16, False),
    ("Metadata response, 1 x 1", metadata(1, 1), 3, 12, False),
    ("Metadata response, 10 x 6", metadata(10, 6), 3, 12, False),
    ("ListOffsets request, 10 partitions", offsets(10), 2, 7, True),
    ("OffsetCommit request, 10 partitions", commit(10), 8, 8, True),
]


def ours(message: Any, version: int) -> tuple[Call, Call]:
    """(encode, decode)."""
    data = encode(message, version)
    write, read = encoder(type(message), version), decoder(type(message), version)
    return lambda: write(message), lambda: read(data)


def kio(data: bytes, key: int, version: int, is_request: bool) -> tuple[Call, Call]:
    """(encode, decode)."""
    index, serial = importlib.import_module("kio.index"), importlib.import_module("kio.serial")
    schema = (index.load_request_schema if is_request else index.load_response_schema)(key, version)
    read, write = serial.entity_reader(schema), serial.entity_writer(schema)
    entity, _ = read(data, 0)
    return lambda: write(BytesIO(), entity), lambda: read(data, 0)


def kafka_python(data: bytes, name: str, version: int) -> tuple[Call, Call]:
    """(encode, decode)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
        modules = [importlib.import_module(f"kafka.protocol.{each}") for each in ("consumer", "metadata", "producer")]
    cls = next(getattr(module, name) for module in modules if hasattr(module, name))
    entity = cls.decode(data, version=version)
    entity._header = None  # its decoder does not set it, but its encoder reads it
    return lambda: entity.encode(version=version), lambda: cls.decode(data, version=version)


def best(calls: list[Call]) -> list[float]:
    """Microseconds of each call, measured alternately."""
    timers = [timeit.Timer(call) for call in calls]
    counts = [max(1, int(ROUND_S / max(min(timer.repeat(3, 3)) / 3, 1e-9))) for timer in timers]
    rounds = [[timer.timeit(count) / count for timer, count in zip(timers, counts, strict=True)] for _ in range(ROUNDS)]
    return [min(times) * 1e6 for times in zip(*rounds, strict=True)]


def main() -> None:
    """Print the table, line by line."""
    print(f"{'microseconds':47} {'encode':>23} {'decode':>23}")
    print(f"{'message':36} {'v':>3} {'bytes':>6}", *(f"{name:>7}" for name in ("ottla", "kio", "k-py") * 2))
    for title, message, key, version, is_request in CASES:
        data = encode(message, version)
        columns = (
            ours(message, version),
            kio(data, key, version, is_request),
            kafka_python(data, type(message).__name__, version),
        )
        for column, call in enumerate(zip(*columns, strict=True)):
            if not column:
                print(f"{title:36} {version:3} {len(data):6}", end="")
            print("", *(f"{time:7.2f}" for time in best(list(call))), end="")
        print(flush=True)


if __name__ == "__main__":
    main()
