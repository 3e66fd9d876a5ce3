"""Assertions: signed claims by which a client or a node authenticates at a token provider (RFC 7523).

Rules:
- `sasl.oauthbearer.assertion.file` holds a complete assertion. Otherwise each request gets a new one: the claims aud,
  iss and sub from the settings, overridden by `...assertion.template.file` ({"header": {...}, "payload": {...}}), then
  the times, and a jti if configured.
- Files are read each time, so a replaced file takes effect at once.
- No error holds a key, a passphrase or an assertion.

KIP: 1139. The signature is PyJWT's (docs/decisions/0645).
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from ottla.kernel.error import OttlaError

_NAME = "sasl.oauthbearer.assertion"


class Assertions:
    """Makes assertions by the settings' attributes `sasl_oauthbearer_assertion_*`. OttlaError."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        ready, key = settings.sasl_oauthbearer_assertion_file, settings.sasl_oauthbearer_assertion_private_key_file
        if not ready and not key:
            raise OttlaError(f"an assertion needs {_NAME}.private.key.file (PEM), or {_NAME}.file with a ready one")
        named: dict[str, str | None] = {"file": ready}
        if not ready:
            named = {"private.key.file": key, "template.file": settings.sasl_oauthbearer_assertion_template_file}
            try:
                import jwt  # noqa: F401
                from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: F401
            except ImportError:
                raise OttlaError("assertions are signed with PyJWT: pip install 'ottla[oauth]'") from None
        #: Setting -> the file that it names.
        self.files = {f"{_NAME}.{name}": value for name, value in named.items() if value}

    def make(self, now_s: int) -> str:
        """A new assertion, or the one in the file. OttlaError."""
        settings = self._settings
        if settings.sasl_oauthbearer_assertion_file:
            return self._read("file").decode("ascii", "replace").strip()
        header, payload = self._template()
        claims = {
            "aud": settings.sasl_oauthbearer_assertion_claim_aud,
            "iss": settings.sasl_oauthbearer_assertion_claim_iss,
            "sub": settings.sasl_oauthbearer_assertion_claim_sub,
        }
        claims = {name: value for name, value in claims.items() if value is not None} | payload
        claims |= {
            "iat": now_s,
            "exp": now_s + settings.sasl_oauthbearer_assertion_claim_exp_seconds,
            "nbf": now_s - settings.sasl_oauthbearer_assertion_claim_nbf_seconds,
        }
        if settings.sasl_oauthbearer_assertion_claim_jti_include:
            claims["jti"] = str(uuid.uuid4())
        return self._signed(header, claims)

    def _signed(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        import jwt
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = self._read("private.key.file")
        passphrase = self._settings.sasl_oauthbearer_assertion_private_key_passphrase
        algorithm = self._settings.sasl_oauthbearer_assertion_algorithm.upper()
        try:
            key: Any = load_pem_private_key(pem, passphrase.encode() if passphrase else None)
            assertion: str = jwt.encode(claims, key, algorithm, {**header, "alg": algorithm, "typ": "JWT"})
        except (ValueError, TypeError, UnsupportedAlgorithm, jwt.PyJWTError) as error:
            raise OttlaError(
                f"{_NAME}.private.key.file={self._path('private.key.file')} signs no {algorithm}: a private key in PEM "
                f"for this algorithm is expected, and its passphrase if it has one ({type(error).__name__})"
            ) from None
        return assertion

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if f"{_NAME}.template.file" not in self.files:
            return {}, {}
        try:
            template = json.loads(self._read("template.file"))
            header, payload = dict(template.get("header", {})), dict(template.get("payload", {}))
        except (ValueError, TypeError, AttributeError):
            raise OttlaError(
                f'{_NAME}.template.file={self._path("template.file")}: {{"header": {{...}}, "payload": {{...}}}} is '
                "expected"
            ) from None
        return header, payload

    def _path(self, name: str) -> str:
        return self.files[f"{_NAME}.{name}"]

    def _read(self, name: str) -> bytes:
        try:
            return Path(self._path(name)).read_bytes()
        except OSError as error:
            raise OttlaError(f"{_NAME}.{name}={self._path(name)} cannot be read: {error.strerror}") from None
