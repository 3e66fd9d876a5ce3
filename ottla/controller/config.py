"""Configs of topics, brokers, groups and client metrics: AlterConfigs (key 33), IncrementalAlterConfigs (key 44).

Rules:
- A resource fails alone and as a whole: one bad value leaves the whole resource unchanged.
- The resource is checked as it would be after the change.
- A broker's settings are written even if they do not change: the record makes the broker read its files again
  (KAFKA-14136).
- With eligible leader replicas, `min.insync.replicas` is set for the cluster and never for a single broker (KIP-966).

KIPs: 133, 226 dynamic brokers, 339 incremental, 714 client metrics, 848 groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.controller.decision import Decision, check_size, message_or_none
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.kernel.topic_name import check_name
from ottla.kernel.validators import whole_number
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM, METADATA_VERSIONS
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, Image
from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.schema import ConfigType, Setting, Settings
from ottla.settings.server.settings import CONNECTION_LIMITS, ServerSettings
from ottla.settings.topic.settings import TopicSettings
from ottla.wire.record.metadata import ClearElrRecord, ConfigRecord

if TYPE_CHECKING:
    from ottla.wire.api import alter_configs as legacy
    from ottla.wire.api import incremental_alter_configs as incremental
else:
    legacy = LazyModule("ottla.wire.api.alter_configs")
    incremental = LazyModule("ottla.wire.api.incremental_alter_configs")

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
#: The operations on lists.
OPERATIONS = {_APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}
_DECLARING: dict[int, type[Settings]] = {
    TOPIC: TopicSettings,
    BROKER: ServerSettings,
    CLIENT_METRICS: ClientMetricsSettings,
    GROUP: GroupSettings,
}
_MIN_ISR = "min.insync.replicas"
_CORDONED = "cordoned.log.dirs"
#: Old versions of the responses encode a value as a string with an int16 length.
_VALUE_LENGTH_MAX = 32767

#: Thread pools, which may only grow or shrink by a factor of two at a time (KIP-226).
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)

#: (setting for the part of a tiered partition that is on the disk, setting for the whole partition)
_LOCAL_RETENTION = (
    ("log.local.retention.ms", "log.retention.ms"),
    ("log.local.retention.bytes", "log.retention.bytes"),
)
#: The local setting follows the other one.
_AS_WHOLE = -2

Resource = tuple[int, str]
#: Setting -> (operation, value).
Changes = dict[str, tuple[int, str | None]]


# ---- the commands


class DirectChange(NamedTuple):
    """A change that a client sent to the controller itself: no broker has checked it with its own file."""

    request: incremental.IncrementalAlterConfigsRequest | legacy.AlterConfigsRequest


def direct_change(image: Image, settings: ServerSettings, voters: Sequence[int], change: DirectChange) -> Decision:
    """Decide a change of either kind; it may cordon no further directories, which are paths of another machine."""
    request = change.request
    if isinstance(request, legacy.AlterConfigsRequest):
        return alter_configs(image, settings, voters, request, is_direct=True)
    return incremental_alter_configs(image, settings, voters, request, is_direct=True)


def incremental_alter_configs(
    image: Image,
    settings: ServerSettings,
    voters: Sequence[int],
    request: incremental.IncrementalAlterConfigsRequest,
    *,
    is_direct: bool = False,
) -> Decision:
    """Set, delete, append to and subtract from the settings of resources. `voters` are the ids of the quorum's."""
    records: list[Any] = []
    response = incremental.IncrementalAlterConfigsResponse()
    duplicates = duplicates_of((entry.resource_type, entry.resource_name) for entry in request.resources)
    for entry in request.resources:
        resource = (entry.resource_type, entry.resource_name)
        answer = incremental.AlterConfigsResourceResponse(
            resource_type=entry.resource_type, resource_name=entry.resource_name, error_message=None
        )
        try:
            _check_request(resource, duplicates, [config.name for config in entry.configs], is_direct=is_direct)
            missing = [
                entry.name for entry in entry.configs if entry.config_operation != _DELETE and entry.value is None
            ]
            check_values(missing)
            _check_node(image, settings, voters, resource)
            changes = {config.name: (config.config_operation, config.value) for config in entry.configs}
            records += _config_records(image, settings, resource, changes, is_direct=is_direct, fits_file=is_direct)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, message_or_none(error)
        check_size(records)
        response.responses.append(answer)
    return Decision([] if request.validate_only else records + clear_elr(image, records), response)


