"""CreatePartitions (key 37): raise the partition counts of topics (KIP-195).

Version 3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, String


@wire
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = on("0+", factory=list)


@wire
class CreatePartitionsTopic:
    name: String = on("0+", default="")
    count: Int32 = on("0+", default=0)
    assignments: list[CreatePartitionsAssignment] | None = on("0+", factory=list)


@wire(versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = on("0+", factory=list)
    timeout_ms: Int32 = on("0+", default=0)
    validate_only: Boolean = on("0+", default=False)


@wire
class CreatePartitionsTopicResult:
    name: String = on("0+", default="")
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire(versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    results: list[CreatePartitionsTopicResult] = on("0+", factory=list)
