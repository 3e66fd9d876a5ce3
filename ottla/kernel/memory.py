"""Memory for long answers and for batches of tables, used again when nothing refers to it any more.

A fetch's answer has megabytes. New memory for each of them is zeroed twice (by the kernel, and by Python) and faulted
in page by page: as dear as receiving what it is for. So a few frames are kept.

Not obvious: whether views of a frame are left is what a bytearray knows by itself. It refuses to change its size while
there are any, and a table of views (`serde.binary(view=True)`) keeps them as long as it lives.
"""

from __future__ import annotations

#: Smaller frames are not worth it.
_KEPT_FROM_BYTES = 256 * 1024
#: Three frames: received into, decoded, and in between.
_KEPT_MAX = 3
_KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Frames are a little longer than they need be, so that what comes next fits too.
_STEP_BYTES = 64 * 1024


class Frames:
    """The frames of one connection, or of one table on its way out. Not for several threads at once."""

    __slots__ = ("_bytes_max", "_most", "kept")

    def __init__(self, most: int = _KEPT_MAX, bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self._most = most
        self._bytes_max = bytes_max
        #: The one that was used last stands last.
        self.kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """A free frame of so many bytes; their content is arbitrary."""
        if size < _KEPT_FROM_BYTES:
            return new_memory(size)
        for frame in self.kept:
            if size <= len(frame) and _unused(frame):
                self.kept.remove(frame)
                break
        else:
            frame = bytearray((size + size // 8 | _STEP_BYTES - 1) + 1)
        self.kept.append(frame)
        while len(self.kept) > self._most or sum(map(len, self.kept)) > self._bytes_max:
            del self.kept[0]
        return memoryview(frame)[:size]


def new_memory(size: int) -> memoryview:
    """So many bytes that are never used again."""
    return memoryview(bytearray(size))


def _unused(frame: bytearray) -> bool:
    try:
        # Neither moves anything: a bytearray that shrinks by a byte keeps its memory.
        frame.append(frame.pop())
    except BufferError:
        return False
    return True
