"""The Raft quorum: DescribeQuorum (key 55), AddRaftVoter (key 80) and RemoveRaftVoter (key 81), on every listener.

Controllers' listeners also serve what nodes of the quorum send each other: Fetch (key 1) and FetchSnapshot (key 59) of
the metadata log, Vote (key 52), BeginQuorumEpoch (key 53), EndQuorumEpoch (key 54), UpdateRaftVoter (key 82). The
quorum's machine (`ottla.raft`) answers them; a request that cannot be answered yet waits there.

KIPs: 595, 630 FetchSnapshot, 642 DescribeQuorum, 853 voters, 996 pre-votes.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.kernel.error import ErrorCode
from ottla.kernel.error_message import standard
from ottla.kernel.ids import METADATA_TOPIC, NO_UUID
from ottla.raft.quorum import ReplicaView
from ottla.wire.api import CONTROLLER, ApiKey
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.compile import deferred

_DIRECTORIES_FROM = 2


@handles(ApiKey.FETCH, on=CONTROLLER)
@handles(ApiKey.FETCH_SNAPSHOT, on=CONTROLLER)
@handles(ApiKey.VOTE, on=CONTROLLER)
@handles(ApiKey.BEGIN_QUORUM_EPOCH, on=CONTROLLER)
@handles(ApiKey.END_QUORUM_EPOCH, on=CONTROLLER)
@handles(ApiKey.ADD_RAFT_VOTER, on=CONTROLLER)
@handles(ApiKey.REMOVE_RAFT_VOTER, on=CONTROLLER)
@handles(ApiKey.UPDATE_RAFT_VOTER, on=CONTROLLER)
def receive(call: Call, request: Any) -> Later:
    """Pass the request to the quorum's machine, which answers now or later."""
    return call.node.quorum.raft.network.receive(call, request)


@handles(ApiKey.ADD_RAFT_VOTER)
@handles(ApiKey.REMOVE_RAFT_VOTER)
def change_voters(call: Call, request: Any) -> Later:
    """Change the voters if this node is the leader of the quorum; otherwise forward the request to it."""
    if call.node.quorum.raft.quorum.leads:
        return receive(call, request)
    later = Later()
    call.node.controllers.forward(call, request, later.resolve)
    return later


@handles(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse | Later:
    """Describe the quorum if this node is its leader; otherwise forward the request to it."""
    if call.node.quorum.raft.quorum.leads:
        return describe_here(call, request)
    later = Later()
    call.node.controllers.forward(call, request, later.resolve)
    return later


@handles(ApiKey.DESCRIBE_QUORUM, on=CONTROLLER)
def describe_here(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The quorum's state as its leader knows it; every topic but `__cluster_metadata` is unknown here."""

    def described(topic: RequestTopicData) -> ResponseTopicData:
        name, asked = topic.topic_name, topic.partitions
        return ResponseTopicData(
            topic_name=name,
            partitions=deferred(len(asked), lambda: (_partition(call, name, each.partition_index) for each in asked)),
        )

    topics = request.topics
    response = DescribeQuorumResponse(topics=deferred(len(topics), lambda: map(described, topics)))
    asked = ((topic.topic_name, each.partition_index) for topic in topics for each in topic.partitions)
    leads = call.node.quorum.raft.quorum.leads
    if leads and call.version >= _DIRECTORIES_FROM and [*islice(asked, 2)] == [(METADATA_TOPIC, 0)]:
        response.nodes = [
            Node(
                node_id=node.voter.node_id,
                listeners=[
                    Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in node.endpoints
                ],
            )
            for node in call.node.quorum.voters
        ]
    return response


def _partition(call: Call, topic: str, index: int) -> ResponsePartitionData:
    node, machine = call.node, call.node.quorum.raft.quorum
    error = ErrorCode.NONE
    if (topic, index) != (METADATA_TOPIC, 0):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not machine.leads:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error is not ErrorCode.NONE:
        message = standard(error) if call.version >= _DIRECTORIES_FROM else ""
        return ResponsePartitionData(partition_index=index, error_code=error, error_message=message)
    voters, observers = machine.describe(node.clock.monotonic_ms())
    now_ms = node.clock.now_ms()

    def state(each: ReplicaView) -> ReplicaState:
        return ReplicaState(
            replica_id=each.key.node_id,
            replica_directory_id=each.key.directory_id if call.version >= _DIRECTORIES_FROM else NO_UUID,
            log_end_offset=each.end_offset,
            last_fetch_timestamp=-1 if each.fetched_ms_ago is None else now_ms - each.fetched_ms_ago,
            last_caught_up_timestamp=-1 if each.caught_up_ms_ago is None else now_ms - each.caught_up_ms_ago,
        )

    return ResponsePartitionData(
        partition_index=index,
        leader_id=node.node_id,
        leader_epoch=machine.epoch,
        high_watermark=machine.leader_high_watermark,
        current_voters=[state(voter) for voter in voters],
        observers=[state(observer) for observer in observers],
    )
