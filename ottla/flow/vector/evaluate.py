"""Column expressions on columns. Errors in a record raise; the caller then evaluates the records one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.expression import Expression
from ottla.flow.column.row import ROWS
from ottla.kernel.named import NamedTuple

#: The Arrow type of each type of column expressions.
ARROW: dict[str, Any] = {
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}
_LITERALS = {int: "long", float: "double", str: "string", bool: "boolean", bytes: "bytes"}


class Changes(NamedTuple):
    """The values of a table's changes: new and old values, null where there is none."""

    new: Any
    old: Any

    def take(self, index: Any) -> Changes:
        return Changes(self.new.take(index), self.old.take(index))

    def filter(self, mask: Any) -> Changes:
        return Changes(self.new.filter(mask), self.old.filter(mask))

    def slice(self, start: int, size: int) -> Changes:
        return Changes(self.new.slice(start, size), self.old.slice(start, size))


@dataclass(frozen=True, slots=True)
class Frame:
    """Records as columns. `rows` is the number of the record of the run that each comes from (step.RegionRun)."""

    keys: Any
    values: Any
    timestamps: Any
    rows: Any

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, mask: Any) -> Frame:
        """The records for which a boolean array is true."""
        kept = np.asarray(mask.fill_null(False) if mask.null_count else mask)
        if kept.all():
            return self
        picked = pa.array(kept)
        return Frame(self.keys.filter(picked), self.values.filter(picked), self.timestamps[kept], self.rows[kept])

    def columns(self) -> tuple[list[Any], list[Any], list[int], list[int]]:
        """Keys, values, timestamps and rows as Python objects."""
        from ottla.flow.vector.columns import objects

        return objects(self.keys), objects(self.values), self.timestamps.tolist(), self.rows.tolist()

    def take(self, index: Any) -> Frame:
        picked = pa.array(index)
        return Frame(self.keys.take(picked), self.values.take(picked), self.timestamps[index], self.rows[index])


def evaluate(expression: Expression, frame: Frame, right: Any = None) -> Any:
    """Evaluate an expression to an array as long as the frame. `right` are the right values of a joiner, whose left
    ones are the frame's.
    """
    result = _evaluate(expression, frame, right)
    return pa.repeat(result, len(frame)) if isinstance(result, pa.Scalar) else result


def _evaluate(expression: Expression, frame: Frame, right: Any) -> Any:
    operation, options = expression.operation, expression.options
    if operation == "root":
        if options[0] == "timestamp":
            return pa.array(frame.timestamps)
        return {"key": frame.keys, "value": frame.values, "left": frame.values, "right": right}[options[0]]
    if operation == "literal":
        return pa.scalar(options[0], ARROW[_LITERALS[type(options[0])]])
    parts = [_evaluate(part, frame, right) for part in expression.parts]
    if operation == "struct":
        arrays = [pa.repeat(part, len(frame)) if isinstance(part, pa.Scalar) else part for part in parts]
        return pa.StructArray.from_arrays(arrays, names=list(options))
    return _FUNCTIONS[operation](*parts, *options)


def _numbers(a: Any, b: Any) -> tuple[Any, Any]:
    """Convert a long beside a double to a double."""
    if a.type != b.type and {a.type, b.type} == {pa.int64(), pa.float64()}:
        return _double(a), _double(b)
    return a, b


def _double(a: Any) -> Any:
    return a if a.type == pa.float64() else pc.cast(a, pa.float64(), safe=False)


def _add(a: Any, b: Any) -> Any:
    if pa.types.is_string(a.type):
        return pc.binary_join_element_wise(a, b, "")
    return pc.add_checked(*_numbers(a, b))


def _field(a: Any, name: str) -> Any:
    return a.flatten()[a.type.get_field_index(name)]


