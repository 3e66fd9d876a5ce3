"""The requests by which a starting node registers with the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ottla.broker.endpoint import WILDCARD_HOSTS, advertised, own_host
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid, parse_uuid, random_uuid
from ottla.kernel.ports import Rng
from ottla.metadata.feature import supported
from ottla.raft.checkpoint import VoterEndpoint
from ottla.settings.listener import PROTOCOLS, Listener
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api import broker_registration as broker
from ottla.wire.api import controller_registration as controller


class BrokerAddress(Protocol):
    """An address of this broker, such as `ottla.broker.endpoint.Endpoint`."""

    @property
    def listener_name(self) -> str: ...
    @property
    def security_protocol(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class LogDirectories(Protocol):
    """The part of the log store that is needed here: the identity of the directories."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def directories(self) -> list[str]: ...
    @property
    def failed_directories(self) -> Mapping[str, OSError]: ...
    def works(self, path: str) -> bool: ...
    def directory_id(self, path: str) -> str: ...


def controller_listeners(settings: ServerSettings) -> list[Listener]:
    """This node's controller listeners, each with the address at which other nodes reach it.

    The leader of the quorum sends its address to the other voters, so on several hosts it must not be localhost.
    """
    return [
        _reachable(settings, advertised(settings, each))
        for each in settings.listeners
        if each.name in settings.controller_listener_names
    ]


def _reachable(settings: ServerSettings, listener: Listener) -> Listener:
    """Replace a wildcard address: by the one in `controller.quorum.voters`, otherwise by `own_host`."""
    if listener.host not in WILDCARD_HOSTS:
        return listener
    if listener.name == settings.controller_listener_names[0]:
        for voter in settings.controller_quorum_voters:
            if voter.id == settings.node_id:
                return listener._replace(host=voter.host, port=voter.port)
    return listener._replace(host=own_host(settings))


def voter_endpoints(settings: ServerSettings) -> tuple[VoterEndpoint, ...]:
    """The same listeners as the voters' record represents them."""
    return tuple(
        VoterEndpoint(listener.name, listener.host, listener.port) for listener in controller_listeners(settings)
    )


def controller_request(settings: ServerSettings, rng: Rng) -> controller.ControllerRegistrationRequest:
    """The registration of a new incarnation of this controller."""
    return controller.ControllerRegistrationRequest(
        controller_id=settings.node_id,
        incarnation_id=random_uuid(rng),
        listeners=[
            controller.Listener(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=PROTOCOLS.index(each.security_protocol),
            )
            for each in controller_listeners(settings)
        ],
        features=[
            controller.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(supported(unstable=settings.unstable_feature_versions_enable).items())
        ],
    )


def broker_request(
    settings: ServerSettings,
    incarnation_id: Uuid,
    previous_broker_epoch: int,
    cluster_id: str,
    directory_ids: list[Uuid],
    addresses: Iterable[BrokerAddress],
) -> broker.BrokerRegistrationRequest:
    """The registration of a new incarnation of this broker.

    `previous_broker_epoch` is the epoch of its last clean stop, or -1.
    """
    return broker.BrokerRegistrationRequest(
        broker_id=settings.node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            broker.Listener(
                name=address.listener_name,
                host=address.host,
                port=address.port,
                security_protocol=PROTOCOLS.index(address.security_protocol),
            )
            for address in addresses
        ],
        features=[
            broker.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(supported(unstable=settings.unstable_feature_versions_enable).items())
        ],
        rack=settings.broker_rack,
        log_dirs=directory_ids,
        previous_broker_epoch=previous_broker_epoch,
    )


def directory_id(store: LogDirectories, path: str) -> Uuid:
    """The id of a log directory. OttlaError if it has none."""
    try:
        return parse_uuid(store.directory_id(path))
    except ValueError:
        raise OttlaError(
            f"the log directory {path} has no directory.id in its meta.properties: it was formatted by a Kafka before "
            "3.7; start a Kafka of 3.7 or later on it once"
        ) from None
