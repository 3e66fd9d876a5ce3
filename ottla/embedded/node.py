"""A node inside this process, for tests, notebooks and small applications.

    with ottla.Node() as node:
        producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap_servers})

Rules:
- It is a real node: real sockets on 127.0.0.1, real files, the same code as `ottla start`, on its own thread.
- Without a directory, its data is in a temporary one, deleted when the node stops or the program ends. Nothing there
  is synced: it need not survive a power failure, and a hundred tests with a fresh node each do not wait for fsync.
- `faults` and `clock` are for tests.
- After a fork the child has no node: it does not touch the parent's thread and directory.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from ottla.broker.coordinators.topic_spec import new_topic
from ottla.broker.metadata.format import format_if_empty
from ottla.broker.node import BrokerNode as BrokerNode
from ottla.broker.node import Ports
from ottla.host.config_providers import server_settings
from ottla.host.descriptor import allow_many
from ottla.host.disk import HostDisk, HostFile
from ottla.host.shift import ShiftedClock, new_shifted_loop
from ottla.kernel.error import KafkaError, OttlaError
from ottla.settings.server.single_node import single_node
from ottla.settings.text import text_of_value

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.broker.limits.telemetry import ClientMetrics
    from ottla.embedded.faults import Faults

_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60
_CALL_SECONDS_MAX = 60


class Node:
    """An Ottla node on a thread of this process; it serves when `start` returns or the `with` block begins.

    `data`: the directory of its logs (kept), or None for a temporary one. `port`: 0 takes a free one.
    `settings`: any of Kafka's broker settings by Kafka's names, as text or as Python values.
    `client_metrics`: called on the node's thread with the metrics that clients push (KIP-714); `client-metrics`
    resources select the clients and metrics. Without it, clients are not asked for metrics.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        settings: Mapping[str, object] | None = None,
        client_metrics: Callable[[ClientMetrics], None] | None = None,
    ) -> None:
        if data is not None and not isinstance(data, str | os.PathLike):
            raise TypeError(f"data is a directory, a str or a Path, not {data!r}; settings are given by settings=")
        self._client_metrics = client_metrics
        self._data = data
        self._temporary: str | None = None
        self._host = host
        self._port = port
        self._overrides = {key: text_of_value(value) for key, value in (settings or {}).items()}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: BrokerNode | None = None
        self._failure: BaseException | None = None
        self._faults: Faults | None = None
        self._process = os.getpid()
        #: The node's clock; `clock.advance(ms)` moves it ahead.
        self.clock = NodeClock(self._on_loop)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for the clients' `bootstrap.servers`."""
        return ",".join(f"{each.host}:{each.port}" for each in self._running().bound())

    @property
    def data(self) -> str:
        """The directory of its logs."""
        directory = self._data or self._temporary
        if directory is None:
            raise OttlaError("the node has no directory before it starts")
        return str(directory)

    @property
    def faults(self) -> Faults:
        """Faults on request: errors, delays, dropped connections, unavailable coordinators."""
        if self._faults is None:
            from ottla.embedded.faults import Faults

            self._faults = Faults(self._on_loop)
            if self._node is not None:
                self._faults.attach(self._node)
        return self._faults

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic; `settings` are its own, by Kafka's names. Raises KafkaError as an admin client would see it.

        Returns when the topic is usable; on the node's own thread, which creates it, at once.
        """
        node = self._running()
        configs = {key: text_of_value(value) for key, value in (settings or {}).items()}
        created = threading.Event()
        errors: list[KafkaError] = []

        def on_created(error: KafkaError | None) -> None:
            errors.extend([error] if error is not None else [])
            created.set()

        topic = new_topic(name, partitions, configs)
        self._on_loop(lambda: node.create_topics([topic], lambda found: on_created(found.get(name))))
        if threading.current_thread() is not self._thread and not created.wait(_CALL_SECONDS_MAX):
            raise OttlaError(f"the topic {name} was not created within {_CALL_SECONDS_MAX} seconds")
        if errors:
            raise errors[0]
        return None

    # ---- life

    def start(self) -> Self:
        """Start the node, and return when it serves. OttlaError says why it cannot."""
        if self._thread is not None:
            raise OttlaError("this node is running already")
        if self._data is None and self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="ottla-")
        self._process = os.getpid()
        allow_many()
        # A program or notebook that ends without `stop`, or by SIGTERM, leaves no directory behind.
        atexit.register(self.stop)
        _stop_at_sigterm(self)
        ready = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="ottla-node", daemon=True)
        try:
            self._thread.start()
            if not ready.wait(_START_SECONDS_MAX):
                raise OttlaError(f"the node did not start within {_START_SECONDS_MAX} seconds")
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
        except BaseException as error:
            # The caller gets no node to stop, so stop it here. After a Ctrl-C, wait until it has started.
            if isinstance(error, KeyboardInterrupt):
                ready.wait(_START_SECONDS_MAX)
            self.stop()
            raise
        return self

    def _run(self, ready: threading.Event) -> None:
        loop = new_shifted_loop(self.clock.shifted)
        try:
            node = self._open(loop)
        except BaseException as error:
            loop.close()
            self._failure = error
            ready.set()
            return
        self._loop, self._node = loop, node
        # A restart takes the same port.
        self._port = node.listeners[0].port
        ready.set()
        try:
            loop.run_forever()
            node.close()
        finally:
            self._node = self._loop = None
            if self._faults is not None:
                self._faults.attach(None)
            loop.close()

    def _open(self, loop: asyncio.AbstractEventLoop) -> BrokerNode:
        texts = single_node(self.data, self._host, self._port) | self._overrides
        settings = server_settings(texts)
        disk = _TemporaryDisk() if self._data is None else HostDisk()
        format_if_empty(disk, settings)
        node = BrokerNode(settings, loop, Ports(disk, self.clock.shifted))

        def fail(why: str) -> None:
            self._failure = OttlaError(f"the node stopped: {why}")
            loop.stop()

        node.on_failure = fail
        node.telemetry.exporter = self._client_metrics
        if self._faults is not None:
            self._faults.attach(node)
        node.open()
        return node

    def stop(self) -> None:
        """Stop cleanly. The data is kept unless its directory is temporary."""
        if os.getpid() != self._process:
            # A fork of the process that started the node.
            return
        self._halt()
        atexit.unregister(self.stop)
        _started.pop(id(self), None)
        _leave_sigterm()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def restart(self) -> Self:
        """Stop cleanly and start again with the same data on the same port."""
        self._halt()
        return self.start()

    def _halt(self) -> None:
        thread, loop = self._thread, self._loop
        if thread is None or thread.ident is None:
            return
        if loop is not None:
            # The node may have stopped by itself and closed its loop in between.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
        thread.join(_STOP_SECONDS_MAX)
        if thread.is_alive():
            raise OttlaError(f"the node did not stop within {_STOP_SECONDS_MAX} seconds")
        self._thread = None

    def __repr__(self) -> str:
        running = self._node is not None
        return f"<ottla.Node{f' on {self.bootstrap_servers}, data in {self.data}' if running else ', not running'}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- threads

    def _running(self) -> BrokerNode:
        if self._node is None:
            if self._failure is not None:
                raise self._failure
            raise OttlaError("the node is not running; use `with ottla.Node() as node:` or call start()")
        return self._node

    def _on_loop(self, work: Callable[[], None]) -> None:
        """Run `work` on the node's thread and wait for it; on this thread if no node runs."""
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            return work()
        done: Future[None] = Future()

        def run() -> None:
            try:
                work()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        loop.call_soon_threadsafe(run)
        return done.result(_CALL_SECONDS_MAX)


