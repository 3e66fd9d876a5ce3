"""The built-in reducers: sum, min and max."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.column.expression import LONG_MAX, LONG_MIN


def added(first: Any, second: Any) -> Any:
    """The sum of two values. OverflowError if it is an int of more than 64 bits."""
    total = first + second
    if total.__class__ is int and not LONG_MIN <= total <= LONG_MAX:
        raise OverflowError(f"the sum {total} does not fit in a long")
    return total


FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": added,
    "min": lambda first, second: second if second < first else first,
    "max": lambda first, second: second if second > first else first,
}
