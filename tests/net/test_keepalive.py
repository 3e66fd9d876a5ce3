"""What the system is told about silent peers: nodes are given up after 30 s, clients at the system's own time."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.net.keepalive import keep_alive, keep_alive_soon

_NAMES = [
    name for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT") if hasattr(socket, name)
]


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as found:
        yield found


def _option(sock: socket.socket, name: str) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))


def test_a_client_that_is_silent_is_probed_at_the_systems_own_intervals(sock: socket.socket) -> None:
    usual = [_option(sock, name) for name in _NAMES]
    assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    keep_alive(sock)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert [_option(sock, name) for name in _NAMES] == usual


def test_a_node_that_is_silent_for_half_a_minute_is_given_up(sock: socket.socket) -> None:
    keep_alive_soon(sock)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle = _option(sock, "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE")
    interval, probes = _option(sock, "TCP_KEEPINTVL"), _option(sock, "TCP_KEEPCNT")
    assert idle + interval * probes == 30
    assert (idle, probes) == (10, 4), "a lost probe or three end no connection"
    for name in _NAMES[3:]:
        assert _option(sock, name) == 30_000, "the same while bytes are unacknowledged"


def test_a_system_without_these_options_keeps_its_own(sock: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [_option(sock, name) for name in _NAMES]
    numbers = {name: getattr(socket, name) for name in _NAMES}
    for name in (*_NAMES, "TCP_KEEPALIVE"):
        monkeypatch.delattr(socket, name, raising=False)
    keep_alive_soon(sock)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert [sock.getsockopt(socket.IPPROTO_TCP, number) for number in numbers.values()] == usual
