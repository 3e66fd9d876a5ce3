"""DescribeQuorum (key 55), AddRaftVoter (key 80), RemoveRaftVoter (key 81): the quorum and its voters.

On listeners for controllers also Fetch (key 1) and FetchSnapshot (key 59) of the metadata log: the quorum's machine
answers them (`ottla.raft`), and a fetch that finds nothing new waits there.

This node is a quorum of one and replicates its log to nobody: a voter that could be added is never caught up, which is
the answer that Apache Kafka gives after a while of waiting, and the only voter there is cannot go.

KIPs: 595, 630 FetchSnapshot, 642 DescribeQuorum, 853 voters.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import standard
from ottla.kernel.ids import METADATA_TOPIC, NO_UUID
from ottla.raft.quorum import ReplicaView
from ottla.wire.api import BOTH, CONTROLLER, ApiKey
from ottla.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_DIRECTORIES_FROM = 2


@handles(ApiKey.FETCH, on=CONTROLLER)
@handles(ApiKey.FETCH_SNAPSHOT, on=CONTROLLER)
def receive(call: Call, request: Any) -> Later:
    """Tell the machine; it answers now or later."""
    return call.node.quorum.raft.network.receive(call, request)


@handles(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse | Later:
    """The leader of the quorum knows; a client that asks another node gets its answer."""
    if call.node.quorum.raft.quorum.leads:
        return describe_here(call, request)
    later = Later()
    call.node.controllers.forward(call, request, later.resolve)
    return later


@handles(ApiKey.DESCRIBE_QUORUM, on=CONTROLLER)
def describe_here(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The quorum as its leader knows it; any other topic than `__cluster_metadata` is unknown here."""
    response = DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[_partition(call, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    leads = call.node.quorum.raft.quorum.leads
    if leads and call.version >= _DIRECTORIES_FROM and asked == [(METADATA_TOPIC, 0)]:
        response.nodes = [
            Node(
                node_id=each.voter.node_id,
                listeners=[Listener(name=one.name, host=one.host, port=one.port) for one in each.endpoints],
            )
            for each in call.node.quorum.voters
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
        said = standard(error) if call.version >= _DIRECTORIES_FROM else ""
        return ResponsePartitionData(partition_index=index, error_code=error, error_message=said)
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
        high_watermark=machine.high_watermark,
        current_voters=[state(each) for each in voters],
        observers=[state(each) for each in observers],
    )


@handles(ApiKey.ADD_RAFT_VOTER, on=BOTH)
def add_voter(call: Call, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Refused, after the checks that Kafka makes first."""
    node = call.node
    _check_cluster(call, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
    names = {each.name for each in request.listeners}
    default = node.settings.controller_listener_names[0]
    if default not in names:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint ({', '.join(sorted(names))}) for the default listener "
            f"{default}",
        )
    _check_voters_change(call, "adding")
    for voter in node.quorum.voters:
        if voter.voter.node_id == request.voter_id:
            why = f"The voter id for {request.voter_id} is already part of the set of voters"
            raise KafkaError(ErrorCode.DUPLICATE_VOTER, why)
    why = "This node replicates its metadata log to nobody, so no other voter can catch up with it"
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)


@handles(ApiKey.REMOVE_RAFT_VOTER, on=BOTH)
def remove_voter(call: Call, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Refused, after the checks that Kafka makes first."""
    _check_cluster(call, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
    _check_voters_change(call, "removing")
    raise KafkaError(
        ErrorCode.VOTER_NOT_FOUND,
        f"Cannot remove voter {request.voter_id}: it is not in the set of voters, or the only one in it",
    )


def _check_cluster(call: Call, cluster_id: str | None) -> None:
    own = call.node.cluster_id
    if cluster_id is not None and cluster_id != own:
        why = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, why)


def _check_voters_change(call: Call, what: str) -> None:
    level = call.node.quorum.membership.kraft_version
    if not level:
        why = f"Cluster doesn't support {what} voter because the kraft.version feature is {level}"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
