"""A provider's public keys (JWKS, RFC 7517), and the verification of token signatures (RFC 7515).

Rules:
- Keys are RSA, EC or OKP. Shared secrets (`oct`) are ignored: every reader of the key set could sign with them. So an
  HMAC algorithm finds no key, whatever a token says.
- A token's algorithm selects the kind of key, its `kid` the key; if several match, `alg` decides.
- RSA keys have at least 2048 bits.

PyJWT verifies the signatures (docs/decisions/0645).
"""

from __future__ import annotations

from typing import Any

import jwt
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple
from ottla.security.bearer import TokenRefused
from ottla.security.claims import decoded, read_object

#: Algorithm -> (kind of key, curve).
ALGORITHMS = {
    **{f"{kind}{bits}": ("RSA", None) for kind in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
_READERS: dict[str, Any] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}
_BITS_MIN = 2048
_JWS = jwt.PyJWS()


class NoSuchKey(TokenRefused):
    """No key of the set matches the token: the provider may have newer ones."""


class _Key(NamedTuple):
    kind: str
    curve: str | None
    id: str | None
    algorithm: str | None
    key: Any


class KeySet:
    """The keys of one version of the set."""

    def __init__(self, keys: list[_Key]) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """Parse a JSON Web Key Set. Unsupported keys are ignored. OttlaError if none is left."""
        try:
            listed = read_object(data, "set").get("keys")
        except TokenRefused:
            listed = None
        if not isinstance(listed, list):
            raise OttlaError("it is no JSON Web Key Set")
        keys = [key for each in listed if isinstance(each, dict) and (key := _key(each)) is not None]
        if not keys:
            raise OttlaError("it has no key that checks signatures (RSA of 2048 bits or more, EC, OKP)")
        return cls(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def payload(self, token: str) -> bytes:
        """The payload of a token that one of the keys signed. TokenRefused, NoSuchKey."""
        parts = token.split(".")
        if len(parts) != 3 or not all(parts):
            raise TokenRefused("it has not the three parts of a token")
        header = read_object(decoded(parts[0], "header"), "header")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenRefused("its algorithm (alg) is none that is taken")
        if not isinstance(key_id, str | None):
            raise TokenRefused("the id of its key (kid) is no text")
        key = self._find(algorithm, key_id)
        try:
            found: bytes = _JWS.decode(token, key.key, algorithms=[algorithm])
        except jwt.PyJWTError:
            raise TokenRefused("its signature is wrong") from None
        return found

    def _find(self, algorithm: str, key_id: str | None) -> _Key:
        kind, curve = ALGORITHMS[algorithm]
        found = [
            key for key in self._keys if key.kind == kind and curve in (None, key.curve) and key_id in (None, key.id)
        ]
        if len(found) > 1:
            found = [key for key in found if key.algorithm in (None, algorithm)]
        if not found:
            raise NoSuchKey("no key of the key set fits it")
        return found[0]


def _key(jwk: dict[str, Any]) -> _Key | None:
    kind, operations = jwk.get("kty"), jwk.get("key_ops")
    if not isinstance(kind, str) or kind not in _READERS or jwk.get("use", "sig") != "sig":
        return None
    if isinstance(operations, list) and "verify" not in operations:
        return None
    public = {name: value for name, value in jwk.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        key: Any = _READERS[kind].from_jwk(public)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and key.key_size < _BITS_MIN:
        return None
    return _Key(kind, jwk.get("crv"), jwk.get("kid"), jwk.get("alg"), key)
