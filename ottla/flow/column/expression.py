"""Column expressions: functions of key, value and timestamp in a form that also runs on whole columns.

    col("value.amount") > 10                    value["amount"] * 2 + lit(1)
    value.lower().starts_with("x")              struct(card=key, cents=(value["amount"] * 100).cast("long"))
    left["amount"] * right["rate"]              in a joiner, in place of value and timestamp

Rules:
- Types are long (64 bits), double, string, boolean and bytes; the fields of an object have these types.
- The result of a null operand is null, except for `is_null`, `otherwise`, and the three-valued logic of `&`, `|` and
  `~`. A filter keeps the records for which its expression is true.
- Overflow of a long, division by zero, and a cast that loses more than a fraction are errors of the record, like an
  exception of a function. `/` returns a double; `//` and `%` take longs and round down.
- Text is compared by code points; `lower` and `upper` are Python's.

An expression is an operation and its parts. `row.py` compiles it to a function of one record, which defines its
meaning; `vector/evaluate.py` computes the same on columns. Type errors name the line of the expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.flow.error import TopologyError
from ottla.flow.where import Where, here

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
#: The most operations within one another. Python's stack is not deep: a program with 250 cannot be sent to Spark.
_DEPTH_MAX = 150


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression:
    """A column expression, built with operators and methods from `col`, `key`, `value`, `timestamp` and `lit`; in a
    joiner, from `left` and `right`.

    `parts` are its operands, `options` the other arguments of the operation, `depth` the operations within one another.
    """

    operation: str
    parts: tuple[Expression, ...] = ()
    options: tuple[Any, ...] = ()
    where: Where = field(default_factory=here)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        depth = 1 + max([part.depth for part in self.parts], default=0)
        if depth > _DEPTH_MAX:
            why = f"the expression is nested more than {_DEPTH_MAX} deep"
            raise TopologyError(f"{why}; use is_in for many values, or a function of the record", here())
        object.__setattr__(self, "depth", depth)

    def __repr__(self) -> str:
        if self.operation == "root":
            return str(self.options[0])
        if self.operation == "literal":
            return repr(self.options[0])
        if self.operation == "field":
            return f"{self.parts[0]!r}.{self.options[0]}"
        if self.operation in _SIGNS and len(self.parts) == 2:
            return f"({self.parts[0]!r} {_SIGNS[self.operation]} {self.parts[1]!r})"
        inside = ", ".join([*map(repr, self.parts), *map(repr, self.options)])
        return f"{self.operation}({inside})"

    def __bool__(self) -> bool:
        raise TopologyError(
            f"the expression {self!r} has no truth value; use & for and, | for or, ~ for not, with each side in "
            "parentheses",
            here(),
        )

    def __getitem__(self, name: str) -> Expression:
        return Expression("field", (self,), (name,))

    def __add__(self, other: Any) -> Expression:
        return _of("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _of("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _of("subtract", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _of("subtract", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _of("multiply", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _of("multiply", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _of("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _of("divide", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _of("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _of("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _of("modulo", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _of("modulo", other, self)

    def __neg__(self) -> Expression:
        return _of("subtract", 0, self)

    def __lt__(self, other: Any) -> Expression:
        return _of("less", self, other)

    def __le__(self, other: Any) -> Expression:
        return _of("less_equal", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _of("greater", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _of("greater_equal", self, other)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _of("equal", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _of("not_equal", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Expression:
        return _of("and", self, other)

    def __or__(self, other: Any) -> Expression:
        return _of("or", self, other)

    def __invert__(self) -> Expression:
        return _of("not", self)

    def is_null(self) -> Expression:
        """Whether the value is null."""
        return _of("is_null", self)

    def otherwise(self, other: Any) -> Expression:
        """The value, or `other` if it is null. Both must have the same type."""
        return _of("otherwise", self, other)

    def is_in(self, *values: Any) -> Expression:
        """Whether the value equals one of these constants, which must be of one class."""
        if not values or len({type(constant) for constant in values}) != 1 or type(values[0]) not in LITERALS:
            raise TopologyError(f"invalid values for is_in: {values!r} (expected constants of one class)", here())
        return Expression("is_in", (self,), values)

    def lower(self) -> Expression:
        """The text in lower case."""
        return _of("lower", self)

    def upper(self) -> Expression:
        """The text in upper case."""
        return _of("upper", self)

    def length(self) -> Expression:
        """The number of characters (code points)."""
        return _of("length", self)

    def starts_with(self, text: str) -> Expression:
        """Whether the value starts with `text`."""
        return Expression("starts_with", (self,), (_text(text, "starts_with"),))

    def ends_with(self, text: str) -> Expression:
        """Whether the value ends with `text`."""
        return Expression("ends_with", (self,), (_text(text, "ends_with"),))

    def contains(self, text: str) -> Expression:
        """Whether the value contains `text`."""
        return Expression("contains", (self,), (_text(text, "contains"),))

    def replace(self, old: str, new: str) -> Expression:
        """The text with every `old` replaced by `new`."""
        if not _text(old, "replace"):
            raise TopologyError("invalid text for replace: '' (expected at least one character)", here())
        return Expression("replace", (self,), (old, _text(new, "replace")))

    def substring(self, start: int, length: int) -> Expression:
        """At most `length` characters from index `start`, counted from 0."""
        if type(start) is not int or type(length) is not int or start < 0 or length < 0:
            raise TopologyError(f"invalid substring: {start!r}, {length!r} (expected two ints, 0 or more)", here())
        return Expression("substring", (self,), (start, length))

    def cast(self, kind: str) -> Expression:
        """The value as a "long" (a double loses its fraction), a "double" or a "string"."""
        if kind not in ("long", "double", "string"):
            raise TopologyError(f"unknown type: {kind!r} (expected long, double or string)", here())
        return Expression("cast", (self,), (kind,))


LITERALS = {int: "long", float: "double", str: "string", bool: "boolean", bytes: "bytes"}
_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "modulo": "%", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=", "and": "&", "or": "|",
}  # fmt: skip


def lit(constant: Any) -> Expression:
    """A constant: int, float, str, bool or bytes."""
    kind = LITERALS.get(type(constant))
    if kind is None or (kind == "long" and not LONG_MIN <= constant <= LONG_MAX):
        raise TopologyError(
            f"invalid constant: {constant!r} (expected an int of 64 bits, a float, str, bool or bytes)", here()
        )
    return Expression("literal", (), (constant,))


def col(path: str) -> Expression:
    """The column `key`, `value` or `timestamp`, or a field: `value.amount`. Any other name is a field of the value."""
    if type(path) is not str or not path:
        raise TopologyError(f"invalid column: {path!r} (expected a name such as value.amount)", here())
    first, *rest = path.split(".")
    if first not in ("key", "value", "timestamp"):
        first, rest = "value", [first, *rest]
    expression = Expression("root", (), (first,))
    for name in rest:
        expression = expression[name]
    return expression


def struct(**fields: Any) -> Expression:
    """An object with these fields."""
    if not fields:
        raise TopologyError("struct() has no fields; pass at least one as a keyword", here())
    return Expression("struct", tuple(_expression(field_value) for field_value in fields.values()), tuple(fields))


key, value, timestamp, left, right = (
    Expression("root", (), (name,), Where("", 0)) for name in ("key", "value", "timestamp", "left", "right")
)


def _expression(given: Any) -> Expression:
    return given if isinstance(given, Expression) else lit(given)


def _of(operation: str, *parts: Any) -> Expression:
    return Expression(operation, tuple(_expression(part) for part in parts))


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise TopologyError(f"invalid text for {what}: {given!r} (expected a str)", here())
    return given
