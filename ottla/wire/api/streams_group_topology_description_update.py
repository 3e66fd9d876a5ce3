"""StreamsGroupTopologyDescriptionUpdate (key 93): a member describes its group's topology (4.4, KIP-1331)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire
class TopologyDescriptionNode:
    name: String = on("0+", default="")
    node_type: Int8 = on("0+", default=0)
    source_topics: list[String] = on("0+", factory=list)
    sink_topic: String | None = on("0+", default=None)
    stores: list[String] = on("0+", factory=list)
    successors: list[String] = on("0+", factory=list)


@wire
class TopologyDescriptionSubtopology:
    subtopology_id: String = on("0+", default="")
    nodes: list[TopologyDescriptionNode] = on("0+", factory=list)


@wire
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = on("0+", factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = on("0+", factory=TopologyDescriptionNode)


@wire
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = on("0+", factory=list)
    global_stores: list[TopologyDescriptionGlobalStore] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: String = on("0+", default="")
    member_id: String = on("0+", default="")
    topology_epoch: Int32 = on("0+", default=0)
    topology_description: TopologyDescription = on("0+", factory=TopologyDescription)


@wire(versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
