"""What a node of the quorum is at one time, and what it must not forget.

| from | to | when |
|---|---|---|
| UNATTACHED, FOLLOWER | PROSPECTIVE | a voter heard nothing of a leader for its election or fetch timeout |
| UNATTACHED, FOLLOWER | CANDIDATE | the same, and it is the only voter |
| PROSPECTIVE | CANDIDATE | a majority would vote for it, or a voter does not know pre-votes |
| PROSPECTIVE | FOLLOWER, UNATTACHED | too few would, or the time is over: it follows the leader it knew, or none |
| CANDIDATE | LEADER | a majority has voted for it |
| CANDIDATE | PROSPECTIVE | its election time is over |
| UNATTACHED, PROSPECTIVE, CANDIDATE, RESIGNED_LEADER | FOLLOWER | a leader of its epoch or a newer one shows itself |
| FOLLOWER, PROSPECTIVE, CANDIDATE, LEADER, RESIGNED_LEADER | UNATTACHED | a newer epoch, whose leader is not known |
| LEADER | RESIGNED_LEADER | no majority fetches, it is no voter any more, or the node stops |
| UNATTACHED | RESIGNED_LEADER | it starts, and led the epoch that it had saved |
| RESIGNED_LEADER | UNATTACHED | its time to tell the others is over |

Rules:
- A role is made when the node takes it and dropped when the node leaves it; only the machine changes what is in it.
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
#: A high watermark, end offset or time that is not known.
UNKNOWN = -1


class Voter(NamedTuple):
    """A voter: a node and the directory in which it keeps the log (KIP-853)."""

    node_id: int
    directory_id: Uuid = NO_UUID

    def matches(self, key: Voter) -> bool:
        """Is `key` this voter? A voter of a static quorum has no directory and is known by its id."""
        return self.node_id == key.node_id and self.directory_id in (NO_UUID, key.directory_id)


class Election(NamedTuple):
    """What is in `quorum-state`: the newest epoch, who leads it if that is known, and whom we voted for in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: Voter | None = None


class QuorumRole:
    """What every role has."""

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
        #: The candidate that got our vote in this epoch.
        self.voted = voted
        #: The addresses of the leader; empty if they are not known.
        self.leader_endpoints = leader_endpoints

    @property
    def election(self) -> Election:
        """What is saved of this role."""
        return Election(self.epoch, self.leader_id, self.voted)


class Unattached(QuorumRole):
    """Follows no leader: none is known, or its address is not."""

    __slots__ = ("election_ms",)

    def __init__(
        self, epoch: int, leader_id: int = NO_NODE, voted: Voter | None = None, *, election_ms: int | None = None
    ) -> None:
        super().__init__(epoch, leader_id, voted)
        #: When a voter asks for votes; None for an observer.
        self.election_ms = election_ms


class Prospective(QuorumRole):
    """Asks whether it would win an election, and raises no epoch by it (KIP-996)."""

    __slots__ = ("election_ms", "votes")

    def __init__(self, before: QuorumRole, votes: Votes, election_ms: int) -> None:
        super().__init__(before.epoch, before.leader_id, before.voted, before.leader_endpoints)
        self.votes = votes
        #: When it gives up.
        self.election_ms = election_ms


class Candidate(QuorumRole):
    """Asks for votes; its own is saved."""

    __slots__ = ("election_ms", "votes")

    def __init__(self, epoch: int, me: Voter, votes: Votes, election_ms: int) -> None:
        super().__init__(epoch, voted=me)
        self.votes = votes
        #: When it begins again.
        self.election_ms = election_ms


class SnapshotFetch:
    """A snapshot that a follower is fetching."""

    __slots__ = ("position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        #: How many bytes of it have come.
        self.position = 0


class Follower(QuorumRole):
    """Fetches from the leader: a voter or an observer."""

    __slots__ = ("fetch_ms", "fetching", "has_fetched", "has_updated", "leader_high_watermark", "update_ms", "waits")

    def __init__(
        self,
        epoch: int,
        leader_id: int,
        voted: Voter | None,
        leader_endpoints: tuple[VoterEndpoint, ...],
        *,
        fetch_ms: int,
        update_ms: int,
    ) -> None:
        super().__init__(epoch, leader_id, voted, leader_endpoints)
        #: When a voter stops waiting for a successful fetch and asks for votes.
        self.fetch_ms = fetch_ms
        #: When it next sees whether the leader should add, remove or update it as a voter.
        self.update_ms = update_ms
        #: A fetch from this leader succeeded: it lives, and another voter gets no pre-vote.
        self.has_fetched = False
        #: The leader has our endpoints and versions (kraft.version 0).
        self.has_updated = False
        #: The leader's high watermark in its last response.
        self.leader_high_watermark = UNKNOWN
        self.fetching: SnapshotFetch | None = None
        #: The driver appends, truncates or installs what the last response brought; no fetch until then.
        self.waits = False


class Leader(QuorumRole):
    """Writes the log."""

    __slots__ = (
        "begin_ms",
        "change",
        "check_ms",
        "epoch_start_offset",
        "granted",
        "high_watermark",
        "progress",
        "resigns",
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
        begin_ms: int,
        check_ms: int,
    ) -> None:
        super().__init__(epoch, me.node_id, None, leader_endpoints)
        #: The voters whose votes made us the leader.
        self.granted = granted
        #: How far each voter and observer has come.
        self.progress = progress
        #: Where the epoch's first record stands. Nothing is committed before this record is (Raft, 5.4.2).
        self.epoch_start_offset = epoch_start_offset
        #: The first offset that is not committed; UNKNOWN until the epoch's first record is committed.
        self.high_watermark = UNKNOWN
        #: When BeginQuorumEpoch is sent to the voters that do not fetch.
        self.begin_ms = begin_ms
        #: When it resigns unless a majority has fetched until then.
        self.check_ms = check_ms
        #: True once it was asked to resign.
        self.resigns = False
        #: The voter that is being added or removed.
        self.change: VoterChange | None = None
        #: With kraft.version 0: the voters of the settings, with what each said of itself.
        self.volatile_voters = volatile_voters


class ResignedLeader(QuorumRole):
    """Led this epoch and does so no more; tells the voters, and lets another one win."""

    __slots__ = ("election_ms", "successors", "unacknowledged")

    def __init__(
        self,
        epoch: int,
        me: Voter,
        leader_endpoints: tuple[VoterEndpoint, ...],
        *,
        unacknowledged: set[int],
        successors: tuple[Voter, ...],
        election_ms: int,
    ) -> None:
        super().__init__(epoch, me.node_id, None, leader_endpoints)
        #: The voters that have not answered EndQuorumEpoch.
        self.unacknowledged = unacknowledged
        #: The voters, the one with the longest log first.
        self.successors = successors
        self.election_ms = election_ms
