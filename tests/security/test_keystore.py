"""Java's older key stores (JKS), made here byte by byte. `tests/client/test_keystore.py` has stores of keytool."""

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.keystore import KeyStore, read_store


class Key(NamedTuple):
    """A private key, sealed with a password, and its chain of certificates."""

    plain: bytes
    password: str
    chain: list[bytes]


def sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def sized(data: bytes, width: int) -> bytes:
    return len(data).to_bytes(width, "big") + data


def der(tag: int, content: bytes) -> bytes:
    """A DER value in the shortest form of its length."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes(-(-size.bit_length() // 8), "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def sealed(key: Key) -> bytes:
    word = key.password.encode("utf-16-be")
    salt = block = bytes(range(20))
    stream = b""
    while len(stream) < len(key.plain):
        block = sha1(word + block)
        stream += block
    body = bytes(one ^ other for one, other in zip(key.plain, stream, strict=False))
    return der(0x30, der(0x30, b"\x06\x01\x2a\x05\x00") + der(0x04, salt + body + sha1(word + key.plain)))


def certificate(data: bytes) -> bytes:
    return sized(b"X.509", 2) + sized(data, 4)


def store(password: str, *entries: Key | bytes) -> bytes:
    """Private keys, and certificates that are trusted."""
    parts = []
    for entry in entries:
        head = sized(b"alias", 2) + bytes(8)
        if isinstance(entry, bytes):
            parts.append(b"\0\0\0\2" + head + certificate(entry))
        else:
            chain = len(entry.chain).to_bytes(4, "big") + b"".join(map(certificate, entry.chain))
            parts.append(b"\0\0\0\1" + head + sized(sealed(entry), 4) + chain)
    body = b"\xfe\xed\xfe\xed\0\0\0\2" + len(parts).to_bytes(4, "big") + b"".join(parts)
    return body + sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., KeyStore]:
    def read(data: bytes, *passwords: str | None) -> KeyStore:
        path = tmp_path / "store.jks"
        path.write_bytes(data)
        return read_store(str(path), *passwords)

    return read


def of_pem(kind: str, text: str) -> list[bytes]:
    """The DER of each block; every line has 64 characters at most."""
    assert all(len(line) <= 64 for line in text.splitlines())
    blocks = [f"{part}-----END {kind}-----" for part in text.split(f"-----END {kind}-----\n")[:-1]]
    return [ssl.PEM_cert_to_DER_cert(block.replace(kind, "CERTIFICATE")) for block in blocks]


#: Lengths of one, two and three bytes in DER, and around a block of the cipher.
@pytest.mark.parametrize("size", [1, 19, 20, 21, 80, 200, 1_200, 70_000])
def test_a_key_is_opened_with_its_own_password(read: Callable[..., KeyStore], size: int) -> None:
    plain = bytes(number * 7 % 256 for number in range(size))
    found = read(store("store", Key(plain, "own", [b"leaf" * 30, b"ca"])), "store", "own")
    assert of_pem("PRIVATE KEY", found.key) == [plain]
    assert of_pem("CERTIFICATE", found.chain) == [b"leaf" * 30, b"ca"]
    assert found.trusted == ""


def test_a_key_without_a_password_of_its_own_has_the_stores(read: Callable[..., KeyStore]) -> None:
    data = store("ü", b"ca 1", Key(b"first", "ü", [b"leaf"]), Key(b"second", "other", [b"more"]), b"ca 2")
    found = read(data, "ü")
    # The first key is the one that Java takes too.
    assert of_pem("PRIVATE KEY", found.key) == [b"first"]
    assert of_pem("CERTIFICATE", found.chain) == [b"leaf"]
    assert of_pem("CERTIFICATE", found.trusted) == [b"ca 1", b"ca 2"]
    assert "first" not in repr(found)
    assert repr(found) == str(found) == "KeyStore([hidden])"


def test_a_trust_store_is_read_unchecked_without_a_password(read: Callable[..., KeyStore]) -> None:
    data = store("secret", b"ca")
    assert of_pem("CERTIFICATE", read(data[:-1] + b"?", None).trusted) == [b"ca"]
    assert read(data, None) == read(data, "secret")
    for password, changed in (("other", data), ("secret", data[:-1] + b"?"), ("", data)):
        with pytest.raises(OttlaError, match=r"store\.jks was changed, or its password is another"):
            read(changed, password)


@pytest.mark.parametrize("password", ["other", "", None])
def test_another_password_does_not_open_a_key(read: Callable[..., KeyStore], password: str | None) -> None:
    with pytest.raises(OttlaError, match=r"has another password: set ssl\.key\.password"):
        read(store("store", Key(b"plain", "own", [b"leaf"])), "store", password)


def test_a_store_that_is_cut_off_or_has_another_entry_is_told(read: Callable[..., KeyStore]) -> None:
    data = store("store", Key(b"plain", "store", [b"leaf"]), b"ca")[:-20]
    for size in range(8, len(data), 3):
        with pytest.raises(OttlaError, match=r"the JKS store .* cannot be read: "):
            read(data[:size], None, "store")
    with pytest.raises(OttlaError, match=r"cannot be read: it is cut off"):
        read(data[:-1], None, "store")
    # The checksum behind the last entry needs a password, and without one nothing of it is missed.
    assert of_pem("CERTIFICATE", read(data, None, "store").trusted) == [b"ca"]
    with pytest.raises(OttlaError, match="cannot be read: it has an entry of kind 3"):
        read(data.replace(b"\0\0\0\2" + sized(b"alias", 2), b"\0\0\0\3" + sized(b"alias", 2)), None, "store")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 12])
def test_a_key_that_is_cut_off_in_itself_is_told(
    read: Callable[..., KeyStore], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sealed
    monkeypatch.setitem(globals(), "sealed", lambda key: whole(key)[:size])
    with pytest.raises(OttlaError, match=r"the JKS store .* cannot be read: it is cut off|has another password"):
        read(store("store", Key(b"plain", "store", [b"leaf"])), "store")


def test_what_is_no_store_is_told(read: Callable[..., KeyStore], tmp_path: Path) -> None:
    with pytest.raises(OttlaError, match="is no PKCS12 or JKS store, or its password is another"):
        read(b"text", "store")
    with pytest.raises(OttlaError, match=f"the store {tmp_path}/none cannot be read: No such file or directory"):
        read_store(f"{tmp_path}/none", None)
