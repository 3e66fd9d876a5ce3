"""Settings that a node does not implement: those that prevent its start, and those that it reports and ignores.

Rules:
- A setting prevents the start if ignoring it would make the node less secure than intended or lose data.
- Other settings without effect, and names that no release of Kafka knows, are reported; Apache Kafka starts as well.
- Only names are reported, because a value may be a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.settings.schema import SettingSource, nearest

if TYPE_CHECKING:
    from ottla.settings.server.settings import ServerSettings

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

#: Setting -> the consequence of ignoring it.
UNSUPPORTED = {
    "create.topic.policy.class.name": "it does not run Java policies and would create topics that the policy forbids",
    "alter.config.policy.class.name": "it does not run Java policies and would accept settings that the policy forbids",
    "client.quota.callback.class": "it does not run Java quota callbacks and would apply other limits",
    "ssl.engine.factory.class": "it does not run Java TLS engines and would protect connections differently",
    "remote.log.storage.system.enable": "it has no tiered storage and would keep or delete all segments locally",
}

#: Authorizer settings, which Kafka accepts without declaring them.
_AUTHORIZER_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found")
#: Broker-only settings: clients neither push metrics to controllers nor send them records.
_BROKER_SETTINGS = ("client.metrics.otlp.url", "tracing.otlp.url")

#: Settings that Kafka 4 removed, and what to do instead.
REMOVED = {
    "zookeeper.connect": "ZooKeeper is gone; set process.roles and controller.quorum.bootstrap.servers instead",
    "inter.broker.protocol.version": "metadata.version replaced it; remove the line",
    "log.message.format.version": "there is one record format; remove the line",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "control.plane.listener.name": "controllers have their own listeners; remove the line",
    "broker.id.generation.enable": "set node.id on every node",
    "reserved.broker.max.id": "set node.id on every node",
    "delegation.token.master.key": "renamed to delegation.token.secret.key",
}


def check_served(settings: ServerSettings) -> None:
    """Raise OttlaError for the first setting that this node must not ignore."""
    declared = settings.declared()
    for name, why in UNSUPPORTED.items():
        if settings.text(name) not in (declared[name].default_text, None):
            raise OttlaError(f"{name} is set, but this node does not support it: {why}; remove it to start anyway")
    _check_listeners(settings)


def _check_listeners(settings: ServerSettings) -> None:
    """Reject SCRAM between several controllers: they elect a leader before they know the SCRAM users."""
    name = settings.controller_listener_names[0]
    by_sasl = settings.protocols[name].startswith("SASL")
    mechanism = settings.sasl_mechanism_controller_protocol
    controller_count = (
        max(len(settings.controller_quorum_voters), len(settings.controller_quorum_bootstrap_servers)) > 1
    )
    if by_sasl and controller_count and mechanism.startswith("SCRAM"):
        raise OttlaError(
            f"sasl.mechanism.controller.protocol={mechanism}: controllers elect a leader before they have the "
            "metadata with the SCRAM users; use PLAIN"
        )


def notices(settings: ServerSettings) -> list[str]:
    """Return the lines that a node logs at startup about ignored and risky settings."""
    lines = [f"{name}: removed in Kafka 4; {REMOVED[name]}" for name in _unknown(settings, removed=True)]
    unknown = _unknown(settings, removed=False)
    if unknown:
        names = ", ".join(f"{name}{_hint(name, settings)}" for name in unknown)
        lines.append(f"unknown server settings, ignored: {names}")
    ignored = _without_effect(settings)
    if ignored:
        lines.append(f"settings that have no effect on this node: {', '.join(ignored)}")
    beat_ms, session_ms = settings.broker_heartbeat_interval_ms, settings.broker_session_timeout_ms
    if 2 * beat_ms > session_ms:
        lines.append(
            f"broker.heartbeat.interval.ms={beat_ms} is more than half of broker.session.timeout.ms={session_ms}: one "
            "late heartbeat fences a broker"
        )
    return lines


def is_of_many(settings: ServerSettings) -> bool:
    """Return True if the settings refer to other nodes."""
    voters, addresses = settings.controller_quorum_voters or (), settings.controller_quorum_bootstrap_servers
    return not settings.is_controller or len(voters) > 1 or len(addresses) > 1


def _unknown(settings: ServerSettings, *, removed: bool) -> list[str]:
    return [name for name in settings.unknown() if (name in REMOVED) is removed]


def _hint(name: str, settings: ServerSettings) -> str:
    close = nearest(name, settings.declared()).removeprefix("; ")
    return f" ({close})" if close else ""


def _without_effect(settings: ServerSettings) -> list[str]:
    declared = settings.declared()
    names = [
        name
        for name, setting in declared.items()
        if not setting.served
        and settings.given(name)
        and settings.source_of(name) is SettingSource.STATIC_BROKER
        and settings.text(name) != setting.default_text
    ]
    given = settings.undeclared()
    names += [name for name in given if (setting := settings.base_setting(name)) is not None and not setting.served]
    if not settings.is_broker:
        names += [name for name in _BROKER_SETTINGS if name in given]
    if not settings.authorizer_class_name:
        names += [name for name in _AUTHORIZER_SETTINGS if name in given]
    return sorted(names)
