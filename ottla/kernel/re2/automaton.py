"""A nondeterministic automaton over the characters of a name, walked in linear time.

Matching walks it with a set of states and remembers each step, so that the thousandth topic costs a dictionary look-up
a character. What is remembered took work, and all the work that one expression may cost is bounded. Built by `pattern`.
"""

from collections.abc import Iterable, Iterator

from ottla.kernel.named import NamedTuple

#: How large an automaton may get; counted repetitions multiply.
_STATES_MAX = 20_000
#: How many states the steps of one expression may visit, all names together: some 40 ms, some megabytes.
WORK_MAX = 100_000
#: What a word boundary is between.
WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


class TooLarge(ValueError):
    """The automaton would have too many states, or walking it would be too much work."""


class _Edge(NamedTuple):
    """A step that takes no character; `condition` is "", or a zero-width assertion."""

    target: int
    condition: str


class Automaton:
    """Its states are numbers. `pattern` makes it, sets `start` and `accept`, and then only `matches` is called."""

    def __init__(self) -> None:
        #: What each state takes and where that leads; None takes nothing.
        self._takes: list[tuple[frozenset[str], int] | None] = []
        self._edges: list[list[_Edge]] = []
        self.start = self.accept = 0
        #: State -> twice the number of the group that begins there, or one more for one that ends.
        self.marks: dict[int, int] = {}
        self._next: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._ends: dict[tuple[frozenset[int], str], bool] = {}
        #: Equal sets of characters are one.
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._work_left = WORK_MAX

    # -- building

    def state(self) -> int:
        """A new state that takes nothing and leads nowhere."""
        if len(self._takes) == _STATES_MAX:
            raise TooLarge("expression too large")
        self._takes.append(None)
        self._edges.append([])
        return len(self._takes) - 1

    def taking(self, characters: frozenset[str]) -> tuple[int, int]:
        """Two new states; one of the characters leads from the first to the second."""
        start, end = self.state(), self.state()
        self._takes[start] = (self._sets.setdefault(characters, characters), end)
        return start, end

    def connect(self, source: int, target: int, condition: str = "") -> None:
        """Let `source` lead to `target` without taking a character, where the condition holds: ^ $ b B, and
        ^ and $ of lines as (^ and )$.
        """
        self._edges[source].append(_Edge(target, condition))

    def marked(self, piece: tuple[int, int], number: int) -> tuple[int, int]:
        """The piece between marks of a group's begin and end."""
        start, end = self.state(), self.state()
        self.connect(start, piece[0])
        self.connect(piece[1], end)
        self.marks[start], self.marks[end] = 2 * number, 2 * number + 1
        return start, end

    # -- walking

    def matches(self, name: str) -> bool:
        """Does it match the whole of the name? TooLarge when that is too much work."""
        states = frozenset({self.start})
        before = ""
        for character in name:
            key = (states, before, character)
            following = self._next.get(key)
            if following is None:
                following = self._next[key] = self._take(states, before, character)
            if not following:
                return False
            states, before = following, character
        ends = (states, before)
        found = self._ends.get(ends)
        if found is None:
            found = self._ends[ends] = self.accept in self._closure(states, before, "")
        return found

    def ways(self, state: int, text: str, at: int) -> Iterator[tuple[int, int]]:
        """Where a state leads with the text that is left: (state, place in the text), the preferred way last."""
        before, after = text[at - 1 : at] if at else "", text[at : at + 1]
        for edge in reversed(self._edges[state]):
            if _holds(edge.condition, before, after):
                yield edge.target, at
        takes = self._takes[state]
        if takes is not None and after and after in takes[0]:
            yield takes[1], at + 1

    def _take(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        found = set()
        for state in self._closure(states, before, character):
            takes = self._takes[state]
            if takes is not None and character in takes[0]:
                found.add(takes[1])
        return frozenset(found)

    def _closure(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """The states reachable without taking a character, between these two characters."""
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
