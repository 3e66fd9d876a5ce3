"""The share partitions of this node: what share groups have of the partitions that it leads (KIP-932).

Rules:
- A share partition is made from its stored state by the first fetch of it, and dropped with its partition, when the
  last session of its group ends, and when a write of it is fenced: the group's offsets were set again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.kernel.ids import Uuid
from ottla.kernel.lazy import LazyModule
from ottla.metadata.image import GROUP
from ottla.replica.partition import Partition
from ottla.settings.group.settings import GroupSettings

if TYPE_CHECKING:
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.partitions.look_ups import LookUps
    from ottla.broker.runtime import Runtime
    from ottla.broker.share import partition as share_leader
    from ottla.broker.share.persister import Persister
    from ottla.share import session as share_session
    from ottla.share import state as share_state
else:
    share_leader = LazyModule("ottla.broker.share.partition")
    share_session = LazyModule("ottla.share.session")
    share_state = LazyModule("ottla.share.state")


class Shares:
    """All share partitions and share sessions of a node."""

    def __init__(
        self, runtime: Runtime, log_dirs: LogDirs, look_ups: LookUps, persister: Callable[[], Persister]
    ) -> None:
        self.runtime = runtime
        self.log_dirs = log_dirs
        self.look_ups = look_ups
        #: The way to the share coordinators, made by the first call.
        self.persister = persister
        self._leaders: dict[share_state.SharePartitionKey, share_leader.ShareLeader] = {}
        #: By group id; made on demand, forgotten when settings change.
        self._settings: dict[str, GroupSettings] = {}

    @cached_property
    def sessions(self) -> share_session.ShareSessions:
        """The sessions of all members; most nodes never have one."""
        return share_session.ShareSessions()

    def settings_of(self, group_id: str) -> GroupSettings:
        """The settings of a group as they are now."""
        settings = self._settings.get(group_id)
        if settings is None:
            overrides = self.runtime.image.config(GROUP, group_id)
            settings = self._settings[group_id] = GroupSettings.resolve(overrides, self.runtime.settings)
        return settings

    def find(self, key: share_state.SharePartitionKey) -> share_leader.ShareLeader | None:
        """A share partition, if a fetch has made it."""
        return self._leaders.get(key)

    def lead(self, key: share_state.SharePartitionKey, partition: Partition) -> share_leader.ShareLeader:
        """A share partition; it is made if need be, and then not ready yet."""
        leader = self._leaders.get(key)
        if leader is None:
            leader = self._leaders[key] = share_leader.ShareLeader(self, key, partition)
            leader.open()
        return leader

    def drop(self, key: share_state.SharePartitionKey) -> None:
        """Forget a share partition: its stored state is all that counts."""
        leader = self._leaders.pop(key, None)
        if leader is not None:
            leader.close()

    def resign(self, partition: Partition) -> None:
        """A partition is not led here any more, at least not in this leader epoch: locks and sessions end with it."""
        for key in [key for key, leader in self._leaders.items() if leader.partition is partition]:
            self.drop(key)

    def drop_topic(self, topic_id: Uuid) -> None:
        """A topic is gone."""
        for key in [key for key in self._leaders if key.topic_id == topic_id]:
            self.drop(key)

    def settings_changed(self) -> None:
        """The node's or a group's settings changed."""
        self._settings.clear()
        for leader in self._leaders.values():
            leader.settings_changed()

    # -- sessions

    def end_session(self, session: share_session.ShareSession) -> None:
        """What a member has is available again; a group without sessions is forgotten.

        Nothing where another request has ended it already, or the member has begun another one.
        """
        if not self.sessions.holds(session):
            return
        group_id, member_id = session.owner
        self.sessions.end(session.owner)
        for topic_id, index in session.partitions:
            leader = self._leaders.get(share_state.SharePartitionKey(group_id, topic_id, index))
            if leader is not None:
                leader.release(member_id)
        if not self.sessions.of_group(group_id):
            self._settings.pop(group_id, None)
            for key in [key for key in self._leaders if key.group_id == group_id]:
                self.drop(key)

    def connection_closed(self, connection: Any) -> None:
        """The sessions of this connection are over."""
        if "sessions" in self.__dict__:
            for session in self.sessions.of_connection(connection):
                self.end_session(session)

    def close(self) -> None:
        """Stop the timers, and tell all waiters."""
        for key in list(self._leaders):
            self.drop(key)
