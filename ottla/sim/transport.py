"""An asyncio transport on a simulated socket, for a client's protocol.

Rules: as asyncio's selector transports. `connection_made` is called before `create_connection` returns,
`connection_lost` once, in its own turn; writing pauses above 64 KiB of unsent bytes and resumes at 16 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.sim.host import HostLoop
    from ottla.sim.socket import SimSocket

_HIGH_BYTES = 64 * 1024
_LOW_BYTES = 16 * 1024


class SimTransport:
    """A client's end of a connection. `HostLoop.create_connection` creates it."""

    def __init__(self, loop: HostLoop, sock: SimSocket, protocol: Any) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._out = bytearray()
        self._writing = False
        self._paused = False
        self._closing = False
        self._lost = False
        protocol.connection_made(self)
        loop.add_reader(self._fd, self._readable)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"socket": self._sock, "peername": self._sock.getpeername()}
        return known.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._lost:
            return
        self._out += data
        if not self._writing:
            self._write()
        if len(self._out) > _HIGH_BYTES and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        """Close after everything written is sent."""
        if self._closing:
            return
        self._closing = True
        self._loop.remove_reader(self._fd)
        if not self._out:
            self._end(None)

    def abort(self) -> None:
        self._closing = True
        self._end(None)

    def _readable(self) -> None:
        try:
            count = self._sock.recv_into(self._protocol.get_buffer(-1))
        except BlockingIOError:
            return
        except OSError as error:
            return self._end(error)
        if count:
            self._protocol.buffer_updated(count)
        else:
            self._loop.remove_reader(self._fd)
            if not self._protocol.eof_received():
                self.close()

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._sock.send(self._out)
                del self._out[:sent]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._write)
            return
        except OSError as error:
            return self._end(error)
        finally:
            if self._paused and len(self._out) <= _LOW_BYTES and not self._lost:
                self._paused = False
                self._protocol.resume_writing()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._closing:
            self._end(None)

    def _end(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._out.clear()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
