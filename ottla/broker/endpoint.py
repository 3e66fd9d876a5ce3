"""The advertised addresses of this node, one for each listener."""

from __future__ import annotations

from ottla.kernel.named import NamedTuple
from ottla.settings.server.settings import Listener, ServerSettings

_WILDCARD_HOSTS = ("", "0.0.0.0", "::")


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

    Port 0 becomes the bound port. A listener on all addresses without an advertised one is advertised as localhost:
    right for a laptop, while a server's file names its host, as with Kafka.
    """
    host, port = listener.host, listener.port
    for advertised_listener in settings.advertised_listeners or ():
        if advertised_listener.name == listener.name:
            host, port = advertised_listener.host, advertised_listener.port
    if host in _WILDCARD_HOSTS:
        host = "localhost"
    return Endpoint(
        settings.node_id, listener.name, listener.security_protocol, host, port or bound_port, settings.broker_rack
    )
