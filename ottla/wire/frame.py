"""Frames: four bytes of length, then that many bytes. Cut them from whatever pieces the network gives.

Rules:
- A length below 0 or above the limit is refused at once, before a byte of the frame has come.
- Memory grows with what was received, never with what a length promises.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.kernel.ports import Buffer
from ottla.wire.type import Malformed

__all__ = ["Cutter", "frame"]

LENGTH_BYTES = 4


class Cutter:
    """Collects what arrives on one connection and gives whole frames, without their length.

    Each connection has its own and throws it away at its end; after `Malformed` it is of no use.
    """

    __slots__ = ("_buffer", "_bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Take in what has arrived; give each frame that is complete now."""
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[bytes]:
        position = 0
        try:
            while len(self._buffer) - position >= LENGTH_BYTES:
                size = int.from_bytes(self._buffer[position : position + LENGTH_BYTES], "big", signed=True)
                if not 0 <= size <= self._bytes_max:
                    raise Malformed(f"a frame of {size} bytes; from 0 to {self._bytes_max} are allowed")
                end = position + LENGTH_BYTES + size
                if end > len(self._buffer):
                    return
                body = bytes(self._buffer[position + LENGTH_BYTES : end])
                position = end
                yield body
        finally:
            del self._buffer[:position]

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is here."""
        return len(self._buffer)


def frame(*parts: bytes) -> bytes:
    """A frame of these parts."""
    body = b"".join(parts)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
