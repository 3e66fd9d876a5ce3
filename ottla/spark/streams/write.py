"""What a transaction of a task sends: the engine's outputs and changed entries, as columns where they are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.client.producer.delivery import Delivery
from ottla.client.producer.partitioner import key_partition
from ottla.client.producer.sync import Producer
from ottla.columns.encode_columns import murmur2_all
from ottla.columns.header_column import HEADERS
from ottla.flow.record import Output

#: Fewer records than these are sent one by one: making columns would cost more.
_FEW = 24


def by_topic(outputs: Sequence[Output]) -> Iterable[tuple[str, Sequence[Output]]]:
    """The outputs of each topic, in their order."""
    if len({output[0] for output in outputs}) == 1:
        return [(outputs[0].topic, outputs)]
    found: dict[str, list[Output]] = {}
    for output in outputs:
        found.setdefault(output[0], []).append(output)
    return found.items()


def write(producer: Producer, topic: str, outputs: Sequence[Output], count: Callable[[str], int]) -> None:
    """Send outputs of one topic. `count` gives the number of its partitions."""
    if len(outputs) < _FEW:
        for output in outputs:
            write_one(producer, output, count)
        return
    _, keys, values, timestamps, headers, partitions, bys = zip(*outputs, strict=True)
    columns: dict[str, Any] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps, pa.int64()),
    }
    given: dict[str, Any] = {}
    if bys != keys or partitions.count(None) < len(partitions):
        columns["partition"] = _partitions(partitions, bys, count(topic))
        given["partition"] = "partition"
    if any(headers):
        named = [[{"key": name, "value": content} for name, content in each] for each in headers]
        columns["headers"] = pa.array(named, HEADERS)
        given["headers"] = "headers"
    producer.send_table(topic, pa.record_batch(columns), key="key", timestamp="timestamp", **given)


def write_changes(producer: Producer, topic: str, partition: int, entries: Mapping[bytes, bytes | None]) -> None:
    """Send changed entries of a store to its changelog; None deletes."""
    if len(entries) < _FEW:
        for key, value in entries.items():
            producer.send(topic, value, key, partition=partition)
        return
    columns = {
        "key": pa.array(entries, pa.binary()),
        "value": pa.array(entries.values(), pa.binary()),
        "partition": pa.array(np.full(len(entries), partition, dtype=np.int32)),
    }
    producer.send_table(topic, pa.record_batch(columns), key="key", partition="partition")


def write_one(producer: Producer, output: Output, count: Callable[[str], int]) -> Delivery:
    """Send one output."""
    partition = output.partition
    if partition is None and output.partition_by is not None:
        partition = key_partition(output.partition_by, count(output.topic))
    return producer.send(
        output.topic,
        output.value,
        output.key,
        partition=partition,
        headers=output.headers or None,
        timestamp=output.timestamp,
    )


def _partitions(given: Sequence[int | None], bys: Sequence[bytes | None], count: int) -> Any:
    """Where each record goes; null: anywhere."""
    hashed = (murmur2_all(pa.array(bys, pa.binary())) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    anywhere = np.array([by is None for by in bys])
    numbers = np.array([-1 if each is None else each for each in given], dtype=np.int64)
    placed = np.where(numbers >= 0, numbers, hashed)
    return pa.array(placed, mask=anywhere & (numbers < 0))
