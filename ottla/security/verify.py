r"""The server's half of the SASL mechanisms PLAIN and SCRAM. Pure: tokens in, challenges out.

An exchange is a generator: `next` begins it, it receives the client's tokens, yields the answers, and returns the user
with the last token. `SignInRefused` ends it; its text is for the client, None where the client must not learn why.

    c: \\0user\\0password                        PLAIN (RFC 4616)
    c: n,,n=user,r=nonce                       SCRAM (RFC 5802, 7677)
    s: r=nonce+ours,s=salt,i=iterations
    c: c=biws,r=nonce+ours,p=proof
    s: v=signature

Messages and their order are those of Kafka's PlainSaslServer and ScramSaslServer. KIPs: 43, 48, 84, 152.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, Protocol

from ottla.security.scram import HASHES

ITERATIONS_MIN = 4096

_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>(?:m=[^,\x00]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"{_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    r"(?P<unsigned>c=(?P<channel>[a-zA-Z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    + _EXTENSIONS
    + r"),p=(?P<proof>[a-zA-Z0-9/+=]+)"
)


class SignInRefused(Exception):
    """The sign-in failed. `told`: the text for the client, None for Kafka's generic one; `why`: for the log."""

    def __init__(self, told: str | None = None, why: str = "") -> None:
        super().__init__(told or "invalid credentials")
        self.told = told
        self.why = why


class Verified(NamedTuple):
    """The authenticated user, the last token for the client, and the credential's lifetime (None: unlimited)."""

    user: str
    last: bytes
    lifetime_ms: int | None = None
    #: True if the credential was a delegation token.
    by_token: bool = False


Verification = Generator[bytes, bytes, Verified]
#: Begins an exchange.
Mechanism = Callable[[], Verification]


class KeptCredential(Protocol):
    """A stored SCRAM credential, with the fields of UserScramCredentialRecord."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class KeptToken(NamedTuple):
    """A delegation token as a SCRAM credential, with its owner and remaining lifetime."""

    credential: KeptCredential
    owner: str
    lifetime_ms: int


def _no_token(token_id: str) -> KeptToken | None:
    return None


def verify_plain(passwords: Mapping[str, str]) -> Verification:
    """PLAIN against users and passwords."""
    message = yield b""
    tokens = message.decode(errors="replace").split("\0", 3)
    if len(tokens) != 3:
        raise SignInRefused
    wanted, user, password = tokens
    if not user:
        raise SignInRefused("Authentication failed: username not specified")
    if not password:
        raise SignInRefused("Authentication failed: password not specified")
    known = passwords.get(user)
    # An unknown user takes the same time as a wrong password.
    same = hmac.compare_digest(password.encode(), (known or "").encode())
    if known is None or not same:
        raise SignInRefused("Authentication failed: Invalid username or password")
    _check_authorization(wanted, user)
    return Verified(user, b"")


def verify_scram(
    mechanism: str,
    find: Callable[[str], KeptCredential | None],
    nonce: str,
    find_token: Callable[[str], KeptToken | None] = _no_token,
) -> Verification:
    """SCRAM against the credential that `find` returns for a user; `nonce` is the server's.

    A client that sends `tokenauth=true` names a delegation token (KIP-48) and signs in as its owner.
    """
    digest = HASHES[mechanism]
    first = _matched(_CLIENT_FIRST, (yield b""))
    name = first["name"].replace("=2C", ",").replace("=3D", "=")
    token = None
    extensions = dict(each.split("=", 1) for each in first["extensions"].split(",") if each)
    if extensions.get("tokenauth", "").lower() == "true":
        token = find_token(name)
        credential = None if token is None else token.credential
    else:
        credential = find(name)
    if credential is None:
        raise SignInRefused
    _check_authorization((first["authzid"] or "").replace("=2C", ",").replace("=3D", "="), name)
    if credential.iterations < ITERATIONS_MIN:
        raise SignInRefused
    both = first["nonce"] + nonce
    challenge = f"r={both},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
    final = _matched(_CLIENT_FINAL, (yield challenge.encode()))
    if final["nonce"] != both or _decoded(final["channel"]) != first["gs2"].encode():
        raise SignInRefused
    message = f"{first['bare']},{challenge},{final['unsigned']}".encode()
    proof = _decoded(final["proof"])
    signature = hmac.digest(credential.stored_key, message, digest)
    if len(proof) != len(signature):
        raise SignInRefused
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), bytes(credential.stored_key)):
        raise SignInRefused
    ours = hmac.digest(credential.server_key, message, digest)
    last = b"v=" + base64.b64encode(ours)
    return Verified(name, last) if token is None else Verified(token.owner, last, token.lifetime_ms, by_token=True)


def _check_authorization(wanted: str, user: str) -> None:
    if wanted and wanted != user:
        raise SignInRefused(
            "Authentication failed: Client requested an authorization id that is different from username"
        )


def _matched(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SignInRefused
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SignInRefused from None
