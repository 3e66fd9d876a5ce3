"""A server's settings: from the text of a file to consistent typed values.

    settings = ServerSettings.parse({"process.roles": "broker,controller", "node.id": "1", ...})
    settings.num_partitions, settings.log_dirs, settings.listeners, settings.log_retention_ms

Rules:
- Attributes hold the value in effect: `log_retention_ms` includes `log.retention.hours`, `log_dirs` includes `log.dir`,
  `listeners` are parsed. `text(name)` and `synonyms(name)` return the given text, for DescribeConfigs.
- Inconsistent settings are detected here, before anything starts: an OttlaError names the setting and the fix.
- Dynamic settings (KIP-226) take precedence over the file: `with_dynamic` returns new settings.
- `listener.name.X.NAME` is NAME for the listener X only, and is checked like NAME; `connection_limits` are served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.named import NamedTuple
from ottla.settings.listener import (
    Listener,
    VoterAddress,
    listener_names,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from ottla.settings.quota import ReplicationRates
from ottla.settings.schema import (
    PER_BROKER,
    READ_ONLY,
    REQUIRED,
    Layer,
    Setting,
    Settings,
    SettingSource,
    Synonym,
    nearest,
    refusal,
)
from ottla.settings.server.check import check_together
from ottla.settings.server.group import GroupDeclaration
from ottla.settings.server.network import NetworkDeclaration
from ottla.settings.server.node import NodeDeclaration
from ottla.settings.server.oauth import OauthDeclaration
from ottla.settings.server.own import OwnSettings
from ottla.settings.server.remote import RemoteDeclaration
from ottla.settings.server.replication import ReplicationDeclaration
from ottla.settings.server.security import SecurityDeclaration
from ottla.settings.server.share_group import ShareGroupDeclaration
from ottla.settings.server.storage import StorageDeclaration
from ottla.settings.server.transaction import TransactionDeclaration
from ottla.settings.server.unserved import REMOVED

__all__ = ["Listener", "ServerSettings", "VoterAddress"]

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS

#: The beginnings of Kafka's messages.
_NOT_DYNAMIC = "Cannot update these configs dynamically"
_PER_BROKER_ONLY = "Cannot update these configs at default cluster level, broker id must be specified"
_PER_LISTENER_ONLY = "These security configs can be dynamically updated only per-listener using the listener prefix"

#: Key stores and trust stores, which can be changed dynamically for one listener at a time only (KIP-226).
_TLS_STORES = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
#: Settings that Kafka lets change dynamically, and that count for no open listener: here only the file has them.
_FILE_ONLY = frozenset({"principal.builder.class", "listeners", "listener.security.protocol.map"})
#: Listener settings that may be set for all nodes at once.
_CLUSTER_WIDE_LISTENER_SETTINGS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})

#: Several names for one setting; the first name that is given takes effect.
_UNIT_VARIANTS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS = {name: names for names in _UNIT_VARIANTS for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}

#: Settings that Kafka accepts without declaring them: those of authorizers, plug-ins and listeners.
_UNDECLARED = frozenset(
    {
        "super.users",
        "allow.everyone.if.no.acl.found",
        "cluster.id",
        "auto.include.jmx.reporter",
        # Kafka's system properties: the allowed URLs and files for keys and tokens.
        "org.apache.kafka.sasl.oauthbearer.allowed.files",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    }
)
_UNDECLARED_PREFIXES = (
    "listener.name.",
    "config.providers.",
    "rsm.config.",
    "rlmm.config.",
    "ssl.",
    "sasl.",
    "metrics.",
)

#: A listener's own setting: the setting's name follows the listener's name and possibly a SASL mechanism.
_LISTENER_SETTING = re.compile(r"listener\.name\.[^.]*\.(.+)")
_MECHANISM_SETTINGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
)


class ConnectionLimits(NamedTuple):
    """The limits of one listener; lower limits of the node take precedence."""

    max_connections: int
    #: Per second.
    max_connection_creation_rate: int


class ServerSettings(
    NodeDeclaration,
    NetworkDeclaration,
    StorageDeclaration,
    ReplicationDeclaration,
    GroupDeclaration,
    ShareGroupDeclaration,
    TransactionDeclaration,
    SecurityDeclaration,
    OauthDeclaration,
    RemoteDeclaration,
    Settings,
):
    """A node's settings; created by `parse` from a file, and by `with_dynamic` with the dynamic settings."""

    kind = "server setting"

    #: Listener name -> security protocol.
    protocols: Mapping[str, str]
    #: Listener name -> limits.
    connection_limits: Mapping[str, ConnectionLimits]

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> ServerSettings:
        """Parse and check the settings of a file. Raise OttlaError with the setting's name and what is expected."""
        texts = _with_node_id(texts)
        for setting in cls.declared().values():
            if setting.default is REQUIRED and setting.name not in texts:
                if _ZOOKEEPER in texts:
                    raise OttlaError(f"{_ZOOKEEPER}: removed in Kafka 4; {REMOVED[_ZOOKEEPER]}")
                raise OttlaError(f"{setting.name} is missing: {_HOW_TO_SET[setting.name]}")
        return cls((Layer(SettingSource.STATIC_BROKER, dict(texts)),))

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        super().__init__(layers)
        self.__dict__.update(_derive(self))
        check_together(self)

    @property
    def directories(self) -> list[str]:
        """Return the log directories, and the metadata log's directory if it is none of them."""
        return list(dict.fromkeys(path.rstrip("/") or "/" for path in (*self.log_dirs, self.metadata_log_dir)))

    def with_dynamic(self, node: Mapping[str, str], cluster: Mapping[str, str] | None = None) -> ServerSettings:
        """Return these static settings with other dynamic ones: this node's, and the cluster's."""
        static = self._layers[-1]
        node_layer, cluster_layer = (
            Layer(SettingSource.DYNAMIC_BROKER, node),
            Layer(SettingSource.DYNAMIC_DEFAULT_BROKER, cluster or {}),
        )
        return ServerSettings((node_layer, cluster_layer, static))

    def with_ports(self, ports: Mapping[str, int]) -> ServerSettings:
        """Return these settings with the ports that listeners got for port 0, by the listeners' names."""
        static = self._layers[-1]
        listeners = []
        for text, listener in zip(static.texts["listeners"].split(","), self.listeners, strict=True):
            listeners.append(f"{text.rpartition(':')[0]}:{listener.port or ports[listener.name]}")
        given = {**static.texts, "listeners": ",".join(listeners)}
        return ServerSettings((*self._layers[:-1], static._replace(texts=given)))

    def with_fitting(
        self, node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> tuple[ServerSettings, list[OttlaError]]:
        """As `with_dynamic`, but without the dynamic settings that do not fit this file; also return their errors.

        A controller checks against its own file, and Apache Kafka's hardly checks. The others still take effect:
        without the cluster's min.insync.replicas, for example, acknowledged records would be on fewer replicas.
        """
        try:
            return self.with_dynamic(node, cluster), []
        except OttlaError:
            pass
        settings, kept_node, kept_cluster = self.with_dynamic({}, {}), dict[str, str](), dict[str, str]()
        left = [(kept_cluster, *each) for each in sorted(cluster.items())]
        left += [(kept_node, *each) for each in sorted(node.items())]
        refused: list[tuple[dict[str, str], str, str]] = []
        errors: list[OttlaError] = []

        def keep(some: list[tuple[dict[str, str], str, str]]) -> None:
            """Keep these settings, or those of each half of them that fit."""
            nonlocal settings
            for layer, name, text in some:
                layer[name] = text
            try:
                settings = self.with_dynamic(dict(kept_node), dict(kept_cluster))
            except OttlaError as error:
                for layer, name, _ in some:
                    del layer[name]
                if len(some) == 1:
                    refused.extend(some)
                    errors.append(error)
                else:
                    keep(some[: len(some) // 2])
                    keep(some[len(some) // 2 :])

        while True:
            # A setting may fit only together with one that comes after it.
            refused, errors = [], []
            keep(left)
            if len(refused) == len(left):
                return settings, errors
            left = refused

    @classmethod
    def check(cls, name: str, value: str | None, *, per_broker: bool) -> None:
        """Raise KafkaError(INVALID_REQUEST or INVALID_CONFIG) unless this may be set dynamically."""
        setting = cls.known(name) or ReplicationRates.declared().get(name)
        own = _LISTENER_SETTING.fullmatch(name)
        if setting is not None:  # An unknown name may belong to a plug-in.
            if (setting.name == name and setting.mode == READ_ONLY) or setting.name in _FILE_ONLY:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{_NOT_DYNAMIC}: [{name}]; set it in the nodes' files")
            if name in _TLS_STORES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{_PER_LISTENER_ONLY}: [{name}]")
            try:
                setting.parse(value)
            except OttlaError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(setting, value)) from error
        of_one_node = (
            own[1] not in _CLUSTER_WIDE_LISTENER_SETTINGS if own else setting is not None and setting.mode == PER_BROKER
        )
        if of_one_node and not per_broker:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{_PER_BROKER_ONLY}: [{name}]")

    @classmethod
    def base_setting(cls, name: str) -> Setting[Any] | None:
        """Return the declared setting of this name, or the one that a listener's own setting overrides."""
        declared = cls.declared()
        if name in declared or not (own := _LISTENER_SETTING.fullmatch(name)):
            return declared.get(name)
        return declared.get(next((suffix for suffix in _MECHANISM_SETTINGS if own[1].endswith(suffix)), own[1]))

    @classmethod
    def known(cls, name: str) -> Setting[Any] | None:
        """Return `base_setting(name)` or Ottla's own setting of this name; None if it may be a plug-in's."""
        return cls.base_setting(name) or OwnSettings.declared().get(name)

    @classmethod
    def only_in_file(cls, dynamic: Iterable[str]) -> list[str]:
        """Return those of these dynamic settings that have no effect, because only the file's value counts."""
        found = {name: cls.base_setting(name) for name in dynamic}
        return [name for name, setting in found.items() if setting is not None and setting.name in _FILE_ONLY]

    def undeclared(self) -> list[str]:
        """Return the given but undeclared names: those of listeners and plug-ins."""
        return sorted({name for layer in self._layers for name in layer.texts} - self.declared().keys())

    def plain_text(self, name: str) -> str | None:
        """Return the text of an undeclared setting, such as an authorizer's."""
        return next((layer.texts[name] for layer in self._layers if name in layer.texts), None)

    def file_texts(self) -> Mapping[str, str]:
        """Return the texts of the file, for plug-ins: they contain secrets."""
        return self._layers[-1].texts

    def unknown(self) -> list[str]:
        """Return the given names that Kafka does not know: it accepts and ignores them."""
        given = [name for name in self.undeclared() if name not in _UNDECLARED and self.known(name) is None]
        return [name for name in given if not name.startswith(_UNDECLARED_PREFIXES) or nearest(name, self.declared())]

    def for_listener(self, listener: str, name: str) -> Any:
        """Return a setting's value for one listener: its own, whatever the source, takes precedence over the node's."""
        own = f"listener.name.{listener.lower()}.{name}"
        setting = self.declared()[name]
        text = next((layer.texts[own] for layer in self._layers if own in layer.texts), None)
        return self._given.get(name, setting.default) if text is None else setting.parse(text)

    def has_listener_value(self, listener: str, name: str) -> bool:
        """Return True if the setting was given for this listener."""
        own = f"listener.name.{listener.lower()}.{name}"
        return any(own in layer.texts for layer in self._layers)

    def for_mechanism(self, listener: str, mechanism: str, name: str) -> Any:
        """Return a setting's value for a SASL mechanism of a listener: `listener.name.X.plain.NAME` wins."""
        own = f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"
        text = next((layer.texts[own] for layer in self._layers if own in layer.texts), None)
        return self.for_listener(listener, name) if text is None else self.declared()[name].parse(text)

    def synonyms(self, name: str) -> list[Synonym]:
        """Return all sources with a value, including synonymous names, the one in effect first.

        Like Kafka, omit the sources before the first value of this name itself: they belong to another name.
        """
        setting, hidden = self.known(name), self.is_hidden(name)
        names = _SYNONYMS.get(name, (name,))
        if setting is not None and setting.name != name:
            names = (name, setting.name)
        sources = [
            Synonym(synonym, None if hidden else layer.texts[synonym], layer.source)
            for layer in self._layers
            for synonym in names
            if synonym in layer.texts
        ]
        defaults = [(synonym, self.declared()[synonym].default_text) for synonym in names if synonym in self.declared()]
        sources += [Synonym(synonym, text, SettingSource.DEFAULT) for synonym, text in defaults if text is not None]
        start = next((index for index, synonym in enumerate(sources) if synonym.name == name), len(sources))
        return sources[start:]

    @classmethod
    def is_hidden(cls, name: str) -> bool:
        """Return True if the value of this setting is a secret, or may be one of a plug-in."""
        setting = cls.known(name)
        return name not in ReplicationRates.declared() and (setting is None or setting.sensitive)

    def outbound_listeners(self) -> set[str]:
        """Return the listeners on which this node connects to other nodes."""
        own = {self.inter_broker_listener_name} if self.is_broker else set()
        return own | set(self.controller_listener_names[:1])

    def protocols_in_use(self) -> dict[str, str]:
        """Return the protocol of each listener that this node serves or connects to."""
        return {
            name: self.protocols[name]
            for name in [*(listener.name for listener in self.listeners), *self.outbound_listeners()]
        }

    @property
    def is_broker(self) -> bool:
        """True if this node has the broker role."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """True if this node has the controller role."""
        return "controller" in self.process_roles


#: The settings of `ConnectionLimits`, in the order of its fields.
CONNECTION_LIMITS = ("max.connections", "max.connection.creation.rate")

_ZOOKEEPER = "zookeeper.connect"
_HOW_TO_SET = {
    "process.roles": "set process.roles=broker,controller for a node that is both",
    "node.id": "set node.id=1, a different number for each node",
    "controller.listener.names": "set controller.listener.names=CONTROLLER and add a CONTROLLER:// entry to listeners",
}


def _with_node_id(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Set `broker.id` and `node.id` from each other: they are two names for one number."""
    if "node.id" in texts and "broker.id" not in texts:
        return {**texts, "broker.id": texts["node.id"]}
    if "broker.id" in texts and "node.id" not in texts:
        return {**texts, "node.id": texts["broker.id"]}
    return texts


def _derive(settings: ServerSettings) -> dict[str, Any]:
    """Compute the values that depend on several settings; the given values are in `_given`."""
    given = settings._given
    protocols = parse_protocol_map(
        settings.listener_security_protocol_map,
        given=settings.given("listener.security.protocol.map"),
        names=listener_names(given.get("listeners", ())),
        controllers=settings.controller_listener_names,
    )
    listeners = given.get("listeners", ServerSettings.declared()["listeners"].default)
    advertised = given.get("advertised.listeners")
    log_dirs = given.get("log.dirs") or settings.log_dir
    controllers = tuple(map(str.upper, settings.controller_listener_names))
    parsed = parse_listeners("listeners", listeners, protocols, distinct_ports=True)
    return {
        "listeners": parsed,
        "connection_limits": _connection_limits(settings, [listener.name for listener in parsed]),
        "advertised_listeners": None
        if advertised is None
        else parse_listeners("advertised.listeners", advertised, protocols, distinct_ports=False),
        "protocols": protocols,
        "controller_listener_names": controllers,
        "inter_broker_listener_name": _inter_broker_listener(settings, protocols),
        "controller_quorum_voters": parse_voters(given.get("controller.quorum.voters", ())),
        "log_dirs": log_dirs,
        "metadata_log_dir": given.get("metadata.log.dir") or log_dirs[0],
        "num_replica_alter_log_dirs_threads": given.get("num.replica.alter.log.dirs.threads") or len(log_dirs),
        **_times(settings, given),
    }


def _connection_limits(settings: ServerSettings, listeners: list[str]) -> dict[str, ConnectionLimits]:
    """Check all listener settings and return the limits of each listener."""
    for name in settings.undeclared():
        setting = settings.base_setting(name)
        for layer in settings._layers:
            if setting is not None and name in layer.texts:
                try:
                    setting.parse(layer.texts[name])
                except OttlaError as error:
                    raise OttlaError(str(error).replace(setting.name, name, 1)) from error
    return {
        listener: ConnectionLimits(*(settings.for_listener(listener, name) for name in CONNECTION_LIMITS))
        for listener in listeners
    }


def _times(settings: ServerSettings, given: Mapping[str, Any]) -> dict[str, int]:
    """Compute durations: milliseconds take precedence over minutes, minutes over hours."""
    retention = given.get("log.retention.ms")
    if retention is None:
        minutes = settings.log_retention_minutes
        retention = settings.log_retention_hours * _HOUR_MS if minutes is None else minutes * _MINUTE_MS
    roll = given.get("log.roll.ms")
    jitter = given.get("log.roll.jitter.ms")
    flush = given.get("log.flush.interval.ms")
    return {
        "log_retention_ms": max(retention, -1),
        "log_roll_ms": settings.log_roll_hours * _HOUR_MS if roll is None else roll,
        "log_roll_jitter_ms": settings.log_roll_jitter_hours * _HOUR_MS if jitter is None else jitter,
        "log_flush_interval_ms": settings.log_flush_scheduler_interval_ms if flush is None else flush,
    }


def _inter_broker_listener(settings: ServerSettings, protocols: Mapping[str, str]) -> str:
    named = settings._given.get("inter.broker.listener.name")
    if named is None:
        return settings.security_inter_broker_protocol
    if settings.given("security.inter.broker.protocol"):
        raise OttlaError("inter.broker.listener.name and security.inter.broker.protocol are both given; remove one")
    name = str(named).upper()
    if name not in protocols:
        raise OttlaError(
            f"inter.broker.listener.name={named}: not in listener.security.protocol.map, which has "
            f"{', '.join(protocols)}"
        )
    return name
