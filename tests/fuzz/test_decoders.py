"""Damaged and random bytes for every decoder of bytes from outside: only the error that it declares comes out."""

from contextlib import suppress
from pathlib import Path

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.keystore import read_store
from tests.fuzz.decoders import all_decoders
from tests.fuzz.feed import Decoder, run_block

#: The proofs in these examples are of no password.
_REFUSED = {"SCRAM of a client", "SCRAM of a broker"}


def test_every_decoder_gives_a_value_or_the_error_that_it_declares() -> None:
    failures = [run_block(each, 0, 0, timed=False) for each in all_decoders().values()]
    assert [str(each) for each in failures if each is not None] == []


def test_every_decoder_reads_one_of_its_examples_whole() -> None:
    assert {each.name for each in all_decoders().values() if not _reads_one(each)} == _REFUSED


def _reads_one(decoder: Decoder) -> bool:
    for data in decoder.golden:
        with suppress(*decoder.errors):
            decoder.decode(data)
            return True
    return False


def test_what_a_decoder_does_not_declare_is_found() -> None:
    undeclared = Decoder("digits", [b"123"], int, (UnicodeDecodeError,))
    failure = run_block(undeclared, 0, 0, timed=False)
    assert failure is not None
    assert failure.why.startswith("ValueError")


def test_a_store_with_a_certificate_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    (whole,) = all_decoders()["PKCS12"].golden
    odd = whole.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x24")
    assert odd != whole
    (tmp_path / "odd.p12").write_bytes(odd)
    with pytest.raises(OttlaError, match="no PKCS12"):
        read_store(str(tmp_path / "odd.p12"), None)
