"""The exchange of SASL/GSSAPI (RFC 4752), both halves. Pure: tokens in, tokens out, over a `Context`.

    c: the context's tokens, answered by the server's until both are complete
    s: wrapped: layers offered (1 octet), the longest message that the server accepts (3 octets)
    c: wrapped: layer chosen, longest message, authorization id, which is ignored as by Kafka

Kafka has no security layer: offer and choice are "none". The offer's message size is 65536, as Java's server sends,
although RFC 4752 requires 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from ottla.security.principal_mapping import NoUser
from ottla.security.verify import SignInRefused, Verification, Verified

#: Kerberos needs one token from each side; an exchange that takes more than this many fails.
ROUNDS_MAX = 4
_NO_LAYER = 1
_OFFER = bytes([_NO_LAYER]) + (65536).to_bytes(3, "big")


class GssFailed(Exception):
    """A token was refused, or could not be obtained. The text gives the reason in one line."""


class Context(Protocol):
    """A client's or server's side of a security context. All methods raise GssFailed."""

    @property
    def complete(self) -> bool: ...
    @property
    def peer(self) -> str:
        """The other side's principal, once complete."""

    def step(self, token: bytes | None) -> bytes:
        """Process a token; returns the answer, empty if there is none."""

    def wrap(self, message: bytes) -> bytes: ...
    def unwrap(self, message: bytes) -> bytes: ...


def verify_gssapi(accept: Callable[[], Context], user: Callable[[str], str]) -> Verification:
    """The server's half. `user` maps a principal to a user, or raises NoUser."""
    token = yield b""
    try:
        context = accept()
        for _ in range(ROUNDS_MAX):
            answer = context.step(token)
            if context.complete:
                break
            token = yield answer
        else:
            raise SignInRefused(why="its context is not complete after so many tokens")
        if answer and (yield answer):
            raise SignInRefused(why="it sends a token after its context is complete")
        chosen = context.unwrap((yield context.wrap(_OFFER)))
        if len(chosen) < len(_OFFER) or chosen[0] != _NO_LAYER:
            raise SignInRefused(why="it wants a security layer, and Kafka has none")
        principal = context.peer
    except GssFailed as error:
        raise SignInRefused(why=str(error)) from None
    try:
        return Verified(user(principal), b"")
    except NoUser as error:
        raise SignInRefused(why=f"{principal[:200]!r} has no user's name: {error}") from None


def sign_in_gssapi(context: Context, first: bytes) -> Generator[bytes, bytes, None]:
    """The client's half, after the context's first token. GssFailed."""
    challenge = yield first
    for _ in range(ROUNDS_MAX):
        if context.complete:
            break
        challenge = yield context.step(challenge)
    else:
        raise GssFailed("the context is not complete after so many tokens")
    offer = context.unwrap(challenge)
    if len(offer) != len(_OFFER) or not offer[0] & _NO_LAYER:
        raise GssFailed("the broker wants a security layer, and Kafka has none")
    yield context.wrap(bytes([_NO_LAYER, 0, 0, 0]))
