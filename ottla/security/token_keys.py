"""Delegation tokens by their secrets: a token's HMAC under `delegation.token.secret.key`, and a login by it. Pure.

Rules:
- The secret of a token is HMAC-SHA-512 of its id under the key that all nodes share. It stands in no record: every node
  works it out, once for each token.
- A login is SCRAM whose user is the token's id and whose password is that HMAC in base64.

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
    """What SCRAM asks for (`ottla.security.verify.KeptCredential`)."""

    __slots__ = ("iterations", "salt", "server_key", "stored_key")

    def __init__(self, password: bytes, salt: bytes, digest: str) -> None:
        self.iterations = ITERATIONS_MIN
        self.salt = salt
        salted = hashlib.pbkdf2_hmac(digest, password, salt, ITERATIONS_MIN)
        self.stored_key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
        self.server_key = hmac.digest(salted, b"Server Key", digest)


class TokenKeys:
    """The secrets of the tokens that there are."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key.encode()
        #: The tokens that were followed last, their ids by HMAC, and the logins that were asked for.
        self._tokens: Tokens = {}
        self._ids: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}
        self._credentials: dict[tuple[str, str], TokenCredential] = {}

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    def find(self, tokens: Tokens, secret: bytes) -> DelegationTokenRecord | None:
        """The token of this HMAC, if it is among `tokens`."""
        self._follow(tokens)
        token_id = self._ids.get(secret)
        return None if token_id is None else tokens.get(token_id)

    def credential(self, tokens: Tokens, token_id: str, mechanism: str, salt: bytes) -> TokenCredential:
        """The login by a token, which must be among `tokens`. It is worked out once: some milliseconds."""
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
            self._hmacs[token_id] = made = self.hmac(token_id)
            self._ids[made] = token_id
