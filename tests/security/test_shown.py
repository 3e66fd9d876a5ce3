"""Secrets in values that a log line or a traceback may show."""

from ottla.security.jaas import parse_jaas
from ottla.security.keystore import KeyStore


def test_a_jaas_line_shows_its_module_alone() -> None:
    entry = parse_jaas("x", 'PlainLoginModule required username="node" password="s3cret" user_ann="s3cret";')
    assert "PlainLoginModule" in repr(entry) and "s3cret" not in repr(entry)


def test_a_store_shows_no_key() -> None:
    assert "s3cret" not in repr(KeyStore("s3cret", "chain", "trusted"))
