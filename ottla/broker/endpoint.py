"""The advertised addresses of this node, one for each listener."""

from __future__ import annotations

import socket
from functools import cache

from ottla.kernel.named import NamedTuple
from ottla.settings.server.settings import Listener, ServerSettings

WILDCARD_HOSTS = ("", "0.0.0.0", "::")
_LOCAL_HOSTS = ("localhost", "::1", "[::1]", "0.0.0.0")


class Endpoint(NamedTuple):
    """A broker's address on one listener."""

    node_id: int
    listener_name: str
    security_protocol: str
    host: str
    port: int
    rack: str | None


def advertise(settings: ServerSettings, listener: Listener, bound_port: int) -> Endpoint:
    """The address in `advertised.listeners` for this listener, or the listener's own.

    Port 0 becomes the bound port. A listener on all addresses without an advertised one is advertised as `own_host`.
    """
    known = advertised(settings, listener)
    host, port = known.host, known.port
    if host in WILDCARD_HOSTS:
        host = own_host(settings)
    return Endpoint(
        settings.node_id, listener.name, listener.security_protocol, host, port or bound_port, settings.broker_rack
    )


def advertised(settings: ServerSettings, listener: Listener) -> Listener:
    """The listener's entry in `advertised.listeners`, or the listener itself."""
    return next((each for each in settings.advertised_listeners or () if each.name == listener.name), listener)


def own_host(settings: ServerSettings) -> str:
    """The host to advertise for a listener on all addresses: this host's name, as in Apache Kafka.

    While all controllers are on this host, it is localhost: right for a laptop, and it needs no name service.
    """
    controllers = [voter.host for voter in settings.controller_quorum_voters]
    controllers += [server.rpartition(":")[0] for server in settings.controller_quorum_bootstrap_servers]
    is_local = all(host in _LOCAL_HOSTS or host.startswith("127.") for host in controllers)
    return "localhost" if is_local else host_name()


@cache
def host_name() -> str:
    """This host's name. Looking it up may ask a name service, and every registration needs it."""
    return socket.getfqdn()
