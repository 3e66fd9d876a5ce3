"""The memory that the connections of a listener receive into.

Rules:
- All connections share one receive buffer. A frame that does not arrive in one read gets memory of its own.
- The length that a peer claims cannot exhaust the memory: while little is lent, a frame gets its full size at once,
  which saves copies for producers of large batches; beyond `_GENEROUS_BYTES`, it gets about twice what has arrived.
- Requests that wait for their turn are copied. When they are many, a read takes less.
- Replies that peers do not read are counted. When they are many, a connection may have fewer of them.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable

#: A recv takes at most this much; all connections of a listener share the buffer.
RECEIVE_BUFFER_BYTES = 1 << 20
#: A recv takes at most this much while `_HELD_BYTES_MANY` wait for their turn.
_RECEIVE_BYTES_LITTLE = 1 << 14
_HELD_BYTES_MANY = 4 << 20
#: A frame of a producer's max.request.size (1 MiB) fits into a spare.
_SPARE_BYTES = (1 << 20) + (1 << 12)
_SPARE_FROM_BYTES = 1 << 16
_SPARES_MAX = 2
_GENEROUS_BYTES = 16 << 20
_FRAME_BYTES_LEAST = 1 << 12
#: Beyond these bytes of unsent replies each connection may have little of them.
UNSENT_BYTES_MANY = 64 << 20


class RequestMemory:
    """The bytes that incomplete requests may take on all listeners of a node: `queued.max.request.bytes`.

    As in Apache Kafka, a request is received if anything is left, so that the last one may exceed the limit; it counts
    with its whole length, however little has arrived. The others wait in the order in which they came.
    """

    __slots__ = ("_bytes_max", "_waiting", "used_bytes")

    def __init__(self, bytes_max: int = -1) -> None:
        #: Below 0: no limit.
        self._bytes_max = bytes_max
        self.used_bytes = 0
        #: What to call with the size once there is room -> the size.
        self._waiting: dict[Callable[[int], None], int] = {}

    def reserve(self, size: int, reserved: Callable[[int], None]) -> bool:
        """Take `size` bytes; False if the request must wait, until `reserved` is called with the size."""
        if not self._has_room():
            self._waiting[reserved] = size
            return False
        self.used_bytes += size
        return True

    def release(self, size: int) -> None:
        """Return bytes, and give them to those that wait."""
        self.used_bytes -= size
        while self._waiting and self._has_room():
            reserved = next(iter(self._waiting))
            waiting = self._waiting.pop(reserved)
            self.used_bytes += waiting
            reserved(waiting)

    def forget(self, reserved: Callable[[int], None]) -> None:
        """Its connection is closed, and waits no more."""
        self._waiting.pop(reserved, None)

    def _has_room(self) -> bool:
        return self._bytes_max < 0 or self.used_bytes < self._bytes_max


class ReceiveMemory:
    """The receive memory of all connections of a listener. The listener creates it.

    It keeps the memory of `_SPARES_MAX` handled frames, since a producer of large batches sends nothing else, and fresh
    memory must be zeroed and mapped each time.
    """

    __slots__ = ("_spares", "_whole", "held_bytes", "lent_bytes", "requests", "shared", "unsent_bytes")

    def __init__(self, requests: RequestMemory | None = None) -> None:
        #: The limit of all listeners.
        self.requests = requests or RequestMemory()
        # Unlike a bytearray, a mapping takes only the pages that were received into.
        self._whole = self.shared = memoryview(_map(RECEIVE_BUFFER_BYTES))
        self._spares: list[bytearray] = []
        #: Bytes lent to incomplete frames.
        self.lent_bytes = 0
        #: Bytes of received requests that wait for their turn.
        self.held_bytes = 0
        #: Bytes of replies that were not sent yet.
        self.unsent_bytes = 0

    def take(self, size: int, sent: int = 0) -> memoryview:
        """Memory for a frame of `size` bytes, of which `sent` have arrived; it may be smaller than the frame."""
        if self.lent_bytes + size > _GENEROUS_BYTES:
            size = min(size, max(2 * sent, _FRAME_BYTES_LEAST))
        if size < _SPARE_FROM_BYTES or size > _SPARE_BYTES:
            owner = bytearray(size)
        else:
            owner = self._spares.pop() if self._spares else bytearray(_SPARE_BYTES)
        self.lent_bytes += len(owner)
        return memoryview(owner)[:size]

    def give_back(self, memory: memoryview) -> None:
        """Return memory that `take` gave: its frame was handled, or will never be complete."""
        owner = memory.obj
        assert isinstance(owner, bytearray)
        self.lent_bytes -= len(owner)
        if len(owner) == _SPARE_BYTES and len(self._spares) < _SPARES_MAX:
            self._spares.append(owner)

    def hold(self, count: int) -> None:
        """Add `count` (negative: subtract) to the bytes that wait for their turn."""
        self.held_bytes += count
        self.shared = self._whole if self.held_bytes < _HELD_BYTES_MANY else self._whole[:_RECEIVE_BYTES_LITTLE]


def _map(size: int) -> mmap.mmap:
    """Memory that no other process shares: a fork has its own copy, as of any other memory."""
    # Windows has neither forks nor these flags; only this form of the question is understood by type checkers.
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
