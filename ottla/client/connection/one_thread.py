"""Refuses a second thread where only one at a time may work (Java's clients: ConcurrentModificationException)."""

from __future__ import annotations

import threading
from types import TracebackType

from ottla.kernel.error import OttlaError


class OneThread:
    """Context manager that a thread may re-enter; another thread gets an OttlaError meanwhile."""

    __slots__ = ("_lock", "_client_kind")

    def __init__(self, client_kind: str) -> None:
        self._client_kind = client_kind
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            kind = self._client_kind
            raise OttlaError(f"another thread is polling this {kind}: give each thread a {kind} of its own")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
