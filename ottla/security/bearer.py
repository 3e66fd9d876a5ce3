r"""The server's half of OAUTHBEARER: the client's message, and the answer to a refused token. Pure.

    c: n,,\x01auth=Bearer TOKEN\x01name=value\x01\x01      (RFC 7628)
    s: empty                                               the token is accepted
    s: {"status":"invalid_token"}                          it is refused
    c: \x01                                                the exchange ends

Rules:
- A connection sends one token. After a refusal the node reads only the byte 1 that ends the exchange.
- A session ends with its token (KIP-368). A token valid for more than 292 years is refused: 64 bits hold no more ns.
- Extensions (KIP-342) are parsed and ignored.

Messages are those of Kafka's OAuthBearerSaslServer. KIPs: 255, 768.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ottla.kernel.named import NamedTuple
from ottla.security.verify import SignInRefused, Verification, Verified

#: The longest token accepted, in characters. Providers' tokens have one or two thousand.
TOKEN_LENGTH_MAX = 65_536
_LIFETIME_MS_MAX = ((1 << 63) - 1) // 1_000_000

_SASL_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = rb"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rb"n,(?:a=(?P<authzid>" + _SASL_NAME + rb"))?,\x01(?P<pairs>" + _PAIRS + rb")\x01")
_BEARER = re.compile(rb"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class TokenRefused(Exception):
    """A refused token. `why` is for the log, `scope` is the missing scope; neither holds a part of the token."""

    def __init__(self, why: str, scope: str | None = None) -> None:
        super().__init__(why)
        self.scope = scope

    def answer(self) -> str:
        """The JSON that Kafka's clients expect."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


class Bearer(NamedTuple):
    """The holder of a token, and its expiry in ms since 1970."""

    user: str
    ends_at_ms: int


def verify_bearer(check: Callable[[str], Bearer], now_ms: Callable[[], int]) -> Verification:
    """Run OAUTHBEARER; `check` validates a token or raises TokenRefused. `now_ms` gives the wall time."""
    message = yield b""
    wanted, token = _token(message)
    try:
        bearer = check(token)
        lifetime_ms = bearer.ends_at_ms - now_ms()
        if lifetime_ms > _LIFETIME_MS_MAX:
            raise TokenRefused("it ends in more than 292 years")
    except TokenRefused as refused:
        answer = refused.answer()
    else:
        if wanted and wanted != bearer.user:
            raise SignInRefused(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is different from the "
                f"token's principal name ({bearer.user})"
            )
        return Verified(bearer.user, b"", lifetime_ms)
    reply = yield answer.encode()
    raise SignInRefused(answer if reply == b"\x01" else None)


def _token(message: bytes) -> tuple[str, str]:
    """The requested authorization id ("" if none), and the token."""
    first = _FIRST.fullmatch(message)
    if first is None:
        raise SignInRefused
    pairs = dict(pair.split(b"=", 1) for pair in first["pairs"].split(b"\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get(b"auth", b""))
    if bearer is None:
        raise SignInRefused
    return (first["authzid"] or b"").decode(), bearer["token"].decode()
