"""What the controller refuses of changed configs, resource by resource; `ottla.controller.config` has the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.topic_name import check_name
from ottla.kernel.validators import whole_number
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM, METADATA_VERSIONS
from ottla.metadata.image import BROKER, GROUP, TOPIC, Image
from ottla.settings.client_metrics import ClientMetricsSettings, matched
from ottla.settings.group.settings import GroupSettings
from ottla.settings.schema import Setting, refusal
from ottla.settings.server.settings import CONNECTION_LIMITS, ServerSettings
from ottla.settings.topic.settings import TopicSettings
from ottla.wire.record.metadata import ConfigRecord

if TYPE_CHECKING:
    from ottla.kernel.re2 import pattern as expression
else:
    # Only client metrics subscriptions use expressions, and the import costs 7 ms at startup.
    expression = LazyModule("ottla.kernel.re2.pattern")

Resource = tuple[int, str]
MIN_ISR = "min.insync.replicas"
CORDONED = "cordoned.log.dirs"
#: Old versions of the responses encode a value as a string with an int16 length.
_VALUE_LENGTH_MAX = 32767

#: KIP-714. None of the client metrics configs is a list for APPEND and SUBTRACT.
_CLIENT_METRICS_MATCH = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

#: Thread pools, which may only grow or shrink by a factor of two at a time (KIP-226).
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)

#: (setting for the part of a tiered partition that is on the disk, setting for the whole partition)
_LOCAL_RETENTION = (
    ("log.local.retention.ms", "log.retention.ms"),
    ("log.local.retention.bytes", "log.retention.bytes"),
)
#: The local setting follows the other one.
_AS_WHOLE = -2


def check_topic(configs: Mapping[str, str], settings: ServerSettings) -> None:
    """Check the complete settings of a topic; raise INVALID_CONFIG for invalid ones."""
    if configs:
        for value in configs.values():
            _check_length(value)
        TopicSettings.check_together(configs, settings)


def check_resource(
    image: Image,
    settings: ServerSettings,
    resource: Resource,
    changes: Mapping[str, str | None],
    after: Mapping[str, str],
) -> None:
    """Check a resource as it would be after the changes; raise KafkaError."""
    kind, name = resource
    for value in changes.values():
        _check_length(value)
    if kind == TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)
        check_topic(after, settings)
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif kind == BROKER:
        _check_broker(name, changes)
    elif kind == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        GroupSettings.check_together(after, settings)
    else:
        _check_client_metrics(name, after)


def _check_length(value: str | None) -> None:
    if value is not None and len(value) > _VALUE_LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The configuration value cannot be added because it exceeds the maximum value size of {_VALUE_LENGTH_MAX} "
            "bytes.",
        )


def check_levels(image: Image, resource: Resource, records: list[ConfigRecord]) -> None:
    """Reject broker settings that the cluster's feature levels do not allow."""
    kind, name = resource
    if kind != BROKER:
        return
    for record in records:
        if record.name == CORDONED and image.metadata_version < CORDONED_DIRECTORIES_FROM:
            level = METADATA_VERSIONS[CORDONED_DIRECTORIES_FROM].text
            why = f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= {level}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        if image.has_elr and record.name == MIN_ISR and (name or record.value is None):
            level, verb = ("Broker", "altered") if name else ("Cluster", "removed")
            why = f"{level}-level {MIN_ISR} cannot be {verb} while ELR is enabled."
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)


def check_node(image: Image, settings: ServerSettings, voters: Sequence[int], resource: Resource) -> None:
    """Check that the settings of a single node are for a broker or a controller that is known."""
    kind, name = resource
    if kind != BROKER or not name:
        return
    node_id = whole_number(name, 32)
    if node_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if node_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    if node_id not in {settings.node_id, *image.brokers, *image.controllers, *voters}:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _check_broker(name: str, changes: Mapping[str, str | None]) -> None:
    for key, value in changes.items():
        if value is not None:
            try:
                ServerSettings.check(key, value, per_broker=bool(name))
            except KafkaError as error:
                # Kafka answers INVALID_REQUEST for a bad value too (KAFKA-13609).
                raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


def check_brokers_together(image: Image, settings: ServerSettings, name: str, after: Mapping[str, str]) -> None:
    """Check the node's settings as they would be: inconsistent settings must not take effect."""
    node = after if name else image.config(BROKER, str(settings.node_id))
    cluster = image.config(BROKER, "") if name else after
    now, _ = settings.with_fitting(image.config(BROKER, str(settings.node_id)), image.config(BROKER, ""))
    try:
        then = settings.with_dynamic(node, cluster)
    except OttlaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    _check_local_retention(now, then)
    for listener, limits in then.connection_limits.items():
        for key, value in zip(CONNECTION_LIMITS, limits, strict=True):
            if value <= 0 and limits != now.connection_limits.get(listener):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid {key} {value}")
    for threads in _THREADS:
        attribute = settings.declared()[threads].attribute
        before, after_change = getattr(now, attribute), getattr(then, attribute)
        if after_change != before and not max(1, before // 2) <= after_change <= before * 2:
            why = f"{threads} cannot go from {before} to {after_change} at once: at most twice as many, at least half"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _check_local_retention(now: ServerSettings, then: ServerSettings) -> None:
    """Refuse to keep more on the disk than at all; what the file says is not checked, as in Apache Kafka."""
    for local, whole in _LOCAL_RETENTION:
        names = [ServerSettings.declared()[name].attribute for name in (local, whole)]
        local_max, whole_max = (getattr(then, name) for name in names)
        is_changed = [getattr(now, name) for name in names] != [local_max, whole_max]
        if is_changed and whole_max > -1 and local_max != _AS_WHOLE and (local_max < 0 or local_max > whole_max):
            why = f"{local}={local_max} is more than {whole}={whole_max}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _check_client_metrics(name: str, after: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    declared = ClientMetricsSettings.declared()
    for key in after:
        if key not in declared:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    lists = {key: _checked_list(declared[key], after.get(key, "")) for key in ("metrics", "match")}
    interval = after.get("interval.ms")
    if interval is not None:
        interval_ms = whole_number(interval, 32)
        if interval_ms is None:
            why = f"Invalid value {interval} for configuration interval.ms: Not a number of type INT"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        if not declared["interval.ms"].accepts(interval_ms):
            why = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    for pattern in lists["match"]:
        _check_match(pattern)


def _checked_list(setting: Setting[Any], text: str) -> Sequence[str]:
    try:
        return tuple(setting.parse(text))
    except OttlaError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(setting, text)) from error


def _check_match(pattern: str) -> None:
    pair = matched(pattern)
    if pair is not None and pair[0] in _CLIENT_METRICS_MATCH:
        try:
            expression.Expression(pair[1])
        except expression.InvalidExpression:
            pass
        else:
            return
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
