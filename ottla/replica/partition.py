"""A partition that this node leads: append, read, commit, and call the waiters.

Rules:
- A sole replica commits by appending: there is no machine, and the high watermark is the end of the log, or its flushed
  end where `flush.messages` asks for a flush.
- With other replicas, `LeaderReplica` decides how far the partition is committed. Commit waiters are queued by offset
  and called at the end of the loop's turn; so are consumers. Every append wakes the followers.
- When the node stops leading the partition in this epoch, `end` calls all waiters.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.ports import Buffer
from ottla.log.epoch import UNDEFINED_EPOCH
from ottla.log.log import Appended, Log, Origin
from ottla.replica import leader
from ottla.replica.commit_queue import CommitQueue, CommitWaiter, Done
from ottla.replica.hosted import READ_COMMITTED, Fetched, HostedReplica
from ottla.replica.leader import LeaderReplica, LeaderSettings, PartitionState, ProposeIsr, RaiseHighWatermark
from ottla.replica.replica_session import ReplicaSession, WatchedPartition

__all__ = ["READ_COMMITTED", "Fetched", "HostedReplica", "Partition", "ReplicationHost"]


class ReplicationHost(Protocol):
    """The services that a replicated partition needs from the node."""

    def monotonic_ms(self) -> int: ...
    def committed(self, partition: Partition) -> None:
        """The high watermark has moved: call `partition.complete_commits` at the end of this turn of the loop."""

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a proposal to the controller and pass its answer to `partition.step`."""


