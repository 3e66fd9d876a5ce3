"""Tracking of the records that a reader has seen, so that only these are committed.

Rules:
- On a terminal and in a file, written records are seen. In a pipe, records count once the reader has read them: bytes
  still in the pipe do not count, and nor does anything if the reader has closed the pipe meanwhile.
- A reader that reads more than it shows (`head` reads ahead) looks like a slow one: its last read counts only if the
  pipe is still open a moment later. `consume -n N` is exact.
"""

from __future__ import annotations

import array
import fcntl
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Mapping
from os import fstat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client import Consumer, TopicPartition

#: How long a reader must stay behind what it took.
_HOLD_S = 0.1
#: Between two commits while it follows.
_COMMIT_INTERVAL_S = 1.0


class Ledger:
    """The bytes written to stdout, and the position of each partition at that point."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pipe = stat.S_ISFIFO(fstat(sys.stdout.fileno()).st_mode)
        self._written = 0
        #: (total bytes written, positions), oldest first.
        self._waiting: deque[tuple[int, dict[TopicPartition, int]]] = deque()
        #: (time at which the reader took the bytes, positions).
        self._taken: tuple[float, dict[TopicPartition, int]] | None = None
        self._seen: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._due = time.monotonic() + _COMMIT_INTERVAL_S

    def note_written(self, size: int, positions: Mapping[TopicPartition, int]) -> None:
        """Note that `size` more bytes are written; `positions` are the next offsets after them."""
        self._written += size
        if self._pipe:
            self._waiting.append((self._written, dict(positions)))
        else:
            self._seen |= positions

    def commit_if_due(self) -> None:
        """Commit seen records when a commit is due."""
        self._advance()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _COMMIT_INTERVAL_S
            self.commit()

    def commit(self) -> None:
        """Commit seen records of the partitions that are still assigned."""
        ours = self._consumer.assignment()
        offsets = {tp: at for tp, at in self._seen.items() if tp in ours and self._committed.get(tp) != at}
        if offsets:
            self._consumer.commit(offsets)
            self._committed |= offsets

    def finish(self) -> None:
        """Wait until the reader has read everything or closed the pipe, and commit what it has seen."""
        while self._pipe and (self._waiting or self._taken) and not _reader_gone():
            self._advance()
            time.sleep(_HOLD_S / 4)
        self.commit()

    def _advance(self) -> None:
        if not self._pipe or _reader_gone():
            return
        now = time.monotonic()
        if self._taken is not None and now - self._taken[0] >= _HOLD_S:
            self._seen |= self._taken[1]
            self._taken = None
        out = self._written - _unread()
        newest: dict[TopicPartition, int] | None = None
        while self._waiting and self._waiting[0][0] <= out and self._taken is None:
            newest = self._waiting.popleft()[1]
        if newest is not None:
            self._taken = (now, newest)


def _unread() -> int:
    """Return the number of unread bytes in the pipe."""
    import termios

    count: Any = array.array("i", [0])
    try:
        fcntl.ioctl(sys.stdout.fileno(), termios.FIONREAD, count)
    except OSError:
        return 0
    return int(count[0])


def _reader_gone() -> bool:
    """Whether the reader has closed the pipe."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))
