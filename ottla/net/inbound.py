"""A client's connection: cuts frames, hands each to the broker, sends the replies in request order.

Rules:
- `on_frame` gets a view of the frame (without its length) that is valid until it returns.
- Replies leave in the order of their requests, whatever the order in which they become ready (Kafka's protocol guide).
  On a busy node those of several connections leave together (`Turns.answer`).
- A frame longer than `socket.request.max.bytes`, or one that the broker cannot read, closes this connection only.
- The connection stops reading from a peer that does not read its replies, or has more of them behind one that is not
  ready, at `UNSENT_BYTES_MAX` (`UNSENT_BYTES_LITTLE` when all together have many) or `PENDING_REPLIES_MAX`.
- A connection handles many requests that came at once in slices, and yields to the others in between (`Turns`): at most
  `FRAMES_A_SLICE`, and none that begins after `SLICE_SECONDS`. It reads nothing more until all of them are handled.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from ottla.kernel.address import plain_address
from ottla.net.memory import RECEIVE_BUFFER_BYTES, UNSENT_BYTES_MANY, ReceiveMemory
from ottla.net.part import NO_REQUEST, FileRange, Part, PeerError, Slot, buffers_at_head
from ottla.net.sent import SentMarks
from ottla.net.turns import Turns

__all__ = ["RECEIVE_BUFFER_BYTES", "Connection", "FileRange", "Part", "PeerError", "ReceiveMemory", "Slot"]

#: A frame's memory grows from here by doubling.
_FRAME_BYTES_FIRST = (1 << 20) + (1 << 12)
#: Apache Kafka reads no second request before it has answered the first; this bounds what pipelining costs.
UNSENT_BYTES_MAX = 8 << 20
UNSENT_BYTES_LITTLE = 64 << 10
PENDING_REPLIES_MAX = 1000
#: The work of one connection before it yields to the others.
FRAMES_A_SLICE = 100
SLICE_SECONDS = 0.001
#: Bytes written to a fast socket before the connection yields to the others.
WRITE_BYTES_A_TURN = 8 << 20
_SIZE = struct.Struct(">i")

#: Kafka's principal of a client that did not sign in.
ANONYMOUS = "User:ANONYMOUS"


class Connection:
    """An accepted socket. `ListeningSocket` creates it; it closes itself when the peer leaves or errs."""

    #: Since when requests of this peer are held, on the clock `Turns.now`; None while none are held.
    _held_at: float | None = None
    _sent_marks: SentMarks | None = None

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory,
        turns: Turns,
        on_frame: Callable[[Connection, memoryview, Slot], None],
        on_close: Callable[[Connection, str], None],
        frame_bytes_max: int,
        listener_name: str,
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._memory = memory
        self.turns = turns
        self._now = turns.now
        self._on_frame = on_frame
        self._on_close = on_close
        self._frame_bytes_max = frame_bytes_max
        self.listener_name = listener_name
        host, port = sock.getpeername()[:2]  # An IPv6 peer's tuple has two more parts.
        self.peer: tuple[str, int] = plain_address(host), port
        self.closed = False
        #: The client's software name and version, from ApiVersions (KIP-511).
        self.client_software = ("", "")
        #: The client's principal; a listener with SASL sets another.
        self.principal = ANONYMOUS
        #: True if the client signed in with a delegation token.
        self.signed_in_by_token = False
        #: When the last bytes came, a late reply left, or the peer took bytes slowly, on the clock `Turns.now`.
        self.heard_at = self._now()
        #: The memory of an incomplete frame with its length, of which `_partial_end` bytes came; None between frames.
        self._partial: memoryview | None = None
        self._partial_end = 0
        #: What the partial frame has of the node's `RequestMemory`: its whole length, from the first bytes on.
        self._reserved_bytes = 0
        self._slots: deque[Slot] = deque()
        self._out: deque[Part] = deque()
        self._unsent_bytes = self._bytes_behind = self._sent_of_first = 0
        self._reading = True
        self._writing = False
        self._handling = False
        self._close_when_sent = False
        #: Ends the mute; None while the peer is not muted.
        self._muted: asyncio.TimerHandle | None = None
        #: How many pauses hold up the next request (see `pause`).
        self._paused = 0
        #: Received requests that wait for this connection's turn, or for the end of the mute or pause.
        self._held: memoryview | None = None
        self._waits_for_turn = False
        loop.add_reader(self._fd, self._readable)

    # ---- in

    def _readable(self) -> None:
        shared = self._memory.shared
        try:
            if self._partial is None:
                count = self._sock.recv_into(shared)
            else:
                count = self._sock.recvmsg_into([self._partial[self._partial_end :], shared])[0]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            return self.close(error.strerror or str(error) or "connection lost")
        if not count:
            return self.close("the peer closed the connection")
        self.heard_at = self._now()
        if self.heard_at > self.turns.due:
            self.turns.send()
        self._handling = True
        try:
            if self._partial is None:
                self._cut(shared[:count])
            else:
                self._continue(count)
        except PeerError as error:
            self.close(str(error))
        finally:
            self._handling = False
        if self.closed:
            return
        if self._slots and (self._slots[0].ready or self._close_when_sent):
            self.turns.answer(self._answer, self.heard_at)
        else:
            self._read_or_not()

    def _cut(self, data: memoryview) -> None:
        """Hand over one slice of the complete frames in `data`; keep the rest."""
        position, end, frames = 0, len(data), 0
        while end - position >= 4 and self._muted is None and not self._paused:
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
                frames += 1
                if frames == FRAMES_A_SLICE or self._now() - self.heard_at > SLICE_SECONDS or self._is_overloaded():
                    return self._hold(data[position:])
        if position < end:
            keep = self._keep if self._muted is None and not self._paused else self._hold
            keep(data[position:])

    def _hold(self, rest: memoryview) -> None:
        """Keep received requests for later, and stop reading until they are handled."""
        # Data that was held before is in its own memory already.
        self._held = rest if rest.obj is not self._memory.shared.obj else memoryview(bytearray(rest))
        self._memory.hold(len(rest))
        if self._held_at is None:
            self._held_at = self.heard_at
        self._stop_reading()

    def _go_on(self) -> None:
        """Handle a slice of the held requests, now that it is this connection's turn."""
        self._waits_for_turn = False
        held = self._held
        if held is None or self._muted is not None or self._paused or self._is_overloaded():
            return
        self._held = None
        self._memory.hold(-len(held))
        self.heard_at = self._now()
        self._handling = True
        try:
            self._cut(held)
        except PeerError as error:
            self.close(str(error))
        finally:
            self._handling = False
        if self.closed:
            return
        if self._held is None:
            self._held_at = None
        self._send_ready()
        self._read_again()

    @property
    def received_at(self) -> float:
        """When the current request was complete, on the clock `Turns.now`."""
        return self.heard_at if self._held_at is None else self._held_at

    def _keep(self, rest: memoryview) -> None:
        needed = 4 if len(rest) < 4 else 4 + int.from_bytes(rest[:4], "big")
        if not self._reserved_bytes and not self._memory.requests.reserve(needed, self._reserved):
            # The frame waits with the bytes that have arrived.
            self._hold(rest)
            return self.pause()
        self._reserved_bytes = needed
        self._partial = self._memory.take(min(max(needed, len(rest)), _FRAME_BYTES_FIRST), len(rest))
        self._partial[: len(rest)] = rest
        self._partial_end = len(rest)

    def _reserved(self, size: int) -> None:
        """There is memory for the frame that waits."""
        self._reserved_bytes = size
        self.resume()

    def _complete(self, partial: memoryview) -> None:
        """Hand over a frame that is complete, and give its memory back."""
        self._partial = None
        try:
            self._hand_over(partial[4:])
        finally:
            self._memory.give_back(partial)
            self._release()

    def _release(self) -> None:
        reserved, self._reserved_bytes = self._reserved_bytes, 0
        self._memory.requests.release(reserved)

    def _continue(self, count: int) -> None:
        """Take `count` received bytes: first the rest of the partial frame, then the shared buffer."""
        partial = self._partial
        assert partial is not None
        own = min(count, len(partial) - self._partial_end)
        self._partial_end += own
        spill = self._memory.shared[: count - own]
        if self._partial_end < len(partial):
            return
        (size,) = _SIZE.unpack_from(partial)
        if not 0 <= size <= self._frame_bytes_max:
            raise self._wrong_size(size)
        if len(partial) == 4:
            self._partial = None
            self._memory.give_back(partial)
            self._release()
            return self._cut(memoryview(b"".join((partial, spill))))
        if len(partial) < 4 + size:
            return self._grow(partial, 4 + size, spill)
        self._complete(partial)
        if spill and not self.closed:
            self._cut(spill)

    def _grow(self, partial: memoryview, needed: int, spill: memoryview) -> None:
        """Double the memory of a frame that is longer, and copy the frame's part of `spill` into it."""
        length = min(needed, max(2 * len(partial), self._partial_end + len(spill), 1 << 12))
        grown = self._memory.take(length, self._partial_end + len(spill))
        grown[: self._partial_end] = partial
        taken = min(len(spill), len(grown) - self._partial_end)
        grown[self._partial_end : self._partial_end + taken] = spill[:taken]
        self._memory.give_back(partial)
        self._partial = grown
        self._partial_end += taken
        if self._partial_end == needed:
            self._complete(grown)
            if taken < len(spill) and not self.closed:
                self._cut(spill[taken:])

    def _wrong_size(self, size: int) -> PeerError:
        return PeerError(f"a frame of {size} bytes; at most {self._frame_bytes_max} are taken")

    def _hand_over(self, frame: memoryview) -> None:
        if self._slots and (waiting := self._slots[-1].superseded) is not None:
            waiting(int.from_bytes(frame[:2], "big"))
        slot = Slot(self)
        self._slots.append(slot)
        self._on_frame(self, frame, slot)

    def peer_certificate(self) -> bytes | None:
        """The client's certificate (DER), if it has shown one."""
        return None

    def replace_handler(
        self, on_frame: Callable[[Connection, memoryview, Slot], None], frame_bytes_max: int | None = None
    ) -> None:
        """From the next frame on, call this `on_frame`, and accept frames up to `frame_bytes_max`."""
        self._on_frame = on_frame
        if frame_bytes_max is not None:
            self._frame_bytes_max = frame_bytes_max

    def mute(self, seconds: float) -> None:
        """Handle no further request of this peer for `seconds`; replies go out. Of two mutes the later end counts."""
        if self.closed:
            return
        if self._muted is not None:
            if self._muted.when() >= self._loop.time() + seconds:
                return
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self._unmute)
        self._stop_reading()

    def pause(self) -> None:
        """Handle no further request of this peer while its last one is in progress; ended by as many `resume`."""
        if not self.closed:
            self._paused += 1
            self._stop_reading()

    def resume(self) -> None:
        """End one pause."""
        self._paused -= 1
        self._read_again()

    def _unmute(self) -> None:
        self._muted = None
        self._read_again()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _read_again(self) -> None:
        """Go on with the held requests, or else with the socket, unless muted, paused or overloaded."""
        if self.closed or self._reading or self._muted is not None or self._paused or self._is_overloaded():
            return
        if self._held is None:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)
        elif not self._waits_for_turn:
            self._waits_for_turn = True
            self.turns.wait(self._go_on)

    # ---- out

    def reply_is_ready(self, slot: Slot) -> None:
        """Send the replies that are ready, unless inside a read, which sends once at its end."""
        if self._slots and self._slots[0] is not slot:
            slot.bytes_behind = len(slot.parts[0]) if len(slot.parts) == 1 else sum(map(len, slot.parts))
            self._bytes_behind += slot.bytes_behind
            self._memory.unsent_bytes += slot.bytes_behind
        if not self._handling and not self.closed:
            self.heard_at = self._now()
            self._send_ready()
            self._read_again()

    def _answer(self) -> None:
        if not self.closed:
            self._send_ready()
            self._read_or_not()

    def _read_or_not(self) -> None:
        """Stop reading if the peer has too much unsent or unanswered; go on if it has not."""
        if not self._reading:
            self._read_again()
        elif (self._slots or self._out) and self._is_overloaded():
            self._stop_reading()

    def _send_ready(self) -> None:
        slots = self._slots
        if len(slots) == 1 and not self._out and self._send_single_reply(slots[0]):
            return
        before = self._unsent_bytes + self._bytes_behind
        while slots and slots[0].ready:
            slot = slots.popleft()
            self._bytes_behind -= slot.bytes_behind
            for part in slot.parts:
                self._out.append(part)
                self._unsent_bytes += len(part)
            if slot.on_queued is not None:
                queued, slot.on_queued = slot.on_queued, None
                queued()
        self._memory.unsent_bytes += self._unsent_bytes + self._bytes_behind - before
        if self._out and not self._writing:
            self._write()
        elif self._close_when_sent and not self._out:
            self.close("closed after the reply")

    def _send_single_reply(self, slot: Slot) -> bool:
        """The fast path of nearly every reply: one piece, nothing queued, and the socket takes all of it."""
        if not slot.ready or slot.on_queued is not None or len(slot.parts) != 1:
            return False
        part = slot.parts[0]
        if type(part) is not bytes:
            return False
        try:
            sent = self._sock.send(part)
        except OSError:
            # The slow path meets the error again and handles it.
            return False
        if sent < len(part):
            slot.parts = (part[sent:],)
            return False
        self._slots.popleft()
        return True

    def _write(self) -> None:
        least = self._unsent_bytes - WRITE_BYTES_A_TURN
        try:
            while self._out:
                if self._unsent_bytes < least:
                    raise BlockingIOError
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
            return self.close(error.strerror or str(error) or "connection lost")
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._close_when_sent:
            self.close("closed after the reply")

    def _writable(self) -> None:
        self.heard_at = self._now()
        self._write()
        self._read_again()

    def _write_buffers(self) -> None:
        """Send the run of buffers at the head of the queue in one call, and drop what was sent."""
        out = self._out
        first = out[0]
        if len(out) == 1 and not self._sent_of_first:
            sent = self._sock.send(first)  # type: ignore[arg-type]
        else:
            pieces, flags = buffers_at_head(out, self._sent_of_first)
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
        self._memory.unsent_bytes -= sent
        if self._sent_marks is not None:
            self._sent_marks.sent(sent)
        sent += self._sent_of_first
        out = self._out
        while out and sent >= len(out[0]):
            sent -= len(out.popleft())
        self._sent_of_first = sent

    def when_sent(self, done: Callable[[], None]) -> None:
        """Call `done` when everything queued now is sent, or when the connection is closed."""
        if self._sent_marks is None:
            self._sent_marks = SentMarks()
        self._sent_marks.add(self._unsent_bytes, done)

    def close_when_sent(self) -> None:
        """Close this connection when everything queued now is sent; drop later replies."""
        self._close_when_sent = True
        self._slots.clear()

    def _is_overloaded(self) -> bool:
        bytes_max = UNSENT_BYTES_LITTLE if self._memory.unsent_bytes > UNSENT_BYTES_MANY else UNSENT_BYTES_MAX
        return self._unsent_bytes + self._bytes_behind > bytes_max or len(self._slots) > PENDING_REPLIES_MAX

    def close(self, why: str) -> None:
        """Close this connection; drop the replies that are not sent."""
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
            # The client is gone: a reply that only waits for more data may stop waiting.
            if slot.superseded is not None:
                slot.superseded(NO_REQUEST)
        self._slots.clear()
        self._out.clear()
        self._memory.unsent_bytes -= self._unsent_bytes + self._bytes_behind
        if self._sent_marks is not None:
            self._sent_marks.end()
        if self._partial is not None:
            self._memory.give_back(self._partial)
            self._partial = None
        self._memory.requests.forget(self._reserved)
        self._release()
        if self._held is not None:
            self._memory.hold(-len(self._held))
            self._held = None
        self._on_close(self, why)
