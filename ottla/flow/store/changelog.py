"""The changelog of a store, and the numbers in a task's state."""

from __future__ import annotations

from typing import Protocol

from ottla.flow.record import Headers


class Log(Protocol):
    """Records a store's write in its changelog: (store, key, value or None for a delete, timestamp, headers)."""

    def __call__(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers = (), /
    ) -> None: ...


class Cell:
    """A number that is part of a task's state: an operator's stream time, the next due time of a punctuator."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value
