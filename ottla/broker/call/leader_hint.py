"""The new leader as a hint beside errors, in Produce 10, Fetch 16 and share group requests (KIP-951).

A client with the hint need not ask for metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.broker.call.handler import Call
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api import fetch, produce

_PRODUCE_FROM, _FETCH_FROM = 10, 16
_WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def hint_to_producer(call: Call, response: produce.ProduceResponse) -> produce.ProduceResponse:
    """The response, with the leaders of partitions that this node does not lead."""
    if call.version >= _PRODUCE_FROM:
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    name = topic.name or call.node.topic_name(topic.topic_id)
                    part.current_leader = produce.LeaderIdAndEpoch()
                    _hint(call, response, produce.NodeEndpoint, name, part.index, part.current_leader)
    return response


def hint_to_consumer(call: Call, response: fetch.FetchResponse, topic: str | bytes, data: fetch.PartitionData) -> None:
    """Add the leader of a partition that was requested from the wrong node or in the wrong epoch."""
    if data.error_code in _WRONG_LEADER and call.version >= _FETCH_FROM:
        name = topic if isinstance(topic, str) else call.node.topic_name(topic)
        data.current_leader = fetch.LeaderIdAndEpoch()
        _hint(call, response, fetch.NodeEndpoint, name, data.partition_index, data.current_leader)


def hint_to_share_member(
    call: Call, response: Any, endpoint: Callable[..., Any], parts: Iterable[tuple[tuple[Uuid, int], Any]]
) -> None:
    """As `hint_to_consumer`, for the parts of a response to ShareFetch or ShareAcknowledge.

    `endpoint` is their module's NodeEndpoint.
    """
    for (topic_id, index), part in parts:
        if part.error_code in _WRONG_LEADER:
            _hint(call, response, endpoint, call.node.topic_name(topic_id), index, part.current_leader)


def _hint(call: Call, response: Any, endpoint: Callable[..., Any], name: str | None, index: int, leader: Any) -> None:
    topic = call.node.image.topics.get(name or "")
    if topic is None or index >= len(topic.partitions):
        return
    partition = topic.partitions[index]
    leader.leader_id, leader.leader_epoch = partition.leader, partition.leader_epoch
    node = call.node.brokers_at(call.connection.listener_name).alive_node(partition.leader)
    endpoints: list[Any] = response.node_endpoints
    if node is not None and all(endpoint_data.node_id != node.node_id for endpoint_data in endpoints):
        endpoints.append(endpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack))
