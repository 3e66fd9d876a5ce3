"""ShareGroupHeartbeat (key 76): the whole protocol between a share group's member and coordinator (KIP-932).

Member epoch 0 joins, -1 leaves.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uuid


@wire(versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: String = on("0+", default="")
    member_id: String = on("0+", default="")
    member_epoch: Int32 = on("0+", default=0)
    rack_id: String | None = on("0+", default=None)
    subscribed_topic_names: list[String] | None = on("0+", default=None)


@wire
class TopicPartitions:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)


@wire
class Assignment:
    topic_partitions: list[TopicPartitions] = on("0+", factory=list)


@wire(versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    member_id: String | None = on("0+", default=None)
    member_epoch: Int32 = on("0+", default=0)
    heartbeat_interval_ms: Int32 = on("0+", default=0)
    assignment: Assignment | None = on("0+", default=None)
