"""A share partition: single scenes, and Hypothesis against a table of single offsets with crashes and failed writes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.share.partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    Limits,
    LogBatch,
    SharePartition,
    Write,
)
from ottla.share.state import RecordState, StateBatch, StoredState

ACCEPT, RELEASE, REJECT, RENEW = (int(AcknowledgeType[name]) for name in ("ACCEPT", "RELEASE", "REJECT", "RENEW"))
MANY = AcquireRequest(500, 500)


def log(*sizes: int, first: int = 0) -> list[LogBatch]:
    """Neighbouring batches of these sizes."""
    batches = []
    for size in sizes:
        batches.append(LogBatch(first, first + size - 1))
        first += size
    return batches


def fresh(limits: Limits | None = None, start: int = 0) -> SharePartition:
    return SharePartition(start, (), limits or Limits())


def stored(partition: SharePartition, write: Write | None, *, fails: bool = False) -> Write | None:
    """Settle a write."""
    if write is not None:
        partition.settle(write.number, stored=not fails)
    partition.window.validate()
    return write


def take(
    partition: SharePartition, member: str, batches: list[LogBatch], asked: AcquireRequest = MANY, now_ms: int = 0
) -> list:  # type: ignore[type-arg]
    acquired, write = partition.acquire(member, batches, asked, now_ms)
    stored(partition, write)
    return [tuple(each) for each in acquired]


def test_two_members_get_different_records() -> None:
    partition = fresh()
    batches = log(5, 5, 5)
    assert take(partition, "a", batches[:2]) == [(0, 9, 1)]
    assert partition.next_fetch_offset == 10
    assert take(partition, "b", batches[2:]) == [(10, 14, 1)]
    assert take(partition, "c", batches) == []


def test_a_batch_is_whole_unless_the_limit_is_strict() -> None:
    batches = log(10, 10, 10)
    assert take(fresh(), "a", batches, AcquireRequest(12, 500)) == [(0, 19, 1)]
    partition = fresh()
    assert take(partition, "a", batches, AcquireRequest(12, 500, strict=True)) == [(0, 11, 1)]
    assert partition.next_fetch_offset == 12
    assert take(partition, "b", batches[1:], AcquireRequest(3, 500, strict=True)) == [(12, 14, 1)]


def test_what_is_acquired_is_told_in_pieces_of_about_the_batch_size() -> None:
    assert take(fresh(), "a", log(4, 4, 4, 4), AcquireRequest(500, 8)) == [(0, 7, 1), (8, 15, 1)]


def test_accepted_records_move_the_start_and_released_ones_come_again() -> None:
    partition = fresh()
    take(partition, "a", log(10))
    write = stored(partition, partition.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT])], 0))
    assert write is not None and (write.start_offset, write.delivery_complete_count) == (4, 0)
    assert partition.window.start_offset == 4
    write = stored(partition, partition.acknowledge("a", [Acknowledgement(4, 6, [RELEASE, ACCEPT, REJECT])], 0))
    assert write is not None and write.batches == (
        StateBatch(4, 4, 0, 1),
        StateBatch(5, 5, 2, 1),
        StateBatch(6, 6, 4, 1),
    )
    assert (write.start_offset, write.delivery_complete_count) == (4, 2)
    assert take(partition, "b", log(10)) == [(4, 4, 2)]


def test_an_acknowledgement_that_is_not_stored_does_not_count() -> None:
    partition = fresh()
    take(partition, "a", log(4))
    write = partition.acknowledge("a", [Acknowledgement(0, 3, [RELEASE])], 0)
    assert take(partition, "b", log(4)) == [], "nobody gets what is about to be released"
    stored(partition, write, fails=True)
    stored(partition, partition.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT])], 0))
    assert partition.window.start_offset == 4


def test_of_two_writes_under_way_the_second_leaves_the_start_where_the_first_puts_it() -> None:
    partition = fresh()
    take(partition, "a", log(4))
    first = partition.acknowledge("a", [Acknowledgement(0, 0, [ACCEPT])], 0)
    second = partition.acknowledge("a", [Acknowledgement(1, 1, [REJECT])], 0)
    assert first is not None and second is not None
    assert (first.start_offset, second.start_offset) == (1, -1)
    kept = StoredState(0)
    for write in (first, second):
        stored(partition, write)
        kept = kept.updated(write.start_offset, -1, write.delivery_complete_count, write.batches)
    again = SharePartition(kept.start_offset, kept.batches, Limits())
    assert again.next_fetch_offset == 2


@pytest.mark.parametrize(("order", "start"), [((0, 1), 1), ((1, 0), 0)])
def test_two_writes_under_way_count_all_that_is_over(order: tuple[int, int], start: int) -> None:
    partition = fresh()
    take(partition, "a", log(4))
    kept = StoredState(0)
    for write in [partition.acknowledge("a", [Acknowledgement(at, at, [ACCEPT])], 0) for at in order]:
        assert write is not None
        stored(partition, write)
        kept = kept.updated(write.start_offset, -1, write.delivery_complete_count, write.batches)
    assert (kept.start_offset, kept.start_offset + kept.delivery_complete_count) == (start, 2)


def test_a_start_is_stored_also_if_another_write_is_always_under_way() -> None:
    partition = fresh()
    take(partition, "a", log(100))
    kept = StoredState(0, delivery_complete_count=0)
    under_way: list[Write] = []
    for offset in range(100):
        write = partition.acknowledge("a", [Acknowledgement(offset, offset, [REJECT if offset % 2 else ACCEPT])], 0)
        assert write is not None
        under_way.append(write)
        if len(under_way) > 1:
            done = under_way.pop(0)
            stored(partition, done)
            kept = kept.updated(done.start_offset, -1, done.delivery_complete_count, done.batches)
            assert kept.start_offset + kept.delivery_complete_count == offset, "all up to this write are over"
    assert kept.start_offset > 90 and len(kept.batches) < 10
    again = SharePartition(kept.start_offset, kept.batches, Limits())
    assert again.next_fetch_offset == 99, "only the last write was not stored"


def test_only_who_has_a_record_can_say_what_became_of_it() -> None:
    partition = fresh()
    take(partition, "a", log(4))
    for said, code in (
        (Acknowledgement(0, 1, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(2, 4, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(4, 5, [ACCEPT]), ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError) as raised:
            partition.acknowledge("b", [said], 0)
        assert raised.value.code == code
    write = partition.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], 0)
    with pytest.raises(KafkaError):
        partition.acknowledge("a", [Acknowledgement(1, 2, [ACCEPT])], 0)
    stored(partition, write)
    assert partition.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], 0) is None, "it is over already"


@pytest.mark.parametrize(
    ("kinds", "refused"),
    [((ACCEPT, RELEASE), True), ((ACCEPT, RENEW), True), ((RENEW, ACCEPT), False), ((RENEW, RENEW), False)],
)
def test_one_request_gives_a_record_one_outcome(kinds: tuple[int, int], refused: bool) -> None:
    partition = fresh()
    take(partition, "a", log(4))
    said = [Acknowledgement(0, 1, [kinds[0]]), Acknowledgement(1, 3, [kinds[1]])]
    if refused:
        with pytest.raises(KafkaError) as raised:
            partition.acknowledge("a", said, 0)
        assert raised.value.code == ErrorCode.INVALID_RECORD_STATE
    else:
        partition.acknowledge("a", said, 0)
    assert stored(partition, partition.acknowledge("a", [Acknowledgement(0, 0, [ACCEPT])], 0)) is not None, (
        "none counted"
    )


def test_a_lock_runs_out_and_can_be_renewed() -> None:
    partition = fresh(Limits(record_lock_duration_ms=100))
    take(partition, "a", log(4))
    assert partition.deadline_ms() == 100
    assert partition.acknowledge("a", [Acknowledgement(2, 3, [RENEW])], 60) is None
    stored(partition, partition.expire(100))
    assert take(partition, "b", log(4), now_ms=100) == [(0, 1, 2)]
    assert partition.deadline_ms() == 160
    partition.limits = Limits(may_renew=False)
    with pytest.raises(KafkaError):
        partition.acknowledge("a", [Acknowledgement(2, 3, [RENEW])], 110)


def test_a_record_that_was_delivered_too_often_is_archived() -> None:
    partition = fresh(Limits(delivery_count=2))
    for delivery in (1, 2):
        assert take(partition, "a", log(1)) == [(0, 0, delivery)]
        stored(partition, partition.acknowledge("a", [Acknowledgement(0, 0, [RELEASE])], 0))
    assert partition.window.start_offset == 1
    assert take(partition, "a", log(1)) == []


def test_fewer_records_come_at_a_time_when_they_were_delivered_often() -> None:
    partition = fresh(Limits(delivery_count=5))
    sizes = []
    for _ in range(3):
        acquired = take(partition, "a", log(16))
        sizes.append(sum(last - first + 1 for first, last, _ in acquired))
        stored(partition, partition.release("a"))
    assert sizes == [16, 16, 16]
    assert take(partition, "a", log(16)) == [(0, 7, 4)]
    stored(partition, partition.release("a"))
    assert take(partition, "a", log(16)) == [(0, 0, 5)]


def test_no_more_records_are_in_flight_than_may_be() -> None:
    partition = fresh(Limits(record_locks=10))
    assert take(partition, "a", log(6, 6, 6)) == [(0, 11, 1)]
    assert partition.window.in_flight == 12
    assert partition.has_room is False
    assert take(partition, "b", log(6, first=12)) == []
    stored(partition, partition.acknowledge("a", [Acknowledgement(3, 5, [RELEASE])], 0))
    assert partition.next_fetch_offset == 3
    assert take(partition, "b", log(6, 6, 6)) == [(3, 5, 2)]


def test_a_full_partition_whose_free_records_are_gone_from_the_log_takes_nothing_behind_its_end() -> None:
    partition = fresh(Limits(record_locks=6))
    take(partition, "a", log(6))
    stored(partition, partition.acknowledge("a", [Acknowledgement(3, 5, [RELEASE])], 0))
    acquired, write = partition.acquire("b", log(4, first=8), MANY, 0)
    assert (acquired, partition.window.end_offset) == ([], 6)
    assert write is not None and write.batches == (StateBatch(3, 5, 4, 1),), "compaction has taken them"


def test_a_record_that_is_held_for_long_does_not_let_the_state_grow() -> None:
    partition = fresh(Limits(record_locks=10))
    for offset in range(10):
        assert take(partition, "a", log(1, first=offset)) == [(offset, offset, 1)]
        if offset:
            kind = ACCEPT if offset % 2 else REJECT
            stored(partition, partition.acknowledge("a", [Acknowledgement(offset, offset, [kind])], 0))
    assert take(partition, "a", log(1, first=10)) == [] and not partition.has_room
    stored(partition, partition.acknowledge("a", [Acknowledgement(0, 0, [ACCEPT])], 0))
    assert take(partition, "a", log(1, first=10)) == [(10, 10, 1)]


def test_what_the_log_does_not_have_and_what_nobody_may_see_is_passed_over() -> None:
    partition = fresh()
    batches = [LogBatch(4, 5), LogBatch(6, 6, visible=False), LogBatch(9, 9)]
    acquired, write = partition.acquire("a", batches, MANY, 0)
    assert [tuple(each) for each in acquired] == [(4, 5, 1), (9, 9, 1)]
    assert write is not None and write.start_offset == 4
    assert write.batches == (StateBatch(6, 8, 4, 0),)
    stored(partition, write)
    stored(partition, partition.acknowledge("a", [Acknowledgement(4, 5, [ACCEPT]), Acknowledgement(9, 9, [ACCEPT])], 0))
    assert partition.window.start_offset == 10


def test_records_that_the_log_has_cut_off_are_over() -> None:
    partition = fresh()
    take(partition, "a", log(10))
    partition.start_log_at(4)
    assert stored(partition, partition.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT])], 0)) is None
    stored(partition, partition.acknowledge("a", [Acknowledgement(2, 9, [ACCEPT])], 0))
    assert partition.window.start_offset == 10
    partition.start_log_at(30)
    assert (partition.next_fetch_offset, partition.window.start_offset) == (30, 30)


def test_what_was_acquired_at_a_crash_is_available_again() -> None:
    partition = SharePartition(2, [StateBatch(5, 6, 2, 1), StateBatch(8, 8, 0, 3)], Limits())
    assert take(partition, "a", log(12)) == [(2, 4, 1), (7, 7, 1)]
    assert take(partition, "b", log(12)) == [(8, 8, 4)]
    assert take(partition, "c", log(12)) == [(9, 11, 1)]


# -- many members, crashes and failed writes


@dataclass
class Cell:
    """One offset as the model has it."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    #: Its member has said what became of it, and that is not stored yet.
    said: bool = False


