"""Modules that are imported on first use, because a node can serve without them.

    if TYPE_CHECKING:
        from ottla.broker.coordinators import group_driver
    else:
        group_driver = LazyModule("ottla.broker.coordinators.group_driver")

Rules:
- Use it for whole parts that most nodes start without (the machines of groups and transactions, rare handlers, rare
  controller commands), not for single names: a module takes 0.2 ms, those of a group coordinator 20 ms.
- `load_all` imports the rest, so that a started node pays for the imports before the first request.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

_lazy_modules: list[LazyModule] = []


class LazyModule:
    """A stand-in for a module; the first attribute access imports it."""

    __slots__ = ("__name__", "_module")

    def __init__(self, name: str) -> None:
        self.__name__ = name
        #: Set once the whole import is done, on whichever thread.
        self._module: ModuleType | None = None
        _lazy_modules.append(self)

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self.load()
        return getattr(self._module, name)

    def load(self) -> None:
        """Import the module now."""
        self._module = import_module(self.__name__)


def load_all() -> Iterator[None]:
    """Import every lazy module, including those that the imported modules declare, one per step."""
    # The list grows during the loop: imported modules can declare lazy modules of their own.
    for module in _lazy_modules:
        module.load()
        yield
