"""Where a store's writes are told: the task, which makes them records of the changelog topic."""

from __future__ import annotations

from collections.abc import Callable

#: (store, key, value or None for a delete, timestamp)
Log = Callable[[str, bytes, bytes | None, int], None]


class Cell:
    """A number that is part of a task's state: an operator's stream time, the next due time of a punctuator."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value
