"""Adapters from the user's functions to the form that the engine calls: always with the key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ottla.flow import plan
from ottla.flow.column.batch import BatchFunction
from ottla.flow.column.expression import Expression
from ottla.flow.column.function import ColumnFunction
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
            raise TopologyError("a joiner must be a Python function, not a column expression or a batch", here())
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
