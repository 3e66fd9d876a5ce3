"""Sending a task's outputs and changelog entries, as columns if they are many."""

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
from ottla.flow.record import Headers, Output
from ottla.flow.vector.columns import OutputColumns

#: Fewer records than this are sent one by one, which is cheaper than making columns.
_FEW = 24


AnyOutput = Output | OutputColumns


def by_topic(outputs: Sequence[AnyOutput]) -> Iterable[tuple[str, Sequence[Output] | OutputColumns]]:
    """The outputs grouped by topic, in order: columns unchanged, single outputs as lists."""
    if not any(output.__class__ is OutputColumns for output in outputs):
        single: Sequence[Any] = outputs
        if len({output[0] for output in single}) == 1:
            yield single[0].topic, single
            return
    waiting: dict[str, list[Output]] = {}
    for output in outputs:
        if isinstance(output, OutputColumns):
            before = waiting.pop(output.topic, None)
            if before:
                yield output.topic, before
            yield output.topic, output
        else:
            waiting.setdefault(output[0], []).append(output)
    yield from waiting.items()


def singles(outputs: Iterable[AnyOutput]) -> list[Output]:
    """The outputs one by one."""
    result: list[Output] = []
    for output in outputs:
        if isinstance(output, OutputColumns):
            result += output.outputs()
        else:
            result.append(output)
    return result


def write(
    producer: Producer, topic: str, outputs: Sequence[Output] | OutputColumns, count: Callable[[str], int]
) -> None:
    """Send outputs of one topic. `count` returns its number of partitions."""
    if isinstance(outputs, OutputColumns):
        _write_columns(producer, outputs, count)
        return
    if len(outputs) < _FEW:
        for output in outputs:
            write_one(producer, output, count)
        return
    _, keys, values, timestamps, headers, partitions, partition_keys = zip(*outputs, strict=True)
    columns: dict[str, Any] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps, pa.int64()),
    }
    given: dict[str, Any] = {}
    if partition_keys != keys or partitions.count(None) < len(partitions):
        columns["partition"] = _partitions(partitions, partition_keys, count(topic))
        given["partition"] = "partition"
    _with_headers(columns, given, headers)
    producer.send_table(topic, pa.record_batch(columns), key="key", timestamp="timestamp", **given)


def _write_columns(producer: Producer, outputs: OutputColumns, count: Callable[[str], int]) -> None:
    columns: dict[str, Any] = {
        "key": outputs.keys, "value": outputs.values, "timestamp": pa.array(outputs.timestamps)
    }  # fmt: skip
    given: dict[str, Any] = {}
    if outputs.partition_keys is not None:
        columns["partition"] = pa.array(_hashed(outputs.partition_keys, count(outputs.topic)))
        given["partition"] = "partition"
    _with_headers(columns, given, outputs.headers or ())
    producer.send_table(outputs.topic, pa.record_batch(columns), key="key", timestamp="timestamp", **given)


def _with_headers(columns: dict[str, Any], given: dict[str, Any], headers: Sequence[Headers]) -> None:
    if any(headers):
        named = [[{"key": name, "value": content} for name, content in row_headers] for row_headers in headers]
        columns["headers"] = pa.array(named, HEADERS)
        given["headers"] = "headers"


def write_changes(producer: Producer, topic: str, partition: int, entries: Mapping[bytes, bytes | None]) -> None:
    """Send a store's changed entries to its changelog. None deletes."""
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


def _partitions(given: Sequence[int | None], partition_keys: Sequence[bytes | None], count: int) -> Any:
    """The partition of each record; null: any."""
    hashed = _hashed(pa.array(partition_keys, pa.binary()), count)
    anywhere = np.array([by is None for by in partition_keys])
    numbers = np.array([-1 if partition is None else partition for partition in given], dtype=np.int64)
    placed = np.where(numbers >= 0, numbers, hashed)
    return pa.array(placed, mask=anywhere & (numbers < 0))


def _hashed(keys: Any, count: int) -> Any:
    """The partitions that Kafka's default partitioner chooses for these keys."""
    return (murmur2_all(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
