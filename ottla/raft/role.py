"""The roles of a node in the quorum, and the state that each keeps.

| from | to | when |
|---|---|---|
| UNATTACHED, FOLLOWER | PROSPECTIVE | a voter has no contact with a leader for its election or fetch timeout |
| UNATTACHED, FOLLOWER | CANDIDATE | the same, and it is the only voter |
| PROSPECTIVE | CANDIDATE | a majority granted its pre-vote, or a voter does not support pre-votes |
| PROSPECTIVE | FOLLOWER, UNATTACHED | too few did, or it timed out: it follows its previous leader, or none |
| CANDIDATE | LEADER | a majority voted for it |
| CANDIDATE | PROSPECTIVE | its election timed out |
| UNATTACHED, PROSPECTIVE, CANDIDATE, RESIGNED_LEADER | FOLLOWER | it learns a leader of its epoch or a newer one |
| FOLLOWER, PROSPECTIVE, CANDIDATE, LEADER, RESIGNED_LEADER | UNATTACHED | a newer epoch without a known leader |
| LEADER | RESIGNED_LEADER | no majority fetches, it is no longer a voter, or the node stops |
| UNATTACHED | RESIGNED_LEADER | it restarts, and led the epoch that it had saved |
| RESIGNED_LEADER | UNATTACHED | its time to notify the voters is over |

Rules:
- A role is created when the node takes it and dropped when the node leaves it. Only the machine modifies it.
- Times are the machine's `now_ms`: monotonic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kernel.ids import NO_UUID, Uuid
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.raft.change import VoterChange
    from ottla.raft.checkpoint import Membership, SnapshotId, VoterEndpoint
    from ottla.raft.progress import QuorumProgress
    from ottla.raft.votes import Votes

NO_NODE = -1
#: Epochs are int32 on the wire.
EPOCH_MAX = 2**31 - 1
#: An unknown high watermark, end offset or time.
UNKNOWN = -1


class Voter(NamedTuple):
    """A voter: a node and the directory in which it keeps the log (KIP-853)."""

    node_id: int
    directory_id: Uuid = NO_UUID

    def matches(self, key: Voter) -> bool:
        """Return True if `key` is this voter. A voter of a static quorum has no directory: its id identifies it."""
        return self.node_id == key.node_id and self.directory_id in (NO_UUID, key.directory_id)


class Election(NamedTuple):
    """The content of `quorum-state`: the newest epoch, its leader if known, and our vote in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: Voter | None = None


class QuorumRole:
    """The state that all roles share."""

    __slots__ = ("epoch", "leader_endpoints", "leader_id", "voted")

    def __init__(
        self,
        epoch: int,
        leader_id: int = NO_NODE,
        voted: Voter | None = None,
        leader_endpoints: tuple[VoterEndpoint, ...] = (),
    ) -> None:
        self.epoch = epoch
        #: The leader of the epoch, or NO_NODE.
        self.leader_id = leader_id
        #: The candidate that we voted for in this epoch.
        self.voted = voted
        #: The leader's addresses; empty if unknown.
        self.leader_endpoints = leader_endpoints

    @property
    def election(self) -> Election:
        """The part of this role that is saved."""
        return Election(self.epoch, self.leader_id, self.voted)


class Unattached(QuorumRole):
    """Follows no leader: either the leader or its address is unknown."""

    __slots__ = ("election_deadline_ms",)

    def __init__(
        self,
        epoch: int,
        leader_id: int = NO_NODE,
        voted: Voter | None = None,
        *,
        election_deadline_ms: int | None = None,
    ) -> None:
        super().__init__(epoch, leader_id, voted)
        #: When a voter starts an election; None for an observer.
        self.election_deadline_ms = election_deadline_ms


class Prospective(QuorumRole):
    """Requests pre-votes, without raising the epoch (KIP-996)."""

    __slots__ = ("election_deadline_ms", "votes")

    def __init__(self, before: QuorumRole, votes: Votes, election_deadline_ms: int) -> None:
        super().__init__(before.epoch, before.leader_id, before.voted, before.leader_endpoints)
        self.votes = votes
        #: When it gives up.
        self.election_deadline_ms = election_deadline_ms


