"""Settings of loggers, which a node changes itself, and resources that there are not: before a table of a node."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.active_controller import change_at_controller
from ottla.broker.handlers.config import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from ottla.controller.config import DirectChange
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.feature import METADATA_VERSION_LATEST
from ottla.wire.api import alter_configs as legacy
from ottla.wire.api import incremental_alter_configs as alter
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from tests.broker.table_node import called, done
from tests.controller.scene import server_settings

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
NAME = "ottla.request"


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    """The logger has its level of before at the end."""
    logger = logging.getLogger(NAME)
    before = logger.level
    logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(before)


def node_of(**more: Any) -> Any:
    names = {METRICS: {"m2", "m1"}, GROUP: {"g"}}
    image = Mock(topics={"u": None, "t": None}, config_names=names.get)
    nodes = {number: SimpleNamespace(node_id=number, fenced=number == 3) for number in (3, 1, 2)}
    view = Mock(nodes=nodes, alive=[each for each in nodes.values() if not each.fenced])
    return called(**{"node_id": 1, "image": image, "security": None, "brokers_at": lambda _: view, **more})


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (TOPIC, "no such", ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        (BROKER, "x", INVALID, "Broker id must be an integer, but it is: x"),
        (BROKER, "2", INVALID, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (LOGGER, "2", INVALID, "Unexpected broker id, expected 1 but received 2"),
        (LOGGER, "", INVALID, "Unexpected broker id, expected 1 but received "),
        (GROUP, "", INVALID, "Group name must not be empty"),
        (METRICS, "", INVALID, "Client metrics subscription name must not be empty"),
        (64, "x", INVALID, "Unsupported resource type: 64"),
    ],
)
def test_a_resource_that_is_not_there_is_told_in_kafkas_words(
    kind: int, name: str, code: ErrorCode, words: str | None
) -> None:
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name)]
    (found,) = describe_configs(node_of(), DescribeConfigsRequest(resources=resources)).results
    assert (found.resource_type, found.resource_name, found.error_code) == (kind, name, code)
    assert words is None or found.error_message == words
    assert found.configs == []


def levels(*keys: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=list(keys) or None)
    (found,) = describe_configs(node_of(), DescribeConfigsRequest(resources=[resource])).results
    return {each.name: each.value for each in found.configs}


def change(*changes: tuple[str, int, str | None], name: str = "1", validate_only: bool = False) -> tuple[Any, ...]:
    """(code, message) of one logger's changes."""
    configs = [alter.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = alter.AlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=configs)
    request = alter.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    call = node_of()
    (found,) = done(incremental_alter_configs(call, request), call).responses
    assert (found.resource_type, found.resource_name) == (LOGGER, name)
    assert not call.node.controllers.forward.called, "a logger is the node's own"
    assert call.node.dispatch.log.look.called
    return found.error_code, found.error_message


def test_a_logger_is_set_and_put_back() -> None:
    assert change((NAME, SET, "DEBUG")) == (NONE, "")
    assert levels(NAME) == {NAME: "DEBUG"}
    assert change((NAME, SET, "ERROR"), validate_only=True) == (NONE, "")
    assert levels(NAME) == {NAME: "DEBUG"}
    assert change((NAME, DELETE, None)) == (NONE, "")
    assert logging.getLogger(NAME).level == logging.NOTSET
    assert len(levels()) > 2
    assert "root" in levels()


@pytest.mark.parametrize(
    ("changes", "name", "code", "words"),
    [
        ([("none", SET, "INFO")], "1", ErrorCode.INVALID_CONFIG, "Logger none does not exist!"),
        ([("root", DELETE, None)], "1", INVALID, "Removing the log level of the root logger is not allowed"),
        ([(NAME, APPEND, "INFO")], "1", INVALID, "a logger's level can be set or deleted, nothing else"),
        ([(NAME, SET, "LOUD")], "1", ErrorCode.INVALID_CONFIG, f"Cannot set the log level of {NAME} to LOUD; it takes"),
        ([(NAME, SET, "INFO")], "2", INVALID, "Unexpected broker id, expected 1 but received 2"),
        ([(NAME, SET, None)], "1", INVALID, f"Null value not supported for : {NAME}"),
        ([(NAME, SET, "INFO"), (NAME, DELETE, None)], "1", INVALID, "Error due to duplicate config keys"),
        # One change that cannot be leaves the other undone.
        ([(NAME, SET, "INFO"), ("none", SET, "INFO")], "1", ErrorCode.INVALID_CONFIG, "Logger none does not exist!"),
    ],
)
def test_a_change_of_a_logger_that_cannot_be_is_refused(
    changes: list[tuple[str, int, str | None]], name: str, code: ErrorCode, words: str
) -> None:
    found_code, found_words = change(*changes, name=name)
    assert found_code == code
    assert found_words.startswith(words)
    assert logging.getLogger(NAME).level == logging.NOTSET


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_no_logger_is_the_controllers_and_loggers_follow(fails: bool) -> None:
    resources = [
        alter.AlterConfigsResource(
            resource_type=LOGGER,
            resource_name="1",
            configs=[alter.AlterableConfig(name=NAME, config_operation=SET, value="DEBUG")],
        ),
        alter.AlterConfigsResource(resource_type=TOPIC, resource_name="t"),
    ]
    answered = alter.AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="t")

    def forward(_: Any, rest: Any, done_with: Any) -> None:
        assert [each.resource_name for each in rest.resources] == ["t"]
        assert rest.validate_only is False
        whole = alter.IncrementalAlterConfigsResponse(responses=[answered])
        done_with(KafkaError(ErrorCode.NOT_CONTROLLER) if fails else whole)

    call = node_of(controllers=SimpleNamespace(forward=forward))
    reply = done(incremental_alter_configs(call, alter.IncrementalAlterConfigsRequest(resources=resources)), call)
    if fails:
        assert reply.code is ErrorCode.NOT_CONTROLLER
        assert logging.getLogger(NAME).level == logging.NOTSET
    else:
        assert [each.resource_type for each in reply.responses] == [TOPIC, LOGGER]
        assert logging.getLogger(NAME).level == logging.DEBUG


