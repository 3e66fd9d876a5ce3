"""A client's connection under TLS: the handshake first, then `Connection` over a `TlsSocket`.

Rules:
- The handshake has a timeout, and its OpenSSL steps run on a thread (`ottla/net/handshake.py`).
- Plaintext that is already decrypted is read in a later turn of the loop, as if the socket were readable.
- Records are read from their file and encrypted, since sendfile cannot encrypt.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from ottla.net.authentications import Authentications
from ottla.net.handshake import HANDSHAKE_SECONDS, Handshake, Handshakes
from ottla.net.inbound import Connection, FileRange, PeerError
from ottla.net.tls import TlsSocket, tls_reason

#: Bytes read from a file and encrypted in one step.
_FILE_BYTES = 1 << 18


class TlsAcceptor:
    """The TLS configuration that a listener's connections share. The node creates it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: Callable[[], Handshakes],
        context: Callable[[], ssl.SSLContext],
        on_secured: Callable[[Connection, ssl.SSLObject], None],
        handshake_seconds: float = HANDSHAKE_SECONDS,
        authentications: Authentications | None = None,
    ) -> None:
        self.loop = loop
        self.turns = turns
        #: Returns the context for a new connection.
        self.context = context
        #: Called after the handshake; raises PeerError if the connection must be refused.
        self.on_secured = on_secured
        self.handshake_seconds = handshake_seconds
        #: Counts those who are refused; `on_secured` counts the others.
        self.authentications = authentications or Authentications()
        #: Handshakes in progress.
        self.handshakes_running = 0

    def connection(self, sock: socket.socket, *arguments: Any) -> TlsConnection:
        """Create the connection of an accepted socket; the arguments are those of `Connection`."""
        return TlsConnection(self, sock, *arguments)


class TlsConnection(Connection):
    """An accepted socket of a listener with TLS."""

    def __init__(self, acceptor: TlsAcceptor, sock: socket.socket, *arguments: Any) -> None:
        self._tls = TlsSocket(sock, acceptor.context())
        self._acceptor = acceptor
        self._read_is_scheduled = False
        super().__init__(cast(socket.socket, self._tls), *arguments)
        self._handshake = Handshake(
            acceptor.loop, acceptor.turns(), self._tls, self._secured, acceptor.handshake_seconds
        )
        acceptor.handshakes_running += 1
        self._handshake.accept()

    def _secured(self, error: OSError | None) -> None:
        self._acceptor.handshakes_running -= 1
        if error is not None:
            # A peer that leaves is not refused.
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                self._acceptor.authentications.failed += 1
            return self.close(f"the TLS handshake failed: {tls_reason(error)}")
        try:
            self._acceptor.on_secured(self, self._tls.tls)
        except PeerError as refused:
            self._acceptor.authentications.failed += 1
            return self.close(str(refused))
        self._loop.add_reader(self._fd, self._readable)
        # A request may have arrived together with the end of the handshake.
        self._tls.has_more = True
        return self._schedule_read()

    def peer_certificate(self) -> bytes | None:
        """The client's certificate (DER), if it has shown one."""
        return self._tls.tls.getpeercert(binary_form=True)

    # ---- in

    def _readable(self) -> None:
        super()._readable()
        self._schedule_read()

    def _read_again(self) -> None:
        super()._read_again()
        self._schedule_read()

    def _schedule_read(self) -> None:
        """Plan a read if plaintext is left: no event of the socket announces it."""
        if self._tls.has_more and self._reading and not self.closed and not self._read_is_scheduled:
            self._read_is_scheduled = True
            self._loop.call_soon(self._read_decrypted)

    def _read_decrypted(self) -> None:
        self._read_is_scheduled = False
        if self._reading and not self.closed:
            self._readable()

    # ---- out

    def _write_file(self, part: FileRange) -> None:
        if self._tls.has_unsent:
            return self._drop(self._tls.send(b""))
        done = self._sent_of_first
        size = min(len(part) - done, _FILE_BYTES)
        descriptor = part.file.descriptor()
        if descriptor is None:
            data: bytes | memoryview = memoryview(part.bytes())[done : done + size]
        else:
            data = os.pread(descriptor, size, part.position + done)
            if not data:
                raise OSError("a log file became shorter while it was sent")
        return self._drop(self._tls.send(data))

    def close(self, why: str) -> None:
        """Close this connection; drop the replies that are not sent."""
        if not self.closed:
            if not self._tls.is_ready and not self._handshake.is_over:
                self._acceptor.handshakes_running -= 1
            self._handshake.cancel()
        super().close(why)
