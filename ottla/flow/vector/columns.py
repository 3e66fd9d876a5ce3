"""Records of one partition as Arrow columns of bytes, and the deserialization of whole columns.

Needs pyarrow; only hosts that work with columns import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.flow.operator.table_aggregate import ChangeSerde
from ottla.flow.record import Change, Headers, Input, Output
from ottla.flow.serde import BYTES, DOUBLE, LONG, STRING, Serde
from ottla.flow.task.receive import Receiver
from ottla.flow.task.rows import Rows
from ottla.flow.vector.change import decode_changes
from ottla.flow.vector.encode import decode
from ottla.flow.vector.evaluate import Changes
from ottla.kernel.named import NamedTuple


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of a partition in the order of their offsets. Keys and values are binary arrays."""

    topic: str
    partition: int
    offsets: Any
    timestamps: Any
    keys: Any
    values: Any
    headers: list[Headers] | None

    @classmethod
    def of(cls, table: Any) -> Batch:
        """Convert a record batch of `Consumer.poll_table`, which holds records of one partition."""
        topic, partition, offsets, timestamps, keys, values, headers = table.columns
        own = None
        if len(headers.flatten()):
            own = [
                tuple((header["key"], header["value"]) for header in row_headers) for row_headers in headers.to_pylist()
            ]
        return cls(
            topic[0].as_py(),
            partition[0].as_py(),
            offsets.to_numpy(),
            timestamps.view(pa.int64()).to_numpy(),
            keys,
            values,
            own,
        )

    def rows(self, receiver: Receiver) -> Rows | None:
        """Deserialize all records. None if one cannot be deserialized or a timestamp must be extracted."""
        if receiver.has_extractor or not len(self.offsets) or self.timestamps.min() < 0:
            return None
        columns = None
        if receiver.region is not None:
            try:
                columns = decode(receiver.key, self.keys), _decoded(receiver.value, self.values), self.timestamps
            except Exception:
                columns = None
        rows = Rows(
            self.topic,
            self.partition,
            self.offsets,
            self.timestamps.tolist(),
            lambda: (read(receiver.key, self.topic, self.keys), read(receiver.value, self.topic, self.values)),
            self.headers,
            self._raw,
            columns,
        )
        if columns is None:
            try:
                _ = rows.objects
            except Exception:
                return None
        return rows

    def inputs(self) -> Iterator[Input]:
        """The records one by one."""
        topic, partition = self.topic, self.partition
        columns = (self.offsets.tolist(), self.timestamps.tolist(), objects(self.keys), objects(self.values))
        headers = self.headers or [()] * len(self.offsets)
        for offset, timestamp, key, value, own in zip(*columns, headers, strict=True):
            yield Input(topic, partition, offset, timestamp, key, value, own)

    def _raw(self, row: int) -> tuple[bytes | None, bytes | None]:
        return self.keys[row].as_py(), self.values[row].as_py()


class OutputColumns(NamedTuple):
    """Outputs of one topic as columns. `partition_keys`: `Output.partition_by` if it differs from the key, or None."""

    topic: str
    keys: Any
    values: Any
    timestamps: Any
    headers: list[Headers] | None
    partition_keys: Any

    def outputs(self) -> Iterator[Output]:
        """The outputs one by one."""
        headers = self.headers or [()] * len(self.keys)
        partition_keys = self.keys if self.partition_keys is None else self.partition_keys
        columns = (objects(self.keys), objects(self.values), self.timestamps.tolist(), headers, objects(partition_keys))
        for key, value, timestamp, own, by in zip(*columns, strict=True):
            yield Output(self.topic, key, value, timestamp, own, None, by)


def _decoded(serde: Serde, values: Any) -> Any:
    if isinstance(serde, ChangeSerde):
        assert serde.inner is not None
        return decode_changes(serde.inner, values)
    return decode(serde, values)


def objects(array: Any) -> list[Any]:
    """The values of an array as Python objects, None for nulls."""
    if isinstance(array, Changes):
        return [Change(new, old) for new, old in zip(objects(array.new), objects(array.old), strict=True)]
    kind = array.type
    plain = pa.types.is_binary(kind) or pa.types.is_string(kind) or not (array.null_count or pa.types.is_struct(kind))
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist() if plain else array.to_pylist()
    return values


def read(serde: Serde, topic: str, array: Any) -> list[Any]:
    """Deserialize all values. Raises if one cannot be read; the caller finds out which."""
    if array.null_count == len(array):
        return [None] * len(array)
    if serde is BYTES:
        return objects(array)
    if serde is STRING:
        return objects(array.cast(pa.string()))
    number = _NUMBERS.get(serde)
    if number is not None and not array.null_count:
        data, edges = _flat(array)
        if len(data) == 8 * len(array) and (np.diff(edges) == 8).all():
            numbers: list[Any] = np.frombuffer(data, dtype=number).tolist()
            return numbers
    read_one: Callable[[bytes], Any] = serde.reader(topic)
    return [None if data is None else read_one(data) for data in objects(array)]


_NUMBERS: dict[Serde, str] = {LONG: ">i8", DOUBLE: ">f8"}


def _flat(array: Any) -> tuple[Any, Any]:
    """The bytes of a binary array, and the offsets of its values with the end of the last."""
    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(data or b"")[int(edges[0]) : int(edges[-1])], edges