#: The nodes to stop when SIGTERM ends the program.
_started: dict[int, Node] = {}


def _stop_at_sigterm(node: Node) -> None:
    """Stop the node before SIGTERM ends the program, unless the program handles SIGTERM itself."""
    _started[id(node)] = node
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _sigterm)


def _leave_sigterm() -> None:
    """Restore the default handler when no node is left."""
    in_main = threading.current_thread() is threading.main_thread()
    if not _started and in_main and signal.getsignal(signal.SIGTERM) is _sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _sigterm(number: int, frame: FrameType | None) -> None:
    for node in list(_started.values()):
        with suppress(OttlaError):
            node.stop()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


class NodeClock:
    """The clock of an embedded node: it runs like the machine's, and a test can move it ahead."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._on_loop = on_loop
        #: The clock of the node's ports and timers.
        self.shifted = ShiftedClock()

    def now_ms(self) -> int:
        """The node's time, in milliseconds since 1970."""
        return self.shifted.now_ms()

    def advance(self, ms: int) -> None:
        """Move the node's time ahead in one step: sessions and transactions time out, retention deletes.

        Returns when every timer that became due has run once. On a stopped node, it affects the next start.
        """
        if ms < 0:
            raise ValueError("time does not go back")
        self._on_loop(lambda: self.shifted.advance(ms))


class _TemporaryFile(HostFile):
    """A file that is never synced, since it does not outlive the node."""

    __slots__ = ()

    def sync(self) -> None:
        pass

    def mark(self, on: bool) -> None:
        pass


class _TemporaryDisk(HostDisk):
    """The machine's file system without syncs, for a directory that does not outlive the node."""

    __slots__ = ()

    file = _TemporaryFile

    def sync_directory(self, path: str) -> None:
        pass
