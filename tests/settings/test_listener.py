"""Which listeners may stand beside each other."""

from __future__ import annotations

import pytest

from ottla.kernel.error import OttlaError
from ottla.settings.listener import parse_listeners

_PROTOCOLS = {"A": "PLAINTEXT", "B": "PLAINTEXT"}


@pytest.mark.parametrize("first", ["", "localhost", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("second", ["", "localhost", "127.0.0.1", "[::1]"])
def test_only_ipv4_and_ipv6_share_a_port(first: str, second: str) -> None:
    entries = [f"A://{first}:9092", f"B://{second}:9092"]
    if {first, second} == {"127.0.0.1", "[::1]"}:
        found = parse_listeners("listeners", entries, _PROTOCOLS, distinct_ports=True)
        assert [each.name for each in found] == ["A", "B"]
        return
    with pytest.raises(OttlaError, match="share port 9092"):
        parse_listeners("listeners", entries, _PROTOCOLS, distinct_ports=True)


@pytest.mark.parametrize(
    ("entry", "host", "port", "text"),
    [
        ("a://:0", "", 0, "A://:0"),
        ("A://h-1.example:65535", "h-1.example", 65_535, "A://h-1.example:65535"),
        ("A://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092, "A://[fe80::1%eth0]:9092"),
        ("A://::1:9092", "::1", 9092, "A://[::1]:9092"),
    ],
)
def test_a_listener_has_a_name_a_host_and_a_port(entry: str, host: str, port: int, text: str) -> None:
    (found,) = parse_listeners("listeners", [entry], _PROTOCOLS, distinct_ports=True)
    assert (found.name, found.host, found.port, found.security_protocol) == ("A", host, port, "PLAINTEXT")
    assert str(found) == text


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (["A://h"], "is not NAME://host:port"),
        (["A://h:"], "is not NAME://host:port"),
        (["A:h:1"], "is not NAME://host:port"),
        (["://h:1"], "is not NAME://host:port"),
        (["A://h:-1"], "is not NAME://host:port"),
        (["A://h:65536"], "is not NAME://host:port"),
        (["A://h/1:1"], "is not NAME://host:port"),
        (["C://h:1"], "the listener C has no protocol; add C:PLAINTEXT"),
        (["A://h:1", "B://h:2", "a://h:3"], "two listeners are called A; give each a unique name"),
    ],
)
def test_listeners_that_cannot_be_meant_are_refused(entries: list[str], why: str) -> None:
    with pytest.raises(OttlaError, match=f"^listeners: .*{why}"):
        parse_listeners("listeners", entries, _PROTOCOLS, distinct_ports=True)


def test_listeners_share_a_port_where_that_is_no_address_of_this_machine() -> None:
    """Advertised ones may lead to the same proxy, and port 0 is a free one each time."""
    same = ["A://proxy:9092", "B://proxy:9092"]
    assert len(parse_listeners("advertised.listeners", same, _PROTOCOLS, distinct_ports=False)) == 2
    free = ["A://h:0", "B://h:0"]
    assert len(parse_listeners("listeners", free, _PROTOCOLS, distinct_ports=True)) == 2
    with pytest.raises(OttlaError, match="two listeners are called A"):
        parse_listeners("advertised.listeners", [same[0], same[0]], _PROTOCOLS, distinct_ports=False)
