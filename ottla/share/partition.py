"""A partition as one share group reads it (KIP-932): who has which record, and for how long.

Rules:
- A member acquires what is available, in the order of the log, and has it until its lock runs out, it says what became
  of it, or its session ends.
- The outcome of a record counts when it is stored: until then no other member gets it, and if it cannot be stored the
  member has it as before. What runs out by itself needs no such care: after a crash it would be available too.
- A record is delivered `share.delivery.count.limit` times at most, then it is archived. From half of that on fewer
  records come at a time, at last single ones, so that one that kills its readers takes no others with it.
- At most `share.partition.max.record.locks` records are in flight; a batch of the log is not cut for that, nor for the
  number of records that a request asks for, unless it says so (KIP-1206).
- Records that the log lacks or that must stay hidden (control records, and with read_committed aborted ones) are
  archived when the fetch comes by.
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

#: From this delivery on at the earliest fewer records come at a time.
_THROTTLE_COUNT_MIN = 2


class AcknowledgeType(IntEnum):
    """What a member says of a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    #: More time is needed (KIP-1222).
    RENEW = 4


class Acknowledgement(NamedTuple):
    """What a member says of some records: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class LogBatch(NamedTuple):
    """A batch that the log has."""

    first_offset: int
    last_offset: int
    #: May the group see it?
    visible: bool = True


class Acquired(NamedTuple):
    """Records that a member now has."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Write(NamedTuple):
    """What is to be stored; `settle` takes the number back."""

    number: int
    #: Where the share partition begins then; -1 leaves it as it is.
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@frozen
class Limits:
    """A group's settings for its records."""

    delivery_count: int = GroupOverrideDeclaration.share_delivery_count_limit.default
    record_lock_duration_ms: int = GroupOverrideDeclaration.share_record_lock_duration_ms.default
    record_locks: int = GroupOverrideDeclaration.share_partition_max_record_locks.default
    may_renew: bool = GroupOverrideDeclaration.share_renew_acknowledge_enable.default


class Asked(NamedTuple):
    """How much a member wants."""

    records: int
    #: About how many records one element of `acquired` has.
    batch_size: int
    #: No more than `records`, even if that cuts a batch of the log.
    strict: bool = False


