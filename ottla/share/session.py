"""Share sessions (KIP-932): which partitions a member reads through a connection, so that it need not say it again.

Rules:
- A session is a group's member's. Epoch 0 begins one, in place of the one before; -1 ends it; any other epoch must be
  the one we expect next, or the member gets INVALID_SHARE_SESSION_EPOCH and begins again.
- A session ends with its connection: the member can reach us by no other way, and what it has is for others.
- There are at most `group.share.max.share.sessions` (SHARE_SESSION_LIMIT_REACHED).
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
    """A member's session. `ShareSessions` makes and ends it."""

    __slots__ = ("connection", "epoch", "owner", "partitions")

    def __init__(self, owner: Owner, partitions: Iterable[Key], connection: Hashable) -> None:
        self.owner = owner
        #: The epoch that the next request must carry.
        self.epoch = 1
        self.connection = connection
        #: In the order in which they are served.
        self.partitions: dict[Key, None] = dict.fromkeys(partitions)

    def move_behind(self, key: Key) -> None:
        """This partition had records: the others come first next time."""
        if key in self.partitions:
            del self.partitions[key]
            self.partitions[key] = None


class ShareSessions:
    """A node's share sessions."""

    def __init__(self) -> None:
        self._sessions: dict[Owner, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, owner: Owner, partitions: Iterable[Key], connection: Hashable, sessions_max: int) -> ShareSession:
        """A new session in place of the member's last one."""
        self._sessions.pop(owner, None)
        if len(self._sessions) >= sessions_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[owner] = ShareSession(owner, partitions, connection)
        return session

    def find(self, owner: Owner) -> ShareSession:
        """The member's session, or SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(owner)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def resume(
        self, owner: Owner, epoch: int, added: Iterable[Key] = (), forgotten: Iterable[Key] = ()
    ) -> ShareSession:
        """The session of a request that carries its epoch, brought up to date."""
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
        """Forget a session; what it had been reading."""
        session = self.find(owner)
        del self._sessions[owner]
        return session

    def holds(self, session: ShareSession) -> bool:
        """Is it still the member's session?"""
        return self._sessions.get(session.owner) is session

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        """The sessions that end with this connection."""
        return [session for session in self._sessions.values() if session.connection is connection]

    def of_group(self, group_id: str) -> int:
        """How many of a group's members have a session."""
        return sum(owner[0] == group_id for owner in self._sessions)
