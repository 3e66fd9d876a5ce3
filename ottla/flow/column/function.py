"""A column expression in place of a function of a record."""

from __future__ import annotations

from typing import Any

from ottla.flow.column.expression import Expression
from ottla.flow.column.row import row
from ottla.flow.error import TopologyError
from ottla.flow.where import here


class ColumnFunction:
    """A column expression as a function. `timed` takes key, value and timestamp."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.timed = row(expression)

    def __call__(self, key: Any, value: Any) -> Any:
        return self.timed(key, value, 0)

    def __reduce__(self) -> Any:
        return ColumnFunction, (self.expression,)


def without_time(expression: Expression) -> ColumnFunction:
    """The function for a table's step, which has no timestamps. TopologyError if the expression reads one."""
    if _reads_time(expression):
        raise TopologyError(f"{expression!r} reads the timestamp, which is not available in a table's step", here())
    return ColumnFunction(expression)


def _reads_time(expression: Expression) -> bool:
    is_time = expression.operation == "root" and expression.options[0] == "timestamp"
    return is_time or any(map(_reads_time, expression.parts))
