"""Polls and closes that stop in the middle of a rebalance: cancelled, or by a listener that raises. No socket."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from ottla.client import AsyncConsumer, Consumer, RebalanceListener, TopicPartition
from ottla.client.assignment.consumer_protocol import parse_subscription
from ottla.client.connection.clock import now_ms
from ottla.client.consumer.position import PartitionPosition
from ottla.client.membership.classic import ClassicGroupMember
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.join_group import JoinGroupResponse
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Heard(RebalanceListener):
    """Hears of partitions; `trouble` is what comes over it when some go."""

    def __init__(self, trouble: Callable[[], Awaitable[None]]) -> None:
        self.trouble = trouble
        self.heard: list[tuple[str, list[TopicPartition]]] = []

    def assigned(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("assigned", partitions))

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("revoked", partitions))
        await self.trouble()

    async def lost(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("lost", partitions))
        await self.trouble()


async def raises() -> None:
    raise RuntimeError("not today")


async def hangs() -> None:
    await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def member(listener: RebalanceListener) -> AsyncIterator[tuple[AsyncConsumer, ClassicGroupMember]]:
    """A member of generation 3 that owns the first partition of two."""
    consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
        "127.0.0.1:1", group_id="g", partition_assignment_strategy="cooperative-sticky", enable_auto_commit=False
    )
    parts = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in (0, 1)]
    consumer._cluster.metadata.apply(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
            topics=[MetadataResponseTopic(name="t", topic_id=Uuid(b"i" * 16), partitions=parts)],
        ),
        now_ms(),
    )
    consumer.subscribe(["t"], listener=listener)
    group = consumer._group
    assert isinstance(group, ClassicGroupMember)
    group.membership.member_id, group.membership.generation = "me", 3
    group.membership.assignor, group.membership.join_reason = "cooperative-sticky", None
    consumer._positions[ONE] = PartitionPosition(ONE)
    yield consumer, group
    # Nothing is there to say good-bye to.
    consumer._group = None
    await consumer.close()


def gives(group: ClassicGroupMember, *partitions: TopicPartition) -> None:
    """The join has ended with these."""
    joining: asyncio.Future[tuple[TopicPartition, ...]] = asyncio.get_running_loop().create_future()
    joining.set_result(partitions)
    group._joining = cast("asyncio.Task[tuple[TopicPartition, ...]]", joining)


async def cut_short(poll: Awaitable[object]) -> None:
    """Run until it waits, then cancel it."""
    task = asyncio.ensure_future(poll)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("trouble", [raises, hangs])
def test_a_poll_that_ends_while_partitions_go_leaves_the_rest_of_the_join_to_the_next(
    trouble: Callable[[], Awaitable[None]],
) -> None:
    async def run() -> None:
        listener = Heard(trouble)
        async with member(listener) as (consumer, group):
            gives(group, TWO)
            if trouble is raises:
                with pytest.raises(RuntimeError, match="not today"):
                    await group.poll()
            else:
                await cut_short(group.poll())
            assert consumer.assignment() == set(), "what was revoked goes, however its listener fared"
            await group.poll()
            assert consumer.assignment() == {TWO}
            assert listener.heard == [("revoked", [ONE]), ("assigned", [TWO])]
            assert group.membership.join_reason == "partitions were given back"
            assert group._joining is None

    asyncio.run(run())


def test_a_poll_that_is_cancelled_in_the_commit_before_gives_partitions_up_with_the_next() -> None:
    async def run() -> None:
        listener = Heard(lambda: asyncio.sleep(0))
        async with member(listener) as (consumer, group):
            gives(group, TWO)
            consumer.before_revoke = Mock(side_effect=[hangs(), asyncio.sleep(0)])  # type: ignore[method-assign]
            await cut_short(group.poll())
            assert consumer.assignment() == {ONE}
            await group.poll()
            assert consumer.assignment() == {TWO}
            assert listener.heard == [("revoked", [ONE]), ("assigned", [TWO])]

    asyncio.run(run())


def test_what_is_lost_is_given_up_also_when_the_listener_raises() -> None:
    async def run() -> None:
        listener = Heard(raises)
        async with member(listener) as (consumer, group):
            group._lost = True
            with pytest.raises(RuntimeError, match="not today"):
                await group.poll()
            assert consumer.assignment() == set()
            gives(group, ONE)
            await group.poll()
            assert (consumer.assignment(), group._lost) == ({ONE}, False)
            assert listener.heard == [("lost", [ONE]), ("assigned", [ONE])]

    asyncio.run(run())


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_listener_that_raises_at_the_end_does_not_keep_the_member_in_its_group(end: str) -> None:
    async def run() -> None:
        async with member(Heard(raises)) as (consumer, group):
            left: list[str] = []

            async def leave(reason: str) -> None:
                left.append(reason)

            group.leave = leave  # type: ignore[method-assign]
            group._heartbeats = beating = asyncio.ensure_future(hangs())
            with pytest.raises(RuntimeError, match="not today"):
                await getattr(consumer, end)()
            assert len(left) == 1
            assert beating.cancelled()
            assert consumer.assignment() == set()

    asyncio.run(run())


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_member_that_ends_when_its_partitions_are_lost_tells_its_listener_that_they_are(end: str) -> None:
    """Another member may have them by now: what `revoked` would write for them is no longer this member's."""

    async def run() -> None:
        listener = Heard(lambda: asyncio.sleep(0))
        async with member(listener) as (consumer, group):
            group.leave = AsyncMock()  # type: ignore[method-assign]
            group._lost = True
            await getattr(consumer, end)()
            assert listener.heard == [("lost", [ONE])]
            assert consumer.assignment() == set()

    asyncio.run(run())


