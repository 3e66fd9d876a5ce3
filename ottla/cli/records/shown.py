"""Which records of a group a reader has seen, so that no more than these are committed.

Rules:
- On a terminal and in a file, what is written is seen. In a pipe, what its reader has taken out: the bytes that still
  lie in the pipe do not count, and nothing counts for which the reader has gone away meanwhile.
- A reader that takes more than it shows (`head` reads ahead) cannot be known from a slow one: what it took last counts
  only when it is still there a moment later. `consume -n N` is exact.
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
_STAY_S = 0.1
#: Between two commits while it follows.
_EVERY_S = 1.0


class Ledger:
    """What was written to stdout, and how far each partition was then."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pipe = stat.S_ISFIFO(fstat(sys.stdout.fileno()).st_mode)
        self._written = 0
        #: (bytes written by then, positions), oldest first.
        self._waiting: deque[tuple[int, dict[TopicPartition, int]]] = deque()
        #: Taken by the reader at this time.
        self._taken: tuple[float, dict[TopicPartition, int]] | None = None
        self._seen: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._due = time.monotonic() + _EVERY_S

    def wrote(self, size: int, positions: Mapping[TopicPartition, int]) -> None:
        """So many bytes more are written; reading goes on at `positions` behind them."""
        self._written += size
        if self._pipe:
            self._waiting.append((self._written, dict(positions)))
        else:
            self._seen |= positions

    def look(self) -> None:
        """Commit now and then what is seen."""
        self._advance()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY_S
            self.commit()

    def commit(self) -> None:
        """Commit what is seen, of the partitions that are still ours."""
        ours = self._consumer.assignment()
        offsets = {each: at for each, at in self._seen.items() if each in ours and self._committed.get(each) != at}
        if offsets:
            self._consumer.commit(offsets)
            self._committed |= offsets

    def finish(self) -> None:
        """Wait until the reader has taken everything or has gone, and commit what it has seen."""
        while self._pipe and (self._waiting or self._taken) and not _gone():
            self._advance()
            time.sleep(_STAY_S / 4)
        self.commit()

    def _advance(self) -> None:
        if not self._pipe or _gone():
            return
        now = time.monotonic()
        if self._taken is not None and now - self._taken[0] >= _STAY_S:
            self._seen |= self._taken[1]
            self._taken = None
        out = self._written - _unread()
        newest: dict[TopicPartition, int] | None = None
        while self._waiting and self._waiting[0][0] <= out and self._taken is None:
            newest = self._waiting.popleft()[1]
        if newest is not None:
            self._taken = (now, newest)


def _unread() -> int:
    """Bytes that lie in the pipe."""
    import termios

    count: Any = array.array("i", [0])
    try:
        fcntl.ioctl(sys.stdout.fileno(), termios.FIONREAD, count)
    except OSError:
        return 0
    return int(count[0])


def _gone() -> bool:
    """Has the reader of the pipe gone away?"""
    look = select.poll()
    look.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in look.poll(0))
