"""A node that is only a controller: what it serves, what it refuses, what it keeps; and a controller's own listener."""

import logging
from random import Random
from typing import Any

import pytest

from ottla.broker.controller_node import ControllerNode
from ottla.broker.dispatch.dispatch import CONTROLLER_HANDLERS
from ottla.broker.metadata.format import format_directories
from ottla.broker.metadata_node import Ports
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.metadata.image import BROKER, BROKER_LOGGER
from ottla.security.acl import CLUSTER_NAME, AclOperation, AclResource
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import SimLoop, SimPool
from ottla.sim.machine import Machine
from ottla.sim.net import new_listener
from ottla.wire.api import API, ApiKey
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.compile import decoder, encoder
from ottla.wire.header import RequestHeader, request_header_version, response_header_version

SETTINGS = {
    "process.roles": "controller",
    "node.id": "7",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/data",
}


class ControllerScene:
    """A controller-only node on a simulated disk."""

    def __init__(self, settings: dict[str, str] = SETTINGS) -> None:
        self.rng, self.clock = Random(1), SimClock()
        self.disk = SimDisk(self.rng)
        self.settings = ServerSettings.parse(settings)
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        format_directories(
            self.disk,
            self.settings,
            "MkU3OEVBNTcwNTJENDM2Qg",
            clock=self.clock,
            rng=self.rng,
            standalone="controller.quorum.voters" not in settings,
        )

    def start(self) -> ControllerNode:
        self.loop = SimLoop(self.clock, self.rng)
        loop: Any = self.loop
        ports = Ports(self.disk, self.clock, self.rng, lambda *_: SimPool(self.loop), new_listener, self.loop.time)
        self.ready: list[None] = []
        self.node = ControllerNode(self.settings, loop, ports)
        self.node.on_ready = lambda: self.ready.append(None)
        self.node.open()
        return self.node

    def ask(self, request: Any, key: int, version: int) -> Any:
        return ask(self.loop, self.node.controller_listeners[0], request, key, version)


def ask(loop: SimLoop, listener: Any, request: Any, key: int, version: int) -> Any:
    """The response to a request on a simulated listener; ConnectionError when it closes the connection."""
    replies: list[bytes] = []
    lost: list[None] = []
    connection = listener.connect(replies.append, lambda: lost.append(None))
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="test")
    parts = [
        *encoder(RequestHeader, request_header_version(key, version))(header),
        *encoder(type(request), version)(request),
    ]
    connection.send(b"".join(bytes(part) for part in parts))
    while not replies and not lost:
        assert loop.turn(), "no answer comes"
    if lost:
        raise ConnectionError
    start = 4 + (response_header_version(key, version) == 1)
    return decoder(API[ApiKey(key)].response, version)(memoryview(replies[0]), start)[0]


def test_it_serves_at_once_and_keeps_what_was_decided() -> None:
    scene = ControllerScene()
    node = scene.start()
    assert len(scene.ready) == 1
    assert not node.listeners
    assert not node.image.brokers
    assert list(node.image.controllers) == [7]
    entry = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="ann")], ops=[OpData(key="producer_byte_rate", value=9.0)]
    )
    response = scene.ask(AlterClientQuotasRequest(entries=[entry]), ApiKey.ALTER_CLIENT_QUOTAS, 1)
    assert response.entries[0].error_code == 0
    quotas = node.image.quotas
    assert quotas
    node.close()
    assert scene.start().image.quotas == quotas
    scene.node.close()


def test_it_changes_its_own_loggers_and_the_configs_of_nodes_that_it_knows() -> None:
    scene = ControllerScene()
    scene.start()
    logger = logging.getLogger("ottla.request")
    level = logger.level

    def changed(kind: int, name: str, key: str, value: str) -> int:
        config = incremental.AlterableConfig(name=key, value=value)
        resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        code: int = scene.ask(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses[0].error_code
        return code

    try:
        assert changed(BROKER_LOGGER, "7", "ottla.request", "DEBUG") == 0
        assert scene.node.controller_dispatch.log.wanted
        assert changed(BROKER, "7", "log.cleaner.threads", "2") == 0
        assert changed(BROKER, "8", "log.cleaner.threads", "2") == ErrorCode.BROKER_ID_NOT_REGISTERED
    finally:
        logger.setLevel(level)
        scene.node.close()


def test_there_is_no_broker_to_put_a_topic_on() -> None:
    scene = ControllerScene()
    scene.start()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    response = scene.ask(request, ApiKey.CREATE_TOPICS, 7)
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    scene.node.close()


def test_its_listener_offers_what_it_serves_and_closes_on_the_rest() -> None:
    scene = ControllerScene()
    scene.start()
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    response = scene.ask(request, ApiKey.API_VERSIONS, 4)
    assert {each.api_key for each in response.api_keys} == set(CONTROLLER_HANDLERS)
    with pytest.raises(ConnectionError):
        scene.ask(API[ApiKey.METADATA].request(), ApiKey.METADATA, 12)
    scene.node.close()


def test_a_combined_node_serves_both_kinds_of_listeners() -> None:
    machine = Machine(Random(1))
    machine.start()
    node = machine.node
    assert node is not None
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    offered = [
        {each.api_key for each in ask(machine.loop, listener, request, ApiKey.API_VERSIONS, 4).api_keys}
        for listener in (node.listeners[0], node.controller_listeners[0])
    ]
    assert ApiKey.METADATA in offered[0]
    assert offered[1] == set(CONTROLLER_HANDLERS)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    created = ask(machine.loop, node.controller_listeners[0], CreateTopicsRequest(topics=[topic]), 19, 7)
    assert created.topics[0].error_code == 0
    assert "t" in node.image.topics


def test_its_directories_are_its_own_while_it_runs() -> None:
    scene = ControllerScene()
    node = scene.start()
    with pytest.raises(OttlaError, match="in use by another"):
        scene.start()
    node.close()
    scene.start().close()


def test_a_controller_that_waits_for_the_others_has_the_rules_of_its_log() -> None:
    alone = SETTINGS | {
        "controller.quorum.bootstrap.servers": "",
        "controller.quorum.voters": "7@127.0.0.1:9093",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    scene = ControllerScene(alone)
    scene.start()
    rule = AclCreation(
        resource_type=4,
        resource_name="kafka-cluster",
        resource_pattern_type=3,
        principal="User:node",
        host="*",
        operation=9,
        permission_type=3,
    )
    assert not scene.ask(CreateAclsRequest(creations=[rule]), ApiKey.CREATE_ACLS, 3).results[0].error_code
    scene.node.close()
    scene.settings = ServerSettings.parse(
        alone | {"controller.quorum.voters": "7@127.0.0.1:9093,8@127.0.0.1:9094,9@127.0.0.1:9095"}
    )
    node = scene.start()
    assert not node.quorum.image.acls, "it knows of a commit"
    assert node.authorizer is not None
    assert node.authorizer.rules.allows(
        "User:node", "10.0.0.7", AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME
    )
    node.close()