def _longs(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`//` and `%` by NumPy, which rounds as Python does but does not raise on division by zero."""

    def compute(a: Any, b: Any) -> Any:
        left, right = (np.atleast_1d(np.asarray(_filled(operand))) for operand in (a, b))
        null = _nulls(a) | _nulls(b)
        # Null operands give null; keep them from raising.
        right = np.where(null, 1, right)
        if (right == 0).any() or ((right == -1) & (left == np.iinfo(np.int64).min)).any():
            raise ZeroDivisionError
        result = pa.array(
            function(left, right), mask=np.broadcast_to(null, np.broadcast_shapes(left.shape, right.shape))
        )
        return result[0] if isinstance(a, pa.Scalar) and isinstance(b, pa.Scalar) else result

    return compute


def _nulls(a: Any) -> Any:
    # A scalar comes from literals, which are not null.
    return np.atleast_1d(False if isinstance(a, pa.Scalar) else np.asarray(a.is_null()))


def _filled(a: Any) -> Any:
    if isinstance(a, pa.Scalar):
        return a.as_py()
    return a.fill_null(1) if a.null_count else a


def _is_in(a: Any, *values: Any) -> Any:
    result = pc.equal(a, pa.scalar(values[0], ARROW[_LITERALS[type(values[0])]]))
    for constant in values[1:]:
        result = pc.or_(result, pc.equal(a, pa.scalar(constant, ARROW[_LITERALS[type(constant)]])))
    return result


def _one_by_one(operation: str, kind: Any, a: Any, *options: Any) -> Any:
    function = ROWS[operation]
    if isinstance(a, pa.Scalar):
        return pa.scalar(function(a.as_py(), *options), kind)
    return pa.array([None if operand is None else function(operand, *options) for operand in a.to_pylist()], kind)


def _letters(operation: str, quick: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change of case: by Arrow for ASCII, otherwise by Python, because the two differ beyond ASCII."""

    def compute(a: Any) -> Any:
        ascii_ = pc.string_is_ascii(a)
        plain = ascii_.as_py() is not False if isinstance(ascii_, pa.Scalar) else pc.all(ascii_).as_py() is not False
        return quick(a) if plain else _one_by_one(operation, pa.string(), a)

    return compute


def _are_digits(a: Any) -> bool:
    """Whether Arrow reads these texts as Python does. It also reads 0x1F, but not +1."""
    return pc.all(pc.match_substring_regex(a, "^-?[0-9]{1,18}$")).as_py() is not False


def _cast(a: Any, kind: str) -> Any:
    if a.type == ARROW[kind]:
        return a
    if kind == "double" and a.type == pa.int64():
        return _double(a)
    if kind == "string" and a.type == pa.int64():
        return a.cast(pa.string())
    if kind == "long" and a.type == pa.string() and isinstance(a, pa.Array) and _are_digits(a):
        return a.cast(pa.int64())
    return _one_by_one("cast", ARROW[kind], a, kind)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "field": _field,
    "add": _add,
    "subtract": lambda a, b: pc.subtract_checked(*_numbers(a, b)),
    "multiply": lambda a, b: pc.multiply_checked(*_numbers(a, b)),
    "divide": lambda a, b: pc.divide_checked(_double(a), _double(b)),
    "floor_divide": _longs(np.floor_divide),
    "modulo": _longs(np.mod),
    "less": lambda a, b: pc.less(*_numbers(a, b)),
    "less_equal": lambda a, b: pc.less_equal(*_numbers(a, b)),
    "greater": lambda a, b: pc.greater(*_numbers(a, b)),
    "greater_equal": lambda a, b: pc.greater_equal(*_numbers(a, b)),
    "equal": lambda a, b: pc.equal(*_numbers(a, b)),
    "not_equal": lambda a, b: pc.not_equal(*_numbers(a, b)),
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is_null": pc.is_null,
    "otherwise": pc.coalesce,
    "is_in": _is_in,
    "lower": _letters("lower", pc.ascii_lower),
    "upper": _letters("upper", pc.ascii_upper),
    "length": lambda a: pc.utf8_length(a).cast(pa.int64()),
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
    "replace": pc.replace_substring,
    "substring": lambda a, start, length: pc.utf8_slice_codeunits(a, start, start + length),
    "cast": _cast,
}
