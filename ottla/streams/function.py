"""The user's functions in the form that the engine calls: always with the key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def _takes(function: Function, count: int) -> bool:
    """Can the function be called with so many arguments?"""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        # A builtin without a signature: str, int and the like take the value alone.
        return count == 1
    return True


def with_key(function: Function, values: int = 1) -> Function:
    """A function of the values, or of the key and the values, as one of key and values.

    A function that takes both forms (`*args`, defaults) gets the values alone.
    """
    if _takes(function, values) or not _takes(function, values + 1):
        if values == 1:
            return lambda key, value: function(value)
        if values == 2:
            return lambda key, one, other: function(one, other)
        return lambda key, *rest: function(*rest)
    return function
