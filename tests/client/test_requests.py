"""What clients say to a broker, and what their settings change in it: the first request of each kind, field by field.

tests/client/requests has a file for each program below, with default settings and with others. With
OTTLA_WRITE_SCENES=1 in the environment the tests write what is sent into them: read the difference before you commit
it. Fields that have their defaults are left out; ids and times of the run are shown by name.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ConfigResource,
    Producer,
    ResourceType,
    TopicPartition,
)
from ottla.client.connection.connection import BrokerConnection
from ottla.net.request import api_of
from ottla.wire.api import Api

HERE = Path(__file__).parent / "requests"
TOPIC, GROUP = "flights", "readers"
_WAIT_S = 10.0
Settings = dict[str, object]

#: What every client takes.
_SHARED: Settings = {
    "client.id": "me",
    "client.rack": "rack-1",
    "request.timeout.ms": 12_345,
    "enable.metrics.push": False,
    "allow.auto.create.topics": False,
}
_PRODUCER: Settings = {"acks": "1", "compression.type": "gzip", "linger.ms": 0}
_CONSUMER: Settings = {
    "isolation.level": "read_committed",
    "fetch.min.bytes": 2,
    "fetch.max.bytes": 1_000_001,
    "fetch.max.wait.ms": 17,
    "max.partition.fetch.bytes": 100_001,
    "default.api.timeout.ms": 23_456,
    "auto.offset.reset": "latest",
    "max.poll.interval.ms": 34_567,
}
_CLASSIC: Settings = {
    "group.id": GROUP,
    "group.instance.id": "i",
    "session.timeout.ms": 7_000,
    "heartbeat.interval.ms": 100,
    "partition.assignment.strategy": "roundrobin,range",
}
_NEWER: Settings = {"group.id": GROUP, "group.instance.id": "i", "group.remote.assignor": "range"}
_SHARE: Settings = {
    "group.id": GROUP,
    "fetch.min.bytes": 2,
    "fetch.max.bytes": 1_000_001,
    "fetch.max.wait.ms": 17,
    "max.poll.records": 3,
    "share.acquire.mode": "record_limit",
}


async def produce(server: str, settings: Settings) -> None:
    async with AsyncProducer({"bootstrap.servers": server, **settings}) as producer:
        await producer.send(TOPIC, b"value", b"key", partition=0, timestamp=1_000_000_000_000, headers=[("h", b"x")])


async def transact(server: str, settings: Settings) -> None:
    async with AsyncProducer({"bootstrap.servers": server, "transactional.id": "tx", **settings}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(TOPIC, b"value", partition=0, timestamp=1_000_000_000_000)
        await producer.send_offsets(GROUP, {TopicPartition(TOPIC, 0): 1})
        await producer.commit_transaction()


async def read(server: str, settings: Settings) -> None:
    async with AsyncConsumer({"bootstrap.servers": server, **settings}) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.position(TopicPartition(TOPIC, 0))
        await consumer.poll(0.1)


async def join(server: str, settings: Settings) -> None:
    async with AsyncConsumer({"bootstrap.servers": server, "group.id": GROUP, **settings}) as consumer:
        consumer.subscribe([TOPIC])
        async with asyncio.timeout(_WAIT_S):
            while not consumer.assignment():
                await consumer.poll(0.05)
        await consumer.poll(0.2)
        await consumer.commit({TopicPartition(TOPIC, 0): 1})
        await consumer.committed([TopicPartition(TOPIC, 0)])


async def join_newer(server: str, settings: Settings) -> None:
    await join(server, {"group.protocol": "consumer", **settings})


async def share(server: str, settings: Settings) -> None:
    async with AsyncShareConsumer({"bootstrap.servers": server, "group.id": GROUP, **settings}) as consumer:
        consumer.subscribe([TOPIC])
        async with asyncio.timeout(_WAIT_S):
            while not await consumer.poll(0.1):
                pass


PROGRAMS: dict[str, tuple[Callable[[str, Settings], Awaitable[None]], Settings]] = {
    "producer": (produce, _PRODUCER),
    "transaction": (transact, {"transaction.timeout.ms": 45_678, "compression.type": "zstd"}),
    "consumer": (read, _CONSUMER),
    "classic": (join, _CLASSIC | _CONSUMER),
    "newer": (join_newer, _NEWER | _CONSUMER),
    "share": (share, _SHARE),
}


@pytest.fixture
def server() -> Iterator[str]:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, 1)
        admin.alter_config(ConfigResource(ResourceType.GROUP, GROUP), {"share.auto.offset.reset": "earliest"})
        with Producer(node.bootstrap_servers) as producer:
            producer.send(TOPIC, b"there")
        yield node.bootstrap_servers


class Log:
    """The first request of each kind, and how long its answer may take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[str, list[str]] = {}
        transmit, unanswered = BrokerConnection._transmit, BrokerConnection.send_unanswered

        def noted(
            connection: BrokerConnection, api: Api, version: int, request: object, timeout_ms: int, **more: Any
        ) -> Any:
            self._note(api, version, request, f"within {timeout_ms} ms")
            return transmit(connection, api, version, request, timeout_ms, **more)

        def noted_unanswered(connection: BrokerConnection, request: object, version: int) -> None:
            self._note(api_of(request), version, request, "no answer")
            unanswered(connection, request, version)

        monkeypatch.setattr(BrokerConnection, "_transmit", noted)
        monkeypatch.setattr(BrokerConnection, "send_unanswered", noted_unanswered)

    def _note(self, api: Api, version: int, request: object, limit: str) -> None:
        name = type(request).__name__.removesuffix("Request")
        self.sent.setdefault(name, [f"{name} {version}, {limit}", *_fields(request, "  ")])

    def lines(self, port: str) -> list[str]:
        """All of them, by name: which is sent first may depend on the machine."""
        return [_plain(line, port) for name in sorted(self.sent) for line in self.sent[name]]


def _fields(message: Any, indent: str) -> Iterator[str]:
    defaults = type(message)()
    for name in type(message).__annotations__:
        value = getattr(message, name)
        if value == getattr(defaults, name):
            continue
        parts = value if isinstance(value, list) else [value]
        if parts and hasattr(type(parts[0]), "__annotations__"):
            for part in parts:
                yield f"{indent}{name}:"
                yield from _fields(part, indent + "  ")
        else:
            text = f"{len(value)} bytes" if isinstance(value, bytes | bytearray | memoryview) else repr(value)
            yield f"{indent}{name} = {text}"


def _plain(line: str, port: str) -> str:
    line = re.sub(r"[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}", "{uuid}", line)
    return re.sub(r"(?<== ')[\w-]{22}(?=')|Uuid\(.*\)", "{id}", line).replace(port, "{port}")


@pytest.mark.parametrize("changed", [False, True], ids=["default", "changed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_clients_send_what_they_sent(name: str, changed: bool, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, own = PROGRAMS[name]
    log = Log(monkeypatch)
    asyncio.run(program(server, {**_SHARED, **own} if changed else {}))  # type: ignore[arg-type]
    path = HERE / f"{name}-{'changed' if changed else 'default'}.txt"
    found = log.lines(server.rpartition(":")[2])
    if os.environ.get("OTTLA_WRITE_SCENES"):
        path.write_text("".join(f"{line}\n" for line in found))
    wanted = path.read_text().splitlines()
    assert found == wanted, "\n".join(ndiff(wanted, found))
