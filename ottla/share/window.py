"""The records of a partition that a share group has begun and not finished, as runs of offsets in one state.

| from | to | when |
|---|---|---|
| AVAILABLE | ACQUIRED | a member acquires the records |
| AVAILABLE | ARCHIVED | the records are hidden or not in the log |
| ACQUIRED | ACKNOWLEDGED | the member accepted them, and the write is stored |
| ACQUIRED | ARCHIVED | the member rejected them, and the write is stored; or the delivery count reached its limit |
| ACQUIRED | AVAILABLE | the member released them or left, and the write is stored; or the lock expired |

Rules:
- The runs are adjacent and cover every offset from `start_offset` to `end_offset`.
- The first run is never over: when the write that ends it is stored, the window's start moves behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ottla.share.state import RecordState, StateBatch

_FINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class Run:
    """A range of offsets in one state."""

    __slots__ = (
        "count",
        "deadline_ms",
        "end_offset",
        "first_offset",
        "member_id",
        "next_state",
        "state",
        "write_number",
    )

    def __init__(
        self,
        first_offset: int,
        end_offset: int,
        state: RecordState = RecordState.AVAILABLE,
        count: int = 0,
        member_id: str = "",
        deadline_ms: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.state = state
        #: The delivery count.
        self.count = count
        #: The member that holds them, and when its lock expires; only set while ACQUIRED.
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        #: The number of the pending write that will change the state to `next_state`; 0 without one.
        self.write_number = 0
        self.next_state = state

    def __len__(self) -> int:
        return self.end_offset - self.first_offset

    @property
    def is_final(self) -> bool:
        return self.state in _FINAL

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def is_locked(self) -> bool:
        """Does a member hold them without having acknowledged them?"""
        return self.state is RecordState.ACQUIRED and not self.write_number

    def is_final_after(self, write_number: int) -> bool:
        """Will the run be over once write `write_number` is stored?"""
        return self.is_final or (self.write_number == write_number != 0 and self.next_state in _FINAL)

    def set_state(self, state: RecordState) -> None:
        """Change the state; no member holds the records any more."""
        self.state = self.next_state = state
        self.member_id = ""
        self.deadline_ms = self.write_number = 0

    def merges_with(self, other: Run) -> bool:
        """Can the two runs be merged?"""
        return (
            self.state is other.state
            and self.count == other.count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.write_number == other.write_number
            and self.next_state is other.next_state
        )

    def split(self, offset: int) -> Run:
        """Split the run: keep the offsets below `offset` and return the rest."""
        rest = Run(offset, self.end_offset, self.state, self.count, self.member_id, self.deadline_ms)
        rest.write_number, rest.next_state = self.write_number, self.next_state
        self.end_offset = offset
        return rest


class Window:
    """The runs of a share partition. `SharePartition` creates it."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.runs: list[Run] = []

    def load(self, batches: Iterable[StateBatch]) -> None:
        """Load stored batches. Offsets between them were acquired under an earlier leader, and are available."""
        for first, last, state, count in batches:
            if first > self.end_offset:
                self.append(Run(self.end_offset, first))
            if last >= self.end_offset:
                self.append(Run(max(first, self.end_offset), last + 1, RecordState(state), count))
        self.trim()

    def append(self, run: Run) -> None:
        """Add a run at the end."""
        assert run.first_offset == self.end_offset < run.end_offset
        self.runs.append(run)
        self.end_offset = run.end_offset

    def overlapping(self, first_offset: int, end_offset: int) -> Iterator[Run]:
        """The runs that overlap the range, uncut."""
        index = max(0, bisect_right(self.runs, first_offset, key=_first_offset) - 1)
        while index < len(self.runs) and self.runs[index].first_offset < end_offset:
            if self.runs[index].end_offset > first_offset:
                yield self.runs[index]
            index += 1

    def within(self, first_offset: int, end_offset: int) -> list[Run]:
        """The runs of exactly this range; runs that cross its edges are split."""
        self._split(first_offset)
        self._split(end_offset)
        return list(self.overlapping(first_offset, end_offset))

    def _split(self, offset: int) -> None:
        index = bisect_right(self.runs, offset, key=_first_offset) - 1
        if index >= 0 and self.runs[index].first_offset < offset < self.runs[index].end_offset:
            self.runs.insert(index + 1, self.runs[index].split(offset))

    def drop_before(self, offset: int) -> None:
        """Drop everything below an offset."""
        self._split(offset)
        self.runs = [run for run in self.runs if run.first_offset >= offset]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)

    def trim(self) -> None:
        """Move the start past the runs that are over, and merge equal neighbours."""
        merged: list[Run] = []
        for run in self.runs:
            if not merged and run.is_final:
                continue
            if merged and merged[-1].merges_with(run):
                merged[-1].end_offset = run.end_offset
            else:
                merged.append(run)
        self.runs = merged
        self.start_offset = merged[0].first_offset if merged else self.end_offset

    def start_after(self, write_number: int) -> int:
        """The start of the window once write `write_number` is stored."""
        return next((run.first_offset for run in self.runs if not run.is_final_after(write_number)), self.end_offset)

    def complete_after(self, write_number: int) -> int:
        """The number of offsets above that start that will be over once write `write_number` is stored."""
        start = self.start_after(write_number)
        return sum(len(run) for run in self.runs if run.first_offset >= start and run.is_final_after(write_number))

    def complete_from(self, start: int) -> int:
        """The number of offsets from `start` on that will be over once all writes are stored."""
        over = sum(
            run.end_offset - max(run.first_offset, start)
            for run in self.runs
            if run.next_state in _FINAL and run.end_offset > start
        )
        return over + max(0, self.start_offset - start)

    @property
    def first_available(self) -> int:
        """The first offset that can be acquired: of an available run, or the window's end."""
        return next((run.first_offset for run in self.runs if run.is_available), self.end_offset)

    @property
    def in_flight(self) -> int:
        """The number of offsets in the window, also of those that are over: a limit of it bounds the stored state."""
        return self.end_offset - self.start_offset

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        offset = self.start_offset
        for run in self.runs:
            assert run.first_offset == offset < run.end_offset, "the runs are neighbours"
            assert (run.state is RecordState.ACQUIRED) == bool(run.member_id)
            assert not run.write_number or run.state is RecordState.ACQUIRED
            offset = run.end_offset
        assert offset == self.end_offset
        assert not self.runs or not self.runs[0].is_final


def _first_offset(run: Run) -> int:
    return run.first_offset
