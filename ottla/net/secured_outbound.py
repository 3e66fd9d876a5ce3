"""The connection of a node to a listener of another node that requires TLS, SASL, or both.

Rules:
- TLS comes first, then ApiVersions, SaslHandshake and SaslAuthenticate; requests follow only after these.
- The setup timeout bounds all of it. A sign-in that waits for a KDC starts on a thread; if the connection ends
  meanwhile, its result is dropped.
- The session is renewed on the same connection (KIP-368): when `_RENEWED_AFTER` of its lifetime is over, the connection
  sends no more requests until all sent ones are answered, then signs in again.
- A refused sign-in or certificate is logged in one line, once for each peer and reason.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Generator
from typing import Any, cast

from ottla.kernel.error import OttlaError
from ottla.net.handshake import Handshake, Handshakes
from ottla.net.outbound import Outbound, OutboundRequest
from ottla.net.peer import Disconnected
from ottla.net.request import PeerVersions, api_of
from ottla.net.tls import TlsSocket, tls_reason
from ottla.security.gss import GssFailed
from ottla.security.node_login import NodeLogin
from ottla.security.scram import ScramRefused
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_log = logging.getLogger("ottla.security")
_NONCE_BYTES = 24
_RENEWED_AFTER = 0.85
_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2

_Exchange = Generator[bytes, bytes, None]


class SecuredOutbound(Outbound):
    """An `Outbound` that authenticates itself."""

    def __init__(self, *arguments: Any, login: NodeLogin, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._login = login
        #: `_sock`, once TLS is on it.
        self._tls: TlsSocket | None = None
        self._handshake: Handshake | None = None
        self._read_is_scheduled = False
        #: The versions that the peer named, while the sign-in goes on.
        self._peer_versions: PeerVersions | None = None
        self._exchange: _Exchange | None = None
        #: The exchange that a thread starts.
        self._exchange_future: asyncio.Future[_Exchange] | None = None
        #: When the session must be renewed, on the loop's clock.
        self._renew_at: float | None = None

    # ---- TLS

    def _connected(self) -> None:
        if self._login.problem:
            self._complain(self._login.problem)
            return self._failed(self._login.problem)
        if self._login.context is None:
            return super()._connected()
        context = self._login.context()
        try:
            self._tls = TlsSocket(cast(socket.socket, self._sock), context, self.host)
        except ValueError as error:
            return self._failed(f"its name cannot be checked: {error}")
        self._sock = cast(socket.socket, self._tls)
        self._handshake = Handshake(self._loop, Handshakes(self._loop, None), self._tls, self._handshake_done)
        return self._handshake.connect()

    def _handshake_done(self, error: OSError | None) -> None:
        if error is not None:
            why = f"the TLS handshake failed: {tls_reason(error)}"
            self._complain(why)
            return self._failed(why)
        return super()._connected()

    def _readable(self) -> None:
        tls = self._tls
        super()._readable()
        if tls is not None and tls is self._tls and tls.has_more and not self._read_is_scheduled:
            # No event of the socket announces plaintext that is already decrypted.
            self._read_is_scheduled = True
            self._loop.call_soon(self._read_decrypted)

    def _read_decrypted(self) -> None:
        self._read_is_scheduled = False
        if self._tls is not None:
            self._readable()

    # ---- SASL

    def _activate(self, versions: PeerVersions) -> None:
        if self._login.mechanism is None:
            self._login.complaints.pop((self.host, self.port), None)
            return super()._activate(versions)
        self._peer_versions = versions
        return self._sign_in()

    def _sign_in(self) -> None:
        assert self._login.mechanism is not None
        self._exchange = None
        self._request(SaslHandshakeRequest(mechanism=self._login.mechanism), _HANDSHAKE_VERSION)

    def _request(self, request: object, version: int) -> None:
        self._send(OutboundRequest(api_of(request), request, 0, None, lambda answer: None), version)

    def _handle_setup(self, response: Any, version: int) -> None:
        if isinstance(response, SaslHandshakeResponse):
            return self._mechanism_offered(response)
        if isinstance(response, SaslAuthenticateResponse):
            return self._authenticated(response)
        return super()._handle_setup(response, version)

    def _mechanism_offered(self, response: SaslHandshakeResponse) -> None:
        login = self._login
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            return self._refused(f"it does not take the mechanism {login.mechanism} (it offers {offered})")
        nonce = self._rng.randbytes(_NONCE_BYTES).hex()
        if not login.waits:
            return self._start_exchange(login.exchange(self.host, nonce))
        self._exchange_future = self._loop.run_in_executor(None, login.exchange, self.host, nonce)
        return self._exchange_future.add_done_callback(self._exchange_ready)

    def _exchange_ready(self, exchange: asyncio.Future[_Exchange]) -> None:
        error = OttlaError("given up") if exchange.cancelled() else exchange.exception()
        if exchange is not self._exchange_future:
            # Its connection is gone.
            return None
        self._exchange_future = None
        if error is not None:
            why = str(error)
            self._complain(why)
            return self._failed(why)
        return self._start_exchange(exchange.result())

    def _start_exchange(self, exchange: _Exchange) -> None:
        self._exchange = exchange
        self._request(SaslAuthenticateRequest(auth_bytes=next(exchange)), _AUTHENTICATE_VERSION)

    def _authenticated(self, response: SaslAuthenticateResponse) -> None:
        assert self._exchange is not None
        if response.error_code:
            return self._refused(response.error_message or f"error {response.error_code}")
        try:
            token = self._exchange.send(bytes(response.auth_bytes))
        except StopIteration:
            return self._signed_in(response.session_lifetime_ms)
        except (ScramRefused, GssFailed) as error:
            return self._refused(str(error))
        return self._request(SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION)

    def _signed_in(self, lifetime_ms: int) -> None:
        assert self._peer_versions is not None
        self._exchange = None
        self._login.complaints.pop((self.host, self.port), None)
        self._renew_at = self._loop.time() + lifetime_ms * _RENEWED_AFTER / 1000 if lifetime_ms else None
        super()._activate(self._peer_versions)

    def _refused(self, why: str) -> None:
        message = f"it does not let this node in as {self._login.user}: {why}"
        self._complain(message)
        self._failed(message)

    def _complain(self, why: str) -> None:
        address = (self.host, self.port)
        if self._login.complaints.get(address) != why:
            self._login.complaints[address] = why
            _log.warning("%s:%d cannot be reached: %s", self.host, self.port, why)

    def _send_waiting(self) -> None:
        if self._renew_at is not None and self._loop.time() >= self._renew_at:
            if not self._sent and self._waiting:
                self._renew_at = None
                self.versions = None
                self._setup = self._loop.call_later(self._setup_seconds(), self._setup_expired)
                self._sign_in()
            return
        super()._send_waiting()

    # ---- ends

    def _end(self, why: str, kind: type[Disconnected] = Disconnected) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        if self._exchange_future is not None:
            self._exchange_future.cancel()
            self._exchange_future = None
        super()._end(why, kind)
        self._tls = self._exchange = self._renew_at = None
