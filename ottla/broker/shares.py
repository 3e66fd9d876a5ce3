"""The share partitions of this node: what share groups have of the partitions that it leads (KIP-932).

Rules:
- A share partition is made from its stored state by the first fetch of it, and dropped with its partition, when the
  last session of its group ends, and when a write of it is fenced: somebody has set the group's offsets anew.
- Whoever waits for records is woken by an append (`Partition.waiting`), and by records of the group that are available
  again (`ShareLeader.waiting`).
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import GROUP
from ottla.kernel.check import duration_ms
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.group_settings import GroupSettings
from ottla.kernel.name import Uuid
from ottla.replica.partition import Partition
from ottla.share.partition import Limits, SharePartition, Write
from ottla.share.session import ShareSession, ShareSessions
from ottla.share.state import UNSET_OFFSET, SharePartitionKey, StateBatch

if TYPE_CHECKING:
    from ottla.broker.node import Node

_READ_COMMITTED, _READ_UNCOMMITTED = 1, 0
#: What a share coordinator's error means to a member.
_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class Shares:
    """All share partitions and share sessions of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sessions = ShareSessions()
        self._leaders: dict[SharePartitionKey, ShareLeader] = {}
        #: By group id; made on demand, forgotten when settings change.
        self._settings: dict[str, GroupSettings] = {}

    def settings_of(self, group_id: str) -> GroupSettings:
        """The settings of a group as they are now."""
        settings = self._settings.get(group_id)
        if settings is None:
            overrides = self.node.image.config(GROUP, group_id)
            settings = self._settings[group_id] = GroupSettings.resolve(overrides, self.node.settings)
        return settings

    def find(self, key: SharePartitionKey) -> ShareLeader | None:
        """A share partition, if a fetch has made it."""
        return self._leaders.get(key)

    def lead(self, key: SharePartitionKey, partition: Partition) -> ShareLeader:
        """A share partition; it is made if need be, and then not ready yet."""
        leader = self._leaders.get(key)
        if leader is None:
            leader = self._leaders[key] = ShareLeader(self, key, partition)
            leader.open()
        return leader

    def drop(self, key: SharePartitionKey) -> None:
        """Forget a share partition: its stored state is all that counts."""
        leader = self._leaders.pop(key, None)
        if leader is not None:
            leader.close()

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

    def end_session(self, session: ShareSession) -> None:
        """What a member has is available again; a group without sessions is forgotten."""
        group_id, member_id = session.owner
        self.sessions.end(session.owner)
        for topic_id, index in session.partitions:
            leader = self._leaders.get(SharePartitionKey(group_id, topic_id, index))
            if leader is not None:
                leader.release(member_id)
        if not self.sessions.of_group(group_id):
            self._settings.pop(group_id, None)
            for key in [key for key in self._leaders if key.group_id == group_id]:
                self.drop(key)

    def connection_closed(self, connection: Any) -> None:
        """The sessions of this connection are over."""
        for session in self.sessions.of_connection(connection):
            self.end_session(session)

    def close(self) -> None:
        """Stop the timers, and tell whoever waits."""
        for key in list(self._leaders):
            self.drop(key)


