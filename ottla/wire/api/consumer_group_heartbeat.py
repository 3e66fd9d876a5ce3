"""ConsumerGroupHeartbeat (key 68): the whole protocol between a consumer group's member and coordinator (KIP-848).

Member epoch 0 joins, -1 leaves, -2 leaves temporarily (static). Version 1: subscriptions by pattern, and the client
chooses the member id (KIP-1082).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uuid


@wire
class TopicPartitions:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: String = on("0+", default="")
    member_id: String = on("0+", default="")
    member_epoch: Int32 = on("0+", default=0)
    instance_id: String | None = on("0+", default=None)
    rack_id: String | None = on("0+", default=None)
    rebalance_timeout_ms: Int32 = on("0+", default=-1)
    subscribed_topic_names: list[String] | None = on("0+", default=None)
    subscribed_topic_regex: String | None = on("1+", default=None)
    server_assignor: String | None = on("0+", default=None)
    topic_partitions: list[TopicPartitions] | None = on("0+", default=None)


@wire
class Assignment:
    topic_partitions: list[TopicPartitions] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    member_id: String | None = on("0+", default=None)
    member_epoch: Int32 = on("0+", default=0)
    heartbeat_interval_ms: Int32 = on("0+", default=0)
    assignment: Assignment | None = on("0+", default=None)
