"""Many records of one partition as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.flow.record import Headers, Input

#: row -> (key, value) as bytes.
Raw = Callable[[int], tuple[bytes | None, bytes | None]]


class Rows:
    """Records of one partition in offset order. All keys and values are readable; no timestamp is negative.

    Rows before `at` have been processed. `raw` returns the bytes of a row, for errors. `columns` are keys, values and
    timestamps as arrays, if the program has steps that work on them.
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
        columns: tuple[Any, Any, Any] | None = None,
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
        """Keys and values as Python objects, made on first access."""
        if self._objects is None:
            self._objects = self._read()
        return self._objects

    def __len__(self) -> int:
        """The number of rows that have not been processed."""
        return self.end - self.at

    @property
    def next_offset(self) -> int:
        return int(self.offsets[self.at])

    def input(self, row: int) -> Input:
        """A row as a single record with its bytes."""
        headers = () if self.headers is None else self.headers[row]
        return Input(self.topic, self.partition, int(self.offsets[row]), self.timestamps[row], *self.raw(row), headers)

    def end_before(self, limit: tuple[Any, ...] | None, ties: tuple[Any, ...]) -> int:
        """The end of the rows that go before `limit`, the next record of another partition.

        `limit` is (timestamp, *ties); `ties` breaks ties for these rows.
        """
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
