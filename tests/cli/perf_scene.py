"""Clients that a test plays, and the clock by which they take their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Self

from ottla.client import KafkaError

#: 2001-09-09 01:46:40, in UTC.
BEGAN_MS = 1_000_000_000_000


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.ms = BEGAN_MS

    def __call__(self) -> int:
        return self.ms


class _Played:
    """A client in place of its class: the call that would make it notes its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    def __call__(self, settings: Any) -> Self:
        self.settings = settings
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Reader(_Played):
    """A consumer whose polls bring (milliseconds that pass, records), and then nothing, each 100 ms."""

    def __init__(self, clock: Clock, polls: Sequence[tuple[int, list[Any]]]) -> None:
        super().__init__()
        self._clock, self._polls = clock, list(polls)
        self.subscribed: Any = None
        self.listener: Any = None
        self.commits: list[Any] = []
        self.at_poll: dict[int, Callable[[], None]] = {}
        self._count = 0

    def subscribe(self, what: Any, listener: Any = None) -> None:
        self.subscribed, self.listener = what, listener

    def poll(self, _: float) -> list[Any]:
        self._count += 1
        self.at_poll.get(self._count, lambda: None)()
        passed, records = self._polls.pop(0) if self._polls else (100, [])
        self._clock.ms += passed
        return records

    def commit(self, offsets: Any = None) -> None:
        self.commits.append(offsets)

    def metrics(self) -> Any:
        return {}


def records(count: int, size: int, *, first: int = 0, partition: int = 0) -> list[Any]:
    """Records with a key of one byte and so many bytes together."""
    return [
        SimpleNamespace(topic="t", partition=partition, offset=first + n, key=b"k", value=b"v" * (size - 1), headers=[])
        for n in range(count)
    ]


class Writer(_Played):
    """A producer whose records are acknowledged after so many milliseconds each, or fail."""

    def __init__(self, clock: Clock, latencies: Sequence[int | KafkaError]) -> None:
        super().__init__()
        self._clock, self._latencies = clock, iter(latencies)
        self.calls: list[str] = []
        self.values: list[bytes] = []

    def send(self, topic: str, value: bytes) -> Any:
        latency = next(self._latencies)
        self.values.append(value)
        self.calls.append("send")

        def when_done(on_done: Callable[[Any, Any], None]) -> None:
            if isinstance(latency, KafkaError):
                on_done(None, latency)
                return
            self._clock.ms += latency
            on_done(None, None)

        return SimpleNamespace(when_done=when_done)

    def __getattr__(self, name: str) -> Callable[[], Any]:
        def called() -> Any:
            if name != "metrics":
                self.calls.append(name)
            return {}

        return called
