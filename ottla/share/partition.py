"""A partition as one share group reads it (KIP-932): which member has which record, and for how long.

Rules:
- A member acquires available records in the order of the log, and holds them until it acknowledges them, their lock
  expires, or its session ends.
- An acknowledgement takes effect when it is stored: until then no other member gets the record, and if the write fails
  the member still holds it. An expired lock takes effect at once: after a crash the record would be available anyway.
- A record is delivered at most `share.delivery.count.limit` times and then archived. From half of that on fewer records
  are delivered together, finally single ones, so that a record that crashes its readers affects no others.
- At most `share.partition.max.record.locks` records are in flight, from the first that is not over to the last that was
  acquired; so a record that is held for long ends the deliveries. A batch of the log is not split to meet that limit,
  nor the number of records that a request asks for, unless the request is strict (KIP-1206).
- Offsets without a record and aborted records (with read_committed) are archived when a fetch reaches them. Control
  records are acquired like others; members acknowledge them as gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.named import NamedTuple
from ottla.settings.group.declaration import GroupOverrideDeclaration
from ottla.share.state import UNSET_OFFSET, RecordState, StateBatch, combine
from ottla.share.window import Run, Window

#: The earliest delivery from which on fewer records are delivered together.
_THROTTLE_COUNT_MIN = 2


class AcknowledgeType(IntEnum):
    """The outcome that a member reports for a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    #: Renew the lock (KIP-1222).
    RENEW = 4


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of an offset range: one type for all offsets, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class LogBatch(NamedTuple):
    """A batch of the log."""

    first_offset: int
    last_offset: int
    #: May the group see it?
    visible: bool = True


class Acquired(NamedTuple):
    """A range of offsets that a member has acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Write(NamedTuple):
    """A state change to store; its `number` goes to `settle` when the outcome is known."""

    number: int
    #: The share partition's start offset after the write; -1 leaves it unchanged.
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@frozen
class Limits:
    """A share group's settings for record delivery."""

    delivery_count: int = GroupOverrideDeclaration.share_delivery_count_limit.default
    record_lock_duration_ms: int = GroupOverrideDeclaration.share_record_lock_duration_ms.default
    record_locks: int = GroupOverrideDeclaration.share_partition_max_record_locks.default
    may_renew: bool = GroupOverrideDeclaration.share_renew_acknowledge_enable.default


class AcquireRequest(NamedTuple):
    """The amount that a member asks for."""

    records: int
    #: The approximate number of records per element of `acquired`.
    batch_size: int
    #: Never exceed `records`, even if that splits a batch of the log.
    strict: bool = False


