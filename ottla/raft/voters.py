"""The history of the voters, by log offset (KIP-853).

Rules:
- A voter change takes effect when it is appended, before it is committed; a truncation undoes it.
- A snapshot has the voters as of its offset.
- Before kraft.version 1 the log does not contain the voters; the settings define them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ottla.kernel.ports import Buffer
from ottla.raft.checkpoint import Membership, VoterNode, changed_membership
from ottla.raft.role import UNKNOWN, Voter
from ottla.wire.batch import read
from ottla.wire.record.control import KRaftVersionRecord, VotersRecord, parse_change


class VoterHistory:
    """The memberships in the log. The driver creates it, fills it while loading the log, and passes it to the machine.

    `fixed` are the voters of the settings; empty if the log defines the voters.
    """

    __slots__ = ("_fixed", "_memberships", "_offsets")

    def __init__(self, fixed: tuple[VoterNode, ...] = ()) -> None:
        self._fixed = Membership(0, fixed)
        self._offsets: list[int] = []
        self._memberships: list[Membership] = []

    @property
    def last(self) -> Membership:
        """The newest membership."""
        return self._memberships[-1] if self._memberships else self._fixed

    @property
    def last_offset(self) -> int:
        """The offset of the newest membership; UNKNOWN if it is from the settings."""
        return self._offsets[-1] if self._offsets else UNKNOWN

    @property
    def before_last(self) -> Membership:
        """The membership that becomes current again if the newest one is truncated."""
        return self._memberships[-2] if len(self._memberships) > 1 else self._fixed

    def at(self, end_offset: int) -> Membership:
        """Return the membership of a snapshot of everything below `end_offset`."""
        index = bisect_right(self._offsets, end_offset - 1)
        return self._memberships[index - 1] if index else Membership(0)

    def change(self, offset: int, message: object) -> None:
        """Apply a control record of the log; records that do not concern the membership are ignored."""
        before = self._memberships[-1] if self._memberships else Membership(0)
        after = changed_membership(before, message)
        if after is not before:
            self._put(offset, after)

    def restart(self, end_offset: int, membership: Membership) -> None:
        """Replace the history: the log restarts after a snapshot that ends at `end_offset`."""
        self._offsets, self._memberships = [], []
        if membership.kraft_version:
            self._put(end_offset - 1, membership)

    def truncate(self, end_offset: int) -> None:
        """Undo the changes from `end_offset` on: the log was truncated."""
        keep = bisect_right(self._offsets, end_offset - 1)
        del self._offsets[keep:], self._memberships[keep:]

    def forget(self, start_offset: int) -> None:
        """Drop the history before the log's new start, except the membership that is current there."""
        drop = max(0, bisect_right(self._offsets, start_offset) - 1)
        del self._offsets[:drop], self._memberships[:drop]

    def _put(self, offset: int, membership: Membership) -> None:
        if self._offsets and self._offsets[-1] >= offset:
            self._memberships[-1] = membership
            return
        self._offsets.append(offset)
        self._memberships.append(membership)


def changes_in(batches: Buffer) -> tuple[tuple[int, Any], ...]:
    """Return (offset, message) of the control records in these complete batches that change the voters."""
    changes = []
    for batch in read(batches):
        if batch.header.is_control:
            for record in batch.records():
                message = parse_change(record.key or b"", record.value or b"")
                if isinstance(message, KRaftVersionRecord | VotersRecord):
                    changes.append((record.offset, message))
    return tuple(changes)


def find_voter(membership: Membership, key: Voter) -> VoterNode | None:
    """Return the voter that matches `key`; None if there is none."""
    # Asked several times in each step of the machine: a plain loop.
    for node in membership.voters:
        if node.voter.matches(key):
            return node
    return None


def find_node(membership: Membership, node_id: int) -> VoterNode | None:
    """Return the voter with this id, whatever its directory; None if there is none."""
    return next((node for node in membership.voters if node.voter.node_id == node_id), None)


def replaced(membership: Membership, changed: VoterNode) -> Membership:
    """Return the membership with the voter of this id replaced by `changed`."""
    node_id = changed.voter.node_id
    return membership._replace(
        voters=tuple(changed if node.voter.node_id == node_id else node for node in membership.voters)
    )
