"""TCP keepalive: detects that the other machine is gone, or has rebooted.

When a process dies, its kernel closes its connections. When a machine loses power, nothing is sent, and a request that
waits for an answer ends only with its timeout: for JoinGroup that is `max.poll.interval.ms`, five minutes. Apache Kafka
sets SO_KEEPALIVE and leaves the times to the system (two hours on Linux).
"""

from __future__ import annotations

import socket

_IDLE_S = 10
_INTERVAL_S = 5
_PROBES = 4
#: Each is set where the system has it; macOS calls the first one TCP_KEEPALIVE.
_TIMES = {
    "TCP_KEEPIDLE": _IDLE_S,
    "TCP_KEEPALIVE": _IDLE_S,
    "TCP_KEEPINTVL": _INTERVAL_S,
    "TCP_KEEPCNT": _PROBES,
    # In milliseconds. No probes are sent while bytes are unacknowledged; they have this timeout of their own.
    "TCP_USER_TIMEOUT": 1000 * (_IDLE_S + _INTERVAL_S * _PROBES),
}


def keep_alive(sock: socket.socket) -> None:
    """Have the system probe a silent peer, at the system's own intervals."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def keep_alive_soon(sock: socket.socket) -> None:
    """Have the system probe a silent peer, and end the connection when nothing has come back for 30 s."""
    keep_alive(sock)
    for name, value in _TIMES.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
