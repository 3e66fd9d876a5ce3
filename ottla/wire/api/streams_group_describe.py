"""StreamsGroupDescribe (key 89): state, topology, members and tasks of streams groups (KIP-1071).

Version 1 (4.4): the topology's description (KIP-1331).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, Int64, String, Uint16


@wire(versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[String] = on("0+", factory=list)
    include_authorized_operations: Boolean = on("0+", default=False)
    include_topology_description: Boolean = on("1+", default=False)


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
class Subtopology:
    subtopology_id: String = on("0+", default="")
    source_topics: list[String] = on("0+", factory=list)
    repartition_sink_topics: list[String] = on("0+", factory=list)
    state_changelog_topics: list[TopicInfo] = on("0+", factory=list)
    repartition_source_topics: list[TopicInfo] = on("0+", factory=list)


@wire
class Topology:
    epoch: Int32 = on("0+", default=0)
    subtopologies: list[Subtopology] | None = on("0+", default=None)


@wire
class Endpoint:
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)


@wire
class TaskOffset:
    subtopology_id: String = on("0+", default="")
    partition: Int32 = on("0+", default=0)
    offset: Int64 = on("0+", default=0)


@wire
class TaskIds:
    subtopology_id: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class Assignment:
    active_tasks: list[TaskIds] = on("0+", factory=list)
    standby_tasks: list[TaskIds] = on("0+", factory=list)
    warmup_tasks: list[TaskIds] = on("0+", factory=list)


@wire
class Member:
    member_id: String = on("0+", default="")
    member_epoch: Int32 = on("0+", default=0)
    instance_id: String | None = on("0+", default=None)
    rack_id: String | None = on("0+", default=None)
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    topology_epoch: Int32 = on("0+", default=0)
    process_id: String = on("0+", default="")
    user_endpoint: Endpoint | None = on("0+", default=None)
    client_tags: list[KeyValue] = on("0+", factory=list)
    task_offsets: list[TaskOffset] = on("0+", factory=list)
    task_end_offsets: list[TaskOffset] = on("0+", factory=list)
    assignment: Assignment = on("0+", factory=Assignment)
    target_assignment: Assignment = on("0+", factory=Assignment)
    is_classic: Boolean = on("0+", default=False)


@wire
class TopologyDescriptionNode:
    name: String = on("1+", default="")
    node_type: Int8 = on("1+", default=0)
    source_topics: list[String] = on("1+", factory=list)
    sink_topic: String | None = on("1+", default=None)
    stores: list[String] = on("1+", factory=list)
    successors: list[String] = on("1+", factory=list)


@wire
class TopologyDescriptionSubtopology:
    subtopology_id: String = on("1+", default="")
    nodes: list[TopologyDescriptionNode] = on("1+", factory=list)


@wire
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = on("1+", factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = on("1+", factory=TopologyDescriptionNode)


@wire
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = on("1+", factory=list)
    global_stores: list[TopologyDescriptionGlobalStore] = on("1+", factory=list)


@wire
class DescribedGroup:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    group_id: String = on("0+", default="")
    group_state: String = on("0+", default="")
    group_epoch: Int32 = on("0+", default=0)
    assignment_epoch: Int32 = on("0+", default=0)
    topology: Topology | None = on("0+", default=None)
    members: list[Member] = on("0+", factory=list)
    authorized_operations: Int32 = on("0+", default=-2147483648)
    topology_description: TopologyDescription | None = on("1+", default=None)
    topology_description_status: Int8 = on("1+", default=0)
    assignor_name: String | None = on("1+", default=None, ignorable=True)


@wire(versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    groups: list[DescribedGroup] = on("0+", factory=list)
