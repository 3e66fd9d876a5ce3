"""A column expression in place of a function of a record, or of a joiner."""

from __future__ import annotations

from typing import Any

from ottla.flow.column.expression import Expression
from ottla.flow.column.kind import Type, joined_type, type_of
from ottla.flow.column.row import row
from ottla.flow.error import TopologyError
from ottla.flow.where import here


class ColumnFunction:
    """A column expression as a function. `timed` takes key, value and timestamp."""

    def __init__(self, expression: Expression) -> None:
        _check(expression, "a step", ("key", "value", "timestamp"))
        self.expression = expression
        self.timed = row(expression)

    def __call__(self, key: Any, value: Any) -> Any:
        return self.timed(key, value, 0)

    def __reduce__(self) -> Any:
        return ColumnFunction, (self.expression,)


class JoinFunction:
    """A column expression as a joiner. `inputs` are the types of key, left and right value, set when the program is
    built.
    """

    def __init__(self, expression: Expression, inputs: tuple[Type, Type, Type] = (None, None, None)) -> None:
        _check(expression, "a joiner", ("key", "left", "right"))
        self.expression = expression
        self.inputs = inputs
        self._row = row(expression)

    @property
    def kind(self) -> Type:
        """The type of its results. TopologyError if operands do not match."""
        return joined_type(self.expression, *self.inputs)

    def compute(self, frame: Any, right: Any) -> Any:
        """The result for each record of a frame, whose values are the left ones, as an Arrow array."""
        from ottla.flow.vector.evaluate import evaluate

        return evaluate(self.expression, frame, right)

    def __call__(self, key: Any, left: Any, right: Any) -> Any:
        return self._row(key, (left, right), 0)

    def __reduce__(self) -> Any:
        return JoinFunction, (self.expression, self.inputs)


class FoldFunction:
    """A column expression as the adder or subtractor of a table's aggregate: `left` is the aggregate, `right` the value
    of the row. `inputs` are the types of key, aggregate and value, set when the program is built.
    """

    def __init__(self, expression: Expression, inputs: tuple[Type, Type, Type] = (None, None, None)) -> None:
        _check(expression, "an adder or subtractor", ("key", "left", "right"))
        self.expression = expression
        self.inputs = inputs
        self._row = row(expression)

    @property
    def kind(self) -> Type:
        """The type of its results. TopologyError if operands do not match."""
        return joined_type(self.expression, *self.inputs)

    def change(self, operation: str) -> Expression | None:
        """What it adds to the aggregate or subtracts from it (`operation`: add, subtract). None if it does neither."""
        parts = self.expression.parts
        if self.expression.operation != operation or parts[0].options != ("left",) or "left" in _roots(parts[1]):
            return None
        return parts[1]

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._row(key, (aggregate, value), 0)

    def __reduce__(self) -> Any:
        return FoldFunction, (self.expression, self.inputs)


class PairFunction:
    """Two column expressions as a function that returns a key and a value, for group_by of a table."""

    def __init__(self, key: Expression, value: Expression) -> None:
        self.key = without_time(key)
        self.value = without_time(value)

    def kinds(self, key: Type, value: Type) -> tuple[Type, Type]:
        """The types of its results. TopologyError if operands do not match."""
        return type_of(self.key.expression, key, value), type_of(self.value.expression, key, value)

    def __call__(self, key: Any, value: Any) -> tuple[Any, Any]:
        return self.key(key, value), self.value(key, value)


def without_time(expression: Expression) -> ColumnFunction:
    """The function for a step that has no timestamps. TopologyError if the expression reads one."""
    if "timestamp" in _roots(expression):
        raise TopologyError(f"{expression!r} reads the timestamp, which is not available in a table's step", here())
    return ColumnFunction(expression)


def _roots(expression: Expression) -> set[str]:
    """The columns that an expression reads."""
    if expression.operation == "root":
        return {expression.options[0]}
    return set[str]().union(*map(_roots, expression.parts))


def _check(expression: Expression, what: str, names: tuple[str, ...]) -> None:
    unknown = _roots(expression).difference(names)
    if unknown:
        raise TopologyError(
            f"{expression!r} reads {min(unknown)} (the expression of {what} reads {', '.join(names)})", here()
        )
