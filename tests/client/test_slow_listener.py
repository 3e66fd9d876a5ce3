"""A consumer that is unsubscribed or closed by another task while a poll waits for its listener. No socket."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ottla.client import AsyncConsumer
from ottla.client.consumer.position import PartitionPosition
from ottla.kernel.ids import Uuid
from tests.client.test_interrupted_poll import ONE, TWO, Heard, gives, member

ID = Uuid(b"i" * 16)


class Slow:
    """The first call waits until `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.calls = 0

    async def __call__(self, *_: object, **__: object) -> None:
        self.calls += 1
        if self.calls == 1:
            await self.go.wait()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
@pytest.mark.parametrize("slow_in", ["the commit before", "revoked", "before a join", "lost"])
def test_a_member_that_ended_during_a_poll_gets_no_partitions_and_does_not_join(end: str, slow_in: str) -> None:
    async def run() -> None:
        slow = Slow()
        listener = Heard(AsyncMock() if slow_in == "the commit before" else slow)
        async with member(listener) as (consumer, group):
            group._coordinator = AsyncMock(side_effect=AssertionError("asked"))  # type: ignore[method-assign]
            group._send_leave = AsyncMock()  # type: ignore[method-assign]
            if slow_in == "the commit before":
                consumer.before_revoke = slow  # type: ignore[method-assign]
            if slow_in in ("the commit before", "revoked"):
                gives(group, TWO)
            else:
                consumer.subscription = lambda: set()  # type: ignore[method-assign]
                group.membership.join_reason = "the group rebalances"
                group._lost = slow_in == "lost"
            poll = asyncio.ensure_future(group.poll())
            await turns()
            assert slow.calls == 1 and not poll.done()
            await getattr(consumer, end)()
            slow.go.set()
            assert await poll is None
            await turns()
            assert consumer.assignment() == set()
            assert not group._coordinator.called
            assert ("assigned", [TWO]) not in listener.heard

    asyncio.run(run())


@pytest.mark.parametrize("lost", [False, True])
def test_a_member_that_leaves_during_a_poll_gets_no_partitions_meanwhile(lost: bool) -> None:
    """With the consumer protocol, while the coordinator has not answered the request to leave."""

    async def run() -> None:
        slow, leaves = Slow(), Slow()
        listener = Heard(slow)
        consumer = AsyncConsumer[bytes, bytes](
            "127.0.0.1:1", group_id="g", group_protocol="consumer", enable_auto_commit=False
        )
        consumer.subscribe(["t"], listener=listener)
        consumer._positions[ONE] = PartitionPosition(ONE)
        group: Any = consumer._group
        group._names, group.membership.target = {ID: "t"}, {ID: (1,)}
        group._run_heartbeats, group._lost, group._send_leave = AsyncMock(), lost, leaves
        poll = asyncio.ensure_future(group.poll())
        await turns()
        unsubscribe = asyncio.ensure_future(consumer.unsubscribe())
        await turns()
        slow.go.set()
        leaving = await poll
        assert (leaving is not None, consumer.assignment()) == (True, set())
        leaves.go.set()
        await unsubscribe
        assert leaving.done()
        assert not [what for what, _ in listener.heard if what == "assigned"]
        await consumer.close()

    asyncio.run(run())
