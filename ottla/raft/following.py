"""The follower's side, voter or observer: find the leader, fetch its log and its snapshots.

Rules:
- One fetch is in flight at a time, and none until the previous response is in the log.
- A node that can vote syncs its log before it fetches again: its fetch offset is what it has durable.
- A follower's high watermark is the leader's, limited to the end of its own log.
- A follower never truncates committed records or replaces them with an older snapshot, even if the leader asks.
- A leader that answered fetches and now refuses connections is dead: a voter starts an election at once (decision
  0653).
"""

from __future__ import annotations

from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.connections import Exchange, QuorumPeer
from ottla.raft.discovery import take_common
from ottla.raft.effect import AppendReplicated, InstallSnapshot, Sync, TruncateLog, WriteSnapshotPiece
from ottla.raft.event import SnapshotInstalled
from ottla.raft.log_view import EpochEnd, truncation_offset
from ottla.raft.member import QuorumMember
from ottla.raft.message import (
    LeaderSeen,
    fetch_request,
    fetched_partition,
    only_partition,
    peer_of,
    seen_endpoints,
    snapshot_request,
)
from ottla.raft.role import Follower, SnapshotFetch
from ottla.raft.snapshotting import SnapshotSchedule
from ottla.wire.api.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.wire.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse, ResponsePartitionSnapshot


