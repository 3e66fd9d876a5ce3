"""Small bugs that a program plants: a condition inverted, a bound shifted, a statement dropped, arguments swapped.

Nobody has to think of these, so they find what nobody thought of testing. Some change nothing that can be seen (an
equivalent mutant): a survivor is read and judged before it counts.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Tables of fields and words for people: a bug in them is no bug of behaviour.
_LEFT_OUT = ("ottla/wire/api/", "ottla/settings/reference", "ottla/kernel/error_message", "ottla/settings/since")
_INVERTED = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_SHIFTED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any", "True": "False", "False": "True"}
_OTHER_SIGN = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*"}


class Change(NamedTuple):
    """A planted bug: `old` in `file` at `start` (characters) becomes `new`."""

    file: str
    line: int
    #: The last line of the statement.
    last_line: int
    kind: str
    start: int
    old: str
    new: str

    def planted(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.start + len(self.old) :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {_one_line(self.old)} -> {_one_line(self.new)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:110] or "(nothing)"


class _Source:
    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """The place of an AST's (line, column in UTF-8 bytes)."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def change(self, node: ast.expr | ast.stmt, kind: str, new: str) -> Change:
        start, end = self.span(node)
        return Change(self.file, node.lineno, node.end_lineno or node.lineno, kind, start, self.text[start:end], new)

    def between(self, left: ast.expr, right: ast.expr, kind: str, new: str) -> Change:
        """The text between two operands becomes this operator."""
        start, end = self.span(left)[1], self.span(right)[0]
        old = self.text[start:end]
        # Closing and opening brackets around the operands stay.
        inner = old.lstrip(") \n").rstrip("( \n")
        return Change(
            self.file, left.lineno, right.end_lineno or left.lineno, kind, start + old.index(inner), inner, new
        )

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]


def changes(file: str, text: str) -> list[Change]:
    """All bugs that can be planted in this file."""
    if file.startswith(_LEFT_OUT):
        return []
    source = _Source(file, text)
    found = [each for node in _walk(ast.parse(text)) for each in _of_node(source, node)]
    return [each for each in found if each.old != each.new]


def _parses(root: Path, change: Change) -> bool:
    try:
        ast.parse(change.planted((root / change.file).read_text()))
    except SyntaxError:
        return False
    return True


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of code: no annotations, no words for a log, no messages of exceptions, nothing for type checkers."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        if isinstance(node, ast.Raise):
            continue
        if isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__", "__hash__"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and not _is_left_out(each):
                yield from _walk(each)


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True
        called = node.value.func if isinstance(node.value, ast.Call) else None
        return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and "log" in called.value.id
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr))


def _of_node(source: _Source, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for kind, table in (("inverted", _INVERTED), ("shifted", _SHIFTED)):
                if new := table.get(type(op)):
                    yield source.between(left, right, kind, new)
        case ast.BoolOp(op=op, values=values):
            other = "or" if isinstance(op, ast.And) else "and"
            if len(values) == 2:
                yield source.between(values[0], values[1], "inverted", other)
            for left_out in range(len(values)):
                kept = [f"({source.of(each)})" for at, each in enumerate(values) if at != left_out]
                yield source.change(node, "operand dropped", f"({(' and ' if other == 'or' else ' or ').join(kept)})")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield source.change(node, "inverted", source.of(operand))
        case ast.BinOp(left=left, op=op, right=right):
            # Texts are added, too; a bug that Python refuses at once says nothing.
            is_text = isinstance(right, ast.JoinedStr) or isinstance(getattr(right, "value", None), str | bytes)
            if not is_text and (new := _OTHER_SIGN.get(type(op))):
                yield source.between(left, right, "other sign", new)
        case ast.Constant(value=bool() as value):
            yield source.change(node, "other constant", str(not value))
        case ast.Constant(value=int() as value):
            yield source.change(node, "off by one", str(value + 1))
        case ast.Name(id=name, ctx=ast.Load()) if name in _OTHER_NAME:
            yield source.change(node, "other name", _OTHER_NAME[name])
        # The least of two is the same in any order.
        case ast.Call(func=ast.Name(id="min" | "max")):
            return
        case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred) and not isinstance(
            second, ast.Starred
        ):
            start, end = source.span(first)[0], source.span(second)[1]
            between = source.text[source.span(first)[1] : source.span(second)[0]]
            old = source.text[start:end]
            new = source.of(second) + between + source.of(first)
            yield Change(source.file, first.lineno, second.end_lineno or 0, "swapped", start, old, new)
        case ast.IfExp(body=body, orelse=orelse):
            yield source.change(node, "one branch", f"({source.of(body)})")
            yield source.change(node, "one branch", f"({source.of(orelse)})")
    if isinstance(node, (ast.If, ast.While)) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield source.change(node.test, "inverted", f"not ({source.of(node.test)})")
    if isinstance(node, ast.If):
        yield source.change(node.test, "never", "False")
        yield source.change(node.test, "always", "True")
    if isinstance(node, (ast.Expr, ast.AugAssign, ast.Delete, ast.Continue, ast.Break, ast.Raise)) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    ):
        yield source.change(node, "dropped", "pass")


def chosen(root: Path, seed: int, count: int, under: tuple[str, ...] = ("ottla",)) -> list[Change]:
    """So many bugs by chance, at most one a line: each line of code has the same weight."""
    order = random.Random(seed)
    by_line: dict[tuple[str, int], list[Change]] = {}
    for folder in under:
        place = root / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for each in changes(file, path.read_text()):
                by_line.setdefault((file, each.line), []).append(each)
    lines = sorted(by_line)
    order.shuffle(lines)
    found: list[Change] = []
    for line in lines:
        if len(found) == count:
            break
        each = order.choice(by_line[line])
        if _parses(root, each):
            found.append(each)
    return found
