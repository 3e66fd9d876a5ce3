"""A reply: its place in the order, and its parts: bytes, and ranges of files that are sent without being read.

Also what ends a connection instead of a reply.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.kernel.ports import File

if TYPE_CHECKING:
    from ottla.net.inbound import Connection


class FileRange(Protocol):
    """A range of a file that is sent without being read (`ottla.log` creates it). It keeps its file open."""

    file: File
    position: int

    def __len__(self) -> int: ...
    def bytes(self) -> bytes: ...


#: sendmsg takes at most IOV_MAX (1024) pieces.
_PIECES_MAX = 256
#: Stands for an API key when no further request will come.
NO_REQUEST = -1


class PeerError(Exception):
    """The peer broke the protocol. Its connection is closed; other clients are not affected."""


#: A piece of a reply.
Part = bytes | memoryview | FileRange


class Slot:
    """The place of one reply in a connection's order. `fill` is called exactly once, at once or much later."""

    __slots__ = ("_connection", "bytes_behind", "on_queued", "parts", "ready", "superseded")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.ready = False
        self.parts: Sequence[Part] = ()
        #: The bytes of a reply that became ready behind one that was not.
        self.bytes_behind = 0
        #: Called once, when the reply is queued behind those before it.
        self.on_queued: Callable[[], None] | None = None
        #: Called with the API key of a later request, or NO_REQUEST when the peer has disconnected: a reply that only
        #: waits for more data may be sent now.
        self.superseded: Callable[[int], None] | None = None

    def fill(self, parts: Sequence[Part]) -> None:
        """Give the reply; no parts if the request gets none (Produce with acks=0)."""
        assert not self.ready, "a request has one reply"
        self.parts = parts
        self.ready = True
        self.superseded = None
        self._connection.reply_is_ready(self)


def buffers_at_head(out: deque[Part], sent_of_first: int) -> tuple[list[bytes | memoryview], int]:
    """(the buffers at the head of a queue, without what was sent of the first; the flags to send them with)."""
    pieces: list[bytes | memoryview] = []
    flags = 0
    for part in out:
        if not isinstance(part, bytes | memoryview):
            # A file follows: let the kernel put this header and the file's bytes into one packet.
            flags = socket.MSG_MORE
            break
        pieces.append(part)
        if len(pieces) == _PIECES_MAX:
            break
    if sent_of_first:
        pieces[0] = memoryview(pieces[0])[sent_of_first:]
    return pieces, flags
