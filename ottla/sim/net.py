"""Connections without a network: complete frames, in order, until one end closes.

Rules:
- Each frame arrives in its own turn of the loop; replies leave in the order of the requests.
- When a node dies, its connections end, and undelivered frames are lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from ottla.net.inbound import ANONYMOUS
from ottla.net.listener import Gate, ListeningSocket
from ottla.net.memory import RequestMemory
from ottla.net.part import NO_REQUEST, Part, PeerError, Slot
from ottla.net.turns import Turns
from ottla.sim.loop import SimLoop

_HOST = "192.0.2.1"
_PORT_FIRST = 40_000


class SimListener:
    """A stand-in for `ottla.net.listener.ListeningSocket` on the simulated loop. Clients use `connect`."""

    def __init__(
        self,
        name: str,
        loop: SimLoop,
        on_frame: Callable[..., None],
        on_close: Callable[..., None],
        *,
        frame_bytes_max: int,
        idle_ms_max: int,
        gate: Gate | None = None,
        requests: RequestMemory | None = None,
    ) -> None:
        del requests  # No frame is incomplete here.
        self.name = name
        self.loop = loop
        self.on_frame = on_frame
        self._on_close = on_close
        self._accepted = 0
        self._serving = False
        self.port = 0
        self.connections: set[SimConnection] = set()
        #: A round ends when every waiter had a slice: real time must not influence a history.
        self.turns = Turns(cast(asyncio.AbstractEventLoop, loop), lambda: 0.0)

    def bind(self, host: str, port: int) -> None:
        self.port = port

    def serve(self) -> None:
        self._serving = True

    def connect(self, on_reply: Callable[[bytes], None], on_lost: Callable[[], None]) -> "SimConnection":
        """Connect a client; ConnectionRefusedError while the node does not serve."""
        if not self._serving:
            raise ConnectionRefusedError
        self._accepted += 1
        connection = SimConnection(self, _PORT_FIRST + self._accepted, on_reply, on_lost)
        self.connections.add(connection)
        return connection

    def close(self) -> None:
        self._serving = False
        for connection in sorted(self.connections, key=lambda each: each.peer):
            connection.close("the node stops")

    def forget(self, connection: "SimConnection", why: str) -> None:
        """Drop a closed connection."""
        self.connections.discard(connection)
        self._on_close(connection, why)


class SimConnection:
    """Both ends of a client's connection; the node's end has the interface of `ottla.net.inbound.Connection`."""

    def __init__(
        self, listener: SimListener, port: int, on_reply: Callable[[bytes], None], on_lost: Callable[[], None]
    ) -> None:
        self._listener = listener
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._slots: deque[Slot] = deque()
        self.listener_name = listener.name
        self.peer = (_HOST, port)
        self.client_software = ("", "")
        self.principal = ANONYMOUS
        self.closed = False
        self.turns = listener.turns
        self._paused = 0
        #: Ends the mute; None while the client is not muted.
        self._muted: asyncio.TimerHandle | None = None
        self._behind: deque[bytes] = deque()

    # ---- the client's end

    def send(self, frame: bytes) -> None:
        """Send a request frame, without its length."""
        self._listener.loop.call_soon(self._arrive, frame)

    def _arrive(self, frame: bytes) -> None:
        if self.closed:
            return
        if self._paused or self._muted is not None:
            self._behind.append(frame)
            return
        if self._slots and self._slots[-1].superseded is not None:
            self._slots[-1].superseded(int.from_bytes(frame[:2], "big"))
        slot = Slot(self)  # type: ignore[arg-type]
        self._slots.append(slot)
        try:
            # A bytearray, since the node may write into the frame, as into a receive buffer.
            self._listener.on_frame(self, memoryview(bytearray(frame)), slot)
        except PeerError as error:
            self.close(str(error))

    # ---- the node's end

    def pause(self) -> None:
        self._paused += 1

    def resume(self) -> None:
        self._paused -= 1
        self._go_on()

    def mute(self, seconds: float) -> None:
        """Handle no further request of this client for `seconds`. Of two mutes the later end counts."""
        if self.closed:
            return
        if self._muted is not None:
            if self._muted.when() >= self._listener.loop.time() + seconds:
                return
            self._muted.cancel()
        self._muted = self._listener.loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._go_on()

    def _go_on(self) -> None:
        while self._behind and not self._paused and self._muted is None:
            self._arrive(self._behind.popleft())

    def reply_is_ready(self, _: Slot) -> None:
        while self._slots and self._slots[0].ready and not self.closed:
            slot = self._slots.popleft()
            reply = b"".join(_bytes(part) for part in slot.parts)
            if reply:
                # Without the length.
                self._listener.loop.call_soon(self._deliver, reply[4:])
            if slot.on_queued is not None:
                slot.on_queued()

    @property
    def received_at(self) -> float:
        return self.turns.now()

    def when_sent(self, done: Callable[[], None]) -> None:
        # The simulated socket takes everything at once.
        done()

    def close_when_sent(self) -> None:
        self.close("closed after the reply")

    def _deliver(self, reply: bytes) -> None:
        self._on_reply(reply)

    def close(self, why: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
        for slot in self._slots:
            if slot.superseded is not None:
                slot.superseded(NO_REQUEST)
        self._slots.clear()
        self._listener.forget(self, why)
        self._listener.loop.call_soon(self._on_lost)


def _bytes(part: Part) -> bytes:
    return bytes(part) if isinstance(part, bytes | memoryview) else part.bytes()


def new_listener(*args: object, **kwargs: object) -> ListeningSocket:
    """`Ports.listener` of a simulated node."""
    return SimListener(*args, **kwargs)  # type: ignore[arg-type, return-value]
