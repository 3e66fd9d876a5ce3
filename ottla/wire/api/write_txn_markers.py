"""WriteTxnMarkers (key 27): a transaction coordinator writes commit or abort markers through partition leaders.

Version 2: the transaction version, which makes a leader check epochs strictly (KIP-1228).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, Int64, String


@wire
class WritableTxnMarkerTopic:
    name: String = on("0+", default="")
    partition_indexes: list[Int32] = on("0+", factory=list)


@wire
class WritableTxnMarker:
    producer_id: Int64 = on("0+", default=0)
    producer_epoch: Int16 = on("0+", default=0)
    transaction_result: Boolean = on("0+", default=False)
    topics: list[WritableTxnMarkerTopic] = on("0+", factory=list)
    coordinator_epoch: Int32 = on("0+", default=0)
    transaction_version: Int8 = on("2+", default=0, ignorable=True)


@wire(versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = on("0+", factory=list)


@wire
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class WritableTxnMarkerTopicResult:
    name: String = on("0+", default="")
    partitions: list[WritableTxnMarkerPartitionResult] = on("0+", factory=list)


@wire
class WritableTxnMarkerResult:
    producer_id: Int64 = on("0+", default=0)
    topics: list[WritableTxnMarkerTopicResult] = on("0+", factory=list)


@wire(versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = on("0+", factory=list)
