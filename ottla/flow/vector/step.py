"""What the steps of a region are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.flow.column.kind import Type
from ottla.flow.vector.evaluate import Frame
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.flow.task.rows import Rows

#: The types of keys by which records are grouped and rows are found.
KEYS = ("string", "bytes", "long")


@dataclass(slots=True)
class RegionRun:
    """A run of a region over rows. `effects` are applied after all computations have succeeded."""

    rows: Rows
    start: int
    #: The task's stream time at each row.
    newest: Any
    effects: list[Callable[[], None]] = field(default_factory=list)


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
