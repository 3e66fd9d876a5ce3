"""Settings of loggers, which a node changes itself, and resources that there are not: before a table of a node."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from unittest.mock import call as mock_call

import pytest

from ottla.broker.handlers.active_controller import change_at_controller
from ottla.broker.handlers.config import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from ottla.controller.config import DirectChange
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
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
NAME, STORE = "ottla.request", "listener.name.own.ssl.keystore.type"
VALID = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


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
        (LOGGER, "", INVALID, "Broker id must not be empty"),
        (LOGGER, "x", INVALID, "Broker id must be an integer, but it is: x"),
        *(
            (kind, name, INVALID, f"Unexpected broker id, expected 1 {empty}but received {name}")
            for kind, empty in ((BROKER, "or empty string, "), (LOGGER, ""))
            for name in ("-1", "0", str((1 << 31) - 1))
        ),
        *((kind, str(1 << 31), INVALID, f"Broker id must be an integer, but it is: {1 << 31}") for kind in (4, 8)),
        (GROUP, "", INVALID, "Group name must not be empty"),
        (METRICS, "", INVALID, "Client metrics subscription name must not be empty"),
        (64, "x", INVALID, "Unexpected resource type UNKNOWN for resource x"),
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


@pytest.mark.parametrize("kind", [GROUP, 64])
def test_a_request_about_many_resources_looks_at_each_a_few_times(kind: int) -> None:
    """A request of one megabyte can name 100,000, and pairs of them would take minutes."""
    looks = 0

    class Watched(DescribeConfigsResource):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name == "resource_type"
            return super().__getattribute__(name)

    resources: list[Any] = [Watched(resource_type=GROUP, resource_name="") for _ in range(300)]
    resources.append(Watched(resource_type=kind, resource_name=""))
    found = describe_configs(node_of(), DescribeConfigsRequest(resources=resources)).results
    assert len([*found]) == len(found) == 301
    assert looks < 10 * 301
    unknown = "Unexpected resource type UNKNOWN for resource "
    assert {each.error_message for each in found} == {unknown if kind == 64 else "Group name must not be empty"}


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
        ([("none", DELETE, None)], "1", ErrorCode.INVALID_CONFIG, "Logger none does not exist!"),
        ([(NAME, APPEND, "INFO")], "1", INVALID, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ([("none", 3, "INFO")], "1", INVALID, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ([(NAME, 9, "INFO")], "1", INVALID, "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource"),
        (
            [(NAME, SET, "LOUD")],
            "1",
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {NAME} to LOUD as it is not a supported log level. {VALID}",
        ),
        ([(NAME, SET, "info")], "1", ErrorCode.INVALID_CONFIG, f"Cannot set the log level of {NAME} to info as it"),
        ([(NAME, SET, "INFO")], "2", INVALID, "Unexpected node id. Expected 1, but received 2"),
        ([(NAME, SET, "INFO")], "", INVALID, "Node id must be an integer, but it is: "),
        ([(NAME, SET, "INFO")], "x", INVALID, "Node id must be an integer, but it is: x"),
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


@pytest.mark.parametrize("handler", [incremental_alter_configs, alter_configs])
@pytest.mark.parametrize("kind", [TOPIC, BROKER, METRICS, GROUP])
def test_every_resource_is_answered_and_what_is_named_twice_is_refused_first(kind: int, handler: Any) -> None:
    """As in Apache Kafka: before a value is looked at, and for each mention of the resource."""
    api: Any = alter if handler is incremental_alter_configs else legacy

    def resource(name: str, *configs: tuple[str, str | None]) -> Any:
        made = [api.AlterableConfig(name=key, value=value) for key, value in configs]
        return api.AlterConfigsResource(resource_type=kind, resource_name=name, configs=made)

    twice, once, none, good = "Each resource must", "Error due to duplicate", "Null value not supported for : b", None
    asked = [
        (resource("1", ("cordoned.log.dirs", "/other")), twice),
        (resource("1"), twice),
        (resource("y", ("a", "1"), ("a", "/other")), once),
        (resource("x", ("a", "1"), ("b", None)), none),
        (resource("2" if kind != BROKER else ""), good),
    ]
    forwarded: list[Any] = []

    def forward(_: Any, rest: Any, done_with: Any) -> None:
        forwarded.extend(rest.resources)
        answer = api.AlterConfigsResourceResponse(resource_type=kind, resource_name=rest.resources[0].resource_name)
        response: Any = legacy.AlterConfigsResponse if api is legacy else alter.IncrementalAlterConfigsResponse
        done_with(response(responses=[answer]))

    image = Mock(config=lambda kind, name: {}, metadata_version=METADATA_VERSION_LATEST, has_elr=False)
    controllers = SimpleNamespace(forward=forward)
    call = node_of(settings=server_settings(), image=image, controllers=controllers)
    answers = done(handler(call, _request(api, [each for each, _ in asked])), call).responses
    found = sorted((each.resource_name, (each.error_message or "")) for each in answers)
    expected = sorted((each.resource_name, words or "") for each, words in asked)
    assert [(name, text[: len(words)]) for (name, text), (_, words) in zip(found, expected, strict=True)] == expected
    assert forwarded == [asked[-1][0]]


@pytest.mark.parametrize("handler", [incremental_alter_configs, alter_configs])
@pytest.mark.parametrize(
    ("resource", "key", "is_checked"),
    [
        ((BROKER, "1"), STORE, True),
        ((BROKER, "1"), "listener.name.own.max.connections", False),
        ((BROKER, "1"), "log.retention.ms", False),
        ((BROKER, ""), "listener.name.own.max.connections", False),
        ((TOPIC, "1"), STORE, False),
    ],
)
def test_stores_of_tls_are_tried_before_they_are_set(
    resource: tuple[int, str], key: str, is_checked: bool, handler: Any
) -> None:
    """Whichever of the two APIs sets them; Apache Kafka refuses with INVALID_REQUEST."""
    api: Any = alter if handler is incremental_alter_configs else legacy
    whole: Any = alter.IncrementalAlterConfigsRequest if api is alter else legacy.AlterConfigsRequest
    kind, name = resource
    values = {key: "5" if "max" in key or "ms" in key else "PEM"}

    def asked(security: Mock) -> Any:
        def forward(_: Any, rest: Any, done_with: Any) -> None:
            response: Any = legacy.AlterConfigsResponse if api is legacy else alter.IncrementalAlterConfigsResponse
            done_with(response())

        tried = Mock(side_effect=lambda own, _: own)
        call = node_of(
            settings=server_settings(),
            image=Mock(config=lambda *_: {}, metadata_version=METADATA_VERSION_LATEST, has_elr=False),
            controllers=SimpleNamespace(forward=forward),
            security=security,
            with_dynamic=tried,
        )
        configs = [api.AlterableConfig(name=each, value=value) for each, value in values.items()]
        each = api.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        reply = done(handler(call, whole(resources=[each])), call)
        assert tried.mock_calls == ([mock_call(values, {})] if is_checked else [])
        return reply

    security = Mock()
    assert asked(security).responses == []
    assert security.check.mock_calls == ([mock_call(values)] if is_checked else [])
    security = Mock(check=Mock(side_effect=OttlaError("no certificate")))
    if is_checked:
        [answer] = asked(security).responses
        assert answer.error_code == INVALID
        assert answer.error_message == "Validation of dynamic config update of SSLFactory failed: no certificate"
    else:
        assert asked(security).responses == []


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
