"""A provider of tokens: its keys, the set of their public halves, and tokens of every kind."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://provider.example", "kafka"


class Provider:
    """Keys by their id: `rsa` and `new` (RSA), `ec` (P-256), `ed` (Ed25519), `weak` (RSA with 1024 bits)."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "new": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "ed": ed25519.Ed25519PrivateKey.generate(),
            "weak": rsa.generate_private_key(65537, 1024),
        }

    def key_set(self, *ids: str, **more: Any) -> bytes:
        """The JWKS of these keys; of the first three without any. `more` goes into each."""
        found = []
        for each in ids or ("rsa", "ec", "ed"):
            public = self.keys[each].public_key()
            if isinstance(public, rsa.RSAPublicKey):
                said: Any = RSAAlgorithm.to_jwk(public, as_dict=True)
            elif isinstance(public, ec.EllipticCurvePublicKey):
                said = ECAlgorithm.to_jwk(public, as_dict=True)
            else:
                said = OKPAlgorithm.to_jwk(public, as_dict=True)
            found.append({**said, "kid": each, "use": "sig", **more})
        return json.dumps({"keys": found}).encode()

    def write(self, path: Path, *ids: str) -> str:
        """The key set in a file; its address."""
        path.write_bytes(self.key_set(*ids))
        return path.as_uri()

    def key_file(self, directory: Path, name: str, passphrase: str = "") -> str:
        """The path of a private key in a file."""
        how: Any = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        path = directory / f"{name}.pem"
        path.write_bytes(self.keys[name].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
        return str(path)

    def token(
        self, key: str = "rsa", algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A signed token of ann's; a claim, or a field of the header, that is None is left out."""
        said = {name: value for name, value in {"kid": key, **(header or {})}.items() if value is not None}
        return jwt.encode(made_claims(**claims), self.keys[key], algorithm, said)


def made_claims(**claims: Any) -> dict[str, Any]:
    """What ann's token says for an hour, with these claims in it."""
    now = int(time.time())
    found = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 3600, **claims}
    return {name: value for name, value in found.items() if value is not None}


def part(said: Any) -> str:
    """A part of a token: of bytes, or of what becomes JSON."""
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsecured(**claims: Any) -> str:
    """A token that nobody signed."""
    return f"{part({'alg': 'none'})}.{part(made_claims(**claims))}."
