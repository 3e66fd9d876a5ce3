"""A nondeterministic automaton over the characters of a name, simulated in linear time. Built by `pattern`.

Matching tracks the set of states and caches each step, so that later names cost one dictionary lookup per character.
The total work to compute steps is bounded for each expression, which also bounds the cache.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from ottla.kernel.named import NamedTuple

_T = TypeVar("_T")

#: The maximum number of states; counted repetitions multiply them.
_STATES_MAX = 20_000
#: The maximum number of states that all steps of one expression may visit: about 40 ms and a few megabytes.
WORK_MAX = 100_000
#: Building or matching yields after it has made, or visited, about so many states: less than a millisecond.
STATES_A_STEP, _WORK_A_STEP = 300, 2000
#: The word characters; a word boundary separates them from others.
WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


class TooLarge(ValueError):
    """The automaton has too many states, or matching takes too much work."""


def drained(steps: Generator[None, None, _T]) -> _T:
    """Do all steps at once; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class _Edge(NamedTuple):
    """A transition without a character; `condition` is "" or a zero-width assertion."""

    target: int
    condition: str


class Automaton:
    """An automaton whose states are numbers. `pattern` builds it, and sets `start` and `accept`."""

    def __init__(self) -> None:
        #: For each state, (accepted characters, next state), or None.
        self._takes: list[tuple[frozenset[str], int] | None] = []
        self._edges: list[list[_Edge]] = []
        self.start = self.accept = 0
        #: State -> 2 * number of the group that starts there, or 2 * number + 1 of the group that ends there.
        self.marks: dict[int, int] = {}
        self._next: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._ends: dict[tuple[frozenset[int], str], bool] = {}
        #: Interned character sets.
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._work_left = WORK_MAX
        self._step_ends = WORK_MAX - _WORK_A_STEP

    # -- building

    def __len__(self) -> int:
        return len(self._takes)

    def state(self) -> int:
        """Add a state without transitions."""
        if len(self._takes) == _STATES_MAX:
            raise TooLarge("expression too large")
        self._takes.append(None)
        self._edges.append([])
        return len(self._takes) - 1

    def taking(self, characters: frozenset[str]) -> tuple[int, int]:
        """Add two states; each of the characters leads from the first to the second."""
        start, end = self.state(), self.state()
        self._takes[start] = (self._sets.setdefault(characters, characters), end)
        return start, end

    def connect(self, source: int, target: int, condition: str = "") -> None:
        """Add a transition from `source` to `target` without a character, if the condition holds.

        Conditions: ^ $ b B, and for lines (^ and )$.
        """
        self._edges[source].append(_Edge(target, condition))

    def marked(self, piece: tuple[int, int], number: int) -> tuple[int, int]:
        """Enclose the piece in marks of a group's start and end."""
        start, end = self.state(), self.state()
        self.connect(start, piece[0])
        self.connect(piece[1], end)
        self.marks[start], self.marks[end] = 2 * number, 2 * number + 1
        return start, end

    # -- matching

    def matches(self, name: str) -> Generator[None, None, bool]:
        """Return True if the whole name matches; yields between steps. TooLarge if that takes too much work."""
        states = frozenset({self.start})
        before = ""
        for character in name:
            key = (states, before, character)
            following = self._next.get(key)
            if following is None:
                following = self._next[key] = self._take(states, before, character)
                if self._work_left < self._step_ends:
                    self._step_ends = self._work_left - _WORK_A_STEP
                    yield
            if not following:
                return False
            states, before = following, character
        ends = (states, before)
        is_match = self._ends.get(ends)
        if is_match is None:
            is_match = self._ends[ends] = self.accept in self._closure(states, before, "")
        return is_match

    def ways(self, state: int, text: str, at: int) -> Iterator[tuple[int, int]]:
        """Yield the transitions of a state at a position: (state, position), the preferred one last."""
        before, after = text[at - 1 : at] if at else "", text[at : at + 1]
        for edge in reversed(self._edges[state]):
            if _holds(edge.condition, before, after):
                yield edge.target, at
        transition = self._takes[state]
        if transition is not None and after and after in transition[0]:
            yield transition[1], at + 1

    def _take(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        targets = set()
        for state in self._closure(states, before, character):
            transition = self._takes[state]
            if transition is not None and character in transition[0]:
                targets.add(transition[1])
        return frozenset(targets)

    def _closure(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """Return the states reachable without a character, between these two characters."""
        reached = set(states)
        pending = list(reached)
        while pending:
            for edge in self._edges[pending.pop()]:
                if edge.target not in reached and _holds(edge.condition, before, after):
                    reached.add(edge.target)
                    pending.append(edge.target)
        self._work_left -= len(reached)
        if self._work_left < 0:
            raise TooLarge("expression takes too much work")
        return reached


def _holds(condition: str, before: str, after: str) -> bool:
    match condition:
        case "":
            return True
        case "^":
            return not before
        case "$":
            return not after
        case "(^":
            return before in ("", "\n")
        case ")$":
            return after in ("", "\n")
        case "b":
            return (before in WORD) != (after in WORD)
        case _:
            return (before in WORD) == (after in WORD)
