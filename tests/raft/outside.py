"""Requests and responses that a scene writes by hand: `KIND key=value ...`, with the fields' usual values left out."""

from __future__ import annotations

from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_UUID, Uuid
from ottla.wire.api import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from tests.raft.node_disk import Entry, directory_of, endpoint_of


def request_of(kind: str, given: dict[str, str]) -> Any:
    """A request of node `from`, with the disk `disk`; `cluster=` is another cluster's."""
    made = _REQUESTS[kind](_Words(given))
    if "cluster" in given:
        made.cluster_id = given["cluster"]
    if given.get("topic"):
        if kind == "fetch":
            made.topics[0].topic, made.topics[0].topic_id = given["topic"], NO_UUID
        else:
            made.topics[0].topic_name = given["topic"]
    return made


def answer_of(kind: str, given: dict[str, str]) -> Any:
    """A response; `error` is the name of a code, `top` that of one for all. `empty`: it is about no partition."""
    made = _ANSWERS[kind](_Words(given))
    if "top" in given:
        made.error_code = ErrorCode[given["top"]]
    if "empty" in given:
        setattr(made, "responses" if kind == "fetch" else "topics", [])
    return made


class _Words:
    def __init__(self, given: dict[str, str]) -> None:
        self._given = given

    def number(self, name: str, usual: int = 0) -> int:
        return int(self._given.get(name, usual))

    def place(self, name: str) -> tuple[int, int]:
        """`offset@epoch`."""
        offset, _, epoch = self._given.get(name, "0@0").partition("@")
        return int(offset), int(epoch)

    def text(self, name: str, usual: str = "") -> str:
        return self._given.get(name, usual)

    def has(self, name: str) -> bool:
        return name in self._given

    @property
    def error(self) -> ErrorCode:
        return ErrorCode[self._given.get("error", "NONE")]

    @property
    def directory(self) -> Uuid:
        return directory_of(max(self.number("from"), 0), self.number("disk"))

    def ids(self, name: str) -> list[int]:
        return [int(each) for each in self._given[name].split(",")] if self._given.get(name) else []

    def to_directory(self) -> Uuid:
        return directory_of(self.number("to"), self.number("to-disk"))


def _vote(words: _Words, *, is_question: bool = False) -> vote.VoteRequest:
    offset, epoch = words.place("log")
    partition = vote.RequestPartitionData(
        replica_epoch=words.number("epoch"),
        replica_id=words.number("from"),
        replica_directory_id=words.directory,
        last_offset=offset,
        last_offset_epoch=epoch,
        pre_vote=is_question,
    )
    request = vote.VoteRequest(
        cluster_id="c", topics=[vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if words.has("to"):
        request.voter_id, partition.voter_directory_id = words.number("to"), words.to_directory()
    return request


def _begin(words: _Words) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    where = endpoint_of(words.number("from"))
    partition = begin_quorum_epoch.RequestPartitionData(
        leader_id=words.number("from"), leader_epoch=words.number("epoch")
    )
    request = begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id="c",
        topics=[begin_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name=where.name, host=where.host, port=where.port)],
    )
    if words.has("to"):
        request.voter_id, partition.voter_directory_id = words.number("to"), words.to_directory()
    return request


def _end(words: _Words) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.RequestPartitionData(
        leader_id=words.number("from"),
        leader_epoch=words.number("epoch"),
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=each, candidate_directory_id=directory_of(each, 0))
            for each in words.ids("then")
        ],
    )
    topic = end_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id="c", topics=[topic])


def _fetch(words: _Words) -> fetch.FetchRequest:
    offset, last_epoch = words.place("at")
    partition = fetch.FetchPartition(
        current_leader_epoch=words.number("epoch"),
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=words.directory,
        high_watermark=words.number("committed", 2**63 - 1),
    )
    return fetch.FetchRequest(
        cluster_id="c",
        replica_state=fetch.ReplicaState(replica_id=words.number("from")),
        max_wait_ms=words.number("wait"),
        max_bytes=1000,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_snapshot(words: _Words) -> fetch_snapshot.FetchSnapshotRequest:
    end_offset, epoch = words.place("snapshot")
    partition = fetch_snapshot.RequestPartitionSnapshot(
        current_leader_epoch=words.number("epoch"),
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=epoch),
        position=words.number("position"),
        replica_directory_id=words.directory,
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id="c", replica_id=words.number("from"), max_bytes=1000, topics=[topic]
    )


