"""A part of a client on its loop: what it began is ended in an order that a simulated history can count on."""

import asyncio
import threading
from collections.abc import Iterable

from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.wake_loop import WakeLoop
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.client.client import ClientSettings


class _Unreachable(Cluster):
    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self.tried = 0

    async def node(self, node_id: int, purpose: str = "") -> BrokerConnection:
        self.tried += 1
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)


class _Idle(WakeLoop):
    purpose = "idle"

    def _pass(self, now: int) -> None: ...

    def _topics(self) -> Iterable[str]:
        return ()


class _Connecting(_Idle):
    def _pass(self, now: int) -> None:
        self._open_connection(1)


def test_a_broker_that_cannot_be_reached_is_not_tried_at_every_turn() -> None:
    async def tried(backoff_ms: int) -> int:
        settings = ClientSettings.read("127.0.0.1:1", {"reconnect.backoff.ms": backoff_ms})
        cluster = _Unreachable(settings)
        part = _Connecting(cluster, settings, threading.Lock())
        part.wake()
        for _ in range(100):
            await asyncio.sleep(0)
        part.close()
        return cluster.tried

    assert asyncio.run(tried(60_000)) == 1
    assert asyncio.run(tried(0)) > 5


def test_its_tasks_are_cancelled_in_the_order_in_which_they_began() -> None:
    assert asyncio.run(_order()) == list(range(100))


async def _order() -> list[int]:
    settings = ClientSettings.read("127.0.0.1:1", {})
    part = _Idle(Cluster(settings), settings, threading.Lock())
    ended: list[int] = []

    async def work(index: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(index)

    async def ends() -> None: ...

    # Some that ended before: their places in the heap are free for others.
    for _ in range(500):
        part._start(ends())
    await asyncio.sleep(0)
    for index in range(100):
        part._start(work(index))
    await asyncio.sleep(0)
    part.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return ended
