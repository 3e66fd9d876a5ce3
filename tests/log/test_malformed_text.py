"""Bytes that are no UTF-8 are shown with as many marks as Java gives them (each expectation is Java 17's)."""

import pytest

import ottla.log.dump.decoder


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xed\xa0\x80.", "\ufffd."),
        (b"\xed\xbf@", "\ufffd@"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed@", "\ufffd@"),
        (b"\xe2\x82\xff.", "\ufffd\ufffd."),
        (b"\xc0\x80.", "\ufffd\ufffd."),
        ("\ud7ff€".encode(), "\ud7ff€"),
    ],
)
def test_a_malformed_sequence_has_javas_marks(data: bytes, shown: str) -> None:
    assert ottla.log.dump.decoder._text(data) == shown
