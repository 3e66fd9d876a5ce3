"""The server's side of a connection's SASL authentication: handshake, tokens, sessions. Pure.

    begun -- ApiVersions --> asked -- SaslHandshake --> exchanging -- tokens --> done
    done  -- SaslHandshake (KIP-368) --> exchanging -- tokens --> done

Rules:
- Before the handshake, only one ApiVersions is allowed.
- SaslHandshake v0 is followed by bare tokens, later versions by SaslAuthenticate.
- A renewed session keeps its mechanism and principal. It ends with its credential, or sooner.
- A failure closes the connection (`SignInFailed`), after the error response where there is one.

States and messages are those of Kafka's SaslServerAuthenticator. KIPs: 43, 152, 368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.security.verify import Mechanism, SignInRefused, Verification, Verified
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: The minimum time between two renewals of a session.
RENEWAL_MS_MIN = 1000


class SignInFailed(Exception):
    """The connection must be closed, after `response` if there is one."""

    def __init__(self, why: str, response: Any = None) -> None:
        super().__init__(why)
        self.response = response


class SignInState(Enum):
    """The state of a connection's authentication."""

    BEGUN = "begun"
    ASKED = "asked"
    EXCHANGING = "exchanging"
    DONE = "done"


class Authenticator:
    """A connection's authentication.

    `session_ms` gives the session lifetime of a mechanism (0: unlimited), `principal_of` the principal of a user.
    """

    __slots__ = (
        "_exchange",
        "_mechanisms",
        "_principal_of",
        "_renewed_at_ms",
        "_session_ms",
        "bare",
        "by_token",
        "ends_at_ms",
        "mechanism",
        "principal",
        "state",
    )

    def __init__(
        self,
        mechanisms: Mapping[str, Mechanism],
        session_ms: Callable[[str], int],
        principal_of: Callable[[str], str] = "User:{}".format,
    ) -> None:
        self._mechanisms = mechanisms
        self._principal_of = principal_of
        self._session_ms = session_ms
        self._exchange: Verification | None = None
        self._renewed_at_ms: int | None = None
        self.state = SignInState.BEGUN
        self.mechanism = ""
        #: The principal, such as `User:ann`; None before the first success.
        self.principal: str | None = None
        #: True if the client authenticated with a delegation token.
        self.by_token = False
        #: True if tokens come without a request around them.
        self.bare = False
        #: When the session ends, in monotonic ms; None if it does not end.
        self.ends_at_ms: int | None = None

    def asked_versions(self) -> None:
        """Note that ApiVersions was answered."""
        self.state = SignInState.ASKED

    @property
    def may_ask_versions(self) -> bool:
        return self.state is SignInState.BEGUN

    def handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """Handle the client's choice of a mechanism."""
        if self.state is SignInState.EXCHANGING:
            response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            raise SignInFailed("a handshake in the middle of a sign-in", None if self.bare else response)
        offered = list(self._mechanisms)
        begin = self._mechanisms.get(request.mechanism)
        if begin is None:
            why = f"it asks for the mechanism {request.mechanism[:40]!r}, which is not enabled"
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            raise SignInFailed(why, SaslHandshakeResponse(error_code=code, mechanisms=offered))
        # A renewal by another mechanism has no exchange: the handshake succeeds as in Kafka, and the first token fails.
        if self.principal is None or request.mechanism == self.mechanism:
            self._exchange = begin()
            next(self._exchange)
            self.mechanism = request.mechanism
        self.bare = version == 0
        self.state = SignInState.EXCHANGING
        return SaslHandshakeResponse(mechanisms=offered)

    def authenticate(self, request: SaslAuthenticateRequest, now_ms: int) -> SaslAuthenticateResponse:
        """Handle the client's next token. `state` is DONE after the last."""
        try:
            answer = self._take(bytes(request.auth_bytes), now_ms)
        except SignInRefused as refused:
            phase = "authentication" if self.principal is None else "re-authentication"
            message = refused.told or (
                f"Authentication failed during {phase} due to invalid credentials with SASL mechanism {self.mechanism}"
            )
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            response = SaslAuthenticateResponse(error_code=code, error_message=message)
            raise SignInFailed(self._failed(refused), response) from None
        lifetime_ms = 0
        if self.state is SignInState.DONE and self.ends_at_ms is not None:
            lifetime_ms = self.ends_at_ms - now_ms
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    def token(self, data: bytes, now_ms: int) -> bytes:
        """Handle a bare token (after SaslHandshake v0); returns the bare answer."""
        try:
            return self._take(data, now_ms)
        except SignInRefused as refused:
            raise SignInFailed(self._failed(refused)) from None

    def _failed(self, refused: SignInRefused) -> str:
        return f"its {self.mechanism} sign-in failed" + (f": {refused.why}" if refused.why else "")

    def _take(self, data: bytes, now_ms: int) -> bytes:
        if self.state is not SignInState.EXCHANGING:
            raise SignInFailed("a token without a handshake")
        if self._exchange is None:
            raise SignInFailed(f"it renews its session by another mechanism than {self.mechanism}")
        try:
            return self._exchange.send(data)
        except StopIteration as done:
            verified: Verified = done.value
        principal = self._principal_of(verified.user)
        if self.principal not in (None, principal):
            raise SignInRefused(
                "Cannot change principals during re-authentication from "
                f"{self.principal.replace(':', '.', 1)}: {principal.replace(':', '.', 1)}"
            )
        self.principal, self.by_token = principal, verified.by_token
        self.state, self._exchange = SignInState.DONE, None
        session_ms = self._session_ms(self.mechanism)
        lifetimes = [
            each for each in (verified.lifetime_ms, session_ms if session_ms > 0 else None) if each is not None
        ]
        self.ends_at_ms = now_ms + max(0, min(lifetimes)) if lifetimes else None
        return bytes(verified.last)

    # ---- sessions

    def is_over(self, now_ms: int) -> bool:
        """Whether the session has ended."""
        return self.ends_at_ms is not None and now_ms > self.ends_at_ms

    def may_renew(self, now_ms: int) -> bool:
        """Whether a handshake may start a renewal now; counts it as one if so."""
        if self.ends_at_ms is None:
            return False
        if self._renewed_at_ms is not None and now_ms - self._renewed_at_ms < RENEWAL_MS_MIN:
            return False
        self._renewed_at_ms = now_ms
        return True
