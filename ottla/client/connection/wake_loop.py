"""The base of the sender and the fetchers: a part of a client that lives on its loop and works when woken.

It never blocks and runs no loop of its own: any number of `wake` calls before the next pass cause one pass.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import Any

from ottla.client.connection.clock import Backoff, now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.kernel.client_error import AuthenticationFailed, TlsFailed
from ottla.kernel.error import KafkaError, OttlaError
from ottla.settings.client.client import ClientSettings


class WakeLoop(ABC):
    """Does one pass of work per wake-up. The owner creates it on the loop, wakes it and closes it."""

    #: Name of this part's own connections.
    purpose: str

    def __init__(self, cluster: Cluster, settings: ClientSettings, lock: threading.Lock) -> None:
        self._cluster = cluster
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._signalled = False
        self._closed = False
        self._connections: dict[int, BrokerConnection] = {}
        self._connecting: set[int] = set()
        #: In start order, which is the order of cancellation.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._updating = False
        #: The latest authentication or TLS error; cleared when the program has been told.
        self.refusal: OttlaError | KafkaError | None = None
        self._update_backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)

    # ---- waking

    def wake(self) -> None:
        """Schedule a pass. On the loop only."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._run_pass)

    def signal(self) -> None:
        """Schedule a pass, from any thread."""
        if not self._signalled and not self._closed:
            self._signalled = True
            try:
                self._loop.call_soon_threadsafe(self._on_signal)
            except BaseException:
                # Ctrl-C may come before the loop knows: the next signal tells it.
                self._signalled = False
                raise

    def _on_signal(self) -> None:
        self._signalled = False
        self.wake()

    def _run_pass(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        self._pass(now_ms())
        if self._cluster.metadata.update_due_ms() <= now_ms():
            self._update_metadata()

    @abstractmethod
    def _pass(self, now: int) -> None:
        """Do the work that can be done now."""

    @abstractmethod
    def _topics(self) -> Iterable[str]:
        """The topics in use, for the next metadata update."""

    def close(self) -> None:
        """Stop working and cancel all tasks."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    # ---- tasks

    def _refused(self, error: OttlaError | KafkaError) -> None:
        """Keep an error that only the program can fix, to be raised to it."""
        if isinstance(error, (AuthenticationFailed, TlsFailed)):
            self.refusal = error
            self._on_refusal()

    def _on_refusal(self) -> None:
        """Hook for a new refusal; does nothing by default."""
        return None

    def _not_reached(self, node_id: int) -> None:
        """Hook for a broker that cannot be reached; does nothing by default."""
        return None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _open_connection(self, node_id: int) -> BrokerConnection | None:
        """The connection to this broker; None while it is being opened, which wakes this part at the end."""
        connection = self._connections.get(node_id)
        if connection is not None and connection.closed is None:
            return connection
        if node_id not in self._connecting:
            self._connecting.add(node_id)
            self._start(self._connect(node_id))
        return None

    async def _connect(self, node_id: int) -> None:
        try:
            self._connections[node_id] = await self._cluster.node(node_id, self.purpose)
        except (OttlaError, KafkaError) as error:
            self._refused(error)
            self._not_reached(node_id)
            # The leader may have changed; the cluster has logged the error.
            self._cluster.metadata.request_update(now_ms())
            await asyncio.sleep(self._cluster.settings.reconnect_backoff_ms / 1000)
        finally:
            self._connecting.discard(node_id)
            self.wake()

    def _update_metadata(self) -> None:
        if not self._updating:
            self._updating = True
            self._start(self._update())

    async def _update(self) -> None:
        try:
            await self._cluster.update(list(self._topics()))
            self._update_backoff.attempts = 0
        except (OttlaError, KafkaError) as error:
            self._refused(error)
        finally:
            # Back off, so that a missing leader does not cause a tight loop.
            await asyncio.sleep(self._update_backoff.next_ms() / 1000)
            self._updating = False
            self.wake()
