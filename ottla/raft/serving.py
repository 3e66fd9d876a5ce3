"""The leader's side of replication: Fetch, FetchSnapshot, and the high watermark.

Rules:
- A voter's fetch offset is the end of its durable log: it can advance the high watermark before it is answered.
- A fetch without new data waits for a record, for a high watermark above the one in the request (KIP-1166), or for
  its timeout.
- The high watermark is the offset that a majority of the voters has made durable. It does not move in an epoch until
  it passes the epoch's first record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.raft.checkpoint import BOOTSTRAP_ID, SnapshotId
from ottla.raft.discovery import check_leader_request
from ottla.raft.effect import Answer, AnswerFetch, AnswerSnapshot
from ottla.raft.event import RequestReceived
from ottla.raft.log_view import EpochEnd, check_fetch
from ottla.raft.member import QuorumMember
from ottla.raft.message import fetch_response, fetched_partition, only_partition, replica_id, snapshot_response
from ottla.raft.role import NO_NODE, UNKNOWN, Leader, Voter
from ottla.raft.snapshotting import SnapshotSchedule

if TYPE_CHECKING:
    from ottla.wire.api import fetch as fetch_api
    from ottla.wire.api import fetch_snapshot as snapshot_api
else:
    fetch_api = LazyModule("ottla.wire.api.fetch")
    snapshot_api = LazyModule("ottla.wire.api.fetch_snapshot")

#: The maximum size of one answer, whatever the request allows; a single batch may be larger.
_ANSWER_BYTES_MAX = 16 * 1024 * 1024


class WaitingFetch(NamedTuple):
    """A fetch that waits for new data."""

    event: RequestReceived
    partition: fetch_api.FetchPartition
    deadline_ms: int


class Serving:
    """Answers fetches and advances the high watermark. The machine creates it."""

    def __init__(self, member: QuorumMember, snapshots: SnapshotSchedule) -> None:
        self._member = member
        self._snapshots = snapshots
        self._waiting: dict[Any, WaitingFetch] = {}

    # ---- the high watermark

    def advance(self, role: Leader) -> None:
        """Advance the high watermark to the majority's offset."""
        offset = role.progress.majority_offset()
        if offset <= max(role.epoch_start_offset, role.high_watermark):
            return
        role.high_watermark = offset
        self._snapshots.commit(offset)
        self.wake()

    # ---- Fetch

    def fetch(self, event: RequestReceived) -> None:
        member, request = self._member, event.request
        if request.cluster_id not in (None, member.settings.cluster_id):
            return self._answer(event, fetch_api.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        partition = fetched_partition(request.topics)
        if partition is None:
            return self._answer(event, fetch_api.FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
        if (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or not 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch
        ):
            return self._fetch_error(event, ErrorCode.INVALID_REQUEST)
        error = check_leader_request(member, partition.current_leader_epoch)
        key = Voter(replica_id(request), partition.replica_directory_id)
        if error == ErrorCode.NONE and key.node_id == member.me.node_id:
            # Apache Kafka's answer: its leader fails on a fetch from itself.
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        if error != ErrorCode.NONE:
            return self._fetch_error(event, error)
        role = member.role
        assert isinstance(role, Leader)
        redirect = check_fetch(member.log, partition.fetch_offset, partition.last_fetched_epoch)
        if redirect is None and key.node_id >= 0:
            role.progress.replica(key).fetched(partition.fetch_offset, member.log.end_offset, member.now_ms)
            self.note_alive(role, key)
            if role.progress.is_voter(key):
                self.advance(role)
        waits = (
            redirect is None
            and partition.fetch_offset == member.log.end_offset
            and request.max_wait_ms > 0
            and partition.high_watermark >= role.high_watermark
        )
        if waits:
            self._waiting[event.ticket] = WaitingFetch(event, partition, member.now_ms + request.max_wait_ms)
        else:
            self._respond(event, partition, role, redirect)
        return None

    def note_alive(self, role: Leader, key: Voter) -> None:
        """Note a request from a replica; a majority of the voters extends the leadership."""
        if role.progress.note_alive(key):
            role.check_deadline_ms = self._member.now_ms + self._member.check_quorum_ms

    def wake(self) -> None:
        """Answer every waiting fetch with the current state."""
        for ticket in list(self._waiting):
            self._finish(self._waiting.pop(ticket))

    def wake_behind(self, end_offset: int) -> None:
        """The log grew to `end_offset`: answer the fetches that wait for records."""
        for ticket, waiting in list(self._waiting.items()):
            if waiting.partition.fetch_offset < end_offset:
                self._finish(self._waiting.pop(ticket))

    def expire(self) -> None:
        """Answer the fetches that timed out."""
        for ticket, waiting in list(self._waiting.items()):
            if waiting.deadline_ms <= self._member.now_ms:
                self._finish(self._waiting.pop(ticket))

    def refuse(self) -> None:
        """This node lost the leadership: fail the waiting fetches, so that their senders look for the new leader."""
        fetches, self._waiting = self._waiting, {}
        for fetch in fetches.values():
            self._fetch_error(fetch.event, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def drop(self, ticket: Any) -> None:
        """The requester disconnected: drop its fetch."""
        self._waiting.pop(ticket, None)

    def deadline_ms(self) -> int | None:
        return min([fetch.deadline_ms for fetch in self._waiting.values()]) if self._waiting else None

    def _finish(self, waiting: WaitingFetch) -> None:
        role, partition = self._member.role, waiting.partition
        assert isinstance(role, Leader)
        redirect = check_fetch(self._member.log, partition.fetch_offset, partition.last_fetched_epoch)
        self._respond(waiting.event, partition, role, redirect)

    def _respond(
        self,
        event: RequestReceived,
        partition: fetch_api.FetchPartition,
        role: Leader,
        redirect: EpochEnd | SnapshotId | None,
    ) -> None:
        member = self._member
        response = fetch_response(
            member.leader,
            event.listener,
            event.version,
            start_offset=member.log.start_offset,
            high_watermark=role.high_watermark,
            redirect=redirect,
        )
        if redirect is not None or partition.fetch_offset >= member.log.end_offset:
            return self._answer(event, response)
        max_bytes = min(max(event.request.max_bytes, 0), _ANSWER_BYTES_MAX)
        member.effects.append(AnswerFetch(event.ticket, response, partition.fetch_offset, max_bytes))
        return None

    def _fetch_error(self, event: RequestReceived, error: ErrorCode) -> None:
        member = self._member
        start_offset = member.log.start_offset
        response = fetch_response(
            member.leader, event.listener, event.version, error=error, start_offset=start_offset, high_watermark=UNKNOWN
        )
        self._answer(event, response)

    def _answer(self, event: RequestReceived, response: Any) -> None:
        self._member.effects.append(Answer(event.ticket, response))

    # ---- FetchSnapshot

    def fetch_snapshot(self, event: RequestReceived) -> None:
        member, request = self._member, event.request
        if request.cluster_id not in (None, member.settings.cluster_id):
            return self._answer(event, snapshot_api.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return self._answer(event, snapshot_api.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
        partition = only_partition(request.topics, topic="name", index="partition")
        if partition is None:
            return self._answer(event, self._unknown_partition(event))
        error = check_leader_request(member, partition.current_leader_epoch)
        snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        size = member.log.snapshot_size(snapshot)
        if error != ErrorCode.NONE:
            pass
        elif size is None or snapshot == BOOTSTRAP_ID:
            # The first leader copied the bootstrap snapshot into the log; its file is not replicated.
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= partition.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error != ErrorCode.NONE or size is None:
            refused = snapshot_response(member.leader, event.listener, event.version, error=error)
            return self._answer(event, refused)
        role = member.role
        assert isinstance(role, Leader)
        if request.replica_id != NO_NODE:
            self.note_alive(role, Voter(request.replica_id, partition.replica_directory_id))
        response = snapshot_response(
            member.leader, event.listener, event.version, snapshot=snapshot, size=size, position=partition.position
        )
        max_bytes = min(max(request.max_bytes, 0), _ANSWER_BYTES_MAX)
        member.effects.append(AnswerSnapshot(event.ticket, response, snapshot, partition.position, max_bytes))
        return None

    def _unknown_partition(self, event: RequestReceived) -> snapshot_api.FetchSnapshotResponse:
        requested = event.request.topics[0]
        response = snapshot_response(
            self._member.leader, event.listener, event.version, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        response.topics[0].name = requested.name
        partition = response.topics[0].partitions[0]
        partition.index = requested.partitions[0].partition
        # As Apache Kafka does: only a response about the metadata partition names the leader.
        partition.current_leader = snapshot_api.LeaderIdAndEpoch()
        return response