class ShareMachine(RuleBasedStateMachine):
    """The partition, a log that grows, and a table of what each offset must be."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[LogBatch] = []
        self.log_start = self.log_end = 0
        self.limits = Limits(delivery_count=3, record_lock_duration_ms=100, record_locks=12)
        self.stored = StoredState(0, delivery_complete_count=0)
        self.partition = SharePartition(0, (), self.limits)
        self.cells: dict[int, Cell] = {}
        #: What a member was told is accepted: nobody may get it again, whatever happens.
        self.accepted: set[int] = set()
        #: Writes under way, each with what it makes of which offsets.
        self.under_way: list[tuple[Write, dict[int, int]]] = []
        for _ in range(4):
            self.append(4, 0, True)

    def settle(self, write: Write | None, *, fails: bool) -> bool:
        """Store a write or not; did it count?"""
        if write is None:
            return True
        if not fails:
            self.stored = self.stored.updated(write.start_offset, -1, write.delivery_complete_count, write.batches)
        self.partition.settle(write.number, stored=not fails)
        return not fails

    @rule(size=st.integers(1, 5), gap=st.sampled_from([0, 0, 0, 2]), visible=st.sampled_from([True, True, True, False]))
    def append(self, size: int, gap: int, visible: bool) -> None:
        first = self.log_end + gap
        self.log.append(LogBatch(first, first + size - 1, visible))
        self.log_end = first + size

    @rule(
        member=st.sampled_from("ab"),
        records=st.integers(1, 8),
        strict=st.booleans(),
        read=st.integers(1, 4),
        fails=st.booleans(),
    )
    def acquire(self, member: str, records: int, strict: bool, read: int, fails: bool) -> None:
        offset = self.partition.next_fetch_offset
        batches = [each for each in self.log if each.last_offset >= max(offset, self.log_start)][:read]
        had_room = self.partition.has_room
        acquired, write = self.partition.acquire(member, batches, AcquireRequest(records, 4, strict), self.now_ms)
        visible = {
            offset for each in batches if each.visible for offset in range(each.first_offset, each.last_offset + 1)
        }
        got = [(offset, each.delivery_count) for each in acquired for offset in range(each[0], each[1] + 1)]
        assert len(got) == len({offset for offset, _ in got})
        if strict:
            assert len(got) <= records
        for at, count in got:
            cell = self.cells.setdefault(at, Cell())
            assert cell.state is RecordState.AVAILABLE, f"{at} is {cell}"
            assert at in visible and at not in self.accepted and at >= self.partition.window.start_offset
            assert count == cell.count + 1 <= self.limits.delivery_count
            self.cells[at] = Cell(RecordState.ACQUIRED, count, member)
        if had_room and batches and batches[0].visible and batches[0].first_offset <= offset:
            assert got, "there was room, and what is available was read"
        for run in self.partition.window.runs:
            for at in range(run.first_offset, run.end_offset):
                cell = self.cells.setdefault(at, Cell())
                if run.state is RecordState.ARCHIVED and cell.state is RecordState.AVAILABLE:
                    assert at not in visible
                    cell.state = RecordState.ARCHIVED
        self.settle(write, fails=fails)

    @precondition(lambda self: any(cell.member and not cell.said for cell in self.cells.values()))
    @rule(
        kinds=st.lists(st.sampled_from([0, ACCEPT, ACCEPT, RELEASE, REJECT]), min_size=1, max_size=6),
        skip=st.integers(0, 6),
    )
    def acknowledge(self, kinds: list[int], skip: int) -> None:
        held = sorted(at for at, cell in self.cells.items() if cell.member and not cell.said)
        member = self.cells[held[skip % len(held)]].member
        mine = [at for at in held[skip % len(held) :] if self.cells[at].member == member]
        first = mine[0]
        length = 1
        while length < len(kinds) and length < len(mine) and mine[length] == first + length:
            length += 1
        said = Acknowledgement(first, first + length - 1, kinds[:length])
        write = self.partition.acknowledge(member, [said], self.now_ms)
        other = "b" if member == "a" else "a"
        with pytest.raises(KafkaError):
            self.partition.acknowledge(other, [said], self.now_ms)
        assert write is not None
        self.begin(write, dict(zip(range(first, first + length), kinds, strict=False)))
        with pytest.raises(KafkaError):
            self.partition.acknowledge(member, [said], self.now_ms)

    def begin(self, write: Write, outcomes: dict[int, int]) -> None:
        for at in outcomes:
            self.cells[at].said = True
        self.under_way.append((write, outcomes))

    @precondition(lambda self: self.under_way)
    @rule(fails=st.sampled_from([False, False, True]))
    def end(self, fails: bool) -> None:
        """The oldest write is stored, or is not."""
        write, outcomes = self.under_way.pop(0)
        counts = self.settle(write, fails=fails)
        for at, kind in outcomes.items():
            cell = self.cells.get(at)
            if cell is None:
                continue
            cell.said = False
            if not counts:
                continue
            cell.member = ""
            if kind == ACCEPT:
                cell.state = RecordState.ACKNOWLEDGED
                self.accepted.add(at)
            elif kind == RELEASE:
                self.give_back([cell])
            else:
                cell.state = RecordState.ARCHIVED

    def give_back(self, cells: list[Cell]) -> None:
        for cell in cells:
            again = cell.count < self.limits.delivery_count
            cell.state, cell.member = RecordState.AVAILABLE if again else RecordState.ARCHIVED, ""

    @precondition(lambda self: any(cell.member for cell in self.cells.values()))
    @rule(member=st.sampled_from("ab"))
    def leave(self, member: str) -> None:
        held = [at for at, cell in self.cells.items() if cell.member == member and not cell.said]
        write = self.partition.release(member)
        assert bool(held) == (write is not None)
        if write is not None:
            self.begin(write, dict.fromkeys(held, RELEASE))

    @rule(duration_ms=st.sampled_from([10, 100]), fails=st.booleans())
    def pass_ms(self, duration_ms: int, fails: bool) -> None:
        self.now_ms += duration_ms
        deadline_ms = self.partition.deadline_ms()
        late = [
            self.cells[at]
            for run in self.partition.window.runs
            if run.is_locked and run.deadline_ms <= self.now_ms
            for at in range(run.first_offset, run.end_offset)
        ]
        assert bool(late) == (deadline_ms is not None and deadline_ms <= self.now_ms)
        self.settle(self.partition.expire(self.now_ms), fails=fails)
        self.give_back(late)
        assert self.partition.deadline_ms() is None or self.partition.deadline_ms() > self.now_ms  # type: ignore[operator]

    @precondition(lambda self: self.log_end > self.log_start)
    @rule(cut=st.integers(0, 3))
    def cut_log(self, cut: int) -> None:
        self.log_start = min(self.log_end, self.log_start + cut)
        self.partition.start_log_at(self.log_start)
        self.cells = {at: cell for at, cell in self.cells.items() if at >= self.log_start}

    @rule(now=st.sampled_from([False, False, True]))
    def crash(self, now: bool) -> None:
        """Only what was stored is left."""
        if not now:
            return
        self.under_way.clear()
        self.partition = SharePartition(self.stored.start_offset, self.stored.batches, self.limits)
        self.partition.start_log_at(self.log_start)
        self.cells = {
            at: Cell(RecordState(run.state), run.count)
            for run in self.partition.window.runs
            for at in range(run.first_offset, run.end_offset)
        }
        for at, cell in self.cells.items():
            assert cell.state is not RecordState.ACQUIRED
            if at in self.accepted:
                assert cell.state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
        assert all(at < self.partition.window.start_offset or at in self.cells for at in self.accepted)

    @invariant()
    def agrees_with_the_table(self) -> None:
        window = self.partition.window
        window.validate()
        for run in window.runs:
            for at in range(run.first_offset, run.end_offset):
                cell = self.cells[at]
                assert (cell.state, cell.member) == (run.state, run.member_id), f"{at}: {cell}"
                assert cell.count == run.count
        for at in list(self.cells):
            if not window.start_offset <= at < window.end_offset:
                assert self.cells.pop(at).state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


TestShareMachine = ShareMachine.TestCase
TestShareMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_log_start_below_the_share_start_moves_nothing() -> None:
    partition = SharePartition(10, [], Limits())
    for offset, start in ((5, 10), (10, 10), (12, 12), (11, 12)):
        partition.start_log_at(offset)
        assert (partition.window.start_offset, partition.next_fetch_offset) == (start, start)
        partition.window.validate()
