"""A difference made short: steps are left out as long as the same difference stays."""

from collections.abc import Callable

from tests.interop.oracle.wander.history import Step
from tests.interop.oracle.wander.walk import Difference

Run = Callable[[list[Step]], Difference | None]
_RUNS = 250
#: Further runs in which a difference must show: what is one of two by chance comes so often in one of sixteen.
_AGAIN = 4
#: Runs of Apache beside itself in which what it leaves to chance must show.
_CHANCES = 32


def again(history: list[Step], found: Difference, run: Run) -> bool:
    """Does the same difference show itself each time? Apache leaves some things to chance: the order of its maps."""
    return all((other := run(history)) is not None and other.kind == found.kind for _ in range(_AGAIN))


def is_chance(history: list[Step], found: Difference, beside_itself: Run) -> bool:
    """Does Apache Kafka differ in the same way from itself, in one of some runs? Then which is which is chance, too."""
    path, *values = found.fields[0]

    def is_same(other: Difference | None) -> bool:
        return (
            other is not None
            and other.what == found.what
            and other.fields[0] in ((path, *values), (path, *values[::-1]))
        )

    return any(is_same(beside_itself(history)) for _ in range(_CHANCES))


def shrink(history: list[Step], found: Difference, run: Run) -> tuple[list[Step], Difference]:
    """The shortest history found with a difference of the same kind, and that difference."""
    steps, runs = history[: found.step + 1], 0
    size = max(1, len(steps) // 2)
    while size and runs < _RUNS:
        start, shorter = 0, False
        while start < len(steps) and runs < _RUNS:
            left = steps[:start] + steps[start + size :]
            runs += 1
            other = run(left) if left else None
            if other is not None and other.kind == found.kind:
                steps, found, shorter = left[: other.step + 1], other, True
            else:
                start += size
        size = size if shorter and size == 1 else size // 2
    return steps, found