def test_a_member_whose_join_tells_it_that_it_is_lost_gives_its_partitions_up_before_it_joins_again() -> None:
    async def run() -> None:
        listener = Heard(lambda: asyncio.sleep(0))
        async with member(listener) as (_, group):
            coordinator = AsyncMock()
            coordinator.call.side_effect = [
                JoinGroupResponse(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID)),
                asyncio.CancelledError(),
            ]
            group._coordinator = AsyncMock(return_value=coordinator)  # type: ignore[method-assign]
            group.membership.join_reason = "the group rebalances"
            while coordinator.call.call_count < 2:
                joining = await group.poll()
                if joining is not None:
                    await asyncio.wait([joining])
            (joined,), (again,) = (one.args[:1] for one in coordinator.call.call_args_list)
            claims = [parse_subscription(each.protocols[0].metadata).owned for each in (joined, again)]
            assert claims == [(ONE,), ()]
            assert listener.heard == [("lost", [ONE])]
            group._joining = None

    asyncio.run(run())


def test_ctrl_c_in_a_poll_leaves_the_listener_to_the_close() -> None:
    """Partitions that go at the close are told to a listener: nothing else ends that call."""

    async def interrupted() -> None:
        # Not at once: a signal that comes just before its thread waits for a lock does not end that wait.
        main = threading.main_thread().ident or 0
        asyncio.get_running_loop().call_later(0.1, signal.pthread_kill, main, signal.SIGINT)
        await hangs()

    listener = Told()
    consumer: Consumer[bytes, bytes] = Consumer("127.0.0.1:1", group_id="g", enable_auto_commit=False)
    consumer.subscribe(["t"], listener=listener)
    consumer._async._positions[ONE] = PartitionPosition(ONE)
    with pytest.raises(KeyboardInterrupt):
        consumer._run(interrupted())

    async def revoked() -> None:
        async with asyncio.timeout(3):
            await consumer._async.revoke({ONE})

    consumer._run(revoked())
    assert listener.gone == [ONE]
    consumer.close()


class Told(RebalanceListener):
    """The partitions that went, as a program's own thread hears of them."""

    def __init__(self) -> None:
        self.gone: list[TopicPartition] = []

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.gone += partitions


def test_a_seek_while_a_position_is_found_is_newer_than_what_is_found() -> None:
    """Whatever kind of seek: the program wanted what was committed, and would have lost all up to the end."""

    async def run() -> None:
        async with member(RebalanceListener()) as (consumer, _):
            await consumer.seek_to_end([ONE])

            async def listed(*arguments: Any) -> dict[TopicPartition, tuple[int, int]]:
                await consumer.seek_to_committed([ONE])
                arguments[-1](ONE, 99)
                return {ONE: (99, -1)}

            consumer._list_offsets = listed  # type: ignore[method-assign, assignment]
            await consumer._find_positions(now_ms() + 1000)
            assert (consumer._positions[ONE].position, consumer._positions[ONE].reset) == (None, "committed")

    asyncio.run(run())


def test_a_partition_assigned_again_does_not_get_the_position_found_for_its_former_assignment() -> None:
    """Another member may have committed in between."""

    async def run() -> None:
        async with member(RebalanceListener()) as (consumer, _):
            await consumer.seek_to_end([ONE])

            async def listed(*arguments: Any) -> dict[TopicPartition, tuple[int, int]]:
                await consumer.revoke({ONE})
                await consumer.assign_more({ONE})
                consumer._positions[ONE].forget("latest")
                arguments[-1](ONE, 99)
                return {ONE: (99, -1)}

            consumer._list_offsets = listed  # type: ignore[method-assign, assignment]
            await consumer._find_positions(now_ms() + 1000)
            assert consumer._positions[ONE].position is None

    asyncio.run(run())
