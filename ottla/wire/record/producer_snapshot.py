"""The producer state of a partition at an offset: the `.snapshot` file beside a segment.

An int16 version (1) precedes it; `crc` is the CRC-32C of all bytes after the field.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, Uint32


@wire
class ProducerEntry:
    producer_id: Int64 = on("1", default=0)
    epoch: Int16 = on("1", default=0)
    last_sequence: Int32 = on("1", default=0)
    last_offset: Int64 = on("1", default=0)
    offset_delta: Int32 = on("1", default=0)
    timestamp: Int64 = on("1", default=0)
    coordinator_epoch: Int32 = on("1", default=0)
    current_txn_first_offset: Int64 = on("1", default=0)


@wire(versions="1", flexible="none")
class ProducerSnapshot:
    crc: Uint32 = on("1", default=0)
    producer_entries: list[ProducerEntry] = on("1", factory=list)
