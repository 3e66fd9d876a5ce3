"""Where a store's writes are told: the task, which makes them records of the changelog topic."""

from __future__ import annotations

from typing import Protocol

from ottla.flow.record import Headers


class Log(Protocol):
    """Takes (store, key, value or None for a delete, timestamp, headers)."""

    def __call__(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers = (), /
    ) -> None: ...


class Cell:
    """A number that is part of a task's state: an operator's stream time, the next due time of a punctuator."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value
