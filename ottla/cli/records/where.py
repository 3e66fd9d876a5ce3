"""The expression of `consume --where`: value.price > 50 and (key == "ann" or header.kind in ["a", "b"]).

The language is parsed here; nothing is evaluated as Python. Operators, from the weakest: or; and; not; == != < <= >
>=, contains, startswith, endswith, in; then paths (`field`), numbers, "text", true, false, null, lists and brackets.
Rules:
- An ordering of values that have none (text and a number, anything and null) is false; == and != always work.
- Compared with a number, text that is a number counts as one: keys and headers have no other way to hold 5.
- A path alone is true unless its value is null, false, 0 or an empty text.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.records.field import Getter, getter
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.cli.records.field import Shown

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>==|!=|<=|>=|=|<|>|\(|\)|\[|\]|,)
    |(?P<word>[A-Za-z_](?:[\w$-]|\.(?=[A-Za-z_$])|\[(?:\d+|"(?:[^"\\]|\\.)*")\])*)
    )""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_DEPTH_MAX = 50
#: Ends the list of tokens.
_END = ("end", "")
Test = Callable[["Shown"], bool]


def where(source: str) -> Test:
    """Compile an expression to a test. OttlaError says what is wrong with it, and where."""
    parser = _Parser(source)
    evaluate = parser.either(0)
    if parser.token != _END:
        raise parser.wrong("expected and, or, or the end")
    return lambda record: bool(evaluate(record))


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens: list[tuple[str, str]] = []
        self._places: list[int] = []
        at = 0
        while source[at:].strip():
            match = _TOKEN.match(source, at)
            if match is None:
                raise OttlaError(f"--where {source}: unexpected {source[at:].strip()[:20]!r}")
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind]))
            self._places.append(match.start(kind))
            at = match.end()
        self._tokens.append(_END)
        self._places.append(len(source))
        self._next = 0

    @property
    def token(self) -> tuple[str, str]:
        return self._tokens[self._next]

    def wrong(self, why: str) -> OttlaError:
        here = self._source[self._places[self._next] :][:20]
        return OttlaError(f"--where {self._source}: at {repr(here) if here else 'the end'}: {why}")

    def _took(self, *texts: str) -> str | None:
        kind, text = self.token
        if kind in ("sign", "word") and text in texts:
            self._next += 1
            return text
        return None

    def either(self, depth: int) -> Getter:
        """Parse `a or b`, the weakest operator."""
        terms = [self._both(depth)]
        while self._took("or"):
            terms.append(self._both(depth))
        return _chain(terms, until=True)

    def _both(self, depth: int) -> Getter:
        terms = [self._not(depth)]
        while self._took("and"):
            terms.append(self._not(depth))
        return _chain(terms, until=False)

    def _not(self, depth: int) -> Getter:
        if depth > _DEPTH_MAX:
            raise self.wrong(f"brackets are nested more than {_DEPTH_MAX} deep")
        if self._took("not"):
            inner = self._not(depth + 1)
            return lambda record: not inner(record)
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Getter:
        left = self._operand(depth)
        sign = self._took("==", "=", "!=", "<", "<=", ">", ">=", "contains", "startswith", "endswith", "in")
        if sign is None:
            return left
        right, compare = self._operand(depth), _COMPARE[sign]
        return lambda record: compare(left(record), right(record))

    def _operand(self, depth: int) -> Getter:
        kind, text = self.token
        if self._took("("):
            inner = self.either(depth + 1)
            if not self._took(")"):
                raise self.wrong("expected )")
            return inner
        if self._took("["):
            return self._list(depth)
        if kind == "number":
            number: Any = float(text) if re.search(r"[.eE]", text) else int(text)
            self._next += 1
            return lambda _: number
        if kind == "text":
            self._next += 1
            content = _unquoted(text)
            return lambda _: content
        if kind != "word" or text in ("and", "or", "not", "contains", "startswith", "endswith", "in"):
            raise self.wrong("expected a field, a number, a quoted text or (")
        self._next += 1
        if text in _CONSTANTS:
            constant = _CONSTANTS[text]
            return lambda _: constant
        return getter(text)

    def _list(self, depth: int) -> Getter:
        if depth > _DEPTH_MAX:
            raise self.wrong(f"brackets are nested more than {_DEPTH_MAX} deep")
        entries: list[Getter] = []
        while not self._took("]"):
            if entries and not self._took(","):
                raise self.wrong("expected , or ]")
            entries.append(self._operand(depth + 1))
        return lambda record: [entry(record) for entry in entries]


def _chain(terms: list[Getter], *, until: bool) -> Getter:
    """The value of the first term that is true (`until`) or false, or of the last one. A loop: there may be many."""
    if len(terms) == 1:
        return terms[0]

    def value(record: Shown) -> Any:
        found: Any = None
        for term in terms:
            found = term(record)
            if bool(found) is until:
                break
        return found

    return value


def _unquoted(text: str) -> str:
    quoted = text
    if text[0] == "'":
        quoted = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        raise OttlaError(f"--where: invalid text {text}; write a backslash as \\\\") from None


def _number(value: Any) -> Any:
    """Convert text that is a number to that number."""
    if isinstance(value, str) and len(value) < 40:
        try:
            return float(value) if re.search(r"[.eE]", value) else int(value)
        except ValueError:
            return value
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _matched(left: Any, right: Any) -> tuple[Any, Any]:
    if _is_number(left):
        return left, _number(right)
    return (_number(left), right) if _is_number(right) else (left, right)


def _equal(left: Any, right: Any) -> bool:
    left, right = _matched(left, right)
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def test(left: Any, right: Any) -> bool:
        left, right = _matched(left, right)
        alike = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
        return alike and compare(left, right)

    return test


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return any(_equal(element, right) for element in left)
    if isinstance(left, dict):
        return right in left if isinstance(right, str) else False
    return isinstance(left, str) and isinstance(right, str) and right in left


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "=": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "contains": _contains,
    "in": lambda left, right: _contains(right, left),
    "startswith": lambda left, right: isinstance(left, str) and isinstance(right, str) and left.startswith(right),
    "endswith": lambda left, right: isinstance(left, str) and isinstance(right, str) and left.endswith(right),
}
