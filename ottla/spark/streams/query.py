"""Queries of a running program's stores (Kafka Streams: interactive queries), from the driver's process.

    counts = app.store("counts")
    counts.get("fox"), list(counts.range("a", "m")), list(windows.fetch("card-13", start, end))
    counts.staleness                     # of the previous answer: how many input records it does not reflect
    app.store("counts", max_behind=100).get("fox")      # NotReadable while more input records wait

Rules:
- Workers answer between their steps, so an answer contains exactly what is committed.
- Every query goes to all workers, because only the producers of the program's input know how it is partitioned.
  `locate` returns the task that has a key.
- Scans are paged. Each page reflects the commits at its time; keys of one task are in the order of their bytes.
- While tasks are being opened (`State.REBALANCING`), queries raise NotReadable: try again.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla.flow.engine import Task
from ottla.flow.make_store import bound
from ottla.flow.record import TIME_MAX, ValueAndTimestamp, Window, Windowed
from ottla.flow.store.spec import StoreSpec
from ottla.flow.window import Time, time_ms
from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple
from ottla.spark.streams.control import Message

PAGE = 1_000
_KEY_VALUE = ("key_value", "timestamped_key_value")
_WINDOW = ("window", "timestamped_window")
QUERYABLE = (*_KEY_VALUE, *_WINDOW, "session", "versioned")
#: The prefixes of window and session store entries, by key and by time.
_BY_KEY, _BY_TIME = b"k", b"t"
Ask = Callable[[Message], dict[int, Message]]


class NotReadable(OttlaError):
    """The store cannot be read now: its tasks are being opened, or more input records wait than `max_behind` allows
    (Kafka Streams: InvalidStateStoreException, FailureReason.NOT_UP_TO_BOUND).
    """


class Staleness(NamedTuple):
    """How far an answer is behind: the number of unprocessed input records, counted `counted_ms_ago` ms before."""

    records: int
    counted_ms_ago: int


class StoreView:
    """A read-only view of a state store over all tasks, made by `Application.store` (Kafka Streams:
    ReadOnlyKeyValueStore, ReadOnlyWindowStore, ReadOnlySessionStore).

    Reads raise NotReadable while tasks are being opened or too many records wait, and OttlaError if the store's kind
    lacks the method. Times are datetimes with a time zone, or ms since 1970.
    """

    def __init__(self, spec: StoreSpec, defaults: tuple[Any, Any], ask: Ask, *, is_global: bool = False) -> None:
        self.name = spec.name
        self.spec = spec
        self.key_serde = bound(spec.key, defaults, f"the key of state store {spec.name}", key=True)
        self.value_serde = bound(spec.value, defaults, f"the value of state store {spec.name}")
        #: The staleness of the last answer.
        self.staleness: Staleness | None = None
        #: The largest number of unprocessed input records with which an answer is given; None: any.
        self.max_behind: int | None = None
        self._ask = ask
        self._is_global = is_global

    # ---- key-value and versioned stores

    def get(self, key: Any, as_of: Time | None = None) -> Any:
        """The value of a key, or None. `as_of`: the value that was valid at that time (versioned stores)."""
        entry = self._find(key, as_of)
        return None if entry is None else self._value(entry[2])

    def locate(self, key: Any) -> str | None:
        """The id of the task that has the key, or None (Kafka Streams: queryMetadataForKey)."""
        entry = self._find(key, None)
        return None if entry is None else entry[0]

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """(key, value) of the keys from `low` to `high`, both included (None: open)."""
        self._check_kind(_KEY_VALUE, "range")
        first = None if low is None else self._bytes(low)
        last = None if high is None else self._bytes(high) + b"\x00"
        for _, name, data in self._scan(first, last):
            yield self._key(name), self._value(data)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All entries; the keys of window and session stores are Windowed."""
        if self.spec.kind in _KEY_VALUE:
            yield from self.range()
        else:
            yield from self.fetch_all()

    # ---- window and session stores

    def fetch(self, key: Any, earliest: Time = 0, latest: Time = TIME_MAX) -> Iterator[tuple[Window, Any]]:
        """(window, value) of a key's windows that start in [earliest, latest] (sessions: overlap it), oldest first."""
        self._check_kind((*_WINDOW, "session"), "fetch")
        earliest, latest = time_ms(earliest, "earliest"), time_ms(latest, "latest")
        name = _BY_KEY + self._bytes(key)
        tail = self._tail
        for _, entry_key, data in self._scan(name + bytes(8), name + b"\xff" * (tail + 1)):
            # Skip longer keys with the same prefix.
            if len(entry_key) == len(name) + tail and self._within(window := self._window(entry_key), earliest, latest):
                yield window, self._value(data)

    def fetch_all(self, earliest: Time = 0, latest: Time = TIME_MAX) -> Iterator[tuple[Windowed, Any]]:
        """(windowed key, value) of all keys' windows that start in [earliest, latest] (sessions: that overlap it)."""
        self._check_kind((*_WINDOW, "session"), "fetch_all")
        earliest, latest = time_ms(earliest, "earliest"), time_ms(latest, "latest")
        for _, entry_key, data in self._scan(_BY_KEY, _BY_TIME):
            if self._within(window := self._window(entry_key), earliest, latest):
                yield Windowed(self._key(entry_key[1 : -self._tail]), window), self._value(data)

    # ---- inside

    def _find(self, key: Any, as_of: Time | None) -> tuple[str, bytes, bytes] | None:
        name = self._bytes(key)
        if self.spec.kind in _KEY_VALUE:
            return next(self._scan(name, name + b"\x00"), None)
        self._check_kind(("versioned",), "get")
        end = b"\xff" * 8 if as_of is None else time_ms(as_of, "as_of", 0).to_bytes(8, "big")
        size = len(name) + 8
        versions = [version for version in self._scan(name + bytes(8), name + end + b"\x00") if len(version[1]) == size]
        last = max(versions, key=lambda version: version[1], default=None)
        return None if last is None or last[2] == b"\x00" else last

    def _scan(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[str, bytes, bytes]]:
        """(task, key, data) of the entries from `low` up to `high`."""
        question: Message = {"store": self.name, "low": _text(low), "high": _text(high), "limit": PAGE}
        while True:
            pages: dict[str, Message] = {}
            for answer in self._ask(question).values():
                if "error" in answer:
                    raise NotReadable(f"store {self.name} cannot be read now: {answer['error']}; try again")
                pages |= answer["tasks"]
            if not pages:
                raise NotReadable(f"store {self.name} cannot be read now: no task has it open; try again")
            if self._is_global:  # each task holds the whole store
                first = min(pages)
                pages = {first: pages[first]}
            lag = sum(page["lag"] for page in pages.values())
            self.staleness = Staleness(lag, max(page["counted_ms_ago"] for page in pages.values()))
            if self.max_behind is not None and lag > self.max_behind:
                raise NotReadable(
                    f"store {self.name} is {lag} input records behind (max_behind: {self.max_behind}); try again"
                )
            rest = {}
            for task, page in sorted(pages.items()):
                entries = [(_bytes(name), _bytes(data)) for name, data in page["entries"]]
                yield from ((task, name, data) for name, data in entries)
                if page["more"]:
                    rest[task] = _text(entries[-1][0] + b"\x00")
            if not rest:
                return
            question = {**question, "rest": rest}

    def _bytes(self, key: Any) -> bytes:
        if key is None:
            raise OttlaError(f"invalid key for store {self.name}: None")
        return self.key_serde.serialize(self.name, key)

    def _key(self, data: bytes) -> Any:
        return self.key_serde.deserialize(self.name, data)

    def _value(self, data: bytes) -> Any:
        if self.spec.kind.startswith("timestamped"):
            data = data[8:]
        elif self.spec.kind == "versioned":
            data = data[1:]
        value = self.value_serde.deserialize(self.name, data)
        return value.value if isinstance(value, ValueAndTimestamp) else value

    @property
    def _tail(self) -> int:
        """The number of bytes after the key: of a start and a sequence number, or of an end and a start."""
        return 16 if self.spec.kind == "session" else 12

    def _window(self, entry_key: bytes) -> Window:
        if self.spec.kind == "session":
            return Window(int.from_bytes(entry_key[-8:], "big"), int.from_bytes(entry_key[-16:-8], "big"))
        start = int.from_bytes(entry_key[-12:-4], "big")
        return Window(start, min(start + self.spec.window_ms, TIME_MAX))

    def _within(self, window: Window, earliest: int, latest: int) -> bool:
        reaches = window.end if self.spec.kind == "session" else window.start
        return reaches >= earliest and window.start <= latest

    def _check_kind(self, kinds: tuple[str, ...], method: str) -> None:
        if self.spec.kind not in kinds:
            raise OttlaError(f"store {self.name} is a {self.spec.kind} store, which has no {method}")


