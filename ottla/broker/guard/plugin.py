"""Plug-ins in Python where Apache Kafka takes Java classes: an authorizer, and a builder of principals.

A package declares them as entry points, and a node's file names them:

    [project.entry-points."ottla.authorizers"]              authorizer.class.name=team-rules
    team-rules = "acme.kafka:TeamRules"

    [project.entry-points."ottla.principal_builders"]       principal.builder.class=team-names
    team-names = "acme.kafka:TeamNames"

Rules:
- The node creates a plug-in once, with the settings of its file, and calls it on its event loop: a plug-in answers from
  memory, and never waits.
- A plug-in that raises denies: the operation, or the connection. The node logs the exception.
- `super.users` are allowed everything before an authorizer is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from ottla.kernel.error import OttlaError
from ottla.security.acl import AclOperation, AclResource, Permissions, is_principal

_log = logging.getLogger("ottla.security")

AUTHORIZERS = "ottla.authorizers"
PRINCIPAL_BUILDERS = "ottla.principal_builders"


class Action(NamedTuple):
    """An operation that a client requests, in Kafka's words (`READ`, `TOPIC`)."""

    #: Such as `User:ann`.
    principal: str
    #: The client's IP address in Java's form.
    host: str
    operation: str
    resource_type: str
    resource_name: str


class AuthorizerPlugin(Protocol):
    """Decides about every operation, of nodes too (CLUSTER_ACTION on CLUSTER). Called with the node's settings."""

    def authorize(self, action: Action) -> bool:
        """Whether the operation is allowed."""


class AuthenticationContext(NamedTuple):
    """What the node knows of a client that has just connected, or signed in."""

    listener: str
    #: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    security_protocol: str
    client_address: str
    #: The principal that Kafka's DefaultKafkaPrincipalBuilder gives the client.
    principal: str
    #: The client's certificate (DER), if it has shown one.
    certificate: bytes | None


class PrincipalBuilderPlugin(Protocol):
    """Builds the principals of clients. Called with the node's settings."""

    def build(self, context: AuthenticationContext) -> str:
        """The principal, as TYPE:NAME. Any exception refuses the client."""


def load(group: str, setting: str, name: str, settings: Mapping[str, str]) -> Any:
    """Create the plug-in that the setting names. Raises OttlaError."""
    found = {point.name: point for point in entry_points(group=group)}
    if name not in found:
        installed = ", ".join(sorted(found)) or "none"
        raise OttlaError(
            f"{setting}={name}: this node runs no Java class, and no installed package has this entry point of "
            f"{group} (installed: {installed}); install its package, or remove the setting to start without it"
        )
    try:
        return found[name].load()(settings)
    except Exception as error:
        raise OttlaError(f"{setting}={name}: {found[name].value} failed: {type(error).__name__}: {error}") from error


class PluggedRules(Permissions):
    """The decisions of an authorizer plug-in."""

    def __init__(self, plugin: AuthorizerPlugin, super_users: frozenset[str]) -> None:
        self._plugin = plugin
        self._super_users = super_users

    def allows(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        """The plug-in's answer; False if it raises."""
        if principal in self._super_users:
            return True
        action = Action(principal, host, AclOperation(operation).name, AclResource(kind).name, name)
        try:
            return self._plugin.authorize(action) is True
        except Exception:
            _log.exception("the authorizer failed; %s on %s is denied", action.operation, action.resource_type)
            return False

    def allows_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether the operation is allowed on the resource `*`: a plug-in cannot be asked for all names."""
        return self.allows(principal, host, operation, kind, "*")


def built(plugin: PrincipalBuilderPlugin, context: AuthenticationContext) -> str:
    """The principal of a client. Raises ValueError if the plug-in raises, or returns no TYPE:NAME."""
    try:
        principal: object = plugin.build(context)
    except Exception as error:
        _log.exception("the principal builder failed; the client is refused")
        raise ValueError("the principal builder refused it") from error
    if not isinstance(principal, str) or not is_principal(principal):
        _log.error("the principal builder returned %r, which is not TYPE:NAME; the client is refused", principal)
        raise ValueError("the principal builder returned no TYPE:NAME")
    return principal
