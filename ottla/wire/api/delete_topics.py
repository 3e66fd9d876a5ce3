"""DeleteTopics (key 20): delete topics.

Version 5: error messages, and THROTTLING_QUOTA_EXCEEDED (KIP-599); 6 topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uuid


@wire
class DeleteTopicState:
    name: String | None = on("6+", default=None)
    topic_id: Uuid = on("6+", default=NO_UUID)


@wire(versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = on("6+", factory=list)
    topic_names: list[String] = on("0-5", factory=list, ignorable=True)
    timeout_ms: Int32 = on("0+", default=0)


@wire
class DeletableTopicResult:
    name: String | None = on("0+", default="", nullable="6+")
    topic_id: Uuid = on("6+", default=NO_UUID, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("5+", default=None, ignorable=True)


@wire(versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = on("0+", factory=list)
