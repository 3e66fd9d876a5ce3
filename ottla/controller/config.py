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

from ottla.controller.config_check import (
    CORDONED,
    MIN_ISR,
    Resource,
    check_brokers_together,
    check_levels,
    check_node,
    check_resource,
)
from ottla.controller.decision import Decision, check_size, message_or_none
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.kernel.validators import whole_number
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, Image
from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.schema import ConfigType, Setting, Settings
from ottla.settings.server.settings import ServerSettings
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
            check_node(image, settings, voters, resource)
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
            check_node(image, settings, voters, resource)
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
    check_resource(image, settings, resource, {record.name: record.value for record in records}, served)
    if fits_file and kind == BROKER and name in ("", str(settings.node_id)):
        # Another broker's configs depend on its own file: that broker checks them, see `check_own`.
        check_brokers_together(image, settings, name, after)
    check_levels(image, resource, records)
    if is_direct and kind == BROKER and not _directories(after.get(CORDONED)) <= _directories(before.get(CORDONED)):
        why = f"through the controllers, {CORDONED} must be a subset of its current value; ask the broker itself"
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
        if record.name == MIN_ISR
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
