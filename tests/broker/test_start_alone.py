"""A node alone whose logs take long to open: its probes and signals are answered meanwhile, and then it serves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

import ottla
from ottla.broker.node import BrokerNode, Ports
from ottla.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.host.disk import HostDisk, HostFile
from ottla.host.loop import new_loop
from ottla.kernel.error import OttlaError
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from tests.client.conftest import eventually


class SlowDisk(HostDisk):
    """A disk that holds up the opening of the second log, until `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.reached = threading.Event()

    def open(self, path: str, *, create: bool = False, lasting: bool = False) -> HostFile:
        if path.endswith("slow-1/00000000000000000000.log"):
            self.reached.set()
            assert self.gate.wait(60)
        return super().open(path, create=create, lasting=lasting)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a node that was not stopped cleanly."""
    with ottla.Node(tmp_path) as node:
        with Admin(node.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("slow", 2)]).check()
        with Producer(node.bootstrap_servers) as producer:
            producer.send("slow", b"kept", partition=1).result(30)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    return tmp_path


@contextmanager
def starting(data: Path, disk: SlowDisk) -> Iterator[BrokerNode]:
    """A node whose `open` has returned while its logs are being opened; its loop runs on a thread."""
    loop = new_loop()
    more = {"metrics.listener": "127.0.0.1:0", "num.recovery.threads.per.data.dir": "1"}
    node = BrokerNode(ServerSettings.parse(single_node(str(data), "127.0.0.1", 0) | more), loop, Ports(disk))
    node.open(wait_seconds=0)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert disk.reached.wait(60)
        yield node
    finally:
        disk.gate.set()
        loop.call_soon_threadsafe(node.stop, loop.stop)
        thread.join(60)
        node.close()
        loop.close()


def asked(node: BrokerNode, path: str) -> tuple[int, str]:
    assert node.observation is not None
    with_port = HTTPConnection(node.observation.address, timeout=30)
    with_port.request("GET", path)
    answer = with_port.getresponse()
    text = answer.read().decode()
    with_port.close()
    return answer.status, text


def test_probes_are_answered_while_a_node_alone_recovers_its_logs(data: Path) -> None:
    disk = SlowDisk()
    with starting(data, disk) as node:
        status, text = asked(node, "/health")
        assert (status, json.loads(text)["state"]) == (200, "starting")
        status, text = asked(node, "/ready")
        (reason,) = json.loads(text)["reasons"]
        assert (status, reason.partition(", 0 MiB")[0]) == (
            503,
            f"{data}: recovering after an unclean shutdown, 1 of 2 logs",
        )
        assert asked(node, "/metrics")[0] == 200
        disk.gate.set()
        eventually(lambda: asked(node, "/ready")[0] == 200)
        (endpoint,) = node.bound()
        with Consumer(f"{endpoint.host}:{endpoint.port}") as consumer:
            consumer.assign([TopicPartition("slow", 1)])
            consumer.seek_to_beginning()
            assert next(iter(consumer)).value == b"kept"


def test_a_node_alone_that_is_stopped_while_it_recovers_loses_nothing(data: Path) -> None:
    with starting(data, SlowDisk()) as node:
        assert not node.is_ready
    with ottla.Node(data) as again, Consumer(again.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("slow", 1)])
        consumer.seek_to_beginning()
        assert next(iter(consumer)).value == b"kept"


def test_logs_that_cannot_be_opened_stop_a_start_as_before(data: Path) -> None:
    class Foreign(SlowDisk):
        def open(self, path: str, *, create: bool = False, lasting: bool = False) -> HostFile:
            if path.endswith("slow-1/00000000000000000000.log"):
                raise OttlaError("a log of another program")
            return super().open(path, create=create, lasting=lasting)

    loop = asyncio.new_event_loop()
    node = BrokerNode(ServerSettings.parse(single_node(str(data), "127.0.0.1", 0)), loop, Ports(Foreign()))
    with pytest.raises(OttlaError, match="of another program"):
        node.open(wait_seconds=60)
    loop.close()
