"""DescribeQuorum (key 55): the metadata quorum's leader, epoch and voters (KIP-595, KIP-642)."""

from __future__ import annotations

from ottla.broker.dispatch import Call, handles
from ottla.kernel.error import ErrorCode
from ottla.kernel.name import METADATA_TOPIC, NO_UUID
from ottla.wire.api import ApiKey
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

_DIRECTORIES_FROM = 2


@handles(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """This node leads a quorum of one; any other topic than `__cluster_metadata` is unknown here."""
    response = DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[_partition(call, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )
    if call.version >= _DIRECTORIES_FROM:
        response.nodes = [
            Node(
                node_id=each.voter.node_id,
                listeners=[Listener(name=one.name, host=one.host, port=one.port) for one in each.endpoints],
            )
            for each in call.node.quorum.membership.voters
        ]
    return response


def _partition(call: Call, topic: str, index: int) -> ResponsePartitionData:
    quorum = call.node.quorum
    if (topic, index) != (METADATA_TOPIC, 0):
        return ResponsePartitionData(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    now_ms = call.node.clock.now_ms()
    return ResponsePartitionData(
        partition_index=index,
        leader_id=call.node.node_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.image.offset + 1,
        current_voters=[
            ReplicaState(
                replica_id=each.voter.node_id,
                replica_directory_id=each.voter.directory_id if call.version >= _DIRECTORIES_FROM else NO_UUID,
                log_end_offset=quorum.log.end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for each in quorum.membership.voters
        ],
    )
