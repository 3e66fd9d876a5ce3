"""A member that leaves because its program did not poll, while the program comes back and polls."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api.leave_group import LeaveGroupRequest
from tests.client.hurried import hurried, passing

ONE, ID = TopicPartition("t", 0), Uuid(b"i" * 16)


class Owner:
    """A consumer that has a partition, and notes what its group does to it."""

    def __init__(self) -> None:
        self.partitions = {ONE}
        self.told: list[str] = []

    def pattern_text(self) -> None:
        return None

    async def subscribed(self) -> set[str]:
        return {"t"}

    def owned(self) -> set[TopicPartition]:
        return set(self.partitions)

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        self.told.append("lost" if lost else "revoked")
        self.partitions -= partitions

    async def before_revoke(self) -> None:
        self.told.append("commit")

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        self.told.append("assigned")
        self.partitions |= partitions

    def something_to_do(self) -> None:
        self.told.append("woken")


def member_of(kind: Any, owner: Owner, call: Any) -> Any:
    settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g"})
    connection = SimpleNamespace(call=call, version_of=lambda *_: 5)
    metadata = Mock(topic_names={ID: "t"})
    cluster = Mock(coordinator=AsyncMock(return_value=connection), metadata=metadata)
    group = kind(cluster, settings, cast(Any, owner))
    if kind is ClassicGroupMember:
        group.membership.member_id, group.membership.generation = "me", 3
        group.membership.assignor, group.membership.join_reason = "range", None
    else:
        group.membership.epoch, group.membership.asked, group.membership.target = 3, True, {ID: (0,)}
    return group


@pytest.mark.parametrize(
    ("kind", "reason"), [(ClassicGroupMember, None), (ClassicGroupMember, "rebalance"), (ConsumerGroupMember, None)]
)
def test_a_poll_beside_the_leaving_gives_the_partitions_up_and_joins_after_it(kind: Any, reason: str | None) -> None:
    async def run() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def call(request: object, response: type, **_: object) -> object:
            asked.set()
            await answered.wait()
            return response()

        owner = Owner()
        group = member_of(kind, owner, call)
        if reason is not None:
            group.membership.join_reason = reason
        # The program has not polled for max.poll.interval.ms.
        await passing(301)
        group._heartbeats = asyncio.create_task(group._run_heartbeats())
        await asked.wait()
        assert group.busy
        waited_for = await group.poll()
        assert owner.told == ["lost"], "other members may have its partitions from now on"
        await group.poll()
        assert owner.told == ["lost"] and not waited_for.done(), "a join could overtake the request to leave"
        assert not group._closed and not group._heartbeats.done()
        answered.set()
        await group._heartbeats
        assert owner.told == ["lost", "woken"], "a poll that waits would wait for all of its timeout"
        assert group.busy and waited_for.done()
        assert await group.poll() is not None
        assert not owner.partitions
        await group.end("", 0, leaves=False)
        if kind is ClassicGroupMember:
            group._joining.cancel()

    hurried(run())


def test_a_join_that_the_leaving_ended_is_begun_anew() -> None:
    """The program does not poll for max.poll.interval.ms while its join is on the way."""

    async def run() -> None:
        left = asyncio.Event()

        async def call(request: object, response: type, **_: object) -> object:
            if not isinstance(request, LeaveGroupRequest):
                await asyncio.Event().wait()
            left.set()
            return response()

        group = member_of(ClassicGroupMember, Owner(), call)
        group.membership.join_reason = "rebalance"
        first = await group.poll()
        assert first is not None
        await passing(301)
        group._heartbeats = asyncio.create_task(group._run_heartbeats())
        await left.wait()
        await group._heartbeats
        assert first.cancelled()
        await group.poll()
        second = await group.poll()
        assert second is not None and not second.done()
        await group.end("", 0, leaves=False)
        second.cancel()

    hurried(run())


def test_no_heartbeat_joins_behind_the_request_to_leave() -> None:
    """A thread polls while another one closes the consumer."""

    async def run() -> None:
        sent: list[int] = []
        asked, answered = asyncio.Event(), asyncio.Event()

        async def call(request: Any, response: type, **_: object) -> object:
            sent.append(request.member_epoch)
            asked.set()
            await answered.wait()
            return response()

        group = member_of(ConsumerGroupMember, Owner(), call)
        leaving = asyncio.create_task(group.leave("the consumer was closed"))
        await asked.wait()
        await group.poll()
        beating = asyncio.create_task(group._beat())
        await asyncio.sleep(0)
        answered.set()
        await leaving
        await beating
        assert sent == [-1]
        await group.end("", 0, leaves=False)

    hurried(run())


def test_the_first_of_two_requests_to_leave_lets_no_heartbeat_join_behind_the_second() -> None:
    """The program closes its consumer, or unsubscribes, while the member leaves because of max.poll.interval.ms."""

    async def run() -> None:
        sent: list[int] = []
        answers = [asyncio.Event(), asyncio.Event()]

        async def call(request: Any, response: type, **_: object) -> object:
            sent.append(request.member_epoch)
            await answers[len(sent) - 1].wait()
            return response()

        group = member_of(ConsumerGroupMember, Owner(), call)
        first = asyncio.create_task(group.leave("no poll for max.poll.interval.ms"))
        await asyncio.sleep(0)
        second = asyncio.create_task(group.leave("the consumer was closed"))
        await asyncio.sleep(0)
        answers[0].set()
        await first
        waited_for = await group.poll()
        assert waited_for is not None and not waited_for.done() and group._heartbeats is None
        await group._beat()
        answers[1].set()
        await second
        assert sent == [-1, -1] and waited_for.done()
        await group.end("", 0, leaves=False)

    hurried(run())
