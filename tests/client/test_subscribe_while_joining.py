"""A subscription that changes while its member joins with the one before: it joins again. No socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client import AsyncConsumer, TopicPartition
from ottla.client.assignment.consumer_protocol import assignment_bytes, parse_subscription
from ottla.client.membership.classic import ClassicGroupMember
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse


class Coordinator:
    """Gives a member the first partition of each topic that it joins with; before `step` it calls `change`, once."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.joined: list[tuple[str, ...]] = []
        self.change: Any = None

    async def found(self, _: str = "") -> Coordinator:
        self._at("look up")
        return self

    def _at(self, step: str) -> None:
        if step == self.step:
            self.step = ""
            self.change()

    async def call(self, request: object, *_: object, timeout_ms: int) -> Any:
        if isinstance(request, JoinGroupRequest):
            self.joined.append(parse_subscription(request.protocols[0].metadata).topics)
            self._at("join")
            generation = len(self.joined)
            return JoinGroupResponse(member_id="me", leader="other", generation_id=generation, protocol_name="range")
        if isinstance(request, SyncGroupRequest):
            self._at("sync")
            partitions = [TopicPartition(topic, 0) for topic in self.joined[-1]]
            return SyncGroupResponse(assignment=assignment_bytes(partitions))
        assert isinstance(request, HeartbeatRequest)
        return HeartbeatResponse()


@pytest.mark.parametrize("step", ["look up", "join", "sync"])
@pytest.mark.parametrize("topics", [["t", "u"], ["u"]])
def test_a_member_joins_again_with_the_subscription_that_came_while_it_joined(step: str, topics: list[str]) -> None:
    """The end of the join was the end of the reason to join again: the new topics were never read."""

    async def run() -> None:
        consumer: AsyncConsumer = AsyncConsumer("127.0.0.1:1", group_id="g", enable_auto_commit=False)
        consumer._existence_checked = frozenset("tu")
        consumer.subscribe(["t"])
        group, coordinator = consumer._group, Coordinator(step)
        assert isinstance(group, ClassicGroupMember)
        group._coordinator = coordinator.found  # type: ignore[assignment, method-assign]
        coordinator.change = lambda: consumer.subscribe(topics)
        while group.busy:
            joining = await group.poll()
            if joining is not None:
                await asyncio.wait([joining])
            assert {partition.topic for partition in consumer.assignment()} <= set(topics)
        assert coordinator.joined == [("t",), tuple(topics)]
        assert consumer.assignment() == {TopicPartition(topic, 0) for topic in topics}
        consumer._group = None
        await group.end("", 0, leaves=False)
        await consumer.close()

    asyncio.run(run())
