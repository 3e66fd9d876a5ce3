"""Modules that are imported when something of them is first used: what a node need not have to serve.

    if TYPE_CHECKING:
        from ottla.broker.coordinators import group_driver
    else:
        group_driver = LazyModule("ottla.broker.coordinators.group_driver")

Rules:
- It is for whole parts that most nodes start without (the machines of groups and transactions, rare handlers, rare
  decisions of the controller), not for single names: a module takes 0.2 ms, those of a group coordinator 20.
- `load_all` imports the rest, for a node that has started and would rather pay now than at the first request.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

_made: list[LazyModule] = []


class LazyModule:
    """Stands for a module; its first attribute that is asked for imports it."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name
        _made.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)

    def load(self) -> None:
        """Import it now."""
        import_module(self.__name__)


def load_all() -> Iterator[None]:
    """Import every module that a `LazyModule` stands for, and what these stand ready to need, one a step."""
    # The list grows while modules are imported that have lazy ones of their own.
    for module in _made:
        module.load()
        yield
