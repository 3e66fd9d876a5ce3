"""A quick check whether a broker answers at an address, where a client would keep retrying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    import socket

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: How long a tool tries to reach the cluster before it says that nothing answers.
_TIMEOUT_MS = 4_000


class NoBroker(OttlaError):
    """No broker answers at any of the addresses."""


def reach(bootstrap: str, settings: Mapping[str, object]) -> None:
    """Raise OttlaError when no broker answers at any of the addresses, sooner than a client that keeps retrying.

    A connection is not enough: the server must answer like a broker, or speak TLS if that is configured. A broker that
    requires authentication closes the connections of clients without it, and they would retry for a minute.
    """
    from ottla.settings.client.security import SecuritySettings

    default = SecuritySettings.declared["security_protocol"].default
    protocol = str(settings.get("security.protocol", default)).upper()
    plain = protocol.endswith("PLAINTEXT")
    import socket

    refused = []
    for address in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not host:
            raise click.UsageError(f"-b {address}: expected HOST:PORT, or several separated by commas")
        if int(port) not in range(1, 1 << 16):
            raise click.UsageError(f"-b {address}: invalid port {port} (expected 1 to 65535)")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_MS / 1000) as connection:
                if _is_broker(connection) if plain else _speaks_tls(connection):
                    if protocol == "PLAINTEXT" and not _serves_unauthenticated(connection):
                        raise OttlaError(
                            f"{address} requires authentication: set security.protocol=SASL_PLAINTEXT, "
                            "sasl.mechanism and its credentials (-X KEY=VALUE, or ottla profile set)"
                        )
                    return
            refused.append(
                f"{address}: not a Kafka broker, or one that requires TLS"
                if plain
                else f"{address}: does not speak TLS; check security.protocol"
            )
        except socket.gaierror:
            refused.append(f"{address}: unknown host {host}")
        except (TimeoutError, OSError) as error:
            reason = "does not answer" if isinstance(error, TimeoutError) else "nothing listens there"
            refused.append(f"{address}: {reason}")
    advice = (
        "start a node with `ottla start`, or name a cluster with -b HOST:PORT"
        if bootstrap == DEFAULT_BOOTSTRAP
        else "check that it is running and that the address is right"
    )
    raise NoBroker(f"no broker at {bootstrap} ({'; '.join(refused)}); {advice}")


#: ApiVersions 0 with a correlation id of its own and no client id, which every broker answers before anything else.
_API_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 6f74746c ffff")


def _is_broker(connection: socket.socket) -> bool:
    connection.sendall(_API_VERSIONS_REQUEST)
    return (_received(connection, 8) or b"")[4:] == _API_VERSIONS_REQUEST[8:12]


#: Metadata 1 of no topics, with the same correlation id.
_METADATA_REQUEST = bytes.fromhex("0000000e 0003 0001 6f74746c ffff 00000000")


def _serves_unauthenticated(connection: socket.socket) -> bool:
    """Whether a broker serves clients without authentication, after its ApiVersions answer; True if that is unclear."""
    # ApiVersions v0: an error code (2 bytes), a count (4), then each API's key, lowest and highest version (6).
    head = _received(connection, 6)
    offered = None if head is None else _received(connection, 6 * int.from_bytes(head[2:]))
    if offered is None or not any(offered[at : at + 2] == _METADATA_REQUEST[4:6] for at in range(0, len(offered), 6)):
        # A controller listener does not offer the Metadata API.
        return True
    try:
        connection.sendall(_METADATA_REQUEST)
        return _received(connection, 8) is not None
    except TimeoutError:
        return True


def _received(connection: socket.socket, size: int) -> bytes | None:
    """Receive `size` bytes; None when the peer closes the connection first."""
    answer = b""
    while len(answer) < size:
        try:
            more = connection.recv(size - len(answer))
        except ConnectionError:
            return None
        if not more:
            return None
        answer += more
    return answer


def _speaks_tls(connection: socket.socket) -> bool:
    """Whether the server completes a TLS handshake or sends a TLS alert. The client verifies the certificate later."""
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
