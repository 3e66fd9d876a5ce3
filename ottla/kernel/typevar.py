"""The type variables of keys and values. Both default to Any: `Consumer(...)` is `Consumer[Any, Any]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers provide it; at run time the defaults are not needed. typing has them from Python 3.13 on.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["K", "V"]
