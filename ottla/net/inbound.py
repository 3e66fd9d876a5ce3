"""One client's connection: cut frames, hand each to the broker, send the replies in request order.

Rules:
- `on_frame` gets a view of the frame (without its length) that is valid until it returns.
- Replies leave in the order of their requests, whatever the order in which they are ready (Kafka's protocol guide).
- A frame longer than `socket.request.max.bytes`, or one that the broker cannot read, closes this connection only.
- A peer that does not read its replies is not read from: `_UNSENT_BYTES_MAX` and `_PENDING_REPLIES_MAX` bound it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.kernel.port import File

#: One recv takes at most this much; it is shared by all connections of a node.
RECEIVE_BUFFER_BYTES = 1 << 20
#: A frame's memory grows from here by doubling, so that a length that lies costs no more than what was really sent.
_FRAME_BYTES_FIRST = (1 << 20) + (1 << 12)
#: Frames of a producer's max.request.size (1 MiB) fit into a spare.
_SPARE_BYTES = (1 << 20) + (1 << 12)
_SPARE_FROM_BYTES = 1 << 16
_SPARES_MAX = 2
_UNSENT_BYTES_MAX = 64 << 20
_PENDING_REPLIES_MAX = 1000
_SIZE = struct.Struct(">i")
#: sendmsg takes at most IOV_MAX (1024) pieces.
_PIECES_MAX = 256


class FileRange(Protocol):
    """A piece of a file that is sent without being read (`ottla.log` makes it). It keeps its file open."""

    file: File
    position: int

    def __len__(self) -> int: ...
    def bytes(self) -> bytes: ...


#: What a reply is made of.
Part = bytes | memoryview | FileRange


class PeerError(Exception):
    """The peer broke the protocol. Its connection is closed; nobody else notices."""


class Slot:
    """The place of one reply in a connection's order. `fill` may come at once or much later, exactly once."""

    __slots__ = ("_connection", "close_after", "parts", "ready", "superseded")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.ready = False
        self.parts: Sequence[Part] = ()
        self.close_after = False
        #: Called when a later request has arrived behind this one: a reply that only waits for more may come now.
        self.superseded: Callable[[], None] | None = None

    def fill(self, parts: Sequence[Part]) -> None:
        """Give the reply; no parts for a request that has none (Produce with acks=0)."""
        assert not self.ready, "a request has one reply"
        self.parts = parts
        self.ready = True
        self.superseded = None
        self._connection.reply_is_ready()


