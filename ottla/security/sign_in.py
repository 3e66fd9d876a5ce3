"""The security of a client's connections: its TLS context and its SASL authentication, created once per client."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.kernel.client_error import AuthenticationFailed, error_of
from ottla.kernel.error import ErrorCode
from ottla.security.gss import GssFailed
from ottla.security.sasl import SignIn
from ottla.security.scram import ScramRefused
from ottla.security.tls import context
from ottla.settings.client.security import SecuritySettings
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: Sends one request of the exchange and returns the response.
Ask = Callable[[object], Awaitable[Any]]


class Security:
    """A client's TLS context and credentials; its `Cluster` creates it. OttlaError for an unusable certificate."""

    def __init__(self, settings: SecuritySettings) -> None:
        self.context: ssl.SSLContext | None = None
        if settings.tls:
            self.context = context(settings)
        self.sign_in = SignIn(settings) if settings.sasl else None


async def authenticate(ask: Ask, sign_in: SignIn, host: str, port: int) -> int:
    """Authenticate at a broker; returns the session's lifetime in ms, 0 for unlimited. AuthenticationFailed."""
    where = f"{host}:{port}"
    hello: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=sign_in.mechanism))
    if hello.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(hello.mechanisms) or "nothing"
        raise AuthenticationFailed(f"{where} does not take sasl.mechanism={sign_in.mechanism}: it offers {offered}")
    if hello.error_code:
        raise AuthenticationFailed(f"{where} wants no sign-in on this port: is security.protocol right?")
    exchange = await sign_in.exchange(host)
    lifetime_ms = 0
    try:
        token = next(exchange)
        while True:
            answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=token))
            refused = error_of(answer.error_code, answer.error_message)
            if refused is not None and refused.retriable:
                raise refused
            if refused is not None:
                why = refused.message or refused.code.name
                raise AuthenticationFailed(f"{where} refuses to let this client in: {why}")
            lifetime_ms = answer.session_lifetime_ms
            token = exchange.send(bytes(answer.auth_bytes))
    except StopIteration:
        return lifetime_ms
    except (ScramRefused, GssFailed) as error:
        raise AuthenticationFailed(f"{where}: signing in by {sign_in.mechanism} failed: {error}") from None