def _add(words: _Words) -> add_raft_voter.AddRaftVoterRequest:
    where = endpoint_of(words.number("from"))
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id="c",
        voter_id=words.number("from"),
        voter_directory_id=NO_UUID if words.has("nowhere") else words.directory,
        listeners=[add_raft_voter.Listener(name=words.text("at", where.name), host=where.host, port=where.port)],
        ack_when_committed=not words.number("soon"),
    )


def _remove(words: _Words) -> remove_raft_voter.RemoveRaftVoterRequest:
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id="c", voter_id=words.number("from"), voter_directory_id=words.directory
    )


def _update(words: _Words) -> update_raft_voter.UpdateRaftVoterRequest:
    where = endpoint_of(words.number("from"))
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id="c",
        current_leader_epoch=words.number("epoch"),
        voter_id=words.number("from"),
        voter_directory_id=words.directory,
        listeners=[update_raft_voter.Listener(name=where.name, host=where.host, port=words.number("port", where.port))],
        kraft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=words.number("kraft", 1)
        ),
    )


def _vote_answer(words: _Words) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(
        error_code=words.error,
        leader_id=words.number("leader", -1),
        leader_epoch=words.number("epoch"),
        vote_granted=words.has("yes"),
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_nodes(vote.NodeEndpoint, words),
    )


def _announced(module: Any, kind: Any, words: _Words) -> Any:
    partition = module.ResponsePartitionData(
        error_code=words.error, leader_id=words.number("leader", -1), leader_epoch=words.number("epoch")
    )
    topic = module.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return kind(topics=[topic], node_endpoints=_nodes(module.NodeEndpoint, words))


def _fetch_answer(words: _Words) -> fetch.FetchResponse:
    partition = fetch.PartitionData(
        error_code=words.error,
        high_watermark=words.number("committed", -1),
        current_leader=fetch.LeaderIdAndEpoch(leader_id=words.number("leader", -1), leader_epoch=words.number("epoch")),
    )
    if words.has("diverging"):
        end_offset, epoch = words.place("diverging")
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if words.has("snapshot"):
        end_offset, epoch = words.place("snapshot")
        partition.snapshot_id = fetch.SnapshotId(end_offset=end_offset, epoch=epoch)
    if words.has("record"):
        base, epoch = words.place("record")
        partition.records = ((Entry(epoch, "outside", base),),)
    topic = fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(responses=[topic], node_endpoints=_nodes(fetch.NodeEndpoint, words))


def _snapshot_answer(words: _Words) -> fetch_snapshot.FetchSnapshotResponse:
    end_offset, epoch = words.place("snapshot")
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        error_code=words.error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=words.number("leader", -1), leader_epoch=words.number("epoch")
        ),
        size=words.number("size"),
        position=words.number("position"),
        unaligned_records=b"x" * words.number("bytes"),
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic])


def _versions_answer(words: _Words) -> api_versions.ApiVersionsResponse:
    feature = api_versions.SupportedFeatureKey(name="kraft.version", max_version=words.number("version", 1))
    return api_versions.ApiVersionsResponse(error_code=words.error, supported_features=[feature])


def _nodes(kind: Any, words: _Words) -> list[Any]:
    leader_id = words.number("leader", -1)
    where = endpoint_of(leader_id)
    is_known = leader_id >= 0 and not words.has("nowhere")
    return [kind(node_id=leader_id, host=where.host, port=where.port)] if is_known else []


_REQUESTS: dict[str, Any] = {
    "vote": _vote,
    "prevote": lambda words: _vote(words, is_question=True),
    "begin": _begin,
    "end": _end,
    "fetch": _fetch,
    "fetch-snapshot": _fetch_snapshot,
    "add": _add,
    "remove": _remove,
    "update": _update,
}
_ANSWERS: dict[str, Any] = {
    "vote": _vote_answer,
    "begin": lambda words: _announced(begin_quorum_epoch, begin_quorum_epoch.BeginQuorumEpochResponse, words),
    "end": lambda words: _announced(end_quorum_epoch, end_quorum_epoch.EndQuorumEpochResponse, words),
    "fetch": _fetch_answer,
    "fetch-snapshot": _snapshot_answer,
    "versions": _versions_answer,
}
