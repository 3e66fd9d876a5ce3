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