class ShareLeader:
    """One share partition on its leader: the machine, its clock, and its way to the share coordinator."""

    def __init__(self, shares: Shares, key: SharePartitionKey, partition: Partition) -> None:
        self._shares = shares
        self.node = shares.node
        self.key = key
        self.partition = partition
        #: None until the stored state is here.
        self.machine: SharePartition | None = None
        #: Why it can never be; whoever comes then makes another one.
        self.error: KafkaError | None = None
        self.isolation_level = _READ_UNCOMMITTED
        self._state_epoch = 0
        #: Who is to be told when something is available; a dict keeps the order in which they came.
        self.waiting: dict[Callable[[], None], None] = {}
        self._timer: TimerHandle | None = None
        self._timer_ms: int | None = None
        self._closed = False

    # -- life

    def open(self) -> None:
        """Ask for the stored state, each in a turn of the loop of its own.

        The first fetch of a group with many partitions does not hold the loop while all of them load, and is answered
        when the first one has something.
        """
        self.node.loop.call_soon(self._read)

    def _read(self) -> None:
        if not self._closed:
            self.node.persister.read(self.key, self.partition.leader_epoch, self._opened)

    def _opened(self, result: Any) -> None:
        if self._closed:
            return
        if isinstance(result, KafkaError):
            self.error = _said(result)
            self._shares.drop(self.key)
            return
        self._state_epoch = result.state_epoch
        start = result.start_offset if result.start_offset != UNSET_OFFSET else self._find_start()
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ]
        self.machine = SharePartition(start, batches, Limits())
        self.settings_changed()
        # A fetch of many partitions that are all empty is not tried again for each.
        if self.machine.next_fetch_offset < self.partition.high_watermark:
            self.wake()

    def _find_start(self) -> int:
        reset = self._shares.settings_of(self.key.group_id).share_auto_offset_reset.lower()
        log = self.partition.log
        if reset == "earliest":
            return log.start_offset
        if reset == "latest":
            return self.partition.high_watermark
        since_ms = self.node.clock.now_ms() - duration_ms(reset.partition(":")[2])
        found = log.offset_for_timestamp(since_ms, self.partition.high_watermark)
        return self.partition.high_watermark if found is None else found[1]

    def settings_changed(self) -> None:
        """Take the group's limits over."""
        if self.machine is None:
            return
        settings = self._shares.settings_of(self.key.group_id)
        committed = settings.share_isolation_level == "read_committed"
        self.isolation_level = _READ_COMMITTED if committed else _READ_UNCOMMITTED
        self.machine.limits = Limits(
            settings.share_delivery_count_limit,
            settings.share_record_lock_duration_ms,
            settings.share_partition_max_record_locks,
            settings.share_renew_acknowledge_enable,
        )

    def close(self) -> None:
        """It counts no more; whoever waits for it finds that out."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.wake()

    # -- what members do

    def ready(self) -> SharePartition:
        """The machine, where the log now begins. Raises what whoever asks is to be told."""
        if self.error is not None:
            raise self.error
        if self.machine is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.machine.start_log_at(self.partition.log.start_offset)
        return self.machine

    def acknowledge(self, member_id: str, said: Any, done: Callable[[KafkaError | None], None]) -> None:
        """Take in what a member says; `done` is called when it is stored, or with why it does not count."""
        try:
            change = self.ready().acknowledge(member_id, said, self.node.clock.now_ms())
        except KafkaError as error:
            done(error)
            return
        self.store(change, done)

    def release(self, member_id: str) -> None:
        """A member is gone."""
        if self.machine is not None:
            self.store(self.machine.release(member_id))

    def store(self, change: Write | None, done: Callable[[KafkaError | None], None] = lambda _: None) -> None:
        """Have a change stored, and settle it."""
        self.plan()
        if change is None:
            done(None)
            return

        def stored(result: Any) -> None:
            error = _said(result) if isinstance(result, KafkaError) else None
            assert self.machine is not None
            self.machine.settle(change.number, stored=error is None)
            if error is not None and error.code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ):
                self._shares.drop(self.key)
            self.plan()
            done(error)
            self.wake()

        self.node.persister.write(self.key, self._state_epoch, self.partition.leader_epoch, change, stored)

    # -- time

    def plan(self) -> None:
        """Set the timer to when the next lock runs out."""
        deadline_ms = None if self.machine is None or self._closed else self.machine.deadline_ms()
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, deadline_ms
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self.node.clock.now_ms())
            self._timer = self.node.loop.call_later(delay_ms / 1000, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = self._timer_ms = None
        assert self.machine is not None
        self.store(self.machine.expire(self.node.clock.now_ms()))
        self.wake()

    def wake(self) -> None:
        """Something may be available: those who wait try again, in the order in which they came."""
        for waiting in list(self.waiting):
            waiting()


def _said(error: KafkaError) -> KafkaError:
    """A share coordinator's error as a member is told it."""
    return KafkaError(_ERRORS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
