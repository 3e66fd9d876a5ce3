"""What a voter is at one time, and what it must not forget."""

from __future__ import annotations

from typing import NamedTuple

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import NO_UUID, Uuid

NO_NODE = -1


class Voter(NamedTuple):
    """A voter: a node and the directory in which it keeps the log (KIP-853)."""

    node_id: int
    directory_id: Uuid = NO_UUID


class Election(NamedTuple):
    """What is in `quorum-state`: the newest epoch, who leads it if that is known, and whom we voted for in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: Voter | None = None


@frozen
class Unattached:
    """Knows of no leader."""

    epoch: int


@frozen
class Candidate:
    """Asks for votes; its own is saved."""

    epoch: int
    #: Those who voted for us, ourselves among them.
    granted: frozenset[Voter]


@frozen
class Leader:
    """Writes the log."""

    epoch: int
    #: Those whose votes made us the leader.
    granted: frozenset[Voter]
    #: Where the epoch's first record stands. Nothing is committed before this record is (Raft, 5.4.2).
    epoch_start_offset: int
    #: The first offset that is not committed.
    high_watermark: int


Role = Unattached | Candidate | Leader