class Candidate(QuorumRole):
    """Requests votes; its vote for itself is saved."""

    __slots__ = ("election_deadline_ms", "votes")

    def __init__(self, epoch: int, me: Voter, votes: Votes, election_deadline_ms: int) -> None:
        super().__init__(epoch, voted=me)
        self.votes = votes
        #: When it starts again.
        self.election_deadline_ms = election_deadline_ms


class SnapshotFetch:
    """A snapshot that a follower is fetching."""

    __slots__ = ("position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        #: The number of bytes fetched.
        self.position = 0


class Follower(QuorumRole):
    """Fetches from the leader: a voter or an observer."""

    __slots__ = (
        "fetch_deadline_ms",
        "fetching",
        "has_fetched",
        "has_updated",
        "leader_high_watermark",
        "update_deadline_ms",
        "is_applying",
    )

    def __init__(
        self,
        epoch: int,
        leader_id: int,
        voted: Voter | None,
        leader_endpoints: tuple[VoterEndpoint, ...],
        *,
        fetch_deadline_ms: int,
        update_deadline_ms: int,
    ) -> None:
        super().__init__(epoch, leader_id, voted, leader_endpoints)
        #: When a voter stops waiting for a successful fetch and starts an election.
        self.fetch_deadline_ms = fetch_deadline_ms
        #: When it next checks whether the leader should add, remove or update it as a voter.
        self.update_deadline_ms = update_deadline_ms
        #: A fetch from this leader succeeded: the leader is alive, so pre-votes are rejected.
        self.has_fetched = False
        #: The leader knows our endpoints and versions (kraft.version 0).
        self.has_updated = False
        #: The leader's high watermark in its last response.
        self.leader_high_watermark = UNKNOWN
        self.fetching: SnapshotFetch | None = None
        #: The driver is appending, truncating or installing for the last response; no fetch until it is done.
        self.is_applying = False

    @property
    def election_deadline_ms(self) -> int | None:
        """When a voter starts an election. None while a snapshot is installed: a later role would drop it."""
        return None if self.is_applying else self.fetch_deadline_ms


class Leader(QuorumRole):
    """Writes the log and serves its replicas."""

    __slots__ = (
        "announce_deadline_ms",
        "change",
        "check_deadline_ms",
        "epoch_start_offset",
        "granted",
        "high_watermark",
        "progress",
        "must_resign",
        "volatile_voters",
    )

    def __init__(
        self,
        epoch: int,
        me: Voter,
        granted: frozenset[Voter],
        progress: QuorumProgress,
        leader_endpoints: tuple[VoterEndpoint, ...],
        *,
        volatile_voters: Membership,
        epoch_start_offset: int,
        announce_deadline_ms: int,
        check_deadline_ms: int,
    ) -> None:
        super().__init__(epoch, me.node_id, None, leader_endpoints)
        #: The voters that elected us.
        self.granted = granted
        #: The progress of each voter and observer.
        self.progress = progress
        #: The offset of the epoch's first record. Nothing is committed before this record is (Raft, 5.4.2).
        self.epoch_start_offset = epoch_start_offset
        #: The first offset that is not committed; UNKNOWN until the epoch's first record is committed.
        self.high_watermark = UNKNOWN
        #: When BeginQuorumEpoch is next sent to the voters that do not fetch.
        self.announce_deadline_ms = announce_deadline_ms
        #: When it must_resign unless a majority has fetched by then.
        self.check_deadline_ms = check_deadline_ms
        #: True once the leader was asked to resign.
        self.must_resign = False
        #: The voter that is being added or removed.
        self.change: VoterChange | None = None
        #: With kraft.version 0: the voters of the settings, with what each has reported about itself.
        self.volatile_voters = volatile_voters


class ResignedLeader(QuorumRole):
    """Led this epoch until it resigned; notifies the voters and lets another one win."""

    __slots__ = ("election_deadline_ms", "successors", "unacknowledged")

    def __init__(
        self,
        epoch: int,
        me: Voter,
        leader_endpoints: tuple[VoterEndpoint, ...],
        *,
        unacknowledged: set[int],
        successors: tuple[Voter, ...],
        election_deadline_ms: int,
    ) -> None:
        super().__init__(epoch, me.node_id, None, leader_endpoints)
        #: The voters that have not acknowledged EndQuorumEpoch.
        self.unacknowledged = unacknowledged
        #: The voters, longest log first.
        self.successors = successors
        self.election_deadline_ms = election_deadline_ms
