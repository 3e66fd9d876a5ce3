"""The voters, by offset of the log (KIP-853).

Rules:
- A change of the voters counts from its append on, committed or not; a truncation takes it back.
- A snapshot has the voters as of its offset.
- Before kraft.version 1 the log says nothing and the settings name the voters.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ottla.kernel.ports import Buffer
from ottla.raft.checkpoint import Membership, VoterNode, changed_membership
from ottla.raft.role import UNKNOWN, Voter
from ottla.wire.batch import read
from ottla.wire.record.control import KRaftVersionRecord, VotersRecord, parse


class VoterHistory:
    """The memberships that the log has had. The driver makes it, feeds it while it loads, and gives it to the machine.

    `fixed` are the voters of the settings; empty if the log says who votes.
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
        """Where the newest membership stands; UNKNOWN if it is from the settings."""
        return self._offsets[-1] if self._offsets else UNKNOWN

    @property
    def before_last(self) -> Membership:
        """The membership that counts again if the newest one is truncated away."""
        return self._memberships[-2] if len(self._memberships) > 1 else self._fixed

    def at(self, end_offset: int) -> Membership:
        """The membership that a snapshot of everything below `end_offset` has."""
        index = bisect_right(self._offsets, end_offset - 1)
        return self._memberships[index - 1] if index else Membership(0)

    def change(self, offset: int, message: object) -> None:
        """Take a control record of the log; those that say nothing of it change nothing."""
        before = self._memberships[-1] if self._memberships else Membership(0)
        after = changed_membership(before, message)
        if after is not before:
            self._put(offset, after)

    def restart(self, end_offset: int, membership: Membership) -> None:
        """The log begins again behind a snapshot that ends here."""
        self._offsets, self._memberships = [], []
        if membership.kraft_version:
            self._put(end_offset - 1, membership)

    def truncate(self, end_offset: int) -> None:
        """The log ends here now: what it said behind that is taken back."""
        keep = bisect_right(self._offsets, end_offset - 1)
        del self._offsets[keep:], self._memberships[keep:]

    def forget(self, start_offset: int) -> None:
        """The log starts here: drop what came before, but for the membership that still counts."""
        drop = max(0, bisect_right(self._offsets, start_offset) - 1)
        del self._offsets[:drop], self._memberships[:drop]

    def _put(self, offset: int, membership: Membership) -> None:
        if self._offsets and self._offsets[-1] >= offset:
            self._memberships[-1] = membership
            return
        self._offsets.append(offset)
        self._memberships.append(membership)


def changes_in(batches: Buffer) -> tuple[tuple[int, Any], ...]:
    """(offset, message) of the control records in these whole batches that change the voters."""
    found = []
    for batch in read(batches):
        if batch.header.is_control:
            for record in batch.records():
                _, message = parse(record.key or b"", record.value or b"")
                if isinstance(message, KRaftVersionRecord | VotersRecord):
                    found.append((record.offset, message))
    return tuple(found)


def find_voter(membership: Membership, key: Voter) -> VoterNode | None:
    """The voter that `key` is."""
    return next((node for node in membership.voters if node.voter.matches(key)), None)


def find_node(membership: Membership, node_id: int) -> VoterNode | None:
    """The voter with this id, whatever its directory."""
    return next((node for node in membership.voters if node.voter.node_id == node_id), None)


def replaced(membership: Membership, changed: VoterNode) -> Membership:
    """The same voters, the one with this id as it is in `changed`."""
    node_id = changed.voter.node_id
    return membership._replace(
        voters=tuple(changed if node.voter.node_id == node_id else node for node in membership.voters)
    )
