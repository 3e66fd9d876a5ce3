r"""Search and replacement with capturing groups, in bounded time.

    >>> search = Search("CN=(.*?),.*")
    >>> search.matches("CN=ann,O=x"), search.replace("CN=ann,O=x", lambda found: found.text(1) or "")
    (True, 'ann')

Rules:
- The syntax is that of `ottla.kernel.re2.pattern`, with Java's case folding: (?i) applies to ASCII letters only.
- If several matches are possible, the result is that of Perl, Java and Python: leftmost alternatives first, greedy or
  lazy repetitions.
- Each state is tried once at each position of a name, so the time is at most states times characters. A call that tries
  more than `WORK_MAX` raises InvalidExpression.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.kernel.re2.automaton import WORK_MAX, Automaton, TooLarge, drained
from ottla.kernel.re2.pattern import InvalidExpression, Parser


class RegexMatch:
    """A match in a text."""

    def __init__(self, text: str, spans: list[int], numbers: dict[str, int]) -> None:
        self._text, self._spans, self._numbers = text, spans, numbers
        self.start, self.end = spans[0], spans[1]
        #: The number of groups in the expression.
        self.groups = len(spans) // 2 - 1

    def text(self, group: int | str) -> str | None:
        """Return a group's text by number or name; None if it did not match. IndexError if there is no such group."""
        number = self._numbers.get(group, self.groups + 1) if isinstance(group, str) else group
        if number > self.groups:
            raise IndexError(f"there is no group {group}")
        start, end = self._spans[2 * number : 2 * number + 2]
        return None if start < 0 or end < 0 else self._text[start:end]


class Search:
    """A compiled expression. Compiling an invalid one raises InvalidExpression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ascii = self._compiled("")

    def _compiled(self, name: str) -> tuple[Automaton, Parser]:
        """Compile the expression for ASCII and the non-ASCII characters of `name`."""
        automaton = Automaton()
        parser = Parser(self._text, automaton, name, captures=True)
        try:
            automaton.start, automaton.accept = drained(parser.parse())
        except TooLarge as error:
            raise InvalidExpression(str(error)) from error
        return automaton, parser

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches. InvalidExpression if that takes too much work."""
        return _Walk(name, *self._compiled_for(name)).find(0, whole=True) is not None

    def replace(self, name: str, make: Callable[[RegexMatch], str], count: int = 0) -> str:
        """Replace each match, or the first `count` matches, by the result of `make`.

        InvalidExpression if that takes too much work.
        """
        walk = _Walk(name, *self._compiled_for(name))
        parts, at, last, matches = [], 0, 0, 0
        while at <= len(name) and (not count or matches < count):
            match = walk.find(at, whole=False)
            if match is None:
                break
            matches += 1
            parts += [name[last : match.start], make(match)]
            last = match.end
            at = match.end + (match.end == match.start)
        return "".join((*parts, name[last:]))

    def _compiled_for(self, name: str) -> tuple[Automaton, Parser]:
        return self._ascii if name.isascii() else self._compiled(name)


class _Walk:
    """The matches in one name, with one work limit for all of them."""

    def __init__(self, name: str, automaton: Automaton, parser: Parser) -> None:
        self._name, self._automaton, self._parser = name, automaton, parser
        self._work_left = WORK_MAX

    def find(self, at: int, *, whole: bool) -> RegexMatch | None:
        """Return the first match that starts at `at` or, unless `whole`, after it."""
        tried: set[tuple[int, int]] = set()
        for start in (at,) if whole else range(at, len(self._name) + 1):
            spans = self._match_from(start, tried, whole=whole)
            if spans is not None:
                return RegexMatch(self._name, spans, self._parser.numbers)
        return None

    def _match_from(self, start: int, tried: set[tuple[int, int]], *, whole: bool) -> list[int] | None:
        """Return the spans of the match and its groups. States tried from an earlier start lead to no match."""
        automaton, name = self._automaton, self._name
        spans = [start, -1] + [-1, -1] * len(self._parser.groups)
        # (state, position), or (the complement of a span's index, its value to restore on backtracking).
        pending = [(automaton.start, start)]
        while pending:
            state, at = pending.pop()
            if state < 0:
                spans[~state] = at
                continue
            if (state, at) in tried:
                continue
            tried.add((state, at))
            self._work_left -= 1
            if self._work_left < 0:
                raise InvalidExpression("expression takes too much work")
            if state == automaton.accept and (not whole or at == len(name)):
                spans[1] = at
                return spans
            mark = automaton.marks.get(state)
            if mark is not None:
                pending.append((~mark, spans[mark]))
                spans[mark] = at
            pending += automaton.ways(state, name, at)
        return None
