"""Records of streams groups in `__consumer_offsets` (KIP-1071). `offset` has their framing."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, Int64, String, Uint16


@wire(versions="0", flexible="none")
class StreamsGroupMetadataKey:
    group_id: String = on("0", default="")


@wire
class LastAssignmentConfig:
    key: String = on("0+", default="")
    value: String = on("0+", default="")


@wire(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: Int32 = on("0+", default=0)
    metadata_hash: Int64 = on("0+", default=0)
    validated_topology_epoch: Int32 = on("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = on("0+", factory=list, tag=1)
    stored_description_topology_epoch: Int32 = on("0+", default=-1, tag=2)
    failed_description_topology_epoch: Int32 = on("0+", default=-1, tag=3)


@wire(versions="0", flexible="none")
class StreamsGroupMemberMetadataKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class Endpoint:
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)


@wire
class KeyValue:
    key: String = on("0+", default="")
    value: String = on("0+", default="")


@wire(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: String | None = on("0+", default="")
    rack_id: String | None = on("0+", default="")
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    rebalance_timeout_ms: Int32 = on("0+", default=-1)
    topology_epoch: Int32 = on("0+", default=0)
    process_id: String = on("0+", default="")
    user_endpoint: Endpoint | None = on("0+", default=None)
    client_tags: list[KeyValue] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: String = on("0", default="")


@wire(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = on("0+", default=0)
    assignment_timestamp: Int64 = on("0+", default=0, tag=0, ignorable=True)


@wire(versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class TaskIds:
    subtopology_id: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[TaskIds] = on("0+", factory=list)
    standby_tasks: list[TaskIds] = on("0+", factory=list)
    warmup_tasks: list[TaskIds] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class TaskIdsWithEpochs:
    subtopology_id: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)
    assignment_epochs: list[Int32] | None = on("0+", factory=list, tag=0)


@wire(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = on("0+", default=0)
    previous_member_epoch: Int32 = on("0+", default=0)
    state: Int8 = on("0+", default=0)
    active_tasks: list[TaskIdsWithEpochs] = on("0+", factory=list)
    standby_tasks: list[TaskIdsWithEpochs] = on("0+", factory=list)
    warmup_tasks: list[TaskIdsWithEpochs] = on("0+", factory=list)
    active_tasks_pending_revocation: list[TaskIdsWithEpochs] = on("0+", factory=list)
    standby_tasks_pending_revocation: list[TaskIdsWithEpochs] = on("0+", factory=list)
    warmup_tasks_pending_revocation: list[TaskIdsWithEpochs] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class StreamsGroupTopologyKey:
    group_id: String = on("0", default="")


@wire
class TopicConfig:
    key: String = on("0+", default="")
    value: String = on("0+", default="")


@wire
class TopicInfo:
    name: String = on("0+", default="")
    partitions: Int32 = on("0+", default=0)
    replication_factor: Int16 = on("0+", default=0)
    topic_configs: list[TopicConfig] = on("0+", factory=list)


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


@wire(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: Int32 = on("0+", default=0)
    subtopologies: list[Subtopology] = on("0+", factory=list)
