"""A share partition at its leader: the state of one share group in one partition (KIP-932).

A fetch that waits for records is woken by an append (`Partition.waiting`), and by released records of the group
(`ShareLeader.waiting`).
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.validators import duration_ms
from ottla.log.lookup import Lookup, LookupResult, offset_for_timestamp
from ottla.replica.partition import Partition
from ottla.share.partition import Limits, SharePartition, Write
from ottla.share.state import UNSET_OFFSET, SharePartitionKey, StateBatch

if TYPE_CHECKING:
    from ottla.broker.share.partitions import Shares

_READ_COMMITTED, _READ_UNCOMMITTED = 1, 0
#: A share coordinator's error -> the error for a member.
_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class ShareLeader:
    """A share partition's machine, its timer, and its share coordinator calls. `Shares` creates and drops it."""

    def __init__(self, shares: Shares, key: SharePartitionKey, partition: Partition) -> None:
        self._shares = shares
        self._runtime = shares.runtime
        self.key = key
        self.partition = partition
        #: None until the stored state is loaded.
        self.machine: SharePartition | None = None
        #: Why the state cannot be loaded; the next request creates a new object.
        self.error: KafkaError | None = None
        self.isolation_level = _READ_UNCOMMITTED
        self._state_epoch = 0
        #: Callbacks for newly available records, in order of arrival.
        self.waiting: dict[Callable[[], None], None] = {}
        self._timer: TimerHandle | None = None
        self._timer_ms: int | None = None
        self._closed = False

    # -- lifecycle

    def open(self) -> None:
        """Read the stored state, each share partition in its own turn of the loop.

        So the first fetch of a group with many partitions does not block the loop while all of them load, and is
        answered as soon as one has records.
        """
        self._runtime.loop.call_soon(self._read)

    def _read(self) -> None:
        if not self._closed:
            self._shares.persister().read(self.key, self.partition.leader_epoch, self._opened)

    def _opened(self, result: Any) -> None:
        if self._closed:
            return
        if isinstance(result, KafkaError):
            self.error = _member_error(result)
            self._drop()
            return
        self._state_epoch = result.state_epoch
        if result.start_offset == UNSET_OFFSET:
            self._find_start(lambda start: self._begin(start, result))
        else:
            self._begin(result.start_offset, result)

    def _begin(self, start: int, result: Any) -> None:
        batches = [
            StateBatch(
                state_batch.first_offset,
                state_batch.last_offset,
                state_batch.delivery_state,
                state_batch.delivery_count,
            )
            for state_batch in result.state_batches
        ]
        self.machine = SharePartition(start, batches, Limits())
        self.settings_changed()
        # If it is empty, wake no fetch: otherwise a fetch of many empty partitions would be retried for each.
        if self.machine.next_fetch_offset < self.partition.high_watermark:
            self.wake()

    def _find_start(self, on_start: Callable[[int], None]) -> None:
        """Call `on_start` with the start offset of a new group.

        A new leader first waits until it knows what its predecessor had committed: the end of the log is not known yet.
        """
        reset = self._shares.settings_of(self.key.group_id).share_auto_offset_reset.lower()
        if reset == "earliest":
            return on_start(self.partition.log.start_offset)

        def caught_up(_: KafkaError | None) -> None:
            # At the partition's end this object has been closed before.
            if not self._closed:
                self._find_start_by(reset, on_start)

        return self.partition.when_caught_up(caught_up)

    def _find_start_by(self, reset: str, on_start: Callable[[int], None]) -> None:
        """Call `on_start` with the end of the log, or with the first record that is not older than a duration."""
        log, end = self.partition.log, self.partition.high_watermark
        if reset == "latest":
            return on_start(end)
        since_ms = self._runtime.clock.now_ms() - duration_ms(reset.partition(":")[2])

        def looked(record: LookupResult | KafkaError) -> None:
            if isinstance(record, KafkaError):
                self.error = record
                self._drop()
            else:
                on_start(end if record is None else record[1])

        def look() -> Lookup:
            with self._shares.log_dirs.guarding(log):
                return (yield from offset_for_timestamp(log, since_ms, end))

        self._shares.look_ups.run(look(), looked, lambda: self._closed)

    def settings_changed(self) -> None:
        """Apply the group's settings."""
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

    def _drop(self) -> None:
        """Drop this object, but not its successor in a later epoch."""
        if self._shares.find(self.key) is self:
            self._shares.drop(self.key)

    def close(self) -> None:
        """Mark it closed and wake all waiters."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.wake()

    # -- for members

    def ready(self) -> SharePartition:
        """The machine, brought up to the log start. Raises the error to answer the request with."""
        if self.error is not None:
            raise self.error
        if self.machine is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.machine.start_log_at(self.partition.log.start_offset)
        return self.machine

    def acknowledge(self, member_id: str, acknowledgements: Any, done: Callable[[KafkaError | None], None]) -> None:
        """Apply a member's acknowledgements; `done` is called when they are stored, or with the error."""
        try:
            change = self.ready().acknowledge(member_id, acknowledgements, self._runtime.clock.monotonic_ms())
        except KafkaError as error:
            done(error)
            return
        self.store(change, done)

    def release(self, member_id: str) -> None:
        """Release the records of a member that has left."""
        if self.machine is not None:
            self.store(self.machine.release(member_id))

    def store(self, change: Write | None, done: Callable[[KafkaError | None], None] = lambda _: None) -> None:
        """Store a change at the coordinator, then settle it in the machine."""
        self.plan()
        if change is None:
            done(None)
            return

        def stored(result: Any) -> None:
            error = _member_error(result) if isinstance(result, KafkaError) else None
            assert self.machine is not None
            self.machine.settle(change.number, stored=error is None)
            if error is not None and error.code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ):
                self._drop()
            self.plan()
            done(error)
            self.wake()

        self._shares.persister().write(self.key, self._state_epoch, self.partition.leader_epoch, change, stored)

    # -- time

    def plan(self) -> None:
        """Set the timer to the expiry of the next lock."""
        deadline_ms = None if self.machine is None or self._closed else self.machine.deadline_ms()
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, deadline_ms
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._runtime.clock.monotonic_ms())
            self._timer = self._runtime.loop.call_later(delay_ms / 1000, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = self._timer_ms = None
        assert self.machine is not None
        self.store(self.machine.expire(self._runtime.clock.monotonic_ms()))
        self.wake()

    def wake(self) -> None:
        """Let waiting fetches try again, in order of arrival, because records may be available."""
        call_each(list(self.waiting))


def _member_error(error: KafkaError) -> KafkaError:
    """The error for a member that corresponds to a share coordinator's error."""
    return KafkaError(_ERRORS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
