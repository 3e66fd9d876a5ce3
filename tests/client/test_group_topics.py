"""The topics that the leader of a classic group watches: without a socket."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ottla.client import AsyncConsumer
from ottla.client.assignment.consumer_protocol import Subscription, assignment_bytes, subscription_bytes
from ottla.client.connection.clock import now_ms
from ottla.client.membership.classic import ClassicGroupMember
from ottla.kernel.ids import Uuid
from ottla.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.sync_group import SyncGroupResponse

MAX_IDLE_MS = 300_000


def described(**counts: int) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            name=name,
            topic_id=Uuid(name.encode() * 16),
            partitions=[MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(count)],
        )
        for name, count in counts.items()
    ]
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)], topics=topics)


class Coordinator:
    """Lets the member join as the leader, or behind another one."""

    leader = "me"

    async def call(self, request: Any, response: type[Any], **_: object) -> Any:
        if response is SyncGroupResponse:
            return SyncGroupResponse(assignment=assignment_bytes([]))
        members = [
            JoinGroupResponseMember(member_id=member, metadata=subscription_bytes(Subscription(topics, (), -1, None)))
            for member, topics in (("me", ("a", "c")), ("other", ("b",)))
        ]
        return JoinGroupResponse(
            member_id="me", leader=self.leader, generation_id=1, protocol_name="range", members=members
        )


def joins(consumer: Any) -> bool:
    """Does the member join again, as far as its metadata says?"""
    consumer._on_metadata()
    return consumer._group.membership.join_reason is not None


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What happens to the consumer of a member that subscribes to a topic and to one that is not there yet."""

    def play(scene: Any) -> None:
        async def run() -> None:
            consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer("127.0.0.1:1", group_id="g")
            consumer.subscribe(["a", "c"])
            group, metadata = consumer._group, consumer._cluster.metadata
            assert isinstance(group, ClassicGroupMember)
            coordinator = Coordinator()
            monkeypatch.setattr(group, "_coordinator", AsyncMock(return_value=coordinator))
            monkeypatch.setattr(consumer._cluster, "missing", AsyncMock(return_value=[]))
            monkeypatch.setattr(consumer._cluster, "update", AsyncMock())
            metadata.apply(described(a=1, b=2), now_ms())
            await group._join_once()
            await scene(consumer, group, coordinator)
            consumer._group = None
            await consumer.close()

        asyncio.run(run())

    return play


@pytest.mark.parametrize("now", [{"b": 3}, {"c": 1}], ids=["a partition more", "a topic that was missing"])
def test_a_leader_joins_again_for_what_is_new_in_any_member_s_topics(watched: Any, now: dict[str, int]) -> None:
    async def scene(consumer: Any, group: ClassicGroupMember, _: Coordinator) -> None:
        assert not joins(consumer)
        consumer._cluster.metadata.apply(described(**{"a": 1, "b": 2, **now}), now_ms())
        assert joins(consumer)
        await group._join_once()
        assert not joins(consumer)

    watched(scene)


def test_a_member_that_leads_no_more_leaves_what_is_new_to_the_leader(watched: Any) -> None:
    async def scene(consumer: Any, group: ClassicGroupMember, coordinator: Coordinator) -> None:
        coordinator.leader = "other"
        await group._join_once()
        consumer._cluster.metadata.apply(described(a=9, b=9), now_ms())
        assert not joins(consumer)

    watched(scene)


def test_the_topics_of_a_group_are_asked_for_as_long_as_it_lasts(watched: Any) -> None:
    """Also those that no partition of is read here."""

    async def scene(consumer: Any, group: ClassicGroupMember, _: Coordinator) -> None:
        metadata = consumer._cluster.metadata
        later_ms = now_ms() + 2 * MAX_IDLE_MS
        metadata.want(consumer._fetcher._topics(), later_ms)
        assert sorted(metadata.topics_to_ask(later_ms)) == ["a", "b", "c"]
        assert set(metadata.topics) == {"a", "b"}

    watched(scene)
