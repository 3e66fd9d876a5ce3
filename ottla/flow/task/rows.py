"""Many records of one partition, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.flow.record import Headers, Input

#: A partition's records as bytes: (key, value) of a row.
Raw = Callable[[int], tuple[bytes | None, bytes | None]]


class Rows:
    """Records in the order of their offsets; all keys and values can be read. No row has a timestamp below 0.

    Rows before `at` are processed. `raw` gives the bytes of a row, for errors; `columns` are keys and values as Arrow
    arrays, where the program has steps that work on them.
    """

    __slots__ = ("at", "columns", "end", "headers", "newest", "offsets", "partition", "raw", "timestamps", "topic",
                 "_objects", "_read")  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        timestamps: list[int],
        read: Callable[[], tuple[list[Any], list[Any]]],
        headers: list[Headers] | None,
        raw: Raw,
        columns: tuple[Any, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self.timestamps = timestamps
        self._read = read
        self._objects: tuple[list[Any], list[Any]] | None = None
        self.headers = headers
        self.raw = raw
        self.columns = columns
        self.at = 0
        self.end = len(timestamps)
        self.newest = max(timestamps)

    @property
    def objects(self) -> tuple[list[Any], list[Any]]:
        """Keys and values as Python's objects, made when they are first asked for."""
        if self._objects is None:
            self._objects = self._read()
        return self._objects

    def __len__(self) -> int:
        """How many are not processed."""
        return self.end - self.at

    @property
    def next_offset(self) -> int:
        return int(self.offsets[self.at])

    def input(self, row: int) -> Input:
        """A row as it was read from its topic."""
        headers = () if self.headers is None else self.headers[row]
        return Input(self.topic, self.partition, int(self.offsets[row]), self.timestamps[row], *self.raw(row), headers)

    def end_before(self, limit: tuple[Any, ...] | None, ties: tuple[Any, ...]) -> int:
        """Up to which row they go before a record of another partition. `ties`: what breaks ties of this one."""
        if limit is None:
            return self.end
        last = limit[0] if ties < limit[1:] else limit[0] - 1
        if self.newest <= last:
            return self.end
        timestamps = self.timestamps
        row = self.at + 1
        while row < self.end and timestamps[row] <= last:
            row += 1
        return row
