"""TCP keepalive: how an end of a connection learns that the other machine is gone, or was started again.

A process that dies has its connections ended by its kernel. A machine without power says nothing, and who waits for
its answer has only the time that the answer may take: for JoinGroup that is `max.poll.interval.ms`, five minutes.
Apache Kafka sets SO_KEEPALIVE and leaves the times to the system (two hours on Linux).
"""

from __future__ import annotations

import socket

_IDLE_S = 10
_INTERVAL_S = 5
_PROBES = 4
#: Where the system knows them; macOS has the first one by its second name.
_TIMES = {
    "TCP_KEEPIDLE": _IDLE_S,
    "TCP_KEEPALIVE": _IDLE_S,
    "TCP_KEEPINTVL": _INTERVAL_S,
    "TCP_KEEPCNT": _PROBES,
    # In milliseconds: unacknowledged bytes hold the probes up, and have a time of their own.
    "TCP_USER_TIMEOUT": 1000 * (_IDLE_S + _INTERVAL_S * _PROBES),
}


def keep_alive(sock: socket.socket) -> None:
    """Have the system ask a silent peer, with its own times, whether it is still there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def keep_alive_soon(sock: socket.socket) -> None:
    """The same, and end the connection when nothing has come back for 30 s."""
    keep_alive(sock)
    for name, value in _TIMES.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