class SharePartition:
    """A share group's view of one partition. The partition's leader creates it from the stored state, and drops it."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], limits: Limits) -> None:
        self.limits = limits
        self.window = Window(start_offset)
        self.window.load(batches)
        self._writes = 0
        #: The start that the last write with one sets.
        self._sent_start = start_offset
        #: The numbers of the writes whose outcome is not known yet.
        self._pending_writes: set[int] = set()

    # -- acquire

    @property
    def next_fetch_offset(self) -> int:
        """The offset from which to read the log for the next fetch."""
        return self.window.first_available

    @property
    def has_room(self) -> bool:
        """May records be acquired, if the log has them?"""
        window = self.window
        return window.first_available < window.end_offset or window.in_flight < self.limits.record_locks

    def acquire(
        self, member_id: str, batches: Sequence[LogBatch], asked: AcquireRequest, now_ms: int
    ) -> tuple[list[Acquired], Write | None]:
        """Give a member records of `batches`, read from `next_fetch_offset`; (acquired, write of those archived)."""
        window = self.window
        fetch_offset = window.first_available
        room = min(asked.records, self.limits.record_locks - window.in_flight)
        end_offset = batches[-1].last_offset + 1 if batches else fetch_offset
        if room <= 0:
            # The limit of records in flight is reached, but some of them are available again.
            room = min(asked.records, window.end_offset - fetch_offset)
            end_offset = min(end_offset, window.end_offset)
        acquisition = _Acquisition(self, member_id, asked, room, now_ms + self.limits.record_lock_duration_ms)
        for batch, size in _cover(batches, max(window.start_offset, fetch_offset), end_offset):
            if acquisition.is_full:
                break
            acquisition.take(batch, size)
        window.trim()
        return acquisition.acquired, self._write(acquisition.archived)

    # -- acknowledge and release

    def acknowledge(self, member_id: str, acknowledgements: Iterable[Acknowledgement], now_ms: int) -> Write | None:
        """Apply a member's acknowledgements. Raises INVALID_RECORD_STATE or INVALID_REQUEST, and applies none then."""
        parts = [part for acknowledgement in acknowledgements for part in self._checked(member_id, acknowledgement)]
        _check_once(parts)
        number = self._next_number()
        changed = []
        for first_offset, end_offset, kind in parts:
            for run in self.window.within(first_offset, end_offset):
                if kind is AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + self.limits.record_lock_duration_ms
                else:
                    run.write_number, run.next_state = number, self._outcome(run, kind)
                    changed.append(run)
        return self._write(changed, number)

    def _checked(self, member_id: str, acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, AcknowledgeType]]:
        window = self.window
        if acknowledgement.last_offset < window.start_offset:
            # Already finished: the response to an earlier acknowledgement was lost, or the log's start has moved.
            return
        if not window.runs:
            raise _invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
        for which, offset in (("first", acknowledgement.first_offset), ("last", acknowledgement.last_offset)):
            if offset >= window.end_offset:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {which} offset in request is past acquired records.",
                )
        first_offset, end_offset = (
            max(acknowledgement.first_offset, window.start_offset),
            acknowledgement.last_offset + 1,
        )
        for run in window.overlapping(first_offset, end_offset):
            if run.state is not RecordState.ACQUIRED:
                raise _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
            if run.member_id != member_id:
                raise _invalid_state("Member is not the owner of batch record")
            if run.write_number:
                raise _under_way()
        if AcknowledgeType.RENEW in acknowledgement.types and not self.limits.may_renew:
            raise _invalid_state("Renewing acquisition locks is not enabled for the group.")
        if len(acknowledgement.types) == 1:
            yield first_offset, end_offset, AcknowledgeType(acknowledgement.types[0])
            return
        while first_offset < end_offset:
            kind = acknowledgement.types[first_offset - acknowledgement.first_offset]
            last = first_offset
            while last + 1 < end_offset and acknowledgement.types[last + 1 - acknowledgement.first_offset] == kind:
                last += 1
            yield first_offset, last + 1, AcknowledgeType(kind)
            first_offset = last + 1

    def _outcome(self, run: Run, kind: AcknowledgeType) -> RecordState:
        if kind is AcknowledgeType.ACCEPT:
            return RecordState.ACKNOWLEDGED
        if kind is AcknowledgeType.RELEASE and run.count < self.limits.delivery_count:
            return RecordState.AVAILABLE
        return RecordState.ARCHIVED

    def release(self, member_id: str) -> Write | None:
        """Release the records of a member whose session has ended."""
        number = self._next_number()
        changed = [run for run in self.window.runs if run.is_locked and run.member_id == member_id]
        for run in changed:
            run.write_number, run.next_state = number, self._outcome(run, AcknowledgeType.RELEASE)
        return self._write(changed, number)

    def settle(self, number: int, *, stored: bool) -> None:
        """Apply or undo a write that has succeeded or failed; after a failure the member still holds the records."""
        self._pending_writes.discard(number)
        for run in self.window.runs:
            if run.write_number == number:
                if stored:
                    run.set_state(run.next_state)
                else:
                    run.write_number, run.next_state = 0, run.state
        self.window.trim()

    # -- time and the log

    def deadline_ms(self) -> int | None:
        """When the next lock expires; None without locks."""
        return min((run.deadline_ms for run in self.window.runs if run.is_locked), default=None)

    def expire(self, now_ms: int) -> Write | None:
        """Release the records whose locks have expired."""
        late = [run for run in self.window.runs if run.is_locked and run.deadline_ms <= now_ms]
        for run in late:
            run.set_state(self._outcome(run, AcknowledgeType.RELEASE))
        write = self._write(late)
        self.window.trim()
        return write

    def start_log_at(self, offset: int) -> None:
        """Drop everything below the log's new start, including records that members hold."""
        if offset > self.window.start_offset:
            self.window.drop_before(offset)
            self.window.trim()

    # -- writes

    def _next_number(self) -> int:
        self._writes += 1
        return self._writes

    def _write(self, changed: Iterable[Run], number: int = 0) -> Write | None:
        batches = [StateBatch(run.first_offset, run.end_offset - 1, run.next_state, run.count) for run in changed]
        if not batches:
            return None
        number = number or self._next_number()
        start = self.window.start_after(number)
        complete = self.window.complete_after(number)
        if self._pending_writes and self.window.start_offset <= self._sent_start:
            # An earlier write may move the start further, or fail: leave the start as that write sets it.
            complete, start = self.window.complete_from(self._sent_start), UNSET_OFFSET
        elif self._pending_writes:
            # What is over already stays so, whatever becomes of the earlier writes.
            start = self._sent_start = self.window.start_offset
            complete = self.window.complete_from(start)
        else:
            self._sent_start = start
        self._pending_writes.add(number)
        return Write(number, start, complete, combine((), batches, start))


