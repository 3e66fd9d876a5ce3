"""A part of a client on its loop: what it began is ended in an order that a simulated history can count on."""

import asyncio
import threading
from collections.abc import Iterable

from ottla.client.connection.cluster import Cluster
from ottla.client.connection.wake_loop import WakeLoop
from ottla.settings.client.client import ClientSettings


class _Idle(WakeLoop):
    purpose = "idle"

    def _pass(self, now: int) -> None: ...

    def _topics(self) -> Iterable[str]:
        return ()


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
