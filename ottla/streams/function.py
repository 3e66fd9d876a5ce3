"""Adapters from the user's functions to the form that the engine calls: always with the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow import plan
from ottla.flow.check import named, takes
from ottla.flow.column.batch import BatchFunction, JoinBatch
from ottla.flow.column.expression import Expression
from ottla.flow.column.function import ColumnFunction, JoinFunction, without_time
from ottla.flow.column.kind import Type
from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.error import TopologyError
from ottla.flow.serde import Serde, serde
from ottla.flow.where import here

Function = Callable[..., Any]


def lane_of(function: Any) -> plan.Lane:
    """The lane that runs a step's function."""
    if isinstance(function, (Expression, ColumnFunction)):
        return "column"
    return "batch" if isinstance(function, BatchFunction) else "record"


def callable_of(function: Any) -> Any:
    """A column expression as a function; anything else as it is."""
    return ColumnFunction(function) if isinstance(function, Expression) else function


def serde_of(kind: Type) -> Serde | None:
    """The serde of a column step's results."""
    if kind is None or isinstance(kind, str):
        return None if kind is None else serde(kind)
    return ColumnsSerde(dict(kind))


def with_key(function: Function | Expression | BatchFunction, values: int = 1, what: str = "mapper") -> Function:
    """Adapt a function of the values, or of the key and the values, to one of key and values. `what` names it.

    A function that accepts both (`*args`, defaults), or that does not tell (some builtins), gets the values alone.
    TopologyError if it accepts neither.
    """
    if isinstance(function, (Expression, BatchFunction)):
        column_function: Function = callable_of(function)
        return column_function
    if not takes(function, values):
        if not takes(function, values + 1):
            words = "value" if values == 1 else "value, other_value"
            raise TopologyError(
                f"invalid {what}: {named(function)} (expected {what}({words}) or {what}(key, {words}))", here()
            )
        return function
    if values == 2:
        return lambda key, value, other_value: function(value, other_value)

    def of_key_and_value(key: Any, value: Any) -> Any:
        return function(value)

    # The engine calls it directly where it can.
    of_key_and_value.of_value = function  # type: ignore[attr-defined]
    return of_key_and_value


def stream_joiner(joiner: Any) -> Function:
    """The joiner of a stream with a stream or a table, adapted to one of key, left and right value."""
    if isinstance(joiner, Expression):
        return JoinFunction(joiner)
    return JoinBatch(joiner) if isinstance(joiner, BatchFunction) else with_key(joiner, 2, "joiner")


def table_selector(selector: Function | Expression) -> Function:
    """The function that returns a global table's key."""
    return without_time(selector) if isinstance(selector, Expression) else selector
