"""The share partitions of this node: the state of share groups in the partitions that it leads (KIP-932).

Rules:
- The first fetch creates a share partition from its stored state. It is dropped with its partition, when the last
  session of its group ends, and when a write is fenced because the group's offsets were reset.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ottla.kernel.callbacks import call_each
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
        #: Returns the access to the share coordinators, which the first call creates.
        self.persister = persister
        self._leaders: dict[share_state.SharePartitionKey, share_leader.ShareLeader] = {}
        #: (topic id, partition) -> the keys of its share partitions, one for each group.
        self._of_partition: dict[tuple[Uuid, int], list[share_state.SharePartitionKey]] = {}
        #: Group -> the keys of its share partitions.
        self._of_group: dict[str, dict[share_state.SharePartitionKey, None]] = {}
        #: Group with sessions -> settings; resolved on demand, cleared when settings change.
        self._settings: dict[str, GroupSettings] = {}

    @cached_property
    def sessions(self) -> share_session.ShareSessions:
        """The sessions of all members; most nodes never have any."""
        return share_session.ShareSessions()

    def settings_of(self, group_id: str) -> GroupSettings:
        """The current settings of a group."""
        settings = self._settings.get(group_id)
        if settings is None:
            overrides = self.runtime.image.config(GROUP, group_id)
            settings = GroupSettings.resolve(overrides, self.runtime.settings)
            if self.sessions.of_group(group_id):
                # Requests are also answered after their session has ended; these settings would then stay forever.
                self._settings[group_id] = settings
        return settings

    def find(self, key: share_state.SharePartitionKey) -> share_leader.ShareLeader | None:
        """A share partition, if a fetch has created it."""
        return self._leaders.get(key)

    def lead(self, key: share_state.SharePartitionKey, partition: Partition) -> share_leader.ShareLeader:
        """A share partition; a new one is created if necessary, and has to load first."""
        leader = self._leaders.get(key)
        if leader is None:
            leader = self._leaders[key] = share_leader.ShareLeader(self, key, partition)
            self._of_partition.setdefault((key.topic_id, key.partition), []).append(key)
            self._of_group.setdefault(key.group_id, {})[key] = None
            leader.open()
        return leader

    def drop(self, key: share_state.SharePartitionKey) -> None:
        """Drop a share partition; its stored state is what counts."""
        leader = self._leaders.pop(key, None)
        if leader is None:
            return
        own = (key.topic_id, key.partition)
        keys = self._of_partition[own]
        keys.remove(key)
        if not keys:
            del self._of_partition[own]
        of_group = self._of_group[key.group_id]
        del of_group[key]
        if not of_group:
            del self._of_group[key.group_id]
        leader.close()

    def resign(self, partition: Partition) -> None:
        """Drop the share partitions of a partition that this node stops leading, and their locks with them."""
        keys = self._of_partition.get((partition.topic_id, partition.tp.partition))
        if keys:
            call_each([partial(self.drop, key) for key in keys if self._leaders[key].partition is partition])

    def settings_changed(self) -> None:
        """Apply a change of the node's or a group's settings."""
        self._settings.clear()
        for leader in self._leaders.values():
            leader.settings_changed()

    # -- sessions

    def end_session(self, session: share_session.ShareSession) -> None:
        """End a session: the member's records become available again; a group without sessions is dropped.

        Does nothing if another request has already ended the session, or the member has begun a new one.
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
            call_each([partial(self.drop, key) for key in self._of_group.get(group_id, ())])

    def connection_closed(self, connection: Any) -> None:
        """End the sessions of this connection."""
        if "sessions" in self.__dict__:
            for session in self.sessions.of_connection(connection):
                self.end_session(session)

    def close(self) -> None:
        """Stop the timers, and wake all waiters."""
        call_each([partial(self.drop, key) for key in self._leaders])
