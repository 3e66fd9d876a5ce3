"""Probes of one wide request each: tens of thousands of partitions, members or names for one coordinator or leader."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import alter_configs as configs
from ottla.wire.api import alter_replica_log_dirs as moves
from ottla.wire.api import alter_user_scram_credentials as scram
from ottla.wire.api import consumer_group_heartbeat as consumer
from ottla.wire.api import delete_records as deletion
from ottla.wire.api import describe_groups as description
from ottla.wire.api import leave_group as leave
from ottla.wire.api import offset_commit as commit
from ottla.wire.api import offset_delete as removal
from ottla.wire.api import offset_fetch as fetch
from ottla.wire.api import offset_for_leader_epoch as epochs
from ottla.wire.api import read_share_group_state as states
from ottla.wire.api import txn_offset_commit as transactional
from ottla.wire.api import write_txn_markers as markers
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.abuse.served import Beside, Served, drain_frame, frame, send

_MANY = 50_000
_INDEXES = range(_MANY)


def _commit(indexes: list[int]) -> commit.OffsetCommitRequest:
    partitions = [commit.OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in indexes]
    topics = [commit.OffsetCommitRequestTopic(name="good", partitions=partitions)]
    return commit.OffsetCommitRequest(group_id="wide", topics=topics)


def _transactional() -> transactional.TxnOffsetCommitRequest:
    partitions = [transactional.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)] * _MANY
    topics = [transactional.TxnOffsetCommitRequestTopic(name="good", partitions=partitions)]
    return transactional.TxnOffsetCommitRequest(transactional_id="wide", group_id="wide", producer_id=1, topics=topics)


def _heartbeat() -> consumer.ConsumerGroupHeartbeatRequest:
    return consumer.ConsumerGroupHeartbeatRequest(
        group_id="names",
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[f"topic-{each}" for each in _INDEXES],
        topic_partitions=[],
    )


def _share_heartbeat() -> ShareGroupHeartbeatRequest:
    names = [f"topic-{each}" for each in _INDEXES]
    return ShareGroupHeartbeatRequest(group_id="share", member_id="m", subscribed_topic_names=names)


def _markers(indexes: list[int]) -> markers.WriteTxnMarkersRequest:
    topics = [markers.WritableTxnMarkerTopic(name="good", partition_indexes=indexes)]
    marker = markers.WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=topics)
    return markers.WriteTxnMarkersRequest(markers=[marker])


def _leave() -> leave.LeaveGroupRequest:
    members = [leave.MemberIdentity(member_id=f"member-{each}") for each in _INDEXES]
    return leave.LeaveGroupRequest(group_id="wide", members=members)


def _add() -> add.AddPartitionsToTxnRequest:
    topics = [add.AddPartitionsToTxnTopic(name="good", partitions=[*_INDEXES])]
    return add.AddPartitionsToTxnRequest(v3_and_below_transactional_id="wide", v3_and_below_topics=topics)


def _verify() -> add.AddPartitionsToTxnRequest:
    topics = [add.AddPartitionsToTxnTopic(name="good", partitions=[0])]
    asked = [
        add.AddPartitionsToTxnTransaction(transactional_id=f"t-{each}", verify_only=True, topics=topics)
        for each in _INDEXES
    ]
    return add.AddPartitionsToTxnRequest(transactions=asked)


def _fetch() -> fetch.OffsetFetchRequest:
    topics = [fetch.OffsetFetchRequestTopics(name="good", partition_indexes=[*_INDEXES])]
    return fetch.OffsetFetchRequest(groups=[fetch.OffsetFetchRequestGroup(group_id="wide", topics=topics)])


def _remove() -> removal.OffsetDeleteRequest:
    partitions = [removal.OffsetDeleteRequestPartition(partition_index=each) for each in _INDEXES]
    topics = [removal.OffsetDeleteRequestTopic(name="good", partitions=partitions)]
    return removal.OffsetDeleteRequest(group_id="wide", topics=topics)


def _epochs() -> epochs.OffsetForLeaderEpochRequest:
    partitions = [epochs.OffsetForLeaderPartition(partition=each, leader_epoch=0) for each in _INDEXES]
    topics = [epochs.OffsetForLeaderTopic(topic="good", partitions=partitions)]
    return epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def _delete() -> deletion.DeleteRecordsRequest:
    partitions = [deletion.DeleteRecordsPartition(partition_index=each, offset=0) for each in _INDEXES]
    topics = [deletion.DeleteRecordsTopic(name="good", partitions=partitions)]
    return deletion.DeleteRecordsRequest(topics=topics, timeout_ms=1000)


def _states() -> states.ReadShareGroupStateRequest:
    partitions = [states.PartitionData(partition=each) for each in _INDEXES]
    topics = [states.ReadStateData(topic_id=Uuid(b"i" * 16), partitions=partitions)]
    return states.ReadShareGroupStateRequest(group_id="wide", topics=topics)


def _move() -> moves.AlterReplicaLogDirsRequest:
    topics = [moves.AlterReplicaLogDirTopic(name="good", partitions=[*_INDEXES])]
    return moves.AlterReplicaLogDirsRequest(dirs=[moves.AlterReplicaLogDir(path="/elsewhere", topics=topics)])


def _describe() -> description.DescribeGroupsRequest:
    return description.DescribeGroupsRequest(groups=[f"group-{each}" for each in _INDEXES])


def _change() -> configs.AlterConfigsRequest:
    # Of no type that there is: nobody needs a right for it.
    resources = [configs.AlterConfigsResource(resource_type=99, resource_name=str(each)) for each in range(4 * _MANY)]
    return configs.AlterConfigsRequest(resources=resources)


def _credentials() -> scram.AlterUserScramCredentialsRequest:
    upsertions = [
        scram.ScramCredentialUpsertion(
            name=str(each), mechanism=1, iterations=4096, salt=b"salt" * 4, salted_password=b"password" * 4
        )
        for each in _INDEXES
    ]
    return scram.AlterUserScramCredentialsRequest(upsertions=upsertions)


#: Name -> (the request, its version).
_REQUESTS: dict[str, tuple[Callable[[], Any], int]] = {
    "one_partition_committed": (lambda: _commit([0] * _MANY), 8),
    "absent_partitions_committed": (lambda: _commit([*_INDEXES]), 8),
    "one_partition_committed_in_a_transaction": (_transactional, 3),
    "subscribed_names": (_heartbeat, 1),
    "names_of_a_share_group": (_share_heartbeat, 1),
    "one_partition_marked": (lambda: _markers([0] * _MANY), 1),
    "absent_partitions_marked": (lambda: _markers([*_INDEXES]), 1),
    "leaving_members": (_leave, 4),
    "partitions_of_a_transaction": (_add, 3),
    "verified_transactions": (_verify, 5),
    "fetched_offsets": (_fetch, 8),
    "deleted_offsets": (_remove, 0),
    "ends_of_epochs": (_epochs, 3),
    "deleted_records": (_delete, 1),
    "states_of_a_share_group": (_states, 0),
    "moved_replicas": (_move, 2),
    "described_groups": (_describe, 5),
    "changed_configs": (_change, 2),
    "changed_credentials": (_credentials, 0),
}


def _probe(name: str) -> tuple[Callable[[Served, Beside], None], Callable[[], object]]:
    """(the probe, what makes its request before)."""

    @cache
    def request() -> bytes:
        make, version = _REQUESTS[name]
        return frame(make(), version)

    def probe(served: Served, beside: Beside) -> None:
        with served.client() as client:
            client.ask(FindCoordinatorRequest(key="wide"), 3)
            client.ask(FindCoordinatorRequest(key="wide", key_type=1), 3)
            (first,) = client.ask(_commit([0]), 8).topics[0].partitions
            assert first.error_code == ErrorCode.NONE, "the group has an offset"
        with served.raw() as sock:
            send(sock, request())
            drain_frame(sock)
        # The share of its rate that the good client keeps counts over more than this one answer.
        beside.wait_for(60)

    probe.__name__ = name
    return probe, request


#: Each probe, and what prepares it.
WIDE = dict(map(_probe, _REQUESTS))
