"""A consumer that is unsubscribed or closed by another task while a poll waits for its listener. No socket."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ottla.client import AsyncConsumer
from ottla.client.consumer.position import PartitionPosition
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
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


@pytest.mark.parametrize("join_reason", [None, "the group rebalances"])
def test_a_classic_member_that_was_lost_during_a_poll_joins_in_that_poll(join_reason: str | None) -> None:
    """The coordinator has refused the commit before a revocation: the poll waited for records for its whole time."""

    async def run() -> None:
        listener = Heard(AsyncMock())
        async with member(listener) as (consumer, group):

            async def refused(*_: object, **__: object) -> None:
                group._commit_failed(ErrorCode.UNKNOWN_MEMBER_ID, "me", 3)

            consumer.before_revoke = refused  # type: ignore[method-assign]
            group._join = Slow()  # type: ignore[method-assign, assignment]
            if join_reason is None:
                gives(group, TWO)
            else:
                consumer.subscription = lambda: set()  # type: ignore[method-assign]
                group.membership.join_reason = join_reason
            joining = await group.poll()
            assert joining is not None and not joining.done()
            assert consumer.assignment() == set()
            assert ("assigned", [TWO]) not in listener.heard
            joining.cancel()

    asyncio.run(run())


def test_a_member_that_was_lost_during_a_poll_joins_in_that_poll() -> None:
    """As the test above, with the consumer protocol."""

    async def run() -> None:
        consumer = AsyncConsumer[bytes, bytes](
            "127.0.0.1:1", group_id="g", group_protocol="consumer", enable_auto_commit=False
        )
        consumer.subscribe(["t"], listener=Heard(AsyncMock()))
        consumer._positions[ONE] = PartitionPosition(ONE)
        group: Any = consumer._group
        group._names, group.membership.target = {ID: "t"}, {ID: (1,)}
        group._run_heartbeats = AsyncMock()

        async def refused(*_: object, **__: object) -> None:
            group._commit_failed(ErrorCode.UNKNOWN_MEMBER_ID, *group.identity()[:2])

        group.membership.member_id, group.membership.epoch = group.identity()[:2]
        consumer.before_revoke = refused  # type: ignore[method-assign]
        first = await group.poll()
        assert first is not None and not first.done()
        assert consumer.assignment() == set()
        consumer._group = None
        await consumer.close()

    asyncio.run(run())


class Removed(Heard):
    """Its member is removed from the group while it hears of what is assigned."""

    group: Any

    async def assigned(self, partitions: list[TopicPartition]) -> None:  # type: ignore[override]
        self.heard.append(("assigned", partitions))
        self.group._commit_failed(ErrorCode.UNKNOWN_MEMBER_ID, *self.group.identity()[:2])


def test_a_classic_member_that_was_lost_while_it_heard_of_its_partitions_keeps_none() -> None:
    async def run() -> None:
        listener = Removed(AsyncMock())
        async with member(listener) as (consumer, group):
            listener.group = group
            group._join = Slow()  # type: ignore[method-assign, assignment]
            gives(group, ONE, TWO)
            joining = await group.poll()
            assert joining is not None and not joining.done()
            assert consumer.assignment() == set() and not consumer._positions
            assert listener.heard == [("assigned", [TWO]), ("lost", [ONE, TWO])]
            joining.cancel()

    asyncio.run(run())


def test_a_member_that_was_lost_while_it_heard_of_its_partitions_keeps_none() -> None:
    """As the test above, with the consumer protocol."""

    async def run() -> None:
        listener = Removed(AsyncMock())
        consumer = AsyncConsumer[bytes, bytes](
            "127.0.0.1:1", group_id="g", group_protocol="consumer", enable_auto_commit=False
        )
        consumer.subscribe(["t"], listener=listener)
        group: Any = consumer._group
        listener.group = group
        group._names, group.membership.target = {ID: "t"}, {ID: (0, 1)}
        group._run_heartbeats = AsyncMock()
        group.membership.member_id, group.membership.epoch = group.identity()[:2]
        first = await group.poll()
        assert first is not None and not first.done()
        assert consumer.assignment() == set()
        assert listener.heard == [("assigned", [ONE, TWO]), ("lost", [ONE, TWO])]
        consumer._group = None
        await consumer.close()

    asyncio.run(run())
