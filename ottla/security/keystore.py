"""Reads Java's key and trust stores as PEM text: PKCS12 (keytool's default) and the older JKS.

Rules:
- The first bytes of a file decide its format, as in Java: the types PKCS12 and JKS read both.
- PKCS12 needs `cryptography` (the extra ottla[keystore]); JKS is read here, with the standard library.
- A wrong password is reported as such. Without a password, a JKS trust store is read unchecked, as by Java.

JKS: 0xFEEDFEED, version 2, entries, then the SHA-1 of the password, "Mighty Aphrodite" and all bytes before. A private
key is a PKCS8 key under Sun's own cipher (1.3.6.1.4.1.42.2.17.1.1): a keystream of SHA-1 with a 20-byte salt, and a
20-byte check value.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import textwrap
from pathlib import Path

from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple

_JKS = b"\xfe\xed\xfe\xed"
_KEY, _TRUSTED = 1, 2


class KeyStore(NamedTuple):
    """The contents of a store as PEM: a private key with its chain ("" if none), and all trusted certificates."""

    key: str
    chain: str
    trusted: str

    def __repr__(self) -> str:
        return "KeyStore([hidden])"


def read_store(path: str, password: str | None, key_password: str | None = None) -> KeyStore:
    """Read a store. OttlaError if it is not a store, or the password is wrong."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OttlaError(f"the store {path} cannot be read: {error.strerror}") from error
    return _read_jks(path, data, password, key_password) if data[:4] == _JKS else _read_pkcs12(path, data, password)


def _read_pkcs12(path: str, data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
        from cryptography.x509 import InvalidVersion
    except ImportError as error:
        raise OttlaError(f"the PKCS12 store {path} needs cryptography: pip install 'ottla[keystore]'") from error
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, InvalidVersion, UnsupportedAlgorithm) as error:
        raise OttlaError(f"the store {path} is no PKCS12 or JKS store, or its password is another: {error}") from error
    key = ""
    if found.key is not None:
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key = found.key.private_bytes(*form).decode()
    others = [one.certificate.public_bytes(serialization.Encoding.PEM).decode() for one in found.additional_certs]
    own = "" if found.cert is None else found.cert.certificate.public_bytes(serialization.Encoding.PEM).decode()
    # A certificate without a key is among the others.
    return KeyStore(key, own + "".join(others) if key else "", "".join(others))


class _Reader:
    """Reads the fields of a JKS file in order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def piece(self, form: str) -> bytes:
        size = self.number(form)
        if size > len(self.data) - self.at:
            raise ValueError("it is cut off")
        self.at += size
        return self.data[self.at - size : self.at]

    def certificate(self) -> str:
        self.piece(">H")
        return _pem("CERTIFICATE", self.piece(">I"))


def _read_jks(path: str, data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    if password is not None:
        secret = password.encode("utf-16-be")
        if hashlib.sha1(secret + b"Mighty Aphrodite" + data[:-20], usedforsecurity=False).digest() != data[-20:]:
            raise OttlaError(f"the store {path} was changed, or its password is another")
    key = chain = trusted = ""
    reader = _Reader(data)
    try:
        reader.at = 8
        for _ in range(reader.number(">I")):
            kind = reader.number(">I")
            reader.piece(">H")
            reader.at += 8
            if kind == _TRUSTED:
                trusted += reader.certificate()
            elif kind == _KEY:
                sealed = reader.piece(">I")
                own = "".join(reader.certificate() for _ in range(reader.number(">I")))
                if not key:
                    key, chain = _opened(path, sealed, key_password or password), own
            else:
                raise ValueError(f"it has an entry of kind {kind}")
    except (ValueError, struct.error) as error:
        raise OttlaError(f"the JKS store {path} cannot be read: {error}") from error
    return KeyStore(key, chain, trusted)


def _opened(path: str, sealed: bytes, password: str | None) -> str:
    """Decrypt a private key of a JKS store."""
    whole, _ = _der(sealed, 0)
    _, at = _der(whole, 0)
    secret, _ = _der(whole, at)
    salt, body, check = secret[:20], secret[20:-20], secret[-20:]
    word = (password or "").encode("utf-16-be")
    stream = b""
    block = salt
    while len(stream) < len(body):
        block = hashlib.sha1(word + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(one ^ other for one, other in zip(body, stream, strict=False))
    if hashlib.sha1(word + plain, usedforsecurity=False).digest() != check:
        raise OttlaError(f"the private key in {path} has another password: set ssl.key.password")
    return _pem("PRIVATE KEY", plain)


def _der(data: bytes, at: int) -> tuple[bytes, int]:
    """The content of the DER value at `at`, and the position of the next one."""
    if at + 2 > len(data):
        raise ValueError("it is cut off")
    size, start = data[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[at + 2 : start], "big")
    return data[start : start + size], start + size


def _pem(kind: str, der: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"
