"""A partition that this node leads: append, read, commit, and tell who waits.

Rules:
- Alone, a replica commits by appending: there is no machine, and the high watermark is the end of the log. Where
  `flush.messages` asks for a sync, it waits for that.
- With other replicas `LeaderReplica` says how far the partition is committed. What waits for a commit stands in a
  queue, ordered by offset, and is told at the end of the loop's turn; so are consumers. Followers are told of every
  append.
- When the partition is not led any more in this epoch, `end` tells all who wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.ports import Buffer
from ottla.log.log import Appended, Log, Origin
from ottla.replica import leader
from ottla.replica.commit_queue import CommitQueue, CommitWaiter, Done
from ottla.replica.hosted import READ_COMMITTED, Fetched, HostedReplica
from ottla.replica.leader import LeaderReplica, LeaderSettings, PartitionState, ProposeIsr, RaiseHighWatermark
from ottla.replica.replica_session import ReplicaSession, Watched

__all__ = ["READ_COMMITTED", "Fetched", "HostedReplica", "Partition", "ReplicationHost"]


class ReplicationHost(Protocol):
    """What a replicated partition has the node do."""

    def monotonic_ms(self) -> int: ...
    def committed(self, partition: Partition) -> None:
        """The high watermark has moved: call `partition.tell_committed` at the end of this turn of the loop."""

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a proposal to the controller; its answer comes by `partition.step`."""


class Partition(HostedReplica):
    """The leader's replica in one leader epoch. The node makes it, and drops it with the epoch or the topic."""

    __slots__ = ("_host", "commits", "deletions", "machine", "sessions")

    def __init__(self, tp: TopicPartition, topic_id: Uuid, log: Log, leader_epoch: int) -> None:
        super().__init__(tp, topic_id, log, leader_epoch)
        #: None while this replica is the only one.
        self.machine: LeaderReplica | None = None
        self._host: ReplicationHost
        self.commits = CommitQueue()
        #: What waits until every replica has let go of the records below an offset (DeleteRecords).
        self.deletions = CommitQueue()
        #: The followers' sessions that have this partition.
        self.sessions: dict[ReplicaSession, Watched] = {}

    # ---- with other replicas

    def replicate(
        self, host: ReplicationHost, settings: LeaderSettings, state: PartitionState, brokers: dict[int, int]
    ) -> None:
        """Have other replicas from now on. The log's high watermark is what is known to be committed."""
        log = self.log
        self._host = host
        self.machine = LeaderReplica(
            settings,
            state,
            end_offset=log.end_offset,
            high_watermark=min(log.high_watermark, log.end_offset),
            brokers=brokers,
            now_ms=host.monotonic_ms(),
        )
        log.high_watermark = self.machine.high_watermark
        # Alone in the ISR, this leader commits what it has.
        self.step(leader.Appended(log.visible_end_offset))

    def step(self, event: leader.Event) -> None:
        """An event through the machine."""
        machine = self.machine
        assert machine is not None
        if not isinstance(event, leader.Appended | leader.Fetched):
            for session, watched in self.sessions.items():
                if not session.has_marked(watched):
                    machine.level(session.replica_id, session.fetched_ms)
        self._carry_out(machine.step(event, self._host.monotonic_ms()))

    def _carry_out(self, effects: Sequence[leader.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, RaiseHighWatermark):
                self.log.high_watermark = effect.offset
                for session, watched in self.sessions.items():
                    session.mark(watched)
                self._host.committed(self)
            else:
                self._host.propose(self, effect)

    def tell_committed(self) -> None:
        """The high watermark has moved: tell those whose records it has passed."""
        machine, error = self.machine, None
        if machine is not None and machine.is_under_min_isr:
            error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.commits.reached(self.log.high_watermark, error)

    def when_committed(self, offset: int, done: Done) -> CommitWaiter | None:
        """Call `done` when everything below `offset` is committed: now, and None is returned, if it is.

        An offset that only waits for a sync of this node's own counts as committed when this node is alone: its caller
        has the sync made.
        """
        if self.machine is None or self.log.high_watermark >= offset:
            done(None)
            return None
        return self.commits.add(offset, done)

    def check_in_sync(self) -> None:
        """Enough replicas are in sync for acks=all; else NOT_ENOUGH_REPLICAS."""
        machine = self.machine
        if machine is not None and machine.is_under_min_isr:
            needed = min(machine.settings.min_isr, len(machine.state.replicas))
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(machine.state.isr)} replicas are in sync, and min.insync.replicas is {needed}",
            )

    def check_follower(self, replica_id: int, broker_epoch: int) -> None:
        """Is this broker one of the other replicas, and not an earlier life of it? KafkaError if not."""
        machine = self.machine
        progress = None if machine is None else machine.followers.get(replica_id)
        if progress is None:
            # The metadata that makes it one may not have come here.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if -1 < broker_epoch < progress.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """A follower asks for what is at `offset`. KafkaError as `check_follower`."""
        self.check_follower(replica_id, broker_epoch)
        self.step(leader.Fetched(replica_id, broker_epoch, offset, log_start_offset))
        if self.deletions.first_offset is not None:
            self.deletions.reached(self.low_watermark)

    @property
    def low_watermark(self) -> int:
        """The offset below which no replica whose broker is alive has anything (DeleteRecords)."""
        least = self.log.start_offset
        if self.machine is not None:
            for replica_id, progress in self.machine.followers.items():
                if replica_id in self.machine.brokers:
                    least = min(least, progress.log_start_offset)
        return least

    def moved_to(self, log: Log) -> None:
        """The log lies in another directory now, and is the same otherwise."""
        if self.machine is None:
            self.log = log
        else:
            super().moved_to(log)

    # ---- what is written

    def append(
        self, data: Buffer, now_ms: int, origin: Origin = Origin.CLIENT, transaction_version: int = 0
    ) -> Appended:
        """Write batches at the end. Raises KafkaError with the code the producer is to get."""
        log, machine = self.log, self.machine
        if machine is not None and origin is Origin.COORDINATOR:
            self.check_in_sync()
        before = log.end_offset
        appended = log.append(
            data,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )
        if log.must_flush:
            log.hold(before)
        elif machine is None:
            if self.waiting and self.on_readable is not None:
                self.on_readable(self)
            return appended
        if machine is not None and log.end_offset != before:
            self._grown()
        return appended

    def _grown(self) -> None:
        machine = self.machine
        assert machine is not None
        for session, watched in self.sessions.items():
            if not session.has_marked(watched):
                machine.level(session.replica_id, session.fetched_ms)
                session.mark(watched)
            session.wake()
        self.step(leader.Appended(self.log.visible_end_offset))

    def start_moved(self) -> None:
        """The log's start has moved: followers are told with their next fetch."""
        for session, watched in self.sessions.items():
            session.mark(watched)

    def when_deleted(self, offset: int, done: Done) -> CommitWaiter | None:
        """Call `done` when no replica has anything below `offset`: now, and None is returned, if that is so."""
        if self.low_watermark >= offset:
            done(None)
            return None
        return self.deletions.add(offset, done)

    def synced(self) -> None:
        """A sync of the log is done: what `flush.messages` has held counts now."""
        if self.machine is not None:
            self.step(leader.Appended(self.log.visible_end_offset))
        else:
            self.tell()

    def end(self, error: KafkaError) -> None:
        """Led no more in this epoch: tell all who wait."""
        sessions, self.sessions = self.sessions, {}
        for session, watched in sessions.items():
            session.mark(watched)
            session.wake()
        self.commits.end(error)
        self.deletions.end(error)
        super().end(error)
