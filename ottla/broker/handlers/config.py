"""Configs and quotas: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74)
and DescribeClientQuotas (48).

Rules:
- The source of a value is the most specific that sets it: topic, this broker, all brokers, server.properties, default.
- Sensitive values are never shown.
- Loggers (type 8) belong to this process, not to the controller: a change applies at once and is lost at a restart.

KIPs: 133, 226 dynamic settings, 339 incremental, 412 loggers, 546 quotas, 569 documentation and types, 1142 listing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.handlers import controller
from ottla.broker.log_output import LEVELS
from ottla.broker.metadata import tls_stores
from ottla.broker.metadata.config_view import (
    LOGGER_SOURCE,
    Described,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.controller import quota
from ottla.controller.config import (
    OPERATIONS,
    Resource,
    check_once,
    check_own,
    check_values,
    duplicates_of,
    replacement,
)
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import words
from ottla.kernel.topic_name import check_name
from ottla.kernel.validators import whole_number
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.wire.api import BOTH, ApiKey
from ottla.wire.api import alter_configs as legacy
from ottla.wire.api import incremental_alter_configs as alter
from ottla.wire.api import list_config_resources as listing
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.compile import Deferred

#: Logger name, Kafka's or Ottla's -> logger of this process.
_LOGGERS = {
    "root": None,
    "kafka": "ottla",
    "kafka.coordinator.group": "ottla.group",
    "kafka.log": "ottla.log",
    "kafka.network": "ottla.net",
    "kafka.request.logger": "ottla.request",
    "kafka.server": "ottla.broker",
    "ottla": "ottla",
    "ottla.broker": "ottla.broker",
    "ottla.group": "ottla.group",
    "ottla.log": "ottla.log",
    "ottla.net": "ottla.net",
    "ottla.request": "ottla.request",
}
_SET, _DELETE = 0, 1
_UNTYPED = 0
#: A response about more resources than this is built in steps, while it is encoded; each takes half a millisecond.
_FEW = 2
_KINDS = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


@handles(ApiKey.DESCRIBE_CONFIGS, on=BOTH)
def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """The configs of each resource, all or those named. A resource of an unknown type fails all of them."""
    asked, unknown = request.resources, _unknown_kind(request)

    def results() -> Iterator[DescribeConfigsResult]:
        return (_describe(call, request, resource, unknown) for resource in asked)

    if len(asked) <= _FEW:
        return DescribeConfigsResponse(results=[*results()])
    return DescribeConfigsResponse(results=Deferred(len(asked), results))


def _describe(
    call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource, unknown: KafkaError | None
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        if unknown is not None:
            raise unknown
        described = _read(call, resource)
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = words(error)
        return result
    # As in Apache Kafka, an empty list of keys means all keys.
    keys = set(resource.configuration_keys or ()) or None
    result.configs = [_shown(each, request) for each in described if keys is None or each.name in keys]
    return result


def _unknown_kind(request: DescribeConfigsRequest) -> KafkaError | None:
    for resource in request.resources:
        if resource.resource_type not in _KINDS:
            why = f"Unexpected resource type UNKNOWN for resource {resource.resource_name}"
            return KafkaError(ErrorCode.INVALID_REQUEST, why)
    return None


def _read(call: Call, resource: DescribeConfigsResource) -> list[Described]:
    node, name = call.node, resource.resource_name
    if resource.resource_type == TOPIC:
        check_name(name)
        if name not in node.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(node.settings, node.image, name)
    if resource.resource_type == BROKER:
        if name and _broker_id(name) != node.node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}",
            )
        return describe_broker(node.settings, node.image, name)
    if resource.resource_type == BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if _broker_id(name) != node.node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node.node_id} but received {name}"
            )
        return [Described(each, _level(each), LOGGER_SOURCE, _UNTYPED, documentation="") for each in _LOGGERS]
    if resource.resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(node.settings, node.image, name)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return describe_client_metrics(node.image, name)


def _broker_id(name: str) -> int:
    number = whole_number(name, 32)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    return number


def _shown(each: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=each.name,
        value=None if each.sensitive else each.value,
        read_only=each.read_only,
        config_source=each.source,
        is_sensitive=each.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if each.sensitive else value, source=source)
            for name, value, source in (each.synonyms if request.include_synonyms else ())
        ],
        config_type=each.type,
        documentation=each.documentation if request.include_documentation or not each.documentation else None,
    )


def change_error_response(
    request: alter.IncrementalAlterConfigsRequest, _: int, error: KafkaError
) -> alter.IncrementalAlterConfigsResponse:
    """The error for each resource."""
    responses = controller.error_for_each_resource(request.resources, alter.AlterConfigsResourceResponse, error)
    return alter.IncrementalAlterConfigsResponse(responses=responses)


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, error_response=change_error_response)
def incremental_alter_configs(call: Call, request: alter.IncrementalAlterConfigsRequest) -> Later:
    """Change loggers here, and forward all other changes to the controller."""
    controller.check_changes(call, request)
    later = Later()
    loggers = [resource for resource in request.resources if resource.resource_type == BROKER_LOGGER]
    others = [resource for resource in request.resources if resource.resource_type != BROKER_LOGGER]
    refused: list[alter.AlterConfigsResourceResponse] = []
    duplicates = duplicates_of(map(_named, others))
    for each in others:
        changes = [(config.name, config.config_operation, config.value) for config in each.configs]
        if (error := _change_error(call, _named(each), duplicates, changes)) is not None:
            refused += change_error_response(alter.IncrementalAlterConfigsRequest(resources=[each]), 0, error).responses
    others = _without(others, refused)

    def committed(response: Any) -> None:
        if not isinstance(response, KafkaError):
            response.responses += refused
            response.responses += change_loggers(call, loggers, validate_only=request.validate_only)
        later.resolve(response)

    if others or not (loggers or refused):
        rest = alter.IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        call.node.controllers.forward(call, rest, committed)
    else:
        committed(alter.IncrementalAlterConfigsResponse())
    return later


@handles(ApiKey.ALTER_CONFIGS, error_response=controller.change_error_response)
def alter_configs(call: Call, request: legacy.AlterConfigsRequest) -> Later:
    """Forward the replacements of configs, except those that this node must refuse."""
    controller.check_changes(call, request)
    later = Later()
    refused: list[legacy.AlterConfigsResourceResponse] = []
    duplicates = duplicates_of(map(_named, request.resources))
    for each in request.resources:
        changes = [(config.name, _SET, config.value) for config in each.configs]
        if (error := _change_error(call, _named(each), duplicates, changes, replaces=True)) is not None:
            alone = legacy.AlterConfigsRequest(resources=[each])
            refused += controller.change_error_response(alone, 0, error).responses
    others = _without(request.resources, refused)

    def committed(response: Any) -> None:
        if not isinstance(response, KafkaError):
            response.responses += refused
        later.resolve(response)

    if others or not refused:
        rest = legacy.AlterConfigsRequest(resources=others, validate_only=request.validate_only)
        call.node.controllers.forward(call, rest, committed)
    else:
        committed(legacy.AlterConfigsResponse())
    return later


def _named(each: Any) -> Resource:
    return each.resource_type, each.resource_name


def _without(resources: list[Any], refused: list[Any]) -> list[Any]:
    names = set(map(_named, refused))
    return [each for each in resources if _named(each) not in names]


def _change_error(
    call: Call,
    resource: Resource,
    duplicates: set[Resource],
    changes: list[tuple[str, int, str | None]],
    *,
    replaces: bool = False,
) -> KafkaError | None:
    """Why this node must refuse (name, operation, value) changes of a resource; None if the controller may decide.

    `replaces`: the resource will have no other configs.
    """
    node = call.node
    try:
        check_once(resource, duplicates, [name for name, *_ in changes])
        check_values([name for name, operation, value in changes if operation != _DELETE and value is None])
    except KafkaError as error:
        return error
    operations = {name: (operation, value) for name, operation, value in changes}
    if replaces:
        operations = replacement(node.image, resource, {name: value for name, _, value in changes})
    after = {
        name: None if operation == _DELETE else value
        for name, (operation, value) in operations.items()
        if operation in (_SET, _DELETE)
    }
    own = check_own(node.image, node.settings, resource, operations)
    return own or tls_stores.store_error(call, *resource, after)


def change_loggers(
    call: Call, loggers: list[alter.AlterConfigsResource], *, validate_only: bool
) -> list[alter.AlterConfigsResourceResponse]:
    """Change levels of this process's loggers; the answer of each resource."""
    answers = []
    duplicates = duplicates_of((resource.resource_type, resource.resource_name) for resource in loggers)
    for resource in loggers:
        answer = alter.AlterConfigsResourceResponse(resource_type=BROKER_LOGGER, resource_name=resource.resource_name)
        try:
            names = [config.name for config in resource.configs]
            check_once((BROKER_LOGGER, resource.resource_name), duplicates, names)
            check_values(
                [each.name for each in resource.configs if each.config_operation != _DELETE and each.value is None]
            )
            _check_logger_node(call, resource.resource_name)
            for config in resource.configs:
                _check_level(config)
            for config in () if validate_only else resource.configs:
                _set_level(config)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    for dispatch in (call.node.dispatch, call.node.controller_dispatch):
        dispatch.log.look()
    return answers


