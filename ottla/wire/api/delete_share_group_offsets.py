"""DeleteShareGroupOffsets (key 92): delete the start offsets of topics in a share group (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uuid


@wire
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: String = on("0+", default="")


@wire(versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: String = on("0+", default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = on("0+", factory=list)


@wire
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: String = on("0+", default="")
    topic_id: Uuid = on("0+", default=NO_UUID)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire(versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = on("0+", factory=list)