def answer(tasks: dict[str, tuple[Task, int, float]], question: Message) -> Message:
    """A worker's answer to a query. `tasks`: by id, the task, its lag, and when it was counted (time.monotonic)."""
    name, rest = question["store"], question.get("rest")
    answers = {}
    for task_id, (task, lag, counted) in tasks.items():
        if (rest is not None and task_id not in rest) or not _has(task, name):
            continue
        low = _bytes((rest or {}).get(task_id, question["low"]))
        entries, more = _page(task.store(name), low, _bytes(question["high"]), question["limit"])
        age = round((time.monotonic() - counted) * 1000)
        answers[task_id] = {"entries": entries, "more": more, "lag": lag, "counted_ms_ago": age}
    return {"tasks": answers}


def _has(task: Task, name: str) -> bool:
    return name in task.store_names or name in task.topology.global_stores


def _page(store: Any, low: bytes | None, high: bytes | None, limit: int) -> tuple[list[list[str | None]], bool]:
    """Up to `limit` entries within the store's retention, and whether there are more."""
    kind = store.spec.kind
    at = slice(-16, -8) if kind == "session" else slice(-12, -4)
    hidden = store._observed.value - store.spec.retention_ms if kind in (*_WINDOW, "session") else None
    entries: list[list[str | None]] = []
    for name, data in store.entries.scan(low, high):
        if hidden is not None and int.from_bytes(name[at], "big") <= hidden:
            continue
        if len(entries) == limit:
            return entries, True
        entries.append([_text(name), _text(data)])
    return entries, False


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> Any:
    return None if text is None else base64.b64decode(text)