class Following:
    """Fetches the log and snapshots of the leader. The machine creates it."""

    def __init__(self, member: QuorumMember, snapshots: SnapshotSchedule) -> None:
        self._member = member
        self._snapshots = snapshots

    # ---- requests

    def fetch_from_leader(self, role: Follower) -> None:
        """Fetch from the leader; while it does not answer, ask a bootstrap server for a newer leader."""
        member, leader_id = self._member, role.leader_id
        peer = peer_of(leader_id, role.leader_endpoints, member.settings.listener)
        if peer is None or member.connections.has_timed_out(leader_id, member.now_ms):
            member.connections.reset(leader_id)
            self.fetch_from_bootstrap()
        elif member.connections.is_pausing(leader_id, member.now_ms):
            self.fetch_from_bootstrap()
        elif self._may_fetch() and not member.connections.is_any_waiting(member.now_ms):
            fetching = role.fetching
            member.send(peer, self._fetch_request if fetching is None else lambda: self._snapshot_request(fetching))

    def fetch_from_bootstrap(self) -> None:
        """Fetch from a bootstrap server: the leader answers with records, another node with the leader's id."""
        member = self._member
        if not self._may_fetch():
            return
        peer = member.connections.bootstrap_peer(member.now_ms)
        if peer is not None:
            member.send(peer, self._fetch_request)

    def _may_fetch(self) -> bool:
        member = self._member
        if isinstance(member.role, Follower) and member.role.is_applying:
            return False
        return not member.settings.can_vote or member.synced_offset >= member.log.end_offset

    def _fetch_request(self) -> FetchRequest:
        member = self._member
        return fetch_request(
            member.settings.cluster_id,
            member.me,
            epoch=member.epoch,
            offset=member.log.end_offset,
            last_epoch=member.log.last_epoch,
            high_watermark=member.high_watermark,
            max_bytes=member.settings.fetch_max_bytes,
            max_wait_ms=member.settings.fetch_wait_ms,
        )

    def _snapshot_request(self, fetching: SnapshotFetch) -> FetchSnapshotRequest:
        member = self._member
        return snapshot_request(
            member.settings.cluster_id,
            member.me,
            epoch=member.epoch,
            snapshot=fetching.snapshot,
            position=fetching.position,
            max_bytes=member.settings.fetch_snapshot_max_bytes,
        )

    # ---- Fetch

    def fetched(self, exchange: Exchange, response: FetchResponse) -> bool:
        """Handle the response to a Fetch; return False if it is unusable, so that the node is asked again later."""
        member = self._member
        partition = fetched_partition(response.responses, index="partition_index")
        if response.error_code != ErrorCode.NONE or partition is None:
            return False
        leader = partition.current_leader
        endpoints = seen_endpoints(leader.leader_id, response.node_endpoints, member.settings.listener)
        common = take_common(member, partition.error_code, LeaderSeen(leader.leader_epoch, leader.leader_id, endpoints))
        if common is not None:
            return common
        role = member.role
        if partition.error_code != ErrorCode.NONE or not isinstance(role, Follower) or role.is_applying:
            return False
        if not self._take(role, partition):
            return False
        self._note_success(role)
        return True

    def _take(self, role: Follower, partition: PartitionData) -> bool:
        member = self._member
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            return self._truncate(role, EpochEnd(diverging.epoch, diverging.end_offset))
        if snapshot.epoch >= 0 or snapshot.end_offset >= 0:
            return self._begin_snapshot(role, SnapshotId(snapshot.end_offset, snapshot.epoch))
        role.leader_high_watermark = partition.high_watermark
        if partition.records:
            role.is_applying = True
            member.effects.append(AppendReplicated(role.epoch, partition.records))
        else:
            self._commit(role)
        return True

    def _truncate(self, role: Follower, leader: EpochEnd) -> bool:
        member = self._member
        offset = truncation_offset(member.log, leader)
        # The high watermark may be unknown yet.
        committed = max(member.high_watermark, member.log.start_offset)
        if offset < committed:
            member.warn(
                f"node {role.leader_id} asks to truncate the metadata log to {offset}, "
                f"but everything below {committed} is committed; the request is ignored"
            )
            return False
        role.is_applying = True
        member.effects.append(TruncateLog(offset))
        return True

    def _begin_snapshot(self, role: Follower, snapshot: SnapshotId) -> bool:
        member = self._member
        if snapshot.epoch < 0 or snapshot.end_offset <= member.high_watermark or snapshot in member.log.snapshots:
            member.warn(f"node {role.leader_id} offers {snapshot}, which is not newer than the local state")
            return False
        role.fetching = SnapshotFetch(snapshot)
        return True

    def _note_success(self, role: Follower) -> None:
        role.fetch_deadline_ms = self._member.now_ms + self._member.settings.fetch_timeout_ms
        role.has_fetched = True

    def _commit(self, role: Follower) -> None:
        self._snapshots.commit(min(role.leader_high_watermark, self._member.log.end_offset))

    # ---- results from the driver

    def appended(self) -> None:
        """The fetched records are in the log."""
        role = self._member.role
        if isinstance(role, Follower) and role.is_applying:
            role.is_applying = False
            self._commit(role)
        if self._member.settings.can_vote:
            self._member.effects.append(Sync())

    def failed(self) -> None:
        """The fetched data could not be stored: start again after a while.

        No other server is asked: it would send the same, and the disk may be full.
        """
        member, role = self._member, self._member.role
        if isinstance(role, Follower):
            role.is_applying = False
            role.fetching = None
            member.connections.pause_all(member.now_ms + member.settings.fetch_timeout_ms // 2)

    def truncated(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`: undo the voter changes after it."""
        member, role = self._member, self._member.role
        member.voters.truncate(end_offset)
        member.synced_offset = min(member.synced_offset, end_offset)
        if isinstance(role, Follower):
            role.is_applying = False

    def installed(self, event: SnapshotInstalled) -> None:
        """The log starts after the leader's snapshot, and the voters are the snapshot's."""
        member, role = self._member, self._member.role
        end_offset = event.snapshot.end_offset
        member.voters.restart(end_offset, event.membership)
        member.synced_offset = end_offset
        self._snapshots.installed(end_offset)
        if isinstance(role, Follower):
            role.is_applying = False
            role.fetching = None
            role.fetch_deadline_ms = member.now_ms + member.settings.fetch_timeout_ms

    def refused(self, role: Follower, peer: QuorumPeer) -> None:
        """The leader's process is gone: react as to an EndQuorumEpoch that it could not send."""
        member = self._member
        leader = peer_of(role.leader_id, role.leader_endpoints, member.settings.listener)
        # A bootstrap server may be the leader under another id. `has_fetched` is False until the leader answers again.
        is_leader = leader is not None and leader[1:] == peer[1:]
        if is_leader and role.has_fetched and member.may_lead:
            role.fetch_deadline_ms = member.now_ms
            role.has_fetched = False

    # ---- FetchSnapshot

    def snapshot_fetched(self, exchange: Exchange, response: FetchSnapshotResponse) -> bool:
        """Handle the response to a FetchSnapshot; return False if it is unusable."""
        member = self._member
        partition = only_partition(response.topics, topic="name", index="index")
        if response.error_code != ErrorCode.NONE or partition is None:
            if isinstance(member.role, Follower):
                # Apache Kafka 4.3.1 answers so when the snapshot is gone: the next Fetch names the current one.
                member.role.fetching = None
            return False
        leader = partition.current_leader
        endpoints = seen_endpoints(leader.leader_id, response.node_endpoints, member.settings.listener)
        common = take_common(member, partition.error_code, LeaderSeen(leader.leader_epoch, leader.leader_id, endpoints))
        if common is not None:
            return common
        role = member.role
        if not isinstance(role, Follower) or role.fetching is None:
            return False
        snapshot_id = partition.snapshot_id
        if partition.error_code == ErrorCode.SNAPSHOT_NOT_FOUND or min(snapshot_id.end_offset, snapshot_id.epoch) < 0:
            # The leader has deleted it: the next Fetch names the newer one.
            role.fetching = None
        elif partition.error_code != ErrorCode.NONE:
            return False
        elif not self._take_chunk(role, role.fetching, partition):
            role.fetching = None
            return False
        self._note_success(role)
        return True

    def _take_chunk(self, role: Follower, fetching: SnapshotFetch, partition: ResponsePartitionSnapshot) -> bool:
        member = self._member
        snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        data: Any = partition.unaligned_records or b""
        end = fetching.position + len(data)
        is_next = snapshot == fetching.snapshot and partition.position == fetching.position
        if not is_next or not fetching.position < end <= partition.size:
            member.warn(
                f"node {role.leader_id} sent {len(data)} bytes at {partition.position} of {partition.size} of "
                f"{snapshot}; expected data at {fetching.position} of {fetching.snapshot}"
            )
            return False
        member.effects.append(WriteSnapshotPiece(snapshot, fetching.position, data))
        fetching.position = end
        if end == partition.size:
            role.is_applying = True
            member.effects.append(InstallSnapshot(snapshot))
        return True
