"""TLS over a non-blocking socket, with the socket methods that connections use and the same contracts.

Rules:
- `send` returns how many bytes of plaintext the kernel took, encrypted. If the kernel takes less than one encrypted
  piece, `send` raises BlockingIOError, as a full socket does; the next `send` must begin with the same bytes.
- `recv_into` fills the buffer as far as the peer has sent. `has_more`: there may be decrypted plaintext left, which no
  readiness of the socket announces.
- `Handshake` (`ottla/net/handshake.py`) drives the handshake; OpenSSL runs on memory, so a step may run on a thread as
  long as the loop does not touch this socket.
- Memory is bounded whatever a peer sends: at most `_RECEIVE_BYTES` are decrypted at a time and `_SEND_BYTES` encrypted,
  and a peer that makes OpenSSL answer without reading the answers is cut off (`_UNREAD_BYTES_MAX`).
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

#: Bytes read from the socket, and encrypted, in one step: 16 TLS records.
_RECEIVE_BYTES = 1 << 18
_SEND_BYTES = 1 << 18
#: The limit of OpenSSL's own messages (tickets, key updates, alerts) that the peer does not read.
_UNREAD_BYTES_MAX = 1 << 17


class _Raw(threading.local):
    """The buffer for encrypted input: one for all sockets of a thread, and so of a loop."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_RECEIVE_BYTES))


_raw = _Raw()


class TlsSocket:
    """`sock` under TLS. Its owner closes it."""

    __slots__ = ("_encrypted", "_ended", "_in", "_out", "_unsent_plaintext", "_sock", "has_more", "is_ready", "tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str | None = None) -> None:
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._in, self._out, server_side=context.protocol == ssl.PROTOCOL_TLS_SERVER, server_hostname=server_name
        )
        #: Encrypted bytes that the kernel has not taken yet.
        self._encrypted = memoryview(b"")
        #: The bytes of plaintext in `_encrypted`.
        self._unsent_plaintext = 0
        #: The peer has sent its close_notify.
        self._ended = False
        self.has_more = False
        #: The handshake is over.
        self.is_ready = False

    # ---- the handshake

    def receive_handshake(self) -> int:
        """Read some bytes of the handshake and return their number; 0 at the end. BlockingIOError, OSError."""
        raw = _raw.buffer
        count = self._sock.recv_into(raw, 1 << 14)
        self._in.write(raw[:count])
        return count

    def step(self) -> bool:
        """Advance the handshake in OpenSSL; True when it is over. ssl.SSLError. May run on a thread."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def flush(self) -> bool:
        """Send OpenSSL's own messages; False while the kernel takes no more. OSError."""
        if self._out.pending:
            self._encrypted = memoryview(bytes(self._encrypted) + self._out.read())
        try:
            self._send_encrypted()
        except BlockingIOError:
            return False
        return True

    # ---- in

    def recv_into(self, buffer: memoryview) -> int:
        """Fill `buffer`; 0 at the end of the stream. BlockingIOError if nothing came, OSError on a protocol error."""
        filled = self._decrypt(buffer, 0)
        if filled < len(buffer) and not self._ended:
            raw = _raw.buffer
            try:
                count = self._sock.recv_into(raw)
            except BlockingIOError:
                if filled:
                    return filled
                raise
            if not count:
                return filled
            self._in.write(raw[:count])
            filled = self._decrypt(buffer, filled)
        if self._out.pending:
            self._answer()
        if not filled and not self._ended:
            raise BlockingIOError
        return filled

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Fill the buffers in turn."""
        filled = self.recv_into(buffers[0])
        if filled == len(buffers[0]) and self.has_more:
            filled += self._decrypt(buffers[1], 0)
        return (filled,)

    def _decrypt(self, buffer: memoryview, filled: int) -> int:
        """Decrypt as much as there is into `buffer`, from `filled` on; returns the new end."""
        read, size = self.tls.read, len(buffer)
        try:
            while filled < size:
                count: int = read(size - filled, buffer[filled:])  # type: ignore[assignment]
                if not count:
                    self._ended = True
                    break
                filled += count
            else:
                self.has_more = True
                return filled
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLError:
            # Send OpenSSL's alert, so that the peer learns the reason.
            self.flush()
            raise
        self.has_more = False
        return filled

    def _answer(self) -> None:
        """Send OpenSSL's own messages; OSError if the peer does not read them."""
        if not self._unsent_plaintext:
            self.flush()
        if self._out.pending + len(self._encrypted) > _SEND_BYTES + _UNREAD_BYTES_MAX:
            raise OSError("it makes TLS answer, and does not read the answers")

    # ---- out

    def send(self, data: bytes | memoryview) -> int:
        """Send a prefix of `data` and return its length. BlockingIOError, OSError."""
        if not self._unsent_plaintext:
            if not data:
                return 0
            piece = data if len(data) <= _SEND_BYTES else memoryview(data)[:_SEND_BYTES]
            self._unsent_plaintext = self.tls.write(piece)
            fresh = self._out.read()
            self._encrypted = memoryview(bytes(self._encrypted) + fresh if self._encrypted else fresh)
        self._send_encrypted()
        sent_bytes, self._unsent_plaintext = self._unsent_plaintext, 0
        return sent_bytes

    @property
    def has_unsent(self) -> bool:
        """Whether the last piece still waits for the kernel. The next `send` sends it, whatever its argument."""
        return self._unsent_plaintext > 0

    def sendmsg(self, pieces: Sequence[bytes | memoryview], ancillary: Any = (), flags: int = 0) -> int:
        """Send a prefix of the concatenated `pieces`."""
        if self._unsent_plaintext:
            return self.send(b"")
        size, taken = 0, []
        for piece in pieces:
            if size and size + len(piece) > _SEND_BYTES:
                break
            taken.append(piece)
            size += len(piece)
        return self.send(taken[0] if len(taken) == 1 else b"".join(taken))

    def _send_encrypted(self) -> None:
        while self._encrypted:
            sent = self._sock.send(self._encrypted)
            self._encrypted = self._encrypted[sent:]

    # ---- the rest of a socket

    def close(self) -> None:
        """Close the socket; send close_notify first if that does not block."""
        if self.is_ready and not self._unsent_plaintext:
            with suppress(OSError, ValueError):
                self.tls.unwrap()
            with suppress(OSError):
                self.flush()
        self._sock.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    def getpeername(self) -> Any:
        return self._sock.getpeername()


def tls_reason(error: OSError) -> str:
    """The reason of a TLS error, in OpenSSL's words without its error codes."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return error.strerror or str(error) or "connection lost"
