"""StreamsGroupHeartbeat (key 88): the whole protocol between a streams group's member and coordinator (KIP-1071).

Version 1 (4.4): topology descriptions (KIP-1331) and the group's own settings (KIP-1357).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, Int64, String, Uint16


@wire
class KeyValue:
    key: String = on("0+", default="")
    value: String = on("0+", default="")


@wire
class TopicInfo:
    name: String = on("0+", default="")
    partitions: Int32 = on("0+", default=0)
    replication_factor: Int16 = on("0+", default=0)
    topic_configs: list[KeyValue] = on("0+", factory=list)


@wire
class CopartitionGroup:
    source_topics: list[Int16] = on("0+", factory=list)
    source_topic_regex: list[Int16] = on("0+", factory=list)
    repartition_source_topics: list[Int16] = on("0+", factory=list)


@wire
class Subtopology:
    subtopology_id: String = on("0+", default="")
    source_topics: list[String] = on("0+", factory=list)
    source_topic_regex: list[String] = on("0+", factory=list)
    state_changelog_topics: list[TopicInfo] = on("0+", factory=list)
    repartition_sink_topics: list[String] = on("0+", factory=list)
    repartition_source_topics: list[TopicInfo] = on("0+", factory=list)
    copartition_groups: list[CopartitionGroup] = on("0+", factory=list)


@wire
class Topology:
    epoch: Int32 = on("0+", default=0)
    subtopologies: list[Subtopology] = on("0+", factory=list)


@wire
class TaskIds:
    subtopology_id: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class Endpoint:
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)


@wire
class TaskOffset:
    subtopology_id: String = on("0+", default="")
    partition: Int32 = on("0+", default=0)
    offset: Int64 = on("0+", default=0)


@wire(versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: String = on("0+", default="")
    member_id: String = on("0+", default="")
    member_epoch: Int32 = on("0+", default=0)
    endpoint_information_epoch: Int32 = on("0+", default=0)
    instance_id: String | None = on("0+", default=None)
    rack_id: String | None = on("0+", default=None)
    rebalance_timeout_ms: Int32 = on("0+", default=-1)
    topology: Topology | None = on("0+", default=None)
    active_tasks: list[TaskIds] | None = on("0+", default=None)
    standby_tasks: list[TaskIds] | None = on("0+", default=None)
    warmup_tasks: list[TaskIds] | None = on("0+", default=None)
    process_id: String | None = on("0+", default=None)
    user_endpoint: Endpoint | None = on("0+", default=None)
    client_tags: list[KeyValue] | None = on("0+", default=None)
    task_offsets: list[TaskOffset] | None = on("0+", default=None)
    task_end_offsets: list[TaskOffset] | None = on("0+", default=None)
    shutdown_application: Boolean = on("0+", default=False)


@wire
class Status:
    status_code: Int8 = on("0+", default=0)
    status_detail: String = on("0+", default="")


@wire
class TopicPartition:
    topic: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class EndpointToPartitions:
    user_endpoint: Endpoint = on("0+", factory=Endpoint)
    active_partitions: list[TopicPartition] = on("0+", factory=list)
    standby_partitions: list[TopicPartition] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    member_id: String = on("0+", default="")
    member_epoch: Int32 = on("0+", default=0)
    heartbeat_interval_ms: Int32 = on("0+", default=0)
    acceptable_recovery_lag_legacy: Int32 = on("0", default=0)
    task_offset_interval_ms: Int32 = on("0+", default=0)
    acceptable_recovery_lag: Int64 = on("1+", default=-1, ignorable=True)
    status: list[Status] | None = on("0+", factory=list)
    active_tasks: list[TaskIds] | None = on("0+", default=None)
    standby_tasks: list[TaskIds] | None = on("0+", default=None)
    warmup_tasks: list[TaskIds] | None = on("0+", default=None)
    topology_description_required: Boolean = on("1+", default=False)
    endpoint_information_epoch: Int32 = on("0+", default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = on("0+", default=None)
