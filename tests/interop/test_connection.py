"""How many connections a listener takes and how fast, on Apache's broker and on our node: the same for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from ottla.wire.api import describe_configs, incremental_alter_configs, metadata
from tests.broker.wire_client import WireClient
from tests.interop import server as servers
from tests.interop.server import Server, free_ports

BROKER = 4
LIMIT, RATE = "listener.name.clients.max.connections", "listener.name.clients.max.connection.creation.rate"
#: One thread has all connections of a listener, so that Apache Kafka, too, closes the one that was silent for longest.
SETTINGS = {"num.network.threads": "1", LIMIT: "100", "listener.name.nobody.max.connections": "3"}

Change = Callable[..., int]


class Node(NamedTuple):
    """The addresses of its two listeners."""

    brokers: str
    clients: str


@pytest.fixture(scope="module", params=["apache", "ottla"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """PLAINTEXT, on which brokers would reach each other, and CLIENTS."""
    plain, clients, controller = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},CLIENTS://127.0.0.1:{clients}"
    settings = {
        **SETTINGS,
        **servers.HELD,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
    }
    one = Server(servers.kind(request.param), tmp_path_factory.mktemp("connection"), settings)
    one.format()
    one.port = plain
    one.start()
    yield Node(one.bootstrap, f"127.0.0.1:{clients}")
    one.kill()


@pytest.fixture
def connect(node: Node) -> Iterator[Callable[[], WireClient]]:
    """Connections to CLIENTS."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(WireClient(node.clients))


@pytest.fixture
def admin(node: Node) -> Iterator[WireClient]:
    with WireClient(node.brokers) as one:
        yield one


@pytest.fixture
def change(admin: WireClient) -> Iterator[Change]:
    """Change settings of the broker, or of all (`of=""`); they are as they were at the end of the test."""
    changed: list[tuple[str, str]] = []

    def alter(of: str, name: str, value: str | None, *, validate_only: bool = False) -> int:
        one = incremental_alter_configs.AlterableConfig(name=name, config_operation=int(value is None), value=value)
        resource = incremental_alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name=of, configs=[one])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )
        code: int = admin.ask(request, 1).responses[0].error_code
        return code

    def put(name: str, value: str, of: str = "1", *, validate_only: bool = False) -> int:
        code = alter(of, name, value, validate_only=validate_only)
        if not code and not validate_only:
            changed.append((of, name))
            await_value(admin, of, name, value)
        return code

    yield put
    for of, name in changed:
        assert alter(of, name, None) == 0
        await_value(admin, of, name, None)


def await_value(admin: WireClient, of: str, name: str, value: str | None) -> None:
    """Apache's broker follows its controller a moment later."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = described(admin, of, name)
        own = [one.value for one in found.synonyms if one.source == (2 if of else 3)] if found else []
        if own[:1] == ([] if value is None else [value]):
            return
    raise AssertionError(f"{name} is not {value}")


def described(admin: WireClient, of: str, name: str) -> describe_configs.DescribeConfigsResourceResult | None:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=BROKER, resource_name=of, configuration_keys=[name]
    )
    reply = admin.ask(describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    return next(iter(reply.results[0].configs), None)


def ask(client: WireClient) -> None:
    client.send(metadata.MetadataRequest(topics=[]), 9)


def is_answered(client: WireClient, seconds: float = 60.0) -> bool:
    """Does the answer to `ask` come? It is a failure when the connection was closed."""
    client.sock.settimeout(seconds)
    try:
        client.receive(3, 9)
    except TimeoutError:
        return False
    return True


def is_closed(client: WireClient) -> bool:
    client.sock.settimeout(60.0)
    return client.sock.recv(1) == b""


def test_a_listener_takes_them_as_fast_as_it_may(connect: Callable[[], WireClient], change: Change) -> None:
    change(RATE, "1")
    began = time.monotonic()
    for _ in range(13):
        client = connect()
        ask(client)
        assert is_answered(client)
    # Ten windows of a second have room for ten; the others waited for a second each. This test is the first: what
    # came before counts, too, and would make it longer.
    assert time.monotonic() - began > 2.5


def test_a_listener_takes_so_many_and_the_next_waits_for_one_to_go(
    connect: Callable[[], WireClient], admin: WireClient, change: Change
) -> None:
    change(LIMIT, "2")
    clients = [connect() for _ in range(3)]
    for each in clients:
        ask(each)
    assert is_answered(clients[0]) and is_answered(clients[1])
    assert not is_answered(clients[2], 0.5)
    ask(admin)
    assert is_answered(admin)
    clients[0].sock.close()
    assert is_answered(clients[2])


def test_who_waits_is_served_when_the_limit_of_the_listener_is_raised(
    connect: Callable[[], WireClient], change: Change
) -> None:
    change(LIMIT, "1")
    first, second = connect(), connect()
    for each in (first, second):
        ask(each)
    assert is_answered(first)
    assert not is_answered(second, 0.5)
    change(LIMIT, "2")
    assert is_answered(second)


def test_brokers_connect_when_clients_have_all_connections_and_the_most_silent_client_goes(
    node: Node, connect: Callable[[], WireClient], change: Change
) -> None:
    clients = [connect() for _ in range(3)]
    heard = time.monotonic()
    # A node tells times apart that are some milliseconds apart.
    while time.monotonic() - heard < 0.05:
        for each in (clients[0], clients[2]):
            ask(each)
            assert is_answered(each)
    # With the one of the fixture.
    change("max.connections", "4", of="")
    waits = connect()
    ask(waits)
    assert not is_answered(waits, 0.5)
    with WireClient(node.brokers) as broker:
        ask(broker)
        assert is_answered(broker)
        assert is_closed(clients[1])
    # Its place is free now, and the one of the broker.
    assert is_answered(waits)
    ask(clients[0])
    assert is_answered(clients[0])


def test_what_a_listener_cannot_have_is_refused(change: Change) -> None:
    invalid = 42
    for of in ("1", ""):
        for name in (LIMIT, RATE, "listener.name.nobody.max.connections"):
            for value in ("x", "-1", ""):
                assert change(name, value, of, validate_only=True) == invalid, (of, name, value)
        # A listener that is not there has no limits that could be too low.
        for name, code in ((LIMIT, invalid), (RATE, invalid), ("listener.name.nobody.max.connections", 0)):
            assert change(name, "0", of, validate_only=True) == code, (of, name)
        assert change("max.connection.creation.rate", "0", of, validate_only=True) == invalid


def test_a_listeners_limits_are_described_with_those_of_all_listeners(admin: WireClient, change: Change) -> None:
    def shown(of: str, name: str) -> tuple[object, ...]:
        found = described(admin, of, name)
        assert found is not None
        synonyms = [(one.name, one.value, one.source) for one in found.synonyms]
        return found.value, found.config_source, found.config_type, found.read_only, found.is_sensitive, synonyms

    default = ("max.connections", "2147483647", 5)
    assert shown("1", LIMIT) == ("100", 4, 3, True, False, [(LIMIT, "100", 4), default])
    change(LIMIT, "90", of="")
    change("max.connections", "900", of="")
    change(LIMIT, "80")
    everyones = [(LIMIT, "90", 3), ("max.connections", "900", 3)]
    assert shown("1", LIMIT) == ("80", 2, 3, True, False, [(LIMIT, "80", 2), *everyones, (LIMIT, "100", 4), default])
    assert shown("", LIMIT) == ("90", 3, 3, True, False, everyones)
    name = "listener.name.nobody.max.connections"
    assert shown("1", name)[:2] == ("3", 4)
