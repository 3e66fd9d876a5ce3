"""The table of transitions at the head of a machine, and what the machine does in a walk.

A table's rows are `| from | to | when |`; a cell may name several states, separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

_ROW = re.compile(r"^\| ([A-Z_, ]+) \| ([A-Z_, ]+) \| .+ \|$", re.MULTILINE)

Transitions = set[tuple[str, str]]


def table(module: ModuleType) -> Transitions:
    """Every (from, to) of the table in the module's docstring."""
    rows = _ROW.findall(module.__doc__ or "")
    return {(first, then) for before, after in rows for first in before.split(", ") for then in after.split(", ")}


def watch(patch: pytest.MonkeyPatch, kind: type, attribute: str, name: Callable[[Any], str]) -> Transitions:
    """Fill the set that is returned with every change of the attribute of any instance."""
    seen: Transitions = set()
    set_attribute: Any = kind.__setattr__

    def spy(self: object, key: str, value: object) -> None:
        before = getattr(self, attribute, None) if key == attribute else None
        if before is not None and name(before) != name(value):
            seen.add((name(before), name(value)))
        set_attribute(self, key, value)

    patch.setattr(kind, "__setattr__", spy)
    return seen
