"""What the steps of a region are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ottla.flow.column.kind import Type
from ottla.flow.record import Headers
from ottla.flow.vector.evaluate import Frame
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.flow.task.rows import Rows

#: The types of keys by which records are grouped and rows are found.
KEYS = ("string", "bytes", "long")


@dataclass(slots=True)
class RegionRun:
    """A run of a region. Its records are numbered in the order in which they are processed (`Frame.rows`). `effects`
    are applied after all computations have succeeded.
    """

    #: The rows that the records come from, which of them each record comes from (None: all from the first), and where.
    sources: Sequence[Rows]
    of: Any
    at: Any
    #: The headers of each record, or None.
    headers: list[Headers] | None
    #: The task's stream time at each record.
    newest: Any
    effects: list[Callable[[], None]] = field(default_factory=list)
    #: By join of streams, the records of both sides.
    sides: dict[str, list[Frame | None]] = field(default_factory=dict)

    def origins(self, frame: Frame) -> Iterable[tuple[Rows, int]]:
        """The rows that each record of a frame comes from, and its index there."""
        at = self.at[frame.rows].tolist()
        if self.of is None:
            return zip(repeat(self.sources[0]), at)
        return zip(map(self.sources.__getitem__, self.of[frame.rows].tolist()), at, strict=True)


Step = Callable[[Frame, RegionRun], None]


class Kinds(NamedTuple):
    """The types of keys and values between two steps. `windowed`: keys are windowed, and `key` is the inner type.
    `changes`: values are the changes of a table.
    """

    key: Type
    value: Type
    windowed: bool = False
    changes: bool = False


#: A step's function, which returns the records for the next step, and their types.
Applied = tuple[Callable[[Frame, RegionRun], Frame], Kinds]