class Partition(HostedReplica):
    """The leader's replica in one leader epoch. The node creates it, and drops it with the epoch or the topic."""

    __slots__ = ("_ended", "_host", "commits", "deletions", "machine", "sessions")

    def __init__(self, tp: TopicPartition, topic_id: Uuid, log: Log, leader_epoch: int) -> None:
        super().__init__(tp, topic_id, log, leader_epoch)
        #: None while this replica is the only one.
        self.machine: LeaderReplica | None = None
        self._host: ReplicationHost
        #: Why the node no longer leads the partition in this epoch.
        self._ended: KafkaError | None = None
        self.commits = CommitQueue()
        #: Waits until every replica has deleted the records below an offset (DeleteRecords).
        self.deletions = CommitQueue()
        #: The followers' sessions that include this partition.
        self.sessions: dict[ReplicaSession, WatchedPartition] = {}

    # ---- with other replicas

    def replicate(
        self, host: ReplicationHost, settings: LeaderSettings, state: PartitionState, brokers: dict[int, int]
    ) -> None:
        """Start to replicate to other replicas. The log's high watermark is what is known to be committed."""
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
        # A leader that is alone in the ISR commits what it has.
        self._step(self.machine, leader.Appended(log.visible_end_offset))

    def step(self, event: leader.Event) -> None:
        """Pass an event to the machine and carry out its effects."""
        machine = self.machine
        assert machine is not None
        for session, watched in self.sessions.items():
            if not session.is_marked(watched):
                machine.note_caught_up(session.replica_id, session.fetched_ms)
        self._step(machine, event)

    def _step(self, machine: LeaderReplica, event: leader.Event) -> None:
        for effect in machine.step(event, self._host.monotonic_ms()):
            if isinstance(effect, RaiseHighWatermark):
                self.log.high_watermark = effect.offset
                self._mark()
                self._host.committed(self)
            else:
                self._host.propose(self, effect)

    def complete_commits(self) -> None:
        """Call the waiters whose records are below the high watermark."""
        machine, error = self.machine, None
        if machine is not None and machine.is_under_min_isr:
            error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.commits.complete(self.log.high_watermark, error)

    def when_committed(self, offset: int, done: Done, *, stays: bool = False) -> CommitWaiter | None:
        """Call `done` when everything below `offset` is committed; if it is already, call it now and return None.

        If it `stays`, a new epoch of this leader does not end the wait, as in Apache Kafka; one of another leader does.
        A sole replica calls `done` at once even if a flush is still due: its caller makes that flush. After `end` the
        log belongs to another epoch, which may have replaced the records.
        """
        if self._ended is not None:
            done(self._ended)
            return None
        if self.machine is None or self.log.high_watermark >= offset:
            done(None)
            return None
        return self.commits.add(offset, done, stays)

    @property
    def is_catching_up(self) -> bool:
        """Is the high watermark below the start of this epoch? The leader before may have committed more (KIP-207)."""
        return self.machine is not None and self.log.high_watermark < self.machine.epoch_start_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """As `HostedReplica.end_offset_for_epoch`.

        Our own epoch is known before its first batch is written. It ends at the log's end, not the high watermark, as
        in Apache Kafka: a follower may have records above the high watermark.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        latest = self.log.epochs.latest
        if latest < self.leader_epoch and epoch != UNDEFINED_EPOCH:
            # Our epoch has no batch yet and begins at the end of the log.
            if latest < 0 and epoch < self.leader_epoch:
                return epoch, self.log.end_offset
            if latest <= epoch < self.leader_epoch:
                return latest, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    def when_caught_up(self, done: Done) -> None:
        """Call `done` once the high watermark has reached the start of this epoch, perhaps at once."""
        self.when_committed(0 if self.machine is None else self.machine.epoch_start_offset, done)

    def check_in_sync(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS if too few replicas are in sync for acks=all."""
        machine = self.machine
        if machine is not None and machine.is_under_min_isr:
            needed = min(machine.settings.min_isr, len(machine.state.replicas))
            raise RefusedBatch(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(machine.state.isr)} replicas are in sync, fewer than min.insync.replicas={needed}",
            )

    def check_follower(self, replica_id: int, broker_epoch: int) -> None:
        """Raise KafkaError if this broker is not a follower, or is an earlier incarnation of one."""
        machine = self.machine
        progress = None if machine is None else machine.followers.get(replica_id)
        if progress is None:
            # The metadata that makes it a follower may not have arrived here yet.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if -1 < broker_epoch < progress.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """Record that a follower fetches from `offset`. Raises KafkaError like `check_follower`."""
        self.check_follower(replica_id, broker_epoch)
        assert self.machine is not None
        self._step(self.machine, leader.Fetched(replica_id, broker_epoch, offset, log_start_offset))
        if self.deletions.first_offset is not None:
            self.deletions.complete(self.low_watermark)

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas whose broker is alive (DeleteRecords)."""
        lowest = self.log.start_offset
        if self.machine is not None:
            for replica_id, progress in self.machine.followers.items():
                if replica_id in self.machine.brokers:
                    lowest = min(lowest, progress.log_start_offset)
        return lowest

    def replace_log(self, log: Log) -> None:
        """Use `log`, the same log in another directory."""
        if self.machine is None:
            self.log = log
        else:
            super().replace_log(log)

    # ---- append

    def append(
        self, data: Buffer, now_ms: int, origin: Origin = Origin.CLIENT, transaction_version: int = 0
    ) -> Appended:
        """Append batches. Raises KafkaError with the code for the producer."""
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
            log.limit_visible_end(before)
        elif machine is None:
            if self.waiting and self.on_readable is not None:
                self.on_readable(self)
            return appended
        if machine is not None and log.end_offset != before:
            self._after_append(machine)
        return appended

    def _after_append(self, machine: LeaderReplica) -> None:
        self._mark()
        for session in self.sessions:
            session.wake()
        self._step(machine, leader.Appended(self.log.visible_end_offset))

    def log_start_moved(self) -> None:
        """Send the log's new start to the followers with their next fetches."""
        self._mark()

    def _mark(self) -> None:
        """Have the followers' next fetches look at this partition, and note which of them had everything until now."""
        machine = self.machine
        for session, watched in self.sessions.items():
            if session.mark(watched) and machine is not None:
                machine.note_caught_up(session.replica_id, session.fetched_ms)

    def when_deleted(self, offset: int, done: Done) -> CommitWaiter | None:
        """Call `done` when no live replica has anything below `offset`; if so already, call it now and return None."""
        if self._ended is not None or self.low_watermark >= offset:
            done(self._ended)
            return None
        return self.deletions.add(offset, done)

    def synced(self) -> None:
        """Take the log's flushed end into account after a flush that `flush.messages` asked for."""
        if self._ended is not None:
            # The log is another epoch's now, whose replicas are not those that this machine knows.
            return
        if self.machine is not None:
            self._step(self.machine, leader.Appended(self.log.visible_end_offset))
        else:
            self.notify_readers()

    def end(self, error: KafkaError) -> None:
        """Stop leading in this epoch and call all waiters."""
        self._ended = error
        awaited = self.commits.first_offset is not None or self.deletions.first_offset is not None
        if not (awaited or self.sessions or self.waiting):
            # The partitions of a topic end in one step, 10,000 of them perhaps.
            return
        sessions, self.sessions = self.sessions, {}
        for session, watched in sessions.items():
            watched.partition = None
            session.mark(watched)
        fail = (partial(self.commits.fail, error), partial(self.deletions.fail, error), partial(super().end, error))
        call_each([*(session.wake for session in sessions), *fail])
