"""Is there a broker at an address? Told at once, in one line, where a client would keep trying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    import socket

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: How long a tool tries to reach the cluster before it says that nothing answers.
_PATIENCE_MS = 4_000


def reach(bootstrap: str, settings: Mapping[str, object]) -> None:
    """Raise OttlaError when no broker is at any of the addresses; quicker than a client that keeps trying.

    A connection is not enough: what listens must answer as a broker does, or speak TLS when that is asked for.
    """
    from ottla.settings.client.security import SecuritySettings

    default = SecuritySettings.declared["security_protocol"].default
    plain = str(settings.get("security.protocol", default)).upper().endswith("PLAINTEXT")
    import socket

    refused = []
    for address in filter(None, (each.strip() for each in bootstrap.split(","))):
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not host:
            raise click.UsageError(f"-b {address}: it takes HOST:PORT, several separated by commas")
        if int(port) not in range(1, 1 << 16):
            raise click.UsageError(f"-b {address}: a port is a number from 1 to 65535")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_MS / 1000) as connection:
                if _is_broker(connection) if plain else _speaks_tls(connection):
                    return
            refused.append(
                f"{address}: what listens there is no Kafka broker, or one that wants TLS"
                if plain
                else f"{address}: what listens there speaks no TLS: is security.protocol right?"
            )
        except socket.gaierror:
            refused.append(f"no machine is called {host}")
        except (TimeoutError, OSError) as error:
            reason = "does not answer" if isinstance(error, TimeoutError) else "nothing listens there"
            refused.append(f"{address}: {reason}")
    mend = (
        "start a node with `ottla start`, or name a cluster with -b HOST:PORT"
        if bootstrap == DEFAULT_BOOTSTRAP
        else "is it running, and is that its address?"
    )
    raise OttlaError(f"no broker at {bootstrap} ({'; '.join(refused)}); {mend}")


#: ApiVersions 0 with a correlation id of its own and no client id, which every broker answers before anything else.
_HELLO = bytes.fromhex("0000000a 0012 0000 6f74746c ffff")


def _is_broker(connection: socket.socket) -> bool:
    connection.sendall(_HELLO)
    answer = b""
    while len(answer) < 8:
        try:
            more = connection.recv(8 - len(answer))
        except ConnectionError:
            return False
        if not more:
            return False
        answer += more
    return answer[4:] == _HELLO[8:12]


def _speaks_tls(connection: socket.socket) -> bool:
    """Does it shake hands, or refuse as one who could? Who it is, the client checks."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except ConnectionError:
        return False
    return True