def alter_configs(
    image: Image,
    settings: ServerSettings,
    voters: Sequence[int],
    request: legacy.AlterConfigsRequest,
    *,
    is_direct: bool = False,
) -> Decision:
    """Replace all settings of each resource."""
    records: list[Any] = []
    response = legacy.AlterConfigsResponse()
    duplicates = duplicates_of((entry.resource_type, entry.resource_name) for entry in request.resources)
    for entry in request.resources:
        resource = (entry.resource_type, entry.resource_name)
        answer = legacy.AlterConfigsResourceResponse(
            resource_type=entry.resource_type, resource_name=entry.resource_name, error_message=None
        )
        try:
            _check_request(resource, duplicates, [config.name for config in entry.configs], is_direct=is_direct)
            check_values([config.name for config in entry.configs if config.value is None])
            _check_node(image, settings, voters, resource)
            changes = replacement(image, resource, {config.name: config.value for config in entry.configs})
            records += _config_records(image, settings, resource, changes, is_direct=is_direct, fits_file=is_direct)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, message_or_none(error)
        check_size(records)
        response.responses.append(answer)
    return Decision([] if request.validate_only else records + clear_elr(image, records), response)


def replacement(image: Image, resource: Resource, values: Mapping[str, str | None]) -> Changes:
    """Return the changes after which the resource has these settings and no others."""
    changes: Changes = {name: (_SET, value) for name, value in values.items()}
    return changes | {name: (_DELETE, None) for name in image.config(*resource) if name not in changes}


def check_own(image: Image, settings: ServerSettings, resource: Resource, changes: Changes) -> KafkaError | None:
    """Return why the broker that is asked must refuse a change of brokers' configs; None for every other resource.

    The configs, also those of all brokers, must fit its own file, which the controller does not have.
    """
    kind, name = resource
    if kind == BROKER and name not in ("", str(settings.node_id)):
        why = f"Unexpected broker id, expected {settings.node_id}, but received {name}"
        if whole_number(name, 32) is None:
            why = f"Node id must be an integer, but it is: {name}"
        return KafkaError(ErrorCode.INVALID_REQUEST, why)
    if kind == BROKER:
        try:
            _config_records(image, settings, resource, changes, fits_file=True)
        except KafkaError as error:
            return error
    return None


def duplicates_of(resources: Iterable[Resource]) -> set[Resource]:
    """The resources that a request names more than once."""
    seen: set[Resource] = set()
    duplicates: set[Resource] = set()
    for resource in resources:
        (duplicates if resource in seen else seen).add(resource)
    return duplicates


def check_once(resource: Resource, duplicates: set[Resource], names: list[str]) -> None:
    """Refuse a resource or a config that a request names more than once."""
    if resource in duplicates:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def check_values(missing: list[str]) -> None:
    """Refuse configs that are to be changed to no value."""
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")


def _check_request(resource: Resource, duplicates: set[Resource], names: list[str], *, is_direct: bool) -> None:
    kind = resource[0]
    if is_direct and kind not in (*_DECLARING, BROKER_LOGGER):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {kind}.")
    check_once(resource, duplicates, names)
    if kind not in _DECLARING:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _config_records(
    image: Image,
    settings: ServerSettings,
    resource: Resource,
    changes: Changes,
    *,
    is_direct: bool = False,
    fits_file: bool = False,
) -> list[ConfigRecord]:
    """Check the changes of one resource and return its records. `fits_file`: with this node's file, too."""
    kind, name = resource
    before = image.config(kind, name)
    after = dict(before)
    records = []
    for key, (operation, operand) in changes.items():
        old = before.get(key)
        new = _apply_operation(kind, key, operation, operand, old)
        if new is None:
            after.pop(key, None)
        else:
            after[key] = new
        if new != old or kind == BROKER:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=new))
    # Stored configs that this release does not have are no obstacle; Apache Kafka drops them when it reads them.
    served = {key: value for key, value in after.items() if kind == BROKER or key in changes or key in _declared(kind)}
    _check_resource(image, settings, resource, {record.name: record.value for record in records}, served)
    if fits_file and kind == BROKER and name in ("", str(settings.node_id)):
        # Another broker's configs depend on its own file: that broker checks them, see `check_own`.
        _check_brokers_together(image, settings, name, after)
    _check_levels(image, resource, records)
    if is_direct and kind == BROKER and not _directories(after.get(_CORDONED)) <= _directories(before.get(_CORDONED)):
        why = f"through the controllers, {_CORDONED} must be a subset of its current value; ask the broker itself"
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)
    return records


