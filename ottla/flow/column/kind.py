"""The types of column expressions."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.flow.column.expression import LITERALS, Expression
from ottla.flow.error import TopologyError

#: A type: long, double, string, boolean or bytes, or the fields of an object. None: not known before run time.
Type = str | tuple[tuple[str, str], ...] | None

_NUMBERS = ("long", "double")


def type_of(expression: Expression, key: Type, value: Type) -> Type:
    """The type of an expression's result; None if not known before run time. TopologyError if operands do not match."""
    return _type_of(expression, {"key": key, "value": value, "timestamp": "long"})


def joined_type(expression: Expression, key: Type, left: Type, right: Type) -> Type:
    """As `type_of`, for the expression of a joiner."""
    return _type_of(expression, {"key": key, "left": left, "right": right})


def _type_of(expression: Expression, roots: Mapping[str, Type]) -> Type:
    parts = [_type_of(part, roots) for part in expression.parts]
    operation, options = expression.operation, expression.options
    match operation:
        case "root":
            return roots[options[0]]
        case "literal":
            return LITERALS[type(options[0])]
        case "field":
            return _field(expression, parts[0], options[0])
        case "struct":
            if any(part is None for part in parts):
                return None
            if any(not isinstance(part, str) for part in parts):
                raise _wrong(expression, parts, "fields of simple types")
            return tuple(zip(options, [str(part) for part in parts], strict=True))
    if any(part is None for part in parts):
        return _RESULTS.get(operation)
    if operation == "cast":
        if parts[0] not in ("long", "double", "string"):
            raise _wrong(expression, parts, "a long, a double or a string")
        kind: str = options[0]
        return kind
    if operation in ("is_null", "otherwise"):
        if operation == "otherwise" and parts[0] != parts[1]:
            raise _wrong(expression, parts, "two of one type")
        return "boolean" if operation == "is_null" else parts[0]
    if operation == "is_in":
        if parts[0] != LITERALS[type(options[0])]:
            raise _wrong(expression, parts, f"a {LITERALS[type(options[0])]}")
        return "boolean"
    wanted = _WANTED.get(operation, ("string",))
    numbers = all(part in _NUMBERS for part in parts) and "number" in wanted
    if not numbers and (len(set(map(str, parts))) != 1 or parts[0] not in wanted):
        raise _wrong(expression, parts, " or ".join(wanted))
    if operation in ("add", "subtract", "multiply"):
        return "double" if "double" in parts else parts[0]
    return _RESULTS[operation]


_COMPARED = ("number", "string", "bytes")
_WANTED: dict[str, tuple[str, ...]] = {
    "add": ("number", "string"), "subtract": ("number",), "multiply": ("number",), "divide": ("number",),
    "floor_divide": ("long",), "modulo": ("long",), "less": _COMPARED, "less_equal": _COMPARED, "greater": _COMPARED,
    "greater_equal": _COMPARED, "equal": (*_COMPARED, "boolean"), "not_equal": (*_COMPARED, "boolean"),
    "and": ("boolean",), "or": ("boolean",), "not": ("boolean",),
}  # fmt: skip
_RESULTS: dict[str, str] = {
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"), "boolean"),
    **dict.fromkeys(("and", "or", "not"), "boolean"),
    **dict.fromkeys(("is_null", "is_in", "starts_with", "ends_with", "contains"), "boolean"),
    **dict.fromkeys(("lower", "upper", "replace", "substring"), "string"),
    "divide": "double", "floor_divide": "long", "modulo": "long", "length": "long",
}  # fmt: skip


def _field(expression: Expression, kind: Type, name: str) -> Type:
    if kind is None:
        return None
    if isinstance(kind, str):
        raise TopologyError(f"{expression.parts[0]!r} is a {kind}, so it has no field {name}", expression.where)
    field_type = dict(kind).get(name)
    if field_type is None:
        names = ", ".join(field for field, _ in kind)
        raise TopologyError(f"{expression.parts[0]!r} has no field {name} (its fields: {names})", expression.where)
    return field_type


def _wrong(expression: Expression, parts: list[Type], wanted: str) -> TopologyError:
    types = " and ".join(part if isinstance(part, str) else "object" for part in parts)
    return TopologyError(f"invalid types in {expression!r}: {types} (expected {wanted})", expression.where)
