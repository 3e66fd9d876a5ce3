"""Cuts a peer's responses into frames. Pure: the connection passes in bytes and gets whole frames back.

Small responses are received into one shared buffer and copied out; longer ones go straight into a frame of their own.
The receiver may keep a frame: its memory is reused only when no view of it is left. (`ottla/net/inbound.py` cuts
requests another way: decision 0430.)
"""

from __future__ import annotations

from ottla.kernel.memory import Frames
from ottla.wire.type import Malformed

_STAGING_BYTES = 64 * 1024
#: No broker of ours or Apache's sends more: `fetch.max.bytes` bounds a fetch, and its default is 50 MiB.
FRAME_BYTES_MAX = 1 << 30
#: A longer frame gets memory as its bytes arrive: the length that a peer claims costs no more than this.
_AT_ONCE_BYTES = 64 << 20
#: The first bytes of a TLS alert, with which a TLS listener answers plain text.
_TLS_ALERT = b"\x15\x03"


class AnswerFrames:
    """A connection's incoming bytes. The connection creates it; it is useless after `Malformed`."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._staging = bytearray(_STAGING_BYTES)
        self._staged = 0
        self._long: memoryview | None = None
        self._filled = 0
        #: The full size of the frame in `_long`.
        self._long_bytes = 0
        self._frames = Frames()

    def room(self) -> memoryview:
        """The buffer to receive the next bytes into; never empty."""
        if self._long is not None:
            return self._long[self._filled :]
        return memoryview(self._staging)[self._staged :]

    def filled(self, count: int) -> list[memoryview]:
        """Take `count` bytes that were received into `room`. Returns the complete frames; Malformed if not Kafka's."""
        if self._long is None:
            self._staged += count
            return self._cut()
        self._filled += count
        if self._filled < len(self._long):
            return []
        if self._filled < self._long_bytes:
            return self._grow()
        frame, self._long = self._long, None
        return [frame]

    def _grow(self) -> list[memoryview]:
        assert self._long is not None
        grown = self._frames.take(min(self._long_bytes, 2 * self._filled))
        grown[: self._filled] = self._long
        self._long = grown
        return []

    def _cut(self) -> list[memoryview]:
        """Take every complete frame out of the staging buffer; move the start of a long one to its own memory."""
        frames = []
        position, end = 0, self._staged
        while end - position >= 4:
            size = int.from_bytes(self._staging[position : position + 4], "big", signed=True)
            if not 4 <= size <= self._bytes_max:
                raise Malformed(f"it sent a frame of {size} bytes: is it a Kafka broker?")
            if self._staging[position : position + 2] == _TLS_ALERT:
                raise Malformed("it speaks TLS: is security.protocol=SSL or SASL_SSL missing?")
            start = position + 4
            if end - start >= size:
                frames.append(memoryview(bytes(memoryview(self._staging)[start : start + size])))
                position = start + size
                continue
            if size > _STAGING_BYTES // 2:
                self._long_bytes = size
                self._long = self._frames.take(min(size, _AT_ONCE_BYTES))
                self._filled = end - start
                self._long[: end - start] = self._staging[start:end]
                position = end
            break
        self._staging[: end - position] = self._staging[position:end]
        self._staged = end - position
        return frames
