"""A node inside this process, for tests, notebooks and small applications.

    with ottla.Node() as node:
        producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap_servers})

Rules:
- It is a real node: real sockets on 127.0.0.1, real files, the same code as `ottla start`, on a thread of its own.
- Without a directory its data are in a temporary one, which goes when it stops.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ottla.broker.format import format_if_empty
from ottla.broker.node import Node as BrokerNode
from ottla.host.disk import HostDisk
from ottla.host.loop import new_loop
from ottla.kernel.error import OttlaError
from ottla.kernel.server_settings import ServerSettings

_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60


class Node:
    """One Ottla node on a thread of this process; ready when the constructor's `start` or `with` returns.

    `data`: the directory of its logs (kept), or None for a temporary one. `port`: 0 takes a free one.
    `settings`: any of Kafka's broker settings by Kafka's names, as text or as Python values.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._data = data
        self._temporary: str | None = None
        self._host = host
        self._port = port
        self._overrides = {key: _text(value) for key, value in (settings or {}).items()}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: BrokerNode | None = None
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for the clients' `bootstrap.servers`."""
        if self._node is None:
            raise OttlaError("the node is not running; use `with ottla.Node() as node:` or call start()")
        return ",".join(f"{each.host}:{each.port}" for each in self._node.bound())

    @property
    def data(self) -> str:
        """The directory of its logs."""
        directory = self._data or self._temporary
        if directory is None:
            raise OttlaError("the node has no directory before it starts")
        return str(directory)

    def start(self) -> Node:
        """Start and return when it serves. Raises OttlaError in words when it cannot."""
        if self._thread is not None:
            raise OttlaError("this node is running already")
        if self._data is None and self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="ottla-")
        ready = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="ottla-node", daemon=True)
        self._thread.start()
        if not ready.wait(_START_SECONDS_MAX):
            raise OttlaError(f"the node did not start within {_START_SECONDS_MAX} seconds")
        failure = self._take_failure()
        if failure is not None:
            self._thread.join()
            self._thread = None
            raise failure
        return self

    def _take_failure(self) -> BaseException | None:
        failure, self._failure = self._failure, None
        return failure

    def _run(self, ready: threading.Event) -> None:
        try:
            settings = self._settings()
            format_if_empty(HostDisk(), settings)
            loop = new_loop()
            node = BrokerNode(settings, loop)
            node.on_failure = self._fail
            node.open()
        except BaseException as error:
            self._failure = error
            ready.set()
            return
        self._loop, self._node = loop, node
        # The port that was taken is the port it comes back on.
        self._port = node.listeners[0].port
        ready.set()
        try:
            loop.run_forever()
            node.close()
        finally:
            self._node = None
            loop.close()

    def _settings(self) -> ServerSettings:
        text = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self._host}:{self._port},CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:0",
            "log.dirs": self.data,
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return ServerSettings.parse(text | self._overrides)

    def _fail(self, why: str) -> None:
        self._failure = OttlaError(f"the node stopped: {why}")
        assert self._loop is not None
        self._loop.stop()

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, object] | None = None) -> None:
        """Make a topic; `settings` are its own, by Kafka's names. Raises KafkaError as an admin client would see."""
        node, loop = self._node, self._loop
        if node is None or loop is None:
            raise OttlaError("the node is not running; use `with ottla.Node() as node:` or call start()")
        configs = {key: _text(value) for key, value in (settings or {}).items()}

        async def create() -> None:
            node.create_topic(name, partitions, configs)

        asyncio.run_coroutine_threadsafe(create(), loop).result(_START_SECONDS_MAX)

    def stop(self) -> None:
        """Stop cleanly; what was written stays in `data` unless it was temporary."""
        self._halt()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def restart(self) -> Node:
        """Stop cleanly and start again with the same data on the same port."""
        self._halt()
        return self.start()

    def _halt(self) -> None:
        thread, loop = self._thread, self._loop
        if thread is None:
            return
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
        thread.join(_STOP_SECONDS_MAX)
        if thread.is_alive():
            raise OttlaError(f"the node did not stop within {_STOP_SECONDS_MAX} seconds")
        self._thread = self._loop = None

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _text(value: Any) -> str:
    """A Python value as Kafka's settings write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
