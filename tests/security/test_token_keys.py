"""Secrets of delegation tokens: computed once, and forgotten with their tokens."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ottla.security.token_keys import TokenKeys
from ottla.wire.record.security import DelegationTokenRecord

_MECHANISMS = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}


def tokens(*ids: str) -> dict[str, DelegationTokenRecord]:
    return {name: DelegationTokenRecord(token_id=name) for name in ids}


def test_a_token_is_found_by_its_secret_as_long_as_there_is_one() -> None:
    keys = TokenKeys("key")
    both, one = tokens("a", "b"), tokens("b")
    assert keys.find(both, keys.hmac("a")) is both["a"]
    assert keys.find(both, keys.hmac("b")) is both["b"]
    assert keys.find(one, keys.hmac("a")) is None
    assert keys.find(one, keys.hmac("b")) is one["b"]
    assert keys.find(one, b"") is None
    assert keys.find(tokens("a"), keys.hmac("a")) is not None, "it has come back"
    assert (len(keys._ids), len(keys._hmacs)) == (1, 1), "what is gone takes no memory"
    assert TokenKeys("other").find(both, keys.hmac("a")) is None


def test_a_credential_is_computed_once_for_each_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    compute = hashlib.pbkdf2_hmac

    def counted(digest: str, *given: Any) -> bytes:
        computed.append(digest)
        return compute(digest, *given)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    keys, known = TokenKeys("key"), tokens("a", "b")
    for _ in range(3):
        for mechanism, size in _MECHANISMS.items():
            found = keys.credential(known, "a", mechanism, b"salt")
            assert (found.salt, found.iterations, len(found.stored_key)) == (b"salt", 4096, size)
    assert computed == ["sha256", "sha512"]
    # Its salt stays: the client may have begun with it.
    assert keys.credential(known, "a", "SCRAM-SHA-256", b"other").salt == b"salt"
    keys.credential(tokens("b"), "b", "SCRAM-SHA-256", b"salt")
    assert keys.credential(known, "a", "SCRAM-SHA-256", b"new").salt == b"new", "forgotten with its token"
    assert computed == ["sha256", "sha512", "sha256", "sha256"]
