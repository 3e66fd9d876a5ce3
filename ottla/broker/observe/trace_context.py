"""Finds the trace that a record batch belongs to: the W3C `traceparent` header of its first sampled record.

Rules:
- Only the head of a batch is looked at: `_HEAD_BYTES` of records, decompressed if need be. A traced record behind them
  is not found.
- One request costs at most `LOOKS_MAX` looks; a compressed batch counts as `_PACKED_LOOKS`, whatever is in it.
- At most `_PACKED_BYTES` of a compressed batch are read, enough for the blocks that clients write. A batch whose first
  block is larger has no trace here.
- Records are not parsed: the header is found by its bytes, which are fixed up to the ids. A value with the same bytes
  counts as a header.
- Anything else is no trace: ids of zeros, capital letters, version ff, other lengths, a trace that is not sampled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ottla.kernel.error import KafkaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.log.segment.segment import Slice
from ottla.wire.batch import CONTROL, HEADER_BYTES, MAGIC, BatchHeader, header_at
from ottla.wire.codec import Codec, decompress_some

LOOKS_MAX = 16
_PACKED_LOOKS = 4
_HEAD_BYTES = 8 << 10
#: A little more than zstd's largest block.
_PACKED_BYTES = 132 << 10
#: The header in a record: varint 11, its key, varint 55, its value of version, trace, span and flags (1: sampled).
_TRACEPARENT = re.compile(
    rb"\x16traceparent\x6e(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]"
)


class TracedBatch(NamedTuple):
    """A batch with a sampled record in its head."""

    #: 16 and 8 bytes.
    trace_id: bytes
    parent_id: bytes
    base_offset: int
    #: The records in the batch, as its header says.
    record_count: int


def traced_batches(records: Buffer | Slice | None, looks: list[int]) -> Iterator[TracedBatch]:
    """The traced batches among these. `looks` is the number of looks that the request has left, which this reduces.

    OSError if the file cannot be read.
    """
    position, end = 0, len(records or b"")
    while records is not None and end - position >= HEADER_BYTES and looks[0] > 0:
        looks[0] -= 1
        data = _read(records, position, HEADER_BYTES + _HEAD_BYTES)
        if len(data) < HEADER_BYTES:
            return
        header = header_at(data)
        if header.magic != MAGIC or header.size < HEADER_BYTES:
            return
        if not header.attributes & CONTROL:
            found = _TRACEPARENT.search(_plain(header, data, records, position, looks))
            if found is not None:
                trace_id, parent_id = (bytes.fromhex(str(part, "ascii")) for part in found.groups())
                yield TracedBatch(trace_id, parent_id, header.base_offset, header.count)
        position += header.size


def _plain(header: BatchHeader, data: Buffer, records: Buffer | Slice, position: int, looks: list[int]) -> Buffer:
    """The decompressed head; empty if it cannot be had within the bounds."""
    try:
        if header.codec is Codec.NONE:
            return data[HEADER_BYTES : header.size]
        looks[0] -= _PACKED_LOOKS - 1
        packed = _read(records, position + HEADER_BYTES, min(header.size - HEADER_BYTES, _PACKED_BYTES))
        return decompress_some(header.codec, packed, _HEAD_BYTES)[0]
    except KafkaError:
        return b""


def _read(records: Buffer | Slice, position: int, size: int) -> Buffer:
    if isinstance(records, Slice):
        return records.file.read(min(size, records.size - position), records.position + position)
    return records[position : position + size]
