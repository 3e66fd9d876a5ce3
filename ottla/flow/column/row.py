"""Column expressions as functions of one record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ottla.flow.column.expression import LITERALS, LONG_MAX, LONG_MIN, Expression

#: (key, value, timestamp); the value of a joiner is the pair (left, right).
Row = Callable[[Any, Any, int], Any]
_ROOTS: dict[str, Row] = {
    "key": lambda k, v, t: k,
    "value": lambda k, v, t: v,
    "timestamp": lambda k, v, t: t,
    "left": lambda k, v, t: v[0],
    "right": lambda k, v, t: v[1],
}


def row(expression: Expression) -> Row:
    """Compile an expression to a function of key, value and timestamp."""
    operation, options = expression.operation, expression.options
    parts = [row(part) for part in expression.parts]
    match operation:
        case "root":
            return _ROOTS[options[0]]
        case "literal":
            constant = options[0]
            return lambda k, v, t: constant
        case "struct":
            return lambda k, v, t: {name: part(k, v, t) for name, part in zip(options, parts, strict=True)}
        case "and" | "or":
            return _kleene(parts[0], parts[1], operation == "and")
        case "is_null":
            (inner,) = parts
            return lambda k, v, t: inner(k, v, t) is None
        case "otherwise":
            first, second = parts

            def otherwise(k: Any, v: Any, t: int) -> Any:
                operand = first(k, v, t)
                return second(k, v, t) if operand is None else operand

            return otherwise
    function = ROWS[operation]
    if len(parts) == 1:
        (inner,) = parts

        def unary(k: Any, v: Any, t: int) -> Any:
            operand = inner(k, v, t)
            return None if operand is None else function(operand, *options)

        return unary
    left, right = parts

    def binary(k: Any, v: Any, t: int) -> Any:
        a, b = left(k, v, t), right(k, v, t)
        return None if a is None or b is None else function(a, b)

    return binary


def _kleene(left: Row, right: Row, both: bool) -> Row:
    """Three-valued logic, where null means unknown: "and" if `both`, otherwise "or"."""

    def decide(k: Any, v: Any, t: int) -> Any:
        a, b = left(k, v, t), right(k, v, t)
        for operand in (a, b):
            if operand is not None and operand.__class__ is not bool:
                raise TypeError(f"{operand!r} is not a boolean")
        if a is (not both) or b is (not both):
            return not both
        return None if a is None or b is None else both

    return decide


def _long(number: int) -> int:
    if not LONG_MIN <= number <= LONG_MAX:
        raise OverflowError(f"{number} does not fit in a long")
    return number


def _pair(a: Any, b: Any, others: tuple[type, ...] = ()) -> tuple[Any, Any]:
    """Check that both are numbers, or of the same class among `others`. A long with a double becomes a double."""
    kinds = (a.__class__, b.__class__)
    if kinds[0] is kinds[1] and (kinds[0] in (int, float) or kinds[0] in others):
        return a, b
    if set(kinds) == {int, float}:
        return float(a), float(b)
    raise TypeError(f"{a!r} and {b!r} have types that do not match")


def _arithmetic(function: Callable[[Any, Any], Any], *others: type) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        result = function(*_pair(a, b, others))
        return _long(result) if result.__class__ is int else result

    return compute


def _compared(function: Callable[[Any, Any], bool], *others: type) -> Callable[[Any, Any], bool]:
    return lambda a, b: function(*_pair(a, b, (str, bytes, *others)))


def _divide(a: Any, b: Any) -> float:
    a, b = _pair(a, b)
    return float(a) / float(b)


def _longs(function: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    def compute(a: Any, b: Any) -> int:
        if a.__class__ is not int or b.__class__ is not int:
            raise TypeError(f"{a!r} and {b!r} are not both longs")
        return _long(function(a, b))

    return compute


def _texts(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(text: Any, *options: Any) -> Any:
        if text.__class__ is not str:
            raise TypeError(f"{text!r} is not a string")
        return function(text, *options)

    return compute


def _of_field(record: Any, name: str) -> Any:
    if not isinstance(record, dict):
        return getattr(record, name)
    return record[name]


def _not(a: Any) -> bool:
    if a.__class__ is not bool:
        raise TypeError(f"{a!r} is not a boolean")
    return not a


def _is_in(operand: Any, *values: Any) -> bool:
    if operand.__class__ is not values[0].__class__:
        raise TypeError(f"{operand!r} is not a {LITERALS[type(values[0])]}")
    return any(operand == constant for constant in values)


_INTEGER = re.compile(r"[+-]?[0-9]+")


def cast(operand: Any, kind: str) -> Any:
    """Convert a value to another type. ValueError or OverflowError if that type has no such value."""
    if operand.__class__ not in (int, float, str):
        raise TypeError(f"{operand!r} is not a long, a double or a string")
    if kind == "string":
        return operand if operand.__class__ is str else repr(operand)
    if kind == "double":
        return float(operand)
    if operand.__class__ is str:
        if not _INTEGER.fullmatch(operand):
            raise ValueError(f"{operand!r} is not a long")
        return _long(int(operand))
    return _long(int(operand))


ROWS: dict[str, Callable[..., Any]] = {
    "field": _of_field,
    "add": _arithmetic(lambda a, b: a + b, str),
    "subtract": _arithmetic(lambda a, b: a - b),
    "multiply": _arithmetic(lambda a, b: a * b),
    "divide": _divide,
    "floor_divide": _longs(lambda a, b: a // b),
    "modulo": _longs(lambda a, b: a % b),
    "less": _compared(lambda a, b: a < b),
    "less_equal": _compared(lambda a, b: a <= b),
    "greater": _compared(lambda a, b: a > b),
    "greater_equal": _compared(lambda a, b: a >= b),
    "equal": _compared(lambda a, b: a == b, bool),
    "not_equal": _compared(lambda a, b: a != b, bool),
    "not": _not,
    "is_in": _is_in,
    "lower": _texts(str.lower),
    "upper": _texts(str.upper),
    "length": _texts(len),
    "starts_with": _texts(str.startswith),
    "ends_with": _texts(str.endswith),
    "contains": _texts(lambda text, part: part in text),
    "replace": _texts(str.replace),
    "substring": _texts(lambda text, start, length: text[start : start + length]),
    "cast": cast,
}