def _check_logger_node(call: Call, name: str) -> None:
    number = whole_number(name, 32)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != call.node.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {call.node.node_id}, but received {number}"
        )


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_LOGGERS[name])


def _level(name: str) -> str:
    number = _logger(name).getEffectiveLevel()
    return next((text for text, least in LEVELS.items() if number >= least), "TRACE")


def _check_level(change: alter.AlterableConfig) -> None:
    operation = change.config_operation
    if operation not in (_SET, _DELETE):
        named = OPERATIONS.get(operation)
        what = f"Unknown operation type {operation} is" if named is None else f"{named} operation is"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} not allowed for the BROKER_LOGGER resource")
    if change.name not in _LOGGERS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if operation == _DELETE and change.name == "root":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if operation == _SET and change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. Valid "
            f"log levels are {', '.join(sorted(LEVELS))}",
        )


def _set_level(change: alter.AlterableConfig) -> None:
    level = logging.NOTSET if change.config_operation == _DELETE else LEVELS[change.value or ""]
    _logger(change.name).setLevel(level)


@handles(ApiKey.LIST_CONFIG_RESOURCES)
def list_config_resources(
    call: Call, request: listing.ListConfigResourcesRequest
) -> listing.ListConfigResourcesResponse:
    """The names of all resources that can have configs; version 0 lists client metrics only."""
    node = call.node
    asked = set(request.resource_types) or _KINDS
    if call.version == 0:
        asked = {CLIENT_METRICS}
    unknown = asked - _KINDS
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    names: list[tuple[int, str]] = []
    if TOPIC in asked:
        names += [(TOPIC, name) for name in sorted(node.image.topics)]
    brokers = sorted(node.brokers_at(call.connection.listener_name).nodes)
    for kind in (BROKER, BROKER_LOGGER):
        if kind in asked:
            names += [(kind, str(broker)) for broker in brokers]
    for kind in (CLIENT_METRICS, GROUP):
        if kind in asked:
            names += [(kind, name) for name in sorted(node.image.config_names(kind))]
    return listing.ListConfigResourcesResponse(
        config_resources=[listing.ConfigResource(resource_name=name, resource_type=kind) for kind, name in names]
    )


def _quotas_error_response(
    request: DescribeClientQuotasRequest, _: int, error: KafkaError
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message or None, entries=None)


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, error_response=_quotas_error_response)
def describe_client_quotas(call: Call, request: DescribeClientQuotasRequest) -> Reply:
    """The quotas of the users, client ids and IPs that match a filter. `decide` handles their changes."""
    return in_turns(call.connection, quota.describe_client_quotas(call.node.image, request))
