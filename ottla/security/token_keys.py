"""The secrets of delegation tokens (HMACs under `delegation.token.secret.key`), and their SCRAM credentials. Pure.

Rules:
- A token's secret is the HMAC-SHA-512 of its id under the key that all nodes share. No record holds it: every node
  computes it, once for each token.
- A login is SCRAM with the token's id as the user and that HMAC in base64 as the password.

KIP: 48.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from ottla.security.scram import HASHES
from ottla.security.verify import ITERATIONS_MIN
from ottla.wire.record.security import DelegationTokenRecord

Tokens = Mapping[str, DelegationTokenRecord]


class TokenCredential:
    """The SCRAM credential of a token (`ottla.security.verify.KeptCredential`)."""

    __slots__ = ("iterations", "salt", "server_key", "stored_key")

    def __init__(self, password: bytes, salt: bytes, digest: str) -> None:
        self.iterations = ITERATIONS_MIN
        self.salt = salt
        salted = hashlib.pbkdf2_hmac(digest, password, salt, ITERATIONS_MIN)
        self.stored_key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
        self.server_key = hmac.digest(salted, b"Server Key", digest)


class TokenKeys:
    """The secrets of all existing tokens."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key.encode()
        #: The tokens seen last, their ids by HMAC, and the credentials computed so far.
        self._tokens: Tokens = {}
        self._ids: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}
        self._credentials: dict[tuple[str, str], TokenCredential] = {}

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    def find(self, tokens: Tokens, secret: bytes) -> DelegationTokenRecord | None:
        """The token with this HMAC, if it is among `tokens`."""
        self._follow(tokens)
        token_id = self._ids.get(secret)
        return None if token_id is None else tokens.get(token_id)

    def credential(self, tokens: Tokens, token_id: str, mechanism: str, salt: bytes) -> TokenCredential:
        """The credential of a token, which must be among `tokens`. Computed once, in some milliseconds."""
        self._follow(tokens)
        found = self._credentials.get((token_id, mechanism))
        if found is None:
            password = base64.b64encode(self.hmac(token_id))
            found = self._credentials[token_id, mechanism] = TokenCredential(password, salt, HASHES[mechanism])
        return found

    def _follow(self, tokens: Tokens) -> None:
        if tokens is self._tokens:
            return
        self._tokens = tokens
        for gone in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(gone)]
            for mechanism in HASHES:
                self._credentials.pop((gone, mechanism), None)
        for token_id in tokens.keys() - self._hmacs.keys():
            self._hmacs[token_id] = secret = self.hmac(token_id)
            self._ids[secret] = token_id