class SharePartition:
    """A share group's view of one partition. Its leader makes it from the stored state, and drops it."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], limits: Limits) -> None:
        self.limits = limits
        self.window = Window(start_offset)
        self.window.load(batches)
        self._writes = 0
        #: The writes that are neither stored nor failed yet.
        self._under_way: set[int] = set()

    # -- what can be had

    @property
    def next_fetch_offset(self) -> int:
        """Where to read the log for the next member."""
        return self.window.first_available

    @property
    def has_room(self) -> bool:
        """Can anything be acquired, if the log has it?"""
        window = self.window
        return window.first_available < window.end_offset or window.in_flight < self.limits.record_locks

    def acquire(
        self, member_id: str, batches: Sequence[LogBatch], asked: Asked, now_ms: int
    ) -> tuple[list[Acquired], Write | None]:
        """Give a member of what was read at `next_fetch_offset`; and what that made known, to be stored."""
        window = self.window
        fetch_offset = window.first_available
        room = min(asked.records, self.limits.record_locks - window.in_flight)
        end_offset = batches[-1].last_offset + 1 if batches else fetch_offset
        if room <= 0:
            # In flight are as many as may be, but some of them are available again.
            room = min(asked.records, window.end_offset - fetch_offset)
            end_offset = min(end_offset, window.end_offset)
        taking = _Taking(self, member_id, asked, room, now_ms + self.limits.record_lock_duration_ms)
        for batch, size in _covering(batches, max(window.start_offset, fetch_offset), end_offset):
            if taking.is_full:
                break
            taking.take(batch, size)
        window.trim()
        return taking.acquired, self._write(taking.archived)

    # -- what becomes of it

    def acknowledge(self, member_id: str, acknowledgements: Iterable[Acknowledgement], now_ms: int) -> Write | None:
        """Take in what a member says. INVALID_RECORD_STATE or INVALID_REQUEST, and then nothing of it counts."""
        parts = [part for each in acknowledgements for part in self._checked(member_id, each)]
        number = self._next_number()
        changed = []
        for first_offset, end_offset, kind in parts:
            for run in self.window.within(first_offset, end_offset):
                if kind is AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + self.limits.record_lock_duration_ms
                elif not run.change:
                    run.change, run.wanted = number, self._outcome(run, kind)
                    changed.append(run)
        return self._write(changed, number)

    def _checked(self, member_id: str, said: Acknowledgement) -> Iterator[tuple[int, int, AcknowledgeType]]:
        window = self.window
        if said.last_offset < window.start_offset:
            # Already over: an older answer was lost, or the log was cut off.
            return
        if not window.runs:
            raise _invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
        for what, offset in (("first", said.first_offset), ("last", said.last_offset)):
            if offset >= window.end_offset:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {what} offset in request is past acquired records.",
                )
        first_offset, end_offset = max(said.first_offset, window.start_offset), said.last_offset + 1
        for run in window.overlapping(first_offset, end_offset):
            if run.state is not RecordState.ACQUIRED:
                raise _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
            if run.member_id != member_id:
                raise _invalid_state("Member is not the owner of batch record")
            if run.change:
                raise _invalid_state(
                    "The record state is invalid. The acknowledgement of delivery could not be completed."
                )
        if AcknowledgeType.RENEW in said.types and not self.limits.may_renew:
            raise _invalid_state("Renewing acquisition locks is not enabled for the group.")
        if len(said.types) == 1:
            yield first_offset, end_offset, AcknowledgeType(said.types[0])
            return
        while first_offset < end_offset:
            kind = said.types[first_offset - said.first_offset]
            last = first_offset
            while last + 1 < end_offset and said.types[last + 1 - said.first_offset] == kind:
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
        """A member's session is over: what it has is available again."""
        number = self._next_number()
        changed = [run for run in self.window.runs if run.is_locked and run.member_id == member_id]
        for run in changed:
            run.change, run.wanted = number, self._outcome(run, AcknowledgeType.RELEASE)
        return self._write(changed, number)

    def settle(self, number: int, *, stored: bool) -> None:
        """A write has succeeded or failed: after a failure the member that had the records still has them."""
        self._under_way.discard(number)
        for run in self.window.runs:
            if run.change == number:
                if stored:
                    run.become(run.wanted)
                else:
                    run.change, run.wanted = 0, run.state
        self.window.trim()

    # -- time and the log

    def deadline_ms(self) -> int | None:
        """When the next lock runs out."""
        return min((run.deadline_ms for run in self.window.runs if run.is_locked), default=None)

    def expire(self, now_ms: int) -> Write | None:
        """Take back what was locked for too long."""
        late = [run for run in self.window.runs if run.is_locked and run.deadline_ms <= now_ms]
        for run in late:
            run.become(self._outcome(run, AcknowledgeType.RELEASE))
        write = self._write(late)
        self.window.trim()
        return write

    def start_log_at(self, offset: int) -> None:
        """The log begins here now: whatever was before is over, for members that have it too."""
        if offset > self.window.start_offset:
            self.window.drop_before(offset)
            self.window.trim()

    # -- what is stored

    def _next_number(self) -> int:
        self._writes += 1
        return self._writes

    def _write(self, changed: Iterable[Run], number: int = 0) -> Write | None:
        batches = [StateBatch(run.first_offset, run.end_offset - 1, run.wanted, run.count) for run in changed]
        if not batches:
            return None
        number = number or self._next_number()
        start = self.window.start_after(number)
        complete = self.window.complete_after(number)
        if self._under_way:
            # The one before may move the start further than we know, or fail: this one leaves it where that puts it.
            start = UNSET_OFFSET
        self._under_way.add(number)
        return Write(number, start, complete, combine((), batches, start))


class _Taking:
    """A member takes from a share partition until it has enough."""

    def __init__(self, partition: SharePartition, member_id: str, asked: Asked, room: int, deadline_ms: int) -> None:
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
        """What is available of a part of a batch of this size, and what of it is new; all unless that is forbidden."""
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
        run.state = run.wanted = RecordState.ACQUIRED
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
        run.become(RecordState.ARCHIVED)
        self.archived.append(run)


def _covering(batches: Sequence[LogBatch], start_offset: int, end_offset: int) -> Iterator[tuple[LogBatch, int]]:
    """Every offset from the start on: parts of batches, with the size of the whole one, and of nothing between them."""
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


def _invalid_state(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