def _directories(value: str | None) -> set[str]:
    return {path.strip() for path in (value or "").split(",")} - {""}


def _apply_operation(kind: int, key: str, operation: int, operand: str | None, old: str | None) -> str | None:
    """Return the value after one operation; None if it is deleted."""
    if operation == _SET:
        return operand
    if operation == _DELETE:
        return None
    if operation not in OPERATIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    if not _is_list(kind, key):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {OPERATIONS[operation]} to key {key} because its type is not LIST."
        )
    # Kafka's default, whatever the nodes' files say: they may differ.
    base = (_declared(kind)[key].default_text or "") if old is None else old
    parts = [part for part in base.split(",") if part]
    # As in Java, empty parts at the end of a list do not count.
    given = (operand or "").rstrip(",")
    values = Counter(given.split(",") if given or not operand else ())
    if operation == _APPEND:
        existing = set(parts)
        return ",".join([*parts, *(value for value in values if value not in existing)])
    # Remove each value as often as it is given, from the front.
    kept = []
    for part in parts:
        if values[part]:
            values[part] -= 1
        else:
            kept.append(part)
    return ",".join(kept)


# ---- the checks


def check_topic(configs: Mapping[str, str], settings: ServerSettings) -> None:
    """Check the complete settings of a topic; raise INVALID_CONFIG for invalid ones."""
    if configs:
        for value in configs.values():
            _check_length(value)
        TopicSettings.check_together(configs, settings)


def _check_resource(
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
        ClientMetricsSettings.check_together(name, after)


def _check_length(value: str | None) -> None:
    if value is not None and len(value) > _VALUE_LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The configuration value cannot be added because it exceeds the maximum value size of {_VALUE_LENGTH_MAX} "
            "bytes.",
        )


def _check_levels(image: Image, resource: Resource, records: list[ConfigRecord]) -> None:
    """Reject broker settings that the cluster's feature levels do not allow."""
    kind, name = resource
    if kind != BROKER:
        return
    for record in records:
        if record.name == _CORDONED and image.metadata_version < CORDONED_DIRECTORIES_FROM:
            level = METADATA_VERSIONS[CORDONED_DIRECTORIES_FROM].text
            why = f"The {_CORDONED} configuration value cannot be set because it requires metadata.version >= {level}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        if image.has_elr and record.name == _MIN_ISR and (name or record.value is None):
            level, verb = ("Broker", "altered") if name else ("Cluster", "removed")
            why = f"{level}-level {_MIN_ISR} cannot be {verb} while ELR is enabled."
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)


def _check_node(image: Image, settings: ServerSettings, voters: Sequence[int], resource: Resource) -> None:
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


def _check_brokers_together(image: Image, settings: ServerSettings, name: str, after: Mapping[str, str]) -> None:
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


# ---- declarations


def _declared(kind: int) -> Mapping[str, Setting[Any]]:
    return _DECLARING[kind].declared()


def _is_list(kind: int, key: str) -> bool:
    if kind == CLIENT_METRICS:
        return False
    setting = _declared(kind).get(key)
    return setting is not None and setting.type is ConfigType.LIST


def clear_elr(image: Image, records: list[Any]) -> list[Any]:
    """Return the records that clear the eligible leader replicas after a change of min.insync.replicas."""
    if not image.has_elr:
        return []
    return [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC else "")
        for record in records
        if record.name == _MIN_ISR
    ]


class Effective(NamedTuple):
    """A topic's setting with its effective value and source."""

    name: str
    value: str | None
    source: int
    sensitive: bool


def effective_topic_configs(configs: Mapping[str, str], settings: ServerSettings) -> list[Effective]:
    """Return the effective settings of a topic whose own settings are `configs`."""
    resolved = TopicSettings.resolve(configs, settings)
    return [
        # Apache Kafka returns a topic's own value as it was written, `0.50` and not `0.5`.
        Effective(name, configs.get(name, resolved.text(name)), resolved.source_of(name), setting.sensitive)
        for name, setting in TopicSettings.declared().items()
        if not setting.internal or name in configs
    ]
