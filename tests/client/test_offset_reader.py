"""Who reads a group's committed offsets: with the consumer protocol the coordinator refuses a former member."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ottla.client import TopicPartition
from ottla.client.connection.cluster import Cluster
from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.membership.group import Group, Owner
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import offset_fetch as wire

ONE = TopicPartition("t", 0)
STALE, UNKNOWN, DENIED, LOADING = (
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Coordinator:
    """Answers with these errors, then with the offset; after each error the member has this epoch."""

    def __init__(self, group: Any, codes: list[ErrorCode], epoch: int) -> None:
        self.group, self.codes, self.epoch = group, codes, epoch
        self.asked: list[tuple[bool, int]] = []

    def version_of(self, *_: object) -> int:
        return 9

    async def call(self, request: wire.OffsetFetchRequest, *_: object, **__: object) -> wire.OffsetFetchResponse:
        asked = request.groups[0]
        self.asked.append((asked.member_id is not None, asked.member_epoch))
        if self.codes:
            if self.group.membership.epoch > 0:
                self.group.membership.epoch = self.epoch
            return wire.OffsetFetchResponse(
                groups=[wire.OffsetFetchResponseGroup(group_id="g", error_code=int(self.codes.pop(0)))]
            )
        part = wire.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)
        topics = [wire.OffsetFetchResponseTopics(name="t", partitions=[part])]
        return wire.OffsetFetchResponse(groups=[wire.OffsetFetchResponseGroup(group_id="g", topics=topics)])


def read(kind: type[Group], epoch: int, codes: list[ErrorCode], later: int) -> tuple[list[tuple[bool, int]], bool, Any]:
    """Who asked each time, whether the member is lost now, and what came of it."""

    async def run() -> tuple[list[tuple[bool, int]], bool, Any]:
        settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g", "retry_backoff_ms": 0})
        group: Any = kind(Cluster(settings), settings, cast(Owner, Mock()))
        group.membership.epoch = group.membership.generation = epoch
        coordinator = Coordinator(group, codes, later)

        async def found(_: str) -> Coordinator:
            return coordinator

        group._coordinator = found
        try:
            outcome: Any = await group.committed([ONE], 5_000)
        except KafkaError as error:
            outcome = error.code
        return coordinator.asked, group.lost, outcome

    return asyncio.run(run())


GOOD = {ONE: (5, -1, "")}


@pytest.mark.parametrize(
    ("epoch", "codes", "later", "asked", "lost", "outcome"),
    [
        (3, [], 3, [(True, 3)], False, GOOD),
        (0, [], 0, [(False, -1)], False, GOOD),
        (3, [STALE], 4, [(True, 3), (True, 4)], False, GOOD),
        (3, [STALE, STALE], 3, [(True, 3)] * 3, False, GOOD),
        (3, [UNKNOWN], 3, [(True, 3), (False, -1)], True, GOOD),
        # About an epoch before: the member itself is not lost.
        (3, [UNKNOWN], 4, [(True, 3), (True, 4)], False, GOOD),
        (3, [LOADING], 3, [(True, 3)] * 2, False, GOOD),
        (3, [DENIED], 3, [(True, 3)], False, DENIED),
    ],
    ids=["member", "not joined", "new epoch", "old epoch", "removed", "removed before", "loading", "denied"],
)
def test_a_member_reads_committed_offsets_under_its_epoch(
    epoch: int, codes: list[ErrorCode], later: int, asked: list[tuple[bool, int]], lost: bool, outcome: Any
) -> None:
    assert read(ConsumerGroupMember, epoch, list(codes), later) == (asked, lost, outcome)


def test_a_classic_member_reads_as_anyone_does() -> None:
    """As Java's consumer does: a generation is not checked for reading."""
    assert read(ClassicGroupMember, 3, [], 3) == ([(False, -1)], False, GOOD)
