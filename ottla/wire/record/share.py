"""The records of `__share_group_state`: snapshots of share partitions, and updates since (KIP-932).

An int16 precedes key and value: the type and the version.
"""

from __future__ import annotations

from ottla.wire.record.keyed import Keyed
from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int8, Int16, Int32, Int64, String, Uuid


@wire(versions="0", flexible="none")
class ShareSnapshotKey:
    group_id: String = on("0", default="")
    topic_id: Uuid = on("0", default=NO_UUID)
    partition: Int32 = on("0", default=0)


@wire
class StateBatch:
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    delivery_state: Int8 = on("0+", default=0)
    delivery_count: Int16 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: Int32 = on("0+", default=0)
    state_epoch: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)
    delivery_complete_count: Int32 = on("0+", default=-1, tag=0)
    create_timestamp: Int64 = on("0+", default=0)
    write_timestamp: Int64 = on("0+", default=0)
    state_batches: list[StateBatch] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ShareUpdateKey:
    group_id: String = on("0", default="")
    topic_id: Uuid = on("0", default=NO_UUID)
    partition: Int32 = on("0", default=0)


@wire(versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)
    delivery_complete_count: Int32 = on("0+", default=-1, tag=0)
    state_batches: list[StateBatch] = on("0+", factory=list)


RECORDS = Keyed(
    {
        0: (ShareSnapshotKey, ShareSnapshotValue),
        1: (ShareUpdateKey, ShareUpdateValue),
    }
)

key_bytes = RECORDS.key_bytes
value_bytes = RECORDS.value_bytes
parse = RECORDS.parse
