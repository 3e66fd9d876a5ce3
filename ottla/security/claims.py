"""Validation of a token's claims. Pure: takes the bytes of the claims and the time.

Rules, those of Kafka's BrokerJwtValidator over jose4j:
- `exp` and `iat` are required, `nbf` is optional; `exp` must be the latest. Fractions of a second are ignored.
- The audience must be one of the expected ones. If none is configured, a token that names an audience is refused.
- The user is a string, trimmed. Scopes are a string or a list of strings, not empty and without duplicates.
- Duplicate names and invalid numbers (NaN, Infinity) are malformed.

`UnsecuredRules`, for unsigned tokens, are those of OAuthBearerUnsecuredValidatorCallbackHandler. KIPs: 255, 768.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from ottla.kernel.error import OttlaError
from ottla.kernel.frozen import frozen
from ottla.security.bearer import Bearer, TokenRefused

_INT64 = 1 << 63
#: The characters that Java's `trim` removes.
_BLANK = "".join(map(chr, range(33)))
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")


def read_object(data: bytes | str, what: str) -> dict[str, Any]:
    """Parse a JSON object. TokenRefused, whose text calls it `what`."""
    try:
        found = json.loads(data, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} is malformed") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"its {what} is no JSON object")
    return found


def decoded(part: str, what: str) -> bytes:
    """Decode a part of a token. TokenRefused, whose text calls it `what`."""
    if _BASE64URL.fullmatch(part) is None:
        raise TokenRefused(f"its {what} is not in base64url")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise TokenRefused(f"its {what} is not in base64url") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_number(text: str) -> None:
    raise ValueError


@frozen
class ClaimRules:
    """The rules for the claims of a signed token."""

    #: If empty, a token that names an audience is refused.
    audiences: tuple[str, ...]
    #: None accepts every issuer.
    issuer: str | None
    skew_seconds: int
    scope_claim: str
    user_claim: str

    def check(self, payload: bytes, now_ms: int) -> Bearer:
        """The holder of a token, from claims whose signature was verified. TokenRefused."""
        claims = read_object(payload, "set of claims")
        ends_at = self._check_times(claims, now_ms // 1000)
        for name in ("iss", "sub", "jti"):
            if not isinstance(claims.get(name), str | None):
                raise TokenRefused(f"its claim {name} is no text")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenRefused("its claim iss is not sasl.oauthbearer.expected.issuer")
        self._check_audience(claims.get("aud"))
        _check_scopes(claims.get(self.scope_claim))
        return Bearer(_user(claims.get(self.user_claim), self.user_claim), ends_at * 1000)

    def _check_times(self, claims: Mapping[str, Any], now: int) -> int:
        ends_at, issued_at, begins_at = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if ends_at is None or issued_at is None:
            raise TokenRefused("it has no claim exp, or no iat")
        if ends_at < 0 or issued_at < 0:
            raise TokenRefused("its claim exp or iat is negative")
        if now - self.skew_seconds >= ends_at:
            raise TokenRefused("it has ended (claim exp)")
        if begins_at is not None and now + self.skew_seconds < begins_at:
            raise TokenRefused("it does not hold yet (claim nbf)")
        if ends_at < issued_at or (begins_at is not None and ends_at < begins_at):
            raise TokenRefused("it ends before it begins (claims exp, iat, nbf)")
        return ends_at

    def _check_audience(self, value: Any) -> None:
        if value is None and not self.audiences:
            return
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TokenRefused("its claim aud is missing or no text")
        if not set(names) & set(self.audiences):
            raise TokenRefused("its claim aud names none of sasl.oauthbearer.expected.audience")


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time in s since 1970. An infinite number (1e999 parses as one) becomes a time out of range."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"its claim {name} is no number")
    try:
        found = int(value)
    except OverflowError:
        found = _INT64
    if not -_INT64 <= found * 1000 < _INT64:
        raise TokenRefused(f"its claim {name} is no time")
    return found


def _user(value: Any, claim: str) -> str:
    if not _is_text(value) or not value.strip(_BLANK):
        raise TokenRefused(f"its claim {claim} names no user")
    return value.strip(_BLANK)


def _is_text(value: Any) -> TypeGuard[str]:
    """Whether the value is a string with a UTF-8 form. JSON can escape half of a surrogate pair, which has none."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _check_scopes(value: Any) -> None:
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(scope, str) and scope.strip(_BLANK) for scope in scopes):
        raise TokenRefused("one of its scopes is empty or no text")
    if len({scope.strip(_BLANK) for scope in scopes}) != len(scopes):
        raise TokenRefused("one of its scopes stands twice")


@frozen
class UnsecuredRules:
    """The rules for unsigned tokens."""

    user_claim: str
    scope_claim: str
    required_scopes: tuple[str, ...]
    skew_ms: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnsecuredRules:
        """Create the rules from the options of a JAAS line. OttlaError."""
        named = {name: options.get(f"unsecuredValidator{name}", "").strip(_BLANK) for name in _OPTIONS}
        skew = named["AllowableClockSkewMs"] or "0"
        if not skew.isascii() or not skew.isdecimal() or int(skew) >= 1 << 31:
            raise OttlaError("the option unsecuredValidatorAllowableClockSkewMs of the JAAS line is no time in ms")
        scopes = tuple(each for each in named["RequiredScope"].split(" ") if each)
        return cls(named["PrincipalClaimName"] or "sub", named["ScopeClaimName"] or "scope", scopes, int(skew))

    def check(self, token: str, now_ms: int) -> Bearer:
        """The holder of a token. TokenRefused."""
        parts = token.split(".")
        if len(parts) != 3:
            raise TokenRefused("it has not the three parts of a token")
        header, claims = (read_object(decoded(part, "part"), "part") for part in parts[:2])
        if header.get("alg") != "none" or parts[2]:
            raise TokenRefused("it is signed, and this listener takes unsecured tokens")
        ends_at: Any = claims.get("exp")
        issued_at: Any = claims.get("iat", 0)
        for time in (ends_at, issued_at):
            if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) * 1000 < _INT64:
                raise TokenRefused("it has no claim exp, or that or iat is no time")
        if now_ms - self.skew_ms >= 1000 * ends_at or ends_at <= issued_at:
            raise TokenRefused("it has ended (claim exp)")
        if 1000 * issued_at > now_ms + self.skew_ms:
            raise TokenRefused("it was issued in times to come (claim iat)")
        user = claims.get(self.user_claim)
        if not _is_text(user) or not user.strip():
            raise TokenRefused(f"its claim {self.user_claim} names no user")
        self._check_scopes(claims.get(self.scope_claim))
        return Bearer(user, round(ends_at * 1000))

    def _check_scopes(self, value: Any) -> None:
        held = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        missing = set(self.required_scopes) - {scope.strip() for scope in held if isinstance(scope, str)}
        if missing:
            raise TokenRefused("it lacks a required scope", f"[{', '.join(self.required_scopes)}]")


_OPTIONS = ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