@pytest.mark.parametrize("values", [["DEBUG"], ["LOUD"], ["DEBUG", None]])
def test_a_controller_changes_its_own_loggers_and_decides_the_rest(values: list[str | None]) -> None:
    """Through `--bootstrap-controller`: `None` stands for a topic's change in the same request."""
    resources = [
        alter.AlterConfigsResource(
            resource_type=TOPIC if value is None else LOGGER,
            resource_name="t" if value is None else "1",
            configs=[alter.AlterableConfig(name=NAME, config_operation=SET, value=value or "1")],
        )
        for value in values
    ]
    decided: list[Any] = []

    def ask(request: DirectChange, committed: Any, *_: Any) -> None:
        decided.extend(each.resource_type for each in request.request.resources)
        committed(alter.IncrementalAlterConfigsResponse(responses=[alter.AlterConfigsResourceResponse()]))

    call = node_of(quorum=SimpleNamespace(ask=ask))
    request = alter.IncrementalAlterConfigsRequest(resources=resources)
    found = done(change_at_controller(call, request), call).responses[-1]
    assert decided == ([TOPIC] if None in values else [])
    assert found.resource_type == LOGGER
    assert found.error_code == (ErrorCode.INVALID_CONFIG if values == ["LOUD"] else NONE)
    assert logging.getLogger(NAME).level == (logging.NOTSET if values == ["LOUD"] else logging.DEBUG)
    assert call.node.controller_dispatch.log.look.called


@pytest.mark.parametrize(
    ("name", "words"),
    [("2", "Unexpected broker id, expected 1, but received 2"), ("x", "Node id must be an integer, but it is: x")],
)
def test_a_broker_takes_no_configs_of_another_node(name: str, words: str) -> None:
    forwarded: list[Any] = []
    controllers = SimpleNamespace(forward=lambda _, rest, done_with: forwarded.extend(rest.resources))
    for handler, api in ((incremental_alter_configs, alter), (alter_configs, legacy)):
        image = Mock(config=lambda kind, name: {})
        call = node_of(settings=server_settings(), image=image, controllers=controllers)
        other = api.AlterConfigsResource(resource_type=BROKER, resource_name=name)
        [answer] = done(handler(call, _request(api, [other])), call).responses
        assert (answer.error_code, answer.error_message) == (INVALID, words)
    assert not forwarded


def _request(api: Any, resources: list[Any]) -> Any:
    kind: Any = legacy.AlterConfigsRequest if api is legacy else alter.IncrementalAlterConfigsRequest
    return kind(resources=resources)


def test_resources_are_listed_in_order_and_in_version_0_those_of_metrics_alone() -> None:
    def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
        call = node_of(version=version)
        found = list_config_resources(call, ListConfigResourcesRequest(resource_types=list(kinds)))
        return [(each.resource_type, each.resource_name) for each in found.config_resources]

    metrics = [(METRICS, "m1"), (METRICS, "m2")]
    brokers = [(kind, number) for kind in (BROKER, LOGGER) for number in "123"]
    assert listed(1) == [(TOPIC, "t"), (TOPIC, "u"), *brokers, *metrics, (GROUP, "g")], "those of every broker"
    assert listed(1, GROUP, TOPIC) == [(TOPIC, "t"), (TOPIC, "u"), (GROUP, "g")]
    assert listed(0) == listed(0, TOPIC) == metrics
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        listed(1, TOPIC, 64)


@pytest.mark.parametrize("handler", [incremental_alter_configs, alter_configs])
@pytest.mark.parametrize(("value", "is_refused"), [("/other", True), ("/data", False)])
def test_a_broker_refuses_configs_of_its_own_that_do_not_fit_its_file(
    value: str, is_refused: bool, handler: Any
) -> None:
    api: Any = alter if handler is incremental_alter_configs else legacy
    configs = [api.AlterableConfig(name="cordoned.log.dirs", value=value)]
    own = api.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
    forwarded: list[Any] = []
    image = Mock(config=lambda kind, name: {}, metadata_version=METADATA_VERSION_LATEST, has_elr=False)
    controllers = SimpleNamespace(forward=lambda _, rest, done_with: forwarded.extend(rest.resources))
    call = node_of(settings=server_settings(), image=image, controllers=controllers)
    reply = handler(call, _request(api, [own]))
    assert forwarded == ([] if is_refused else [own])
    if is_refused:
        [answer] = done(reply, call).responses
        assert answer.error_code == INVALID
        assert "/other is not one of log.dirs (/data)" in answer.error_message
