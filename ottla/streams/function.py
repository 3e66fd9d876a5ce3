"""Adapters from the user's functions to the form that the engine calls: always with the key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ottla.flow import plan
from ottla.flow.column.batch import BatchFunction, JoinBatch
from ottla.flow.column.expression import Expression
from ottla.flow.column.function import ColumnFunction, JoinFunction, without_time
from ottla.flow.column.kind import Type
from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.error import TopologyError
from ottla.flow.serde import Serde, serde
from ottla.flow.where import here

Function = Callable[..., Any]


def _takes(function: Function, count: int) -> bool:
    """Whether the function can be called with `count` positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        # Builtins without a signature (str, int) take the value alone.
        return count == 1
    return True


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


def with_key(function: Function | Expression, values: int = 1) -> Function:
    """Adapt a function of the values, or of the key and the values, to one of key and values.

    A function that accepts both (`*args`, defaults) gets the values alone.
    """
    if isinstance(function, Expression) or lane_of(function) != "record":
        if values == 2:
            raise TopologyError(
                "the joiner of two tables must be a Python function (only joins of a stream take a column expression "
                "or a batch function)",
                here(),
            )
        column_function: Function = callable_of(function)
        return column_function
    if _takes(function, values) or not _takes(function, values + 1):
        if values == 1:

            def of_key_and_value(key: Any, value: Any) -> Any:
                return function(value)

            # The engine calls it directly where it can.
            of_key_and_value.of_value = function  # type: ignore[attr-defined]
            return of_key_and_value
        if values == 2:
            return lambda key, value, other_value: function(value, other_value)
        return lambda key, *rest: function(*rest)
    return function


def stream_joiner(joiner: Any) -> Function:
    """The joiner of a stream with a stream or a table, adapted to one of key, left and right value."""
    if isinstance(joiner, Expression):
        return JoinFunction(joiner)
    return JoinBatch(joiner) if isinstance(joiner, BatchFunction) else with_key(joiner, 2)


def table_selector(selector: Any) -> Function:
    """The function that returns a global table's key. TopologyError if it is not one of a single record."""
    if isinstance(selector, Expression):
        return without_time(selector)
    if isinstance(selector, BatchFunction) or not callable(selector):
        raise TopologyError(
            f"invalid key_selector: {selector!r} (expected a function of key and value, or a column expression)", here()
        )
    function: Function = selector
    return function
