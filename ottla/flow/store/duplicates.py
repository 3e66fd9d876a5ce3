"""Window stores that keep every value of a key and time, for joins of streams.

Rules:
- Sequence numbers tell entries of one key and time apart. They increase, and wrap around at 2**31.
- An entry is removed only by its age; putting None deletes nothing.
- Entries are grouped by the moment at which they expire (window.py), so expiry looks only at what it removes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.flow.record import Headers, ValueAndTimestamp, Windowed
from ottla.flow.store.changelog import Cell
from ottla.flow.store.ordered import OrderedBytes
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.window import BY_KEY, END, Timestamped, WindowStore


class DuplicatesStore(WindowStore):
    """A window store with duplicates, of plain values. `sequence` numbers the entries."""

    def __init__(self, spec: StoreSpec, entries: OrderedBytes, *shared: Any, sequence: Cell) -> None:
        self._sequence = sequence
        #: By key bytes, the entries as `start << 32 | sequence number`, ascending.
        self._numbers: dict[bytes, list[int]] = {}
        #: The entries that expire together.
        self._ages: dict[int, list[bytes]] = {}
        super().__init__(spec, entries, *shared)

    def put(self, key: Any, value: Any, start: int, headers: Headers = (), deleted_ms: int | None = None) -> None:
        """Add a value for a key and start. None is only written to the changelog."""
        sequence = self._sequence
        sequence.value = (sequence.value + 1) & 0x7FFFFFFF
        key_bytes = self._key_bytes(key)
        number = start << 32 | sequence.value
        entry_key = BY_KEY + key_bytes + number.to_bytes(12, "big")
        if value is None or (isinstance(value, ValueAndTimestamp) and value[0] is None):
            if self._log is not None:
                self._log(self.name, entry_key[1:], None, self._now() if deleted_ms is None else deleted_ms, headers)
            return
        data, logged, timestamp = self._write(value)
        # Kafka Streams logs expired records too.
        if self._log is not None:
            self._log(self.name, entry_key[1:], logged, timestamp, headers)
        if start < self._observed.value - self.spec.retention_ms:
            return
        self._observe(start)
        self._add(entry_key, key_bytes, number, data)

    def put_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        starts: Sequence[int],
        headers: Sequence[Headers] | None,
        kept: Sequence[int],
    ) -> None:
        """Add values, given as bytes. `kept` are the indexes of those that are there afterwards: a late one is not put,
        others expire at once.
        """
        numbers = [start << 32 | number & 0x7FFFFFFF for number, start in enumerate(starts, self._sequence.value + 1)]
        self._sequence.value = (self._sequence.value + len(keys)) & 0x7FFFFFFF
        if self._log is not None:
            for row, (key_bytes, data, number) in enumerate(zip(keys, values, numbers, strict=True)):
                own = () if headers is None else headers[row]
                self._log(self.name, key_bytes + number.to_bytes(12, "big"), data, number >> 32, own)
        newest = max((start for start, data in zip(starts, values, strict=True) if data is not None), default=-1)
        self._observe(newest)
        for row in kept:
            key_bytes, data, number = keys[row], values[row], numbers[row]
            assert data is not None
            self._add(BY_KEY + key_bytes + number.to_bytes(12, "big"), key_bytes, number, data)

    def kept_from(self, newest: int) -> int:
        """The earliest start of the entries that are there when a start has been put."""
        return newest // self._expiry_step_ms * self._expiry_step_ms - self.spec.retention_ms

    def find_many(self, keys: Sequence[bytes], earliest: int, latest: int) -> tuple[list[int], list[int]]:
        """The entries of keys that start in [earliest, latest]: the index of the key, and `start << 32 | sequence
        number`. Entries that are hidden are among them.
        """
        low, high, indexes, found = earliest << 32, (latest + 1) << 32, list[int](), list[int]()
        get = self._numbers.get
        for index, key_bytes in enumerate(keys):
            numbers = get(key_bytes)
            if numbers is None or numbers[-1] < low:
                continue
            if numbers[0] < low or numbers[-1] >= high:
                numbers = numbers[bisect_left(numbers, low) : bisect_left(numbers, high)]
            found += numbers
            indexes += [index] * len(numbers)
        return indexes, found

    def read(self, key_bytes: bytes, number: int) -> bytes:
        """The bytes of an entry's value. KeyError if there is no such entry."""
        data = self.entries.get(BY_KEY + key_bytes + number.to_bytes(12, "big"))
        if data is None:
            raise KeyError(number)
        return data

    @property
    def observed(self) -> int:
        """The newest start put."""
        return self._observed.value

    @property
    def sequence(self) -> int:
        """The number of the entry that was put last."""
        return self._sequence.value

    def _observe(self, start: int) -> None:
        """Expire entries if a start is the newest."""
        before = self._observed.value
        if start > before:
            self._observed.value = start
            if before // self._expiry_step_ms != start // self._expiry_step_ms:
                self._expire()

    def _add(self, entry_key: bytes, key_bytes: bytes, number: int, data: bytes) -> None:
        age = ((number >> 32) + self.spec.retention_ms) // self._expiry_step_ms
        if age in self._ages:
            self._ages[age].append(entry_key)
        else:
            self._ages[age] = [entry_key]
        numbers = self._numbers.get(key_bytes)
        if numbers is None:
            self._numbers[key_bytes] = [number]
        elif numbers[-1] < number:
            numbers.append(number)
        else:
            insort(numbers, number)
        self.entries.put(entry_key, data)

    def find(self, key: Any, earliest: int, latest: int) -> list[tuple[int, Any]]:
        """(start, value) of a key's entries that start in [earliest, latest], ascending."""
        key_bytes = self._key_bytes(key)
        numbers = self._numbers.get(key_bytes)
        if numbers is None:
            return []
        first = max(earliest, self._observed.value - self.spec.retention_ms + 1, 0) << 32
        if numbers[-1] < first:
            return []
        get, read, prefix = self.entries.get, self._read, BY_KEY + key_bytes
        values = []
        for number in numbers[bisect_left(numbers, first) : bisect_left(numbers, (latest + 1) << 32)]:
            data = get(prefix + number.to_bytes(12, "big"))
            if data is not None:
                values.append((number >> 32, read(data)))
        return values

    def fetch_closed(self, earliest: int, latest: int) -> Iterator[tuple[Windowed, Any]]:
        hidden = self._observed.value - self.spec.retention_ms
        first = max(earliest, hidden + 1 if self.spec.in_memory else hidden, 0)
        entries = []
        for entry_key, data in self.entries.scan(BY_KEY, END):
            start = int.from_bytes(entry_key[-12:-4], "big")
            if first <= start <= latest:
                entries.append((start, entry_key[1:-12], data))
        for start, key_bytes, data in sorted(entries, key=lambda entry: entry[:2]):
            yield self._windowed(key_bytes, start), self._read(data)

    def _fetch(self, key: Any, earliest: int, latest: int, *, reverse: bool) -> Iterator[tuple[int, Any]]:
        values = self.find(key, earliest, latest)
        return reversed(values) if reverse else iter(values)

    def _load(self) -> None:
        for entry_key in self.entries.keys():  # noqa: SIM118
            number = int.from_bytes(entry_key[-12:], "big")
            self._numbers.setdefault(entry_key[1:-12], []).append(number)
            self._ages.setdefault(((number >> 32) + self.spec.retention_ms) // self._expiry_step_ms, []).append(
                entry_key
            )
        for numbers in self._numbers.values():
            numbers.sort()

    def _expire(self) -> None:
        age = self._observed.value // self._expiry_step_ms
        first = (age * self._expiry_step_ms - self.spec.retention_ms) << 32
        changed_keys: set[bytes] = set()
        for expired in [expired for expired in self._ages if expired < age]:
            for entry_key in self._ages.pop(expired):
                self.entries.delete(entry_key)
                changed_keys.add(entry_key[1:-12])
        for key_bytes in changed_keys:
            numbers = self._numbers[key_bytes]
            if numbers[-1] < first:
                del self._numbers[key_bytes]
            else:
                del numbers[: bisect_left(numbers, first)]


class TimestampedDuplicatesStore(DuplicatesStore, Timestamped):
    """A window store with duplicates, of `ValueAndTimestamp`."""
