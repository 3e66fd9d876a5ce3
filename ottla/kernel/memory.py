"""Buffers for large responses and table batches, which are reused once nothing refers to them.

A fetch response has megabytes. New memory for each would be zeroed twice (by the kernel and by Python) and faulted in
page by page, which costs as much as receiving the data. So a few frames are kept.

Not obvious: a bytearray knows whether views of it exist, because it refuses to change its size while any do. A table of
views (`serde.binary(view=True)`) holds them as long as it lives.
"""

from __future__ import annotations

#: Smaller frames are not worth keeping.
_KEPT_FROM_BYTES = 256 * 1024
#: Three frames: one being received, one being decoded, and one in between.
_KEPT_MAX = 3
_KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Frame sizes are rounded up, so that the next response fits too.
_STEP_BYTES = 64 * 1024


class Frames:
    """The frames of one connection, or of one table being sent. Not thread-safe."""

    __slots__ = ("_bytes_max", "_frames_max", "kept")

    def __init__(self, most: int = _KEPT_MAX, bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self._frames_max = most
        self._bytes_max = bytes_max
        #: Ordered by the last use, most recent last.
        self.kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a free frame of `size` bytes; its content is arbitrary."""
        if size < _KEPT_FROM_BYTES:
            return new_memory(size)
        for frame in self.kept:
            if size <= len(frame) and _unused(frame):
                self.kept.remove(frame)
                break
        else:
            frame = bytearray((size + size // 8 | _STEP_BYTES - 1) + 1)
        self.kept.append(frame)
        while len(self.kept) > self._frames_max or sum(map(len, self.kept)) > self._bytes_max:
            del self.kept[0]
        return memoryview(frame)[:size]


def new_memory(size: int) -> memoryview:
    """Return `size` bytes that are not reused."""
    return memoryview(bytearray(size))


def _unused(frame: bytearray) -> bool:
    try:
        # Neither call reallocates: a bytearray that shrinks by one byte keeps its memory.
        frame.append(frame.pop())
    except BufferError:
        return False
    return True