class ReceiveMemory:
    """What all connections of a listener receive into. The listener makes it.

    A frame that does not come in one read gets memory of its own until it is handled; `_SPARES_MAX` pieces of that are
    kept, since a producer of large batches sends nothing else, and fresh memory must be zeroed and mapped each time.
    """

    __slots__ = ("_spares", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._spares: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """So many bytes; what is in them is nobody's."""
        if size < _SPARE_FROM_BYTES or size > _SPARE_BYTES:
            return memoryview(bytearray(size))
        return memoryview(self._spares.pop() if self._spares else bytearray(_SPARE_BYTES))[:size]

    def give_back(self, memory: memoryview) -> None:
        """The frame in it was handled."""
        owner = memory.obj
        if isinstance(owner, bytearray) and len(owner) == _SPARE_BYTES and len(self._spares) < _SPARES_MAX:
            self._spares.append(owner)


class Connection:
    """One accepted socket. `Listener` makes it; it ends itself when the peer goes or breaks the protocol."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory,
        on_frame: Callable[[Connection, memoryview, Slot], None],
        on_close: Callable[[Connection, str], None],
        frame_bytes_max: int,
        listener_name: str,
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._memory = memory
        self._shared = memory.shared
        self._on_frame = on_frame
        self._on_close = on_close
        self._frame_bytes_max = frame_bytes_max
        self.listener_name = listener_name
        #: An IPv6 peer's tuple has four parts; the first two are host and port.
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.closed = False
        #: Clients say their software's name in ApiVersions (KIP-511).
        self.client_software = ("", "")
        #: When the last bytes came, on the loop's clock in seconds; the idle sweep reads it.
        self.heard_at = loop.time()
        #: The bytes of an incomplete frame with its length, or None between frames. `_partial_end` bytes are there.
        self._partial: memoryview | None = None
        self._partial_end = 0
        self._slots: deque[Slot] = deque()
        self._out: deque[Part] = deque()
        self._unsent_bytes = 0
        self._sent_of_first = 0
        self._reading = True
        self._writing = False
        self._handling = False
        self._close_when_sent = False
        #: Set while this peer is not listened to, with what had come behind the request that it waits for.
        self._muted: asyncio.TimerHandle | None = None
        self._held = bytearray()
        loop.add_reader(self._fd, self._readable)

    # ---- in

    def _readable(self) -> None:
        try:
            if self._partial is None:
                count = self._sock.recv_into(self._shared)
            else:
                count = self._sock.recvmsg_into([self._partial[self._partial_end :], self._shared])[0]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            return self.close(error.strerror or "connection lost")
        if not count:
            return self.close("the peer closed the connection")
        self.heard_at = self._loop.time()
        self._handling = True
        try:
            if self._partial is None:
                self._cut(self._shared[:count])
            else:
                self._continue(count)
        except PeerError as error:
            self.close(str(error))
        finally:
            self._handling = False
        if self.closed:
            return
        if self._slots:
            self._send_ready()
        if self._reading and self._is_overloaded():
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _cut(self, data: memoryview) -> None:
        """Hand over each whole frame in `data`; keep what is left of an incomplete one."""
        position, end = 0, len(data)
        while end - position >= 4 and self._muted is None:
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= self._frame_bytes_max:
                raise self._wrong_size(size)
            if end - position - 4 < size:
                break
            self._hand_over(data[position + 4 : position + 4 + size])
            if self.closed:
                return
            position += 4 + size
        if position < end:
            if self._muted is None:
                self._keep(data[position:])
            else:
                self._held = bytearray(data[position:])

    def _keep(self, rest: memoryview) -> None:
        needed = 4 if len(rest) < 4 else 4 + int.from_bytes(rest[:4], "big")
        self._partial = self._memory.take(min(max(needed, len(rest)), _FRAME_BYTES_FIRST))
        self._partial[: len(rest)] = rest
        self._partial_end = len(rest)

    def _continue(self, count: int) -> None:
        """`count` bytes came: first into the rest of the partial frame, then into the shared buffer."""
        partial = self._partial
        assert partial is not None
        own = min(count, len(partial) - self._partial_end)
        self._partial_end += own
        spill = self._shared[: count - own]
        if self._partial_end < len(partial):
            return
        (size,) = _SIZE.unpack_from(partial)
        if not 0 <= size <= self._frame_bytes_max:
            raise self._wrong_size(size)
        if len(partial) < 4 + size:
            self._grow(partial, 4 + size, spill)
            return
        self._partial = None
        self._hand_over(partial[4:])
        self._memory.give_back(partial)
        if spill and not self.closed:
            self._cut(spill)

    def _grow(self, partial: memoryview, needed: int, spill: memoryview) -> None:
        """The frame is longer than its memory: double it, and take from `spill` what belongs to the frame."""
        length = min(needed, max(2 * len(partial), self._partial_end + len(spill), 1 << 12))
        grown = self._memory.take(length)
        grown[: self._partial_end] = partial
        taken = min(len(spill), length - self._partial_end)
        grown[self._partial_end : self._partial_end + taken] = spill[:taken]
        self._memory.give_back(partial)
        self._partial = grown
        self._partial_end += taken
        if self._partial_end == needed:
            self._partial = None
            self._hand_over(grown[4:])
            self._memory.give_back(grown)
            if taken < len(spill) and not self.closed:
                self._cut(spill[taken:])

    def _wrong_size(self, size: int) -> PeerError:
        return PeerError(f"a frame of {size} bytes; socket.request.max.bytes is {self._frame_bytes_max}")

    def _hand_over(self, frame: memoryview) -> None:
        if self._slots:
            waiting = self._slots[-1].superseded
            if waiting is not None:
                waiting()
        slot = Slot(self)
        self._slots.append(slot)
        self._on_frame(self, frame, slot)

    def mute(self, seconds: float) -> None:
        """Look at no other request of this peer for so long; replies go out. Twice is until the later end."""
        if self.closed:
            return
        if self._muted is not None:
            if self._muted.when() >= self._loop.time() + seconds:
                return
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self._unmute)
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _unmute(self) -> None:
        self._muted = None
        held, self._held = self._held, bytearray()
        if held:
            self._handling = True
            try:
                self._cut(memoryview(held))
            except PeerError as error:
                self.close(str(error))
            finally:
                self._handling = False
            if self.closed:
                return
            self._send_ready()
        self._read_again()

    def _read_again(self) -> None:
        if not self.closed and not self._reading and self._muted is None and not self._is_overloaded():
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    # ---- out

    def reply_is_ready(self) -> None:
        """A slot was filled: send it now, unless we are inside a read, which sends once at its end."""
        if not self._handling and not self.closed:
            self._send_ready()

    def _send_ready(self) -> None:
        slots = self._slots
        if len(slots) == 1 and not self._out and self._send_only(slots[0]):
            return
        while slots and slots[0].ready:
            slot = slots.popleft()
            for part in slot.parts:
                self._out.append(part)
                self._unsent_bytes += len(part)
            if slot.close_after:
                self._close_when_sent = True
                slots.clear()
        if self._out and not self._writing:
            self._write()
        elif self._close_when_sent and not self._out:
            self.close("closed after the reply")

    def _send_only(self, slot: Slot) -> bool:
        """The short way of nearly every answer: one piece that the socket takes whole, with nothing behind it."""
        if not slot.ready or slot.close_after or len(slot.parts) != 1:
            return False
        part = slot.parts[0]
        if type(part) is not bytes:
            return False
        try:
            sent = self._sock.send(part)
        except OSError:
            # The long way meets it again, and knows what to do.
            return False
        if sent < len(part):
            slot.parts = (part[sent:],)
            return False
        self._slots.popleft()
        return True

    def _write(self) -> None:
        try:
            while self._out:
                first = self._out[0]
                if isinstance(first, bytes | memoryview):
                    self._write_buffers()
                else:
                    self._write_file(first)
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._writable)
            return
        except OSError as error:
            return self.close(error.strerror or "connection lost")
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._close_when_sent:
            self.close("closed after the reply")

    def _writable(self) -> None:
        self._write()
        self._read_again()

    def _write_buffers(self) -> None:
        """Send the run of buffers at the head of the queue in one call, and drop what went."""
        out = self._out
        first = out[0]
        if len(out) == 1 and not self._sent_of_first:
            sent = self._sock.send(first)  # type: ignore[arg-type]
        else:
            pieces: list[bytes | memoryview] = []
            flags = 0
            for part in out:
                if not isinstance(part, bytes | memoryview):
                    # What follows is a file: let the kernel put this header and the file's bytes into one packet.
                    flags = socket.MSG_MORE
                    break
                pieces.append(part)
                if len(pieces) == _PIECES_MAX:
                    break
            if self._sent_of_first:
                pieces[0] = memoryview(pieces[0])[self._sent_of_first :]
            sent = self._sock.sendmsg(pieces, (), flags)
        self._drop(sent)

    def _write_file(self, part: FileRange) -> None:
        descriptor = part.file.descriptor()
        done = self._sent_of_first
        if descriptor is None:
            sent = self._sock.send(memoryview(part.bytes())[done:])
        else:
            sent = os.sendfile(self._fd, descriptor, part.position + done, len(part) - done)
            if not sent:
                raise OSError("a log file became shorter while it was sent")
        self._drop(sent)

    def _drop(self, sent: int) -> None:
        self._unsent_bytes -= sent
        sent += self._sent_of_first
        out = self._out
        while out and sent >= len(out[0]):
            sent -= len(out.popleft())
        self._sent_of_first = sent

    def _is_overloaded(self) -> bool:
        return self._unsent_bytes > _UNSENT_BYTES_MAX or len(self._slots) > _PENDING_REPLIES_MAX

    def close(self, why: str) -> None:
        """End this connection; replies that were still to come are dropped."""
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        for slot in self._slots:
            # Nobody is there to be told, so what waits only for more may stop waiting.
            if slot.superseded is not None:
                slot.superseded()
        self._slots.clear()
        self._out.clear()
        self._partial = None
        self._on_close(self, why)
