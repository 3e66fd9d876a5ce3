"""Addresses in one form each: as a socket's peer has them, as people write them, and as Java does."""

import pytest

from ottla.kernel.address import canonical_address, java_address, plain_address


def test_addresses_are_written_as_java_does() -> None:
    assert java_address("10.0.0.1") == "10.0.0.1"
    assert java_address("::1") == "0:0:0:0:0:0:0:1"
    assert java_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert java_address("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1"


def test_an_ipv4_client_of_an_ipv6_listener_has_its_ipv4_address() -> None:
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    for address in ("10.0.0.1", "::1", "::ffff:0:1", "2001:db8::ffff"):
        assert plain_address(address) == address


def test_every_way_to_write_an_address_is_one() -> None:
    for text in ("::1", "0:0:0:0:0:0:0:1", "0000::0001"):
        assert canonical_address(text) == "::1"
    assert canonical_address("2001:DB8::A") == "2001:db8::a"
    assert canonical_address("::FFFF:10.0.0.1") == canonical_address("10.0.0.1") == "10.0.0.1"
    for text in ("", "localhost", "10.0.0", "[::1]"):
        with pytest.raises(ValueError):
            canonical_address(text)
