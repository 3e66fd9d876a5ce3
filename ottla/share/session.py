"""Share sessions (KIP-932): the partitions that a member reads over a connection, so that requests do not repeat them.

Rules:
- A member of a group has one session. Epoch 0 opens it, replacing an earlier one; -1 closes it; any other epoch must be
  the next one of the session, or the member gets INVALID_SHARE_SESSION_EPOCH and starts over.
- A session ends with its connection: the member cannot continue it over another, and its records are released.
- There are at most `group.share.max.share.sessions` sessions (SHARE_SESSION_LIMIT_REACHED).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF

#: (topic id, partition)
Key = tuple[Uuid, int]
#: (group id, member id)
Owner = tuple[str, str]


class ShareSession:
    """A member's session. `ShareSessions` creates and closes it."""

    __slots__ = ("connection", "epoch", "owner", "partitions")

    def __init__(self, owner: Owner, partitions: Iterable[Key], connection: Hashable) -> None:
        self.owner = owner
        #: The epoch that the next request must carry.
        self.epoch = 1
        self.connection = connection
        #: In the order in which they are served.
        self.partitions: dict[Key, None] = dict.fromkeys(partitions)

    def move_to_end(self, key: Key) -> None:
        """Serve this partition last next time: it returned records."""
        if key in self.partitions:
            del self.partitions[key]
            self.partitions[key] = None


class ShareSessions:
    """A node's share sessions."""

    def __init__(self) -> None:
        self._sessions: dict[Owner, ShareSession] = {}
        #: Group -> the number of its members that have a session.
        self._by_group: dict[str, int] = {}

    def begin(self, owner: Owner, partitions: Iterable[Key], connection: Hashable, sessions_max: int) -> ShareSession:
        """Open a session and replace the member's earlier one. Raises SHARE_SESSION_LIMIT_REACHED."""
        self._remove(owner)
        if len(self._sessions) >= sessions_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[owner] = ShareSession(owner, partitions, connection)
        self._by_group[owner[0]] = self.of_group(owner[0]) + 1
        return session

    def _remove(self, owner: Owner) -> None:
        if self._sessions.pop(owner, None) is not None:
            left = self._by_group.pop(owner[0]) - 1
            if left:
                self._by_group[owner[0]] = left

    def find(self, owner: Owner) -> ShareSession:
        """The member's session. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(owner)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def resume(
        self, owner: Owner, epoch: int, added: Iterable[Key] = (), forgotten: Iterable[Key] = ()
    ) -> ShareSession:
        """The session of an incremental request, updated by it. Raises INVALID_SHARE_SESSION_EPOCH."""
        session = self.find(owner)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        for key in added:
            session.partitions.setdefault(key, None)
        for key in forgotten:
            session.partitions.pop(key, None)
        return session

    def end(self, owner: Owner) -> ShareSession:
        """Close and return the member's session."""
        session = self.find(owner)
        self._remove(owner)
        return session

    def holds(self, session: ShareSession) -> bool:
        """Is `session` still the member's session?"""
        return self._sessions.get(session.owner) is session

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        """The sessions that end with this connection."""
        return [session for session in self._sessions.values() if session.connection is connection]

    def of_group(self, group_id: str) -> int:
        """The number of a group's members that have a session."""
        return self._by_group.get(group_id, 0)
