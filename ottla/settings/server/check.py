"""Constraints between a server's settings: the rules are Apache Kafka's, and each message says how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.settings.listener import parse_connection_overrides

if TYPE_CHECKING:
    from ottla.settings.server.settings import ServerSettings

_MEBIBYTE = 1 << 20
#: As the address of a listener: all addresses of the machine. Nothing can connect to it.
_EVERYWHERE = "0.0.0.0"

_OF_EVERY_KIND = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
#: Kind of group -> the settings that have a minimum and a maximum.
_GROUPS = {
    "consumer": _OF_EVERY_KIND,
    "share": (
        *_OF_EVERY_KIND,
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    ),
    "streams": _OF_EVERY_KIND,
}


def check_together(settings: ServerSettings) -> None:
    """Raise OttlaError for the first violated rule."""
    _check_node(settings)
    _check_quorum(settings)
    for listener in settings.advertised_listeners or ():
        _require(
            listener.host != _EVERYWHERE,
            f"advertised.listeners: {listener} is no address that others can reach; set "
            f"{listener.name}://HOST:{listener.port}",
        )
    if settings.is_broker:
        _check_broker_listeners(settings)
    _check_times(settings)
    _check_limits(settings)
    _check_groups(settings)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise OttlaError(sentence)


def _check_node(settings: ServerSettings) -> None:
    _require(
        settings.broker_id == settings.node_id,
        f"broker.id={settings.broker_id} and node.id={settings.node_id} differ; remove broker.id",
    )
    cordoned = settings.cordoned_log_dirs or ()
    if "*" in cordoned:
        _require(len(cordoned) == 1, "cordoned.log.dirs: * means all directories; remove the others")
        return
    for directory in cordoned:
        _require(
            directory in settings.log_dirs,
            f"cordoned.log.dirs: {directory} is not one of log.dirs ({', '.join(settings.log_dirs)})",
        )


def _check_quorum(settings: ServerSettings) -> None:
    names = settings.controller_listener_names
    voters = settings.controller_quorum_voters
    ids = [voter.id for voter in voters]
    _require(
        bool(voters or settings.controller_quorum_bootstrap_servers),
        "the quorum is not configured: set controller.quorum.bootstrap.servers=HOST:PORT of the controllers "
        "(or controller.quorum.voters=ID@HOST:PORT)",
    )
    for voter in voters:
        _require(
            voter.host != _EVERYWHERE,
            f"controller.quorum.voters: other nodes cannot reach {voter.id}@{voter.host}:{voter.port}; set "
            f"{voter.id}@HOST:{voter.port}",
        )
    own = {listener.name for listener in settings.listeners}
    if settings.is_controller:
        _require(
            not voters or settings.node_id in ids,
            f"controller.quorum.voters has no entry for this controller; add {settings.node_id}@HOST:PORT",
        )
        for name in names:
            _require(
                name in own,
                f"controller.listener.names={name}: listeners has no {name}:// entry; this node is a controller and "
                f"needs one, for example {name}://:9093",
            )
        if not settings.is_broker:
            others = sorted(own - set(names))
            _require(not others, f"listeners: {', '.join(others)} has no effect on a controller-only node; remove it")
            inter_broker = settings.inter_broker_listener_name
            _require(
                not settings.given("inter.broker.listener.name") or inter_broker not in names,
                f"inter.broker.listener.name={inter_broker} is a controller listener, and this node is only a "
                "controller; remove the line",
            )
        return
    _require(
        settings.node_id not in ids,
        f"controller.quorum.voters has this node ({settings.node_id}), but process.roles does not include controller",
    )
    for name in names:
        _require(
            name not in own,
            f"listeners: {name} is a controller listener, but this node is only a broker; remove the entry",
        )
        _require(
            name in settings.protocols,
            f"controller.listener.names={name}: add {name}:PLAINTEXT (or its own protocol) to "
            f"listener.security.protocol.map",
        )
    _require(
        not settings.controller_quorum_auto_join_enable,
        "controller.quorum.auto.join.enable=true: only a node with the controller role can join the quorum",
    )


def _check_broker_listeners(settings: ServerSettings) -> None:
    names = settings.controller_listener_names
    listeners = {listener.name for listener in settings.listeners}
    chosen = settings.listeners if settings.advertised_listeners is None else settings.advertised_listeners
    advertised = [listener for listener in chosen if listener.name not in names]
    _require(
        bool(advertised),
        "listeners: clients have no listener, because all of them are in controller.listener.names; "
        "add one, for example PLAINTEXT://:9092",
    )
    for listener in advertised:
        _require(
            listener.name in listeners,
            f"advertised.listeners: {listener.name} is not among the names of listeners "
            f"({', '.join(sorted(listeners))})",
        )
    if settings.advertised_listeners is None:
        for listener in advertised:
            _require(
                listener.host != _EVERYWHERE,
                f"listeners: {listener} is no address that clients can reach; set advertised.listeners="
                f"{listener.name}://HOST:{listener.port}, too",
            )
    _require(
        settings.inter_broker_listener_name in {listener.name for listener in advertised},
        f"inter.broker.listener.name: brokers use {settings.inter_broker_listener_name}, which is not "
        f"advertised; set one of {', '.join(listener.name for listener in advertised)}",
    )
    inter_broker, mechanism = settings.inter_broker_listener_name, settings.sasl_mechanism_inter_broker_protocol
    enabled = settings.for_listener(inter_broker, "sasl.enabled.mechanisms")
    _require(
        not settings.protocols[inter_broker].startswith("SASL") or mechanism in enabled,
        f"sasl.mechanism.inter.broker.protocol={mechanism} is not one of sasl.enabled.mechanisms={','.join(enabled)} "
        f"of the listener {inter_broker}, at which brokers sign in",
    )


def _check_times(settings: ServerSettings) -> None:
    _require(settings.log_roll_ms >= 1, f"invalid value for log.roll.ms: {settings.log_roll_ms} (expected 1 or more)")
    jitter_ms = settings.log_roll_jitter_ms
    _require(jitter_ms >= 0, f"invalid value for log.roll.jitter.ms: {jitter_ms} (expected 0 or more)")
    _require(settings.log_retention_ms != 0, "invalid value for log.retention.ms: 0 (expected 1 or more, or -1)")
    wait_ms = settings.replica_fetch_wait_max_ms
    _require(
        wait_ms <= settings.replica_socket_timeout_ms,
        f"replica.fetch.wait.max.ms={wait_ms} is more than replica.socket.timeout.ms="
        f"{settings.replica_socket_timeout_ms}: every wait would break the connection",
    )
    _require(
        wait_ms <= settings.replica_lag_time_max_ms,
        f"replica.fetch.wait.max.ms={wait_ms} is more than replica.lag.time.max.ms={settings.replica_lag_time_max_ms}: "
        f"replicas would leave the ISR while they wait",
    )
    idle_ms = settings.connections_max_idle_ms
    delay_ms = settings.connection_failed_authentication_delay_ms
    _require(
        idle_ms < 0 or delay_ms < idle_ms,
        f"connection.failed.authentication.delay.ms={delay_ms} must be less than connections.max.idle.ms={idle_ms}",
    )


def _check_limits(settings: ServerSettings) -> None:
    buffer = settings.log_cleaner_dedupe_buffer_size
    threads = settings.log_cleaner_threads
    _require(
        not threads or buffer // threads > _MEBIBYTE,
        f"invalid value for log.cleaner.dedupe.buffer.size: {buffer} (expected more than 1 MiB for each of "
        f"log.cleaner.threads={threads})",
    )
    queued = settings.queued_max_request_bytes
    _require(
        queued <= 0 or queued >= settings.socket_request_max_bytes,
        f"queued.max.request.bytes={queued} is less than socket.request.max.bytes={settings.socket_request_max_bytes}",
    )
    _require(
        settings.max_connections_per_ip != 0 or bool(settings.max_connections_per_ip_overrides),
        "max.connections.per.ip=0 rejects every client; set max.connections.per.ip.overrides or a number above 0",
    )
    parse_connection_overrides(settings.max_connections_per_ip_overrides)
    _require(
        "classic" in settings.group_coordinator_rebalance_protocols,
        "group.coordinator.rebalance.protocols: classic cannot be left out; add it",
    )
    _require(
        settings.log_cleaner_min_compaction_lag_ms <= settings.log_cleaner_max_compaction_lag_ms,
        f"log.cleaner.min.compaction.lag.ms={settings.log_cleaner_min_compaction_lag_ms} is more than "
        f"log.cleaner.max.compaction.lag.ms={settings.log_cleaner_max_compaction_lag_ms}",
    )


def _check_groups(settings: ServerSettings) -> None:
    """Check that what groups get without settings of their own is within what they may set."""

    def require_no_more(name: str, limit: str) -> None:
        value, most = (getattr(settings, each.replace(".", "_")) for each in (name, limit))
        _require(value <= most, f"{name}={value} is more than {limit}={most}")

    for kind, names in _GROUPS.items():
        for name in names:
            require_no_more(f"group.{kind}.min.{name}", f"group.{kind}.{name}")
            require_no_more(f"group.{kind}.{name}", f"group.{kind}.max.{name}")
        beat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        beat_ms, session_ms = (getattr(settings, each.replace(".", "_")) for each in (beat, session))
        _require(beat_ms < session_ms, f"{beat}={beat_ms} must be less than {session}={session_ms}")
    require_no_more("group.streams.num.standby.replicas", "group.streams.max.standby.replicas")
    require_no_more("group.share.max.size", "group.share.max.share.sessions")
