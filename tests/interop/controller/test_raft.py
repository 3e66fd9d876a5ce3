"""The quorum's machine answers what Apache's controller answers: the same requests go to both, as leaders of one voter.

Only what leaves the leader in office is asked, and nothing with records or a snapshot in it: those are the driver's.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import METADATA_TOPIC, METADATA_TOPIC_ID, Uuid
from ottla.raft.checkpoint import Membership, VoterEndpoint, VoterNode
from ottla.raft.effect import Answer, AnswerFetch
from ottla.raft.event import EntriesAppended, RequestReceived, Started, Synced
from ottla.raft.quorum import Quorum, QuorumSettings
from ottla.raft.role import Election, Voter
from ottla.raft.voters import VoterHistory
from ottla.wire.api import (
    API,
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from tests.interop.controller.apache import NODE_ID, ApacheController
from tests.interop.oracle.side import Connection, key_of
from tests.interop.server import CLUSTER_ID
from tests.raft.memory_log import MemoryLog

_LISTENER = "CONTROLLER"
_OTHER = Uuid(b"o" * 16)
#: Ours are named, those that were read are numbers.
_CODE = re.compile(r"<ErrorCode\.\w+: (-?\d+)>")


class Pair:
    """Apache's leader, and ours as it would be in its place."""

    def __init__(self, apache: ApacheController) -> None:
        self._connection = Connection(apache.port)
        topic = describe_quorum.RequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[describe_quorum.RequestPartitionData()]
        )
        described = self._connection.ask(describe_quorum.DescribeQuorumRequest(topics=[topic]), 2)
        found = described.topics[0].partitions[0]
        (voter,) = found.current_voters
        self.key = Voter(NODE_ID, Uuid(voter.replica_directory_id))
        self.epoch, self.end_offset = found.leader_epoch, found.high_watermark
        where = (VoterEndpoint(_LISTENER, "127.0.0.1", apache.port),)
        history = VoterHistory()
        history.restart(0, Membership(1, (VoterNode(self.key, where),)))
        log = MemoryLog()
        settings = QuorumSettings(cluster_id=CLUSTER_ID, endpoints=where)
        self.quorum = Quorum(self.key, history, Election(self.epoch - 1), settings, log, random.Random(1))
        self.quorum.step(Started(0, 0, 0), 1000)
        log.append(self.end_offset, self.epoch)
        self.quorum.step(EntriesAppended(self.end_offset, 100), 1000)
        self.quorum.step(Synced(self.end_offset), 1000)

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer of both."""
        version = API[key_of(request)].versions[-1] if version is None else version
        expected = self._connection.ask(request, version)
        effects = self.quorum.step(RequestReceived("asked", _LISTENER, request, version), 1000)
        (got,) = [each.response for each in effects if isinstance(each, Answer | AnswerFetch)]
        assert _plain(got) == _plain(expected), request
        return expected


def _plain(response: Any) -> Any:
    if isinstance(response, fetch.FetchResponse):
        for topic in response.responses:
            # Versions with ids of topics do not carry their names.
            topic.topic = ""
            for partition in topic.partitions:
                partition.records = None
    if isinstance(response, fetch_snapshot.FetchSnapshotResponse):
        for snapshots in response.topics:
            for snapshot in snapshots.partitions:
                snapshot.unaligned_records = None
    return _CODE.sub(r"\1", repr(response))


@pytest.fixture(scope="module")
def pair(apache_controller: ApacheController) -> Iterator[Pair]:
    one = Pair(apache_controller)
    yield one
    one.close()


def fetches(pair: Pair) -> Iterator[fetch.FetchRequest]:
    end = pair.end_offset
    for epoch in (pair.epoch - 1, pair.epoch, pair.epoch + 1):
        for offset, last in ((0, 0), (0, epoch), (end, epoch), (end - 1, epoch), (end + 7, epoch), (end, 0), (-1, 0)):
            yield fetch_request(epoch, offset, last)
    yield fetch_request(pair.epoch, end, pair.epoch + 1)
    yield fetch_request(pair.epoch, end, -1)
    yield fetch_request(pair.epoch, end, pair.epoch, node_id=-1)
    yield fetch_request(pair.epoch, end, pair.epoch, cluster_id="another")
    other = fetch_request(pair.epoch, end, pair.epoch)
    other.topics[0].topic_id = _OTHER
    yield other
    several = fetch_request(pair.epoch, end, pair.epoch)
    several.topics *= 2
    yield several


def fetch_request(
    epoch: int, offset: int, last_epoch: int, *, node_id: int = 77, cluster_id: str | None = CLUSTER_ID
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=_OTHER,
        partition_max_bytes=1000,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=node_id),
        max_bytes=1_000_000,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def test_fetches_are_answered_as_apache_answers_them(pair: Pair) -> None:
    codes = set()
    for request in fetches(pair):
        response = pair.ask(request)
        codes.add(response.responses[0].partitions[0].error_code if response.responses else response.error_code)
    assert len(codes) == 5


def test_snapshots_that_are_not_there(pair: Pair) -> None:
    pair.ask(snapshot_request(pair.epoch, 0, 0, cluster_id="another"))
    # Apache Kafka 4.3.1 cannot write a refusal: it has no bytes in it (NullPointerException in its log). Our follower
    # takes this for a snapshot that is gone.
    for epoch, end_offset in ((pair.epoch - 1, 0), (pair.epoch, 5), (pair.epoch + 1, 5)):
        answer = pair._connection.ask(snapshot_request(epoch, end_offset, 1), 1)
        assert (answer.error_code, answer.topics) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


def snapshot_request(
    epoch: int,
    end_offset: int,
    of: int,
    *,
    cluster_id: str = CLUSTER_ID,
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=of),
    )
    asked = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(cluster_id=cluster_id, replica_id=77, max_bytes=1000, topics=[asked])


@pytest.mark.parametrize("is_question", [False, True])
def test_votes_in_this_epoch_and_before(pair: Pair, *, is_question: bool) -> None:
    def ask(epoch: int, log: tuple[int, int], *, node_id: int = 77, voter: Voter | None = None) -> None:
        partition = vote.RequestPartitionData(
            replica_epoch=epoch,
            replica_id=node_id,
            replica_directory_id=_OTHER,
            voter_directory_id=pair.key.directory_id if voter is None else voter.directory_id,
            last_offset_epoch=log[1],
            last_offset=log[0],
            pre_vote=is_question,
        )
        topic = vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        voter_id = NODE_ID if voter is None else voter.node_id
        pair.ask(vote.VoteRequest(cluster_id=CLUSTER_ID, voter_id=voter_id, topics=[topic]))

    for epoch in (pair.epoch - 1, pair.epoch):
        for log in ((10_000, 0), (10_000, epoch), (10_000, epoch + 1), (-1, 0), (5, -1)):
            ask(epoch, log)
    ask(pair.epoch, (10_000, 0), node_id=-1)
    ask(pair.epoch, (10_000, 0), voter=Voter(NODE_ID, _OTHER))
    ask(pair.epoch, (10_000, 0), voter=Voter(5, pair.key.directory_id))
    ask(pair.epoch, (10_000, 0), voter=Voter(-1, _OTHER))
    for cluster_id, topics in (("another", []), (None, []), (CLUSTER_ID, [vote.RequestTopicData(topic_name="x")])):
        pair.ask(vote.VoteRequest(cluster_id=cluster_id, topics=topics))


def test_other_leaders_of_epochs_before(pair: Pair) -> None:
    for epoch, leader_id in ((pair.epoch - 1, 5), (pair.epoch - 1, NODE_ID), (pair.epoch, -1)):
        begin = begin_quorum_epoch.RequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
        begin_topic = begin_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[begin])
        pair.ask(begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[begin_topic]))
        end = end_quorum_epoch.RequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
        end_topic = end_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[end])
        pair.ask(end_quorum_epoch.EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[end_topic]))
    pair.ask(begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id="another"))
    pair.ask(end_quorum_epoch.EndQuorumEpochRequest(cluster_id=CLUSTER_ID))


def test_voters_that_cannot_be_updated(pair: Pair) -> None:
    def ask(
        node_id: int, directory_id: Uuid, *, epoch: int = pair.epoch, name: str = _LISTENER, low: int = 0, high: int = 1
    ) -> None:
        request = update_raft_voter.UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=epoch,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[update_raft_voter.Listener(name=name, host="there", port=1)],
            kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=low, max_supported_version=high
            ),
        )
        pair.ask(request)

    ask(5, _OTHER)
    ask(NODE_ID, _OTHER)
    ask(5, _OTHER, epoch=pair.epoch - 1)
    ask(5, _OTHER, epoch=pair.epoch + 1)
    ask(5, _OTHER, name="ANOTHER")
    ask(5, _OTHER, low=2, high=1)
    ask(5, _OTHER, low=0, high=0)
    ask(5, Uuid(bytes(16)))
    ask(-1, _OTHER)


def test_voters_that_cannot_be_added_or_removed(pair: Pair) -> None:
    """The codes: Apache's messages print Java's objects."""

    def same(request: Any) -> None:
        version = API[key_of(request)].versions[-1]
        expected = pair._connection.ask(request, version)
        effects = pair.quorum.step(RequestReceived("asked", _LISTENER, request, version), 1000)
        (got,) = [each.response for each in effects if isinstance(each, Answer)]
        assert (got.error_code, bool(got.error_message)) == (expected.error_code, bool(expected.error_message)), (
            expected
        )

    where = [add_raft_voter.Listener(name=_LISTENER, host="127.0.0.1", port=1)]
    for cluster_id in (CLUSTER_ID, "another"):
        for node_id, directory_id in ((-1, _OTHER), (NODE_ID, _OTHER), (5, Uuid(bytes(16)))):
            same(
                add_raft_voter.AddRaftVoterRequest(
                    cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id, listeners=where
                )
            )
            same(
                remove_raft_voter.RemoveRaftVoterRequest(
                    cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id
                )
            )
    same(add_raft_voter.AddRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=5, voter_directory_id=_OTHER))
    same(
        remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=NODE_ID, voter_directory_id=pair.key.directory_id
        )
    )
