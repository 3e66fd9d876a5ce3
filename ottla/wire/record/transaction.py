"""The records of `__transaction_state`: a transactional id, its producer and its transaction.

An int16 precedes key and value: the type and the version. Version 1 of the value, with tags, is written from
transaction.version 1 on (KIP-890).
"""

from __future__ import annotations

from ottla.wire.record.keyed import Keyed
from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, Int64, String


@wire(versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: String = on("0", default="")


@wire
class PartitionsSchema:
    topic: String = on("0+", default="")
    partition_ids: list[Int32] = on("0+", factory=list)


@wire(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transactional id.

    Status: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort, 6 dead, 7 epoch
    fence.
    """

    producer_id: Int64 = on("0+", default=0)
    previous_producer_id: Int64 = on("1+", default=-1, tag=0)
    next_producer_id: Int64 = on("1+", default=-1, tag=1)
    producer_epoch: Int16 = on("0+", default=0)
    next_producer_epoch: Int16 = on("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32 = on("0+", default=0)
    transaction_status: Int8 = on("0+", default=0)
    transaction_partitions: list[PartitionsSchema] | None = on("0+", factory=list)
    transaction_last_update_timestamp_ms: Int64 = on("0+", default=0)
    transaction_start_timestamp_ms: Int64 = on("0+", default=0)
    client_transaction_version: Int16 = on("1+", default=0, tag=2)


RECORDS = Keyed(
    {
        0: (TransactionLogKey, TransactionLogValue),
    }
)

key_bytes = RECORDS.key_bytes
value_bytes = RECORDS.value_bytes
parse = RECORDS.parse
