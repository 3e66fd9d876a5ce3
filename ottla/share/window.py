"""The records of a partition that a share group has begun and not finished: runs of offsets that fare alike.

| from | to | when |
|---|---|---|
| AVAILABLE | ACQUIRED | a member fetches them |
| AVAILABLE | ARCHIVED | the group may not see them, or the log begins behind them |
| ACQUIRED | ACKNOWLEDGED | their member accepted them, and that is stored |
| ACQUIRED | ARCHIVED | their member rejected them, and that is stored; or they were delivered often enough |
| ACQUIRED | AVAILABLE | their member released them; its lock ran out; it left |

Rules:
- The runs are neighbours: together they are every offset from `start_offset` to `end_offset`.
- The first run is not over, unless what ended it is not stored yet: when it is, the window begins behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ottla.share.state import RecordState, StateBatch

_OVER = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class Run:
    """Neighbouring offsets in one state."""

    __slots__ = ("change", "count", "deadline_ms", "end_offset", "first_offset", "member_id", "state", "wanted")

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
        #: How often these were delivered.
        self.count = count
        #: The member that has them, and until when: only while they are ACQUIRED.
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        #: The number of the write that makes them `wanted`; 0 when there is none under way.
        self.change = 0
        self.wanted = state

    def __len__(self) -> int:
        return self.end_offset - self.first_offset

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def is_locked(self) -> bool:
        """True if a member has them and has not acknowledged them."""
        return self.state is RecordState.ACQUIRED and not self.change

    def ends_by(self, change: int) -> bool:
        """Are they over once this write is stored?"""
        return self.is_over or (self.change == change != 0 and self.wanted in _OVER)

    def become(self, state: RecordState) -> None:
        """Take them from their member."""
        self.state = self.wanted = state
        self.member_id = ""
        self.deadline_ms = self.change = 0

    def fares_like(self, other: Run) -> bool:
        """Can the two be one?"""
        return (
            self.state is other.state
            and self.count == other.count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.change == other.change
            and self.wanted is other.wanted
        )

    def cut(self, offset: int) -> Run:
        """Keep what is before `offset`; the rest as another run."""
        rest = Run(offset, self.end_offset, self.state, self.count, self.member_id, self.deadline_ms)
        rest.change, rest.wanted = self.change, self.wanted
        self.end_offset = offset
        return rest


class Window:
    """Runs from one end to the other."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.runs: list[Run] = []

    def load(self, batches: Iterable[StateBatch]) -> None:
        """Take stored batches in. What lies between them was acquired when a leader went, and is available."""
        for first, last, state, count in batches:
            if first > self.end_offset:
                self.append(Run(self.end_offset, first))
            if last >= self.end_offset:
                self.append(Run(max(first, self.end_offset), last + 1, RecordState(state), count))
        self.trim()

    def append(self, run: Run) -> None:
        """Put a run behind the last one."""
        assert run.first_offset == self.end_offset < run.end_offset
        self.runs.append(run)
        self.end_offset = run.end_offset

    def overlapping(self, first_offset: int, end_offset: int) -> Iterator[Run]:
        """The runs with an offset in that range, whole."""
        index = max(0, bisect_right(self.runs, first_offset, key=_first_offset) - 1)
        while index < len(self.runs) and self.runs[index].first_offset < end_offset:
            if self.runs[index].end_offset > first_offset:
                yield self.runs[index]
            index += 1

    def within(self, first_offset: int, end_offset: int) -> list[Run]:
        """The runs of exactly that range: those at its edges are cut in two."""
        self._cut(first_offset)
        self._cut(end_offset)
        return list(self.overlapping(first_offset, end_offset))

    def _cut(self, offset: int) -> None:
        index = bisect_right(self.runs, offset, key=_first_offset) - 1
        if index >= 0 and self.runs[index].first_offset < offset < self.runs[index].end_offset:
            self.runs.insert(index + 1, self.runs[index].cut(offset))

    def drop_before(self, offset: int) -> None:
        """Forget everything below an offset."""
        self._cut(offset)
        self.runs = [run for run in self.runs if run.first_offset >= offset]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)

    def trim(self) -> None:
        """Begin behind what is over, and make one run of neighbours that fare alike."""
        merged: list[Run] = []
        for run in self.runs:
            if not merged and run.is_over:
                continue
            if merged and merged[-1].fares_like(run):
                merged[-1].end_offset = run.end_offset
            else:
                merged.append(run)
        self.runs = merged
        self.start_offset = merged[0].first_offset if merged else self.end_offset

    def start_after(self, change: int) -> int:
        """Where the window will begin once this write is stored."""
        return next((run.first_offset for run in self.runs if not run.ends_by(change)), self.end_offset)

    def complete_after(self, change: int) -> int:
        """How many offsets behind that start will be over once this write is stored."""
        start = self.start_after(change)
        return sum(len(run) for run in self.runs if run.first_offset >= start and run.ends_by(change))

    @property
    def first_available(self) -> int:
        """The first offset that can be acquired: of a run, or the next one of the log."""
        return next((run.first_offset for run in self.runs if run.is_available), self.end_offset)

    @property
    def in_flight(self) -> int:
        """How many offsets are begun and not over."""
        return sum(len(run) for run in self.runs if not run.is_over)

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        offset = self.start_offset
        for run in self.runs:
            assert run.first_offset == offset < run.end_offset, "the runs are neighbours"
            assert (run.state is RecordState.ACQUIRED) == bool(run.member_id)
            assert not run.change or run.state is RecordState.ACQUIRED
            offset = run.end_offset
        assert offset == self.end_offset
        assert not self.runs or not self.runs[0].is_over


def _first_offset(run: Run) -> int:
    return run.first_offset
