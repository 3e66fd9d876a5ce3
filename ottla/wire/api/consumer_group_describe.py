"""ConsumerGroupDescribe (key 69): state, members and assignments of consumer groups (KIP-848).

Version 1: whether a member uses the classic protocol (KIP-1099).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int8, Int16, Int32, String, Uuid


@wire(versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[String] = on("0+", factory=list)
    include_authorized_operations: Boolean = on("0+", default=False)


@wire
class TopicPartitions:
    topic_id: Uuid = on("0+", default=NO_UUID)
    topic_name: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class Assignment:
    topic_partitions: list[TopicPartitions] = on("0+", factory=list)


@wire
class Member:
    member_id: String = on("0+", default="")
    instance_id: String | None = on("0+", default=None)
    rack_id: String | None = on("0+", default=None)
    member_epoch: Int32 = on("0+", default=0)
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    subscribed_topic_names: list[String] = on("0+", factory=list)
    subscribed_topic_regex: String | None = on("0+", default=None)
    assignment: Assignment = on("0+", factory=Assignment)
    target_assignment: Assignment = on("0+", factory=Assignment)
    member_type: Int8 = on("1+", default=-1, ignorable=True)


@wire
class DescribedGroup:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    group_id: String = on("0+", default="")
    group_state: String = on("0+", default="")
    group_epoch: Int32 = on("0+", default=0)
    assignment_epoch: Int32 = on("0+", default=0)
    assignor_name: String = on("0+", default="")
    members: list[Member] = on("0+", factory=list)
    authorized_operations: Int32 = on("0+", default=-2147483648)


@wire(versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    groups: list[DescribedGroup] = on("0+", factory=list)
