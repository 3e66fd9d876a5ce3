"""The client's side of SCRAM. Pure: messages out and in, with nonce and password as arguments.

    c: n,,n=user,r=nonce            s: r=nonce+theirs,s=salt,i=iterations
    c: c=biws,r=...,p=proof         s: v=signature

Rules:
- The broker must prove that it knows the password's hash, or the sign-in fails.
- Fewer than 4096 iterations are refused (a downgrade), and so are more than a million (a denial of service).
- Names and passwords are plain UTF-8 without SASLprep, as in Kafka.

RFC 5802, RFC 7677; KIPs 84, 48 (`tokenauth`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator

_ITERATIONS_MIN, _ITERATIONS_MAX = 4096, 1_000_000
_DIGITS_MAX = 20
#: Mechanism -> its hash.
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramRefused(Exception):
    """The broker broke the SCRAM protocol, or does not know the password. The text says which."""


def scram(mechanism: str, user: str, password: str, nonce: str, extensions: str = "") -> Generator[bytes, bytes, None]:
    """Run SCRAM as an exchange (see `sasl`); it ends when the broker has proved itself. ScramRefused."""
    digest = HASHES[mechanism]
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}" + (f",{extensions}" if extensions else "")
    first = yield f"n,,{bare}".encode()
    said = _fields(first, "rsi")
    if not said["r"].startswith(nonce) or len(said["r"]) == len(nonce):
        raise ScramRefused("the broker's nonce does not go on from ours")
    # int() raises its own error for thousands of digits.
    iterations = int(said["i"]) if said["i"].isdecimal() and len(said["i"]) < _DIGITS_MAX else 0
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise ScramRefused(f"the broker asks for {said['i']} iterations")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), _decoded(said["s"]), iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    ending = f"c=biws,r={said['r']}"
    message = b",".join((bare.encode(), first, ending.encode()))
    signature = hmac.digest(stored_key, message, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    final = yield f"{ending},p={base64.b64encode(proof).decode()}".encode()
    if final.startswith(b"e="):
        raise ScramRefused(f"the broker answers {final[2:].decode(errors='replace')}")
    server_key = hmac.digest(salted, b"Server Key", digest)
    if not hmac.compare_digest(_decoded(_fields(final, "v")["v"]), hmac.digest(server_key, message, digest)):
        raise ScramRefused("the broker does not know the password either: is it the right one?")


def _fields(message: bytes, names: str) -> dict[str, str]:
    """Parse `r=...,s=...` in the given order; unknown extensions may follow."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramRefused("the broker's message is no text") from None
    if len(parts) < len(names) or any(part[:2] != f"{name}=" for name, part in zip(names, parts, strict=False)):
        raise ScramRefused("the broker's message is not SCRAM")
    return {name: part[2:] for name, part in zip(names, parts, strict=False)}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one; letters outside ASCII are another
        raise ScramRefused("the broker's message is not SCRAM") from None