class _Acquisition:
    """An acquisition by a member, batch by batch, until it has enough."""

    def __init__(
        self, partition: SharePartition, member_id: str, asked: AcquireRequest, room: int, deadline_ms: int
    ) -> None:
        self._limits = partition.limits
        self._window = partition.window
        self._member_id = member_id
        self._asked = asked
        self._room = room
        self._deadline_ms = deadline_ms
        self._throttle_count = max(_THROTTLE_COUNT_MIN, -(-self._limits.delivery_count // 2))
        self._stopped = False
        self._taken = 0
        self.acquired: list[Acquired] = []
        self.archived: list[Run] = []

    @property
    def is_full(self) -> bool:
        return self._stopped or self._taken >= self._room

    def take(self, batch: LogBatch, size: int) -> None:
        """Acquire the available and the new offsets of `batch`, which is part of a batch of `size` records."""
        first, end = batch.first_offset, batch.last_offset + 1
        known_end = min(end, self._window.end_offset)
        available = (
            [run for run in self._window.within(first, known_end) if run.is_available] if first < known_end else []
        )
        for run in available:
            if batch.visible:
                self._acquire_again(run, size)
            else:
                self._archive(run)
        if end > self._window.end_offset and not self._is_cut_off:
            if batch.visible:
                end = min(end, self._window.end_offset + self._left) if self._asked.strict else end
            run = Run(self._window.end_offset, end)
            self._window.append(run)
            if batch.visible:
                self._lock(run)
            else:
                self._archive(run)

    @property
    def _left(self) -> int:
        return self._room - self._taken

    @property
    def _is_cut_off(self) -> bool:
        return self._stopped or (self._asked.strict and self._left <= 0)

    def _acquire_again(self, run: Run, size: int) -> None:
        if self._is_cut_off:
            return
        most = len(run)
        if run.count >= self._throttle_count:
            if self._taken:
                self._stopped = True
                return
            most = min(most, max(1, size >> (run.count - self._throttle_count + 1)))
            if run.count == self._limits.delivery_count - 1 and self._limits.delivery_count > 2:
                most = 1
            self._stopped = True
        if self._asked.strict:
            most = min(most, self._left)
        if most < len(run):
            (run,) = self._window.within(run.first_offset, run.first_offset + most)
        self._lock(run)

    def _lock(self, run: Run) -> None:
        run.state = run.next_state = RecordState.ACQUIRED
        run.count += 1
        run.member_id, run.deadline_ms = self._member_id, self._deadline_ms
        self._taken += len(run)
        last = self.acquired[-1] if self.acquired else None
        size = 0 if last is None else last.last_offset - last.first_offset + 1
        joins = last is not None and last[1:] == (run.first_offset - 1, run.count)
        if last is not None and joins and (self._asked.strict or size < self._asked.batch_size):
            self.acquired[-1] = Acquired(last.first_offset, run.end_offset - 1, run.count)
        else:
            self.acquired.append(Acquired(run.first_offset, run.end_offset - 1, run.count))

    def _archive(self, run: Run) -> None:
        run.set_state(RecordState.ARCHIVED)
        self.archived.append(run)


def _cover(batches: Sequence[LogBatch], start_offset: int, end_offset: int) -> Iterator[tuple[LogBatch, int]]:
    """Cover every offset of the range: (part of a batch or a hidden gap, the size of the whole batch or gap)."""
    offset = start_offset
    for batch in batches:
        if batch.last_offset < offset:
            continue
        if offset >= end_offset:
            return
        if batch.first_offset > offset:
            hole = LogBatch(offset, min(batch.first_offset, end_offset) - 1, visible=False)
            yield hole, batch.first_offset - offset
            offset = batch.first_offset
            if offset >= end_offset:
                return
        part = LogBatch(offset, min(batch.last_offset, end_offset - 1), batch.visible)
        yield part, batch.last_offset - batch.first_offset + 1
        offset = batch.last_offset + 1


def _check_once(parts: Iterable[tuple[int, int, AcknowledgeType]]) -> None:
    """Raise INVALID_RECORD_STATE if a record gets a second outcome; its lock may be renewed before it has one."""
    said_end = 0
    for first_offset, end_offset, kind in parts:
        if first_offset < said_end:
            raise _under_way()
        if kind is not AcknowledgeType.RENEW:
            said_end = end_offset


def _under_way() -> KafkaError:
    return _invalid_state("The record state is invalid. The acknowledgement of delivery could not be completed.")


def _invalid_state(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
