"""What a consumer commits: the positions, no further than the records that were handed out, and when by itself."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.client.connection.clock import now_ms
from ottla.client.consumer.commit import CommitCalls, Failure
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import PartitionPosition
from ottla.client.membership.commit import CommittedAt, CommittedOffset, GroupMetadata, committed_offset, offsets_of
from ottla.client.settings.consumer import ConsumerSettings
from ottla.columns.record import ConsumerRecord
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


class Group:
    """Notes what is committed; fails, or waits, if the test says so."""

    id = "g"

    def __init__(self) -> None:
        self.commits: list[tuple[dict[TopicPartition, CommittedAt], int]] = []
        self.automatic: list[bool] = []
        self.failure: Exception | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.known: dict[TopicPartition, CommittedAt] = {}

    async def commit(
        self,
        offsets: dict[TopicPartition, CommittedAt],
        timeout_ms: int,
        *,
        automatic: bool = False,
        number: int = 0,
    ) -> None:
        self.commits.append((offsets, timeout_ms))
        self.automatic.append(automatic)
        await self.may_go_on.wait()
        if self.failure is not None:
            raise self.failure

    def begin_commit(self, offsets: dict[TopicPartition, CommittedAt]) -> int:
        return 1

    async def committed(self, partitions: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, CommittedAt]:
        return {one: at for one, at in self.known.items() if one in partitions}

    def identity(self) -> tuple[str, int, str | None]:
        return "member", 7, "instance"


class Consumer(CommitCalls):
    """Partitions at 5 (epoch 2) and 8; the position of the third is not known yet."""

    def __init__(self, **settings: object) -> None:
        given: Mapping[str, object] = {"group_id": "g", "auto_commit_interval_ms": 0} | settings
        self.settings = ConsumerSettings.read("127.0.0.1:1", {k: v for k, v in given.items() if v is not None})
        self._positions = {partition: PartitionPosition(partition) for partition in (A, B, C)}
        self._positions[A].seek(5, 2)
        self._positions[B].seek(8)
        self._lock = threading.Lock()
        self.group = Group()
        self._group: Any = self.group
        self.meter = ConsumerMeter(0)
        self._in_hand = []
        self._held = {}
        self._committing = None
        self._commits = set()
        self._committed_at_ms = 0
        self.outsiders = 0

    def _outsider(self) -> Any:
        self.outsiders += 1
        return self.group


EVERYTHING = {A: (5, 2, ""), B: (8, -1, "")}


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, None, None, (), 3)


def test_a_commit_is_of_the_positions_that_are_known_with_their_epochs() -> None:
    async def run() -> None:
        consumer = Consumer()
        await consumer.commit()
        assert consumer.group.commits == [(EVERYTHING, consumer.settings.default_api_timeout_ms)]
        assert consumer.positions() == {A: 5, B: 8}
        assert consumer.next_offsets() == {A: CommittedOffset(5, "", 2), B: CommittedOffset(8, "", None)}

    asyncio.run(run())


def test_records_that_an_iteration_has_not_yielded_are_not_committed() -> None:
    async def run() -> None:
        consumer = Consumer()
        # The next record is the last of the list.
        consumer._in_hand = [record(A, 4), record(C, 9), record(A, 3), record(A, 2)]
        assert consumer.positions() == {A: 2, B: 8}, "no position is known of the third"

    asyncio.run(run())


def test_while_dead_letters_are_written_commits_stay_where_the_poll_began() -> None:
    async def run() -> None:
        consumer = Consumer()
        consumer._held = {A: 3, B: 20, C: 1}
        assert consumer.positions() == {A: 3, B: 8}, "a seek back is not undone"

    asyncio.run(run())


def test_a_position_that_is_to_be_reset_is_not_committed() -> None:
    async def run() -> None:
        consumer = Consumer()
        consumer._positions[A].reset = "earliest"
        assert consumer.positions() == {B: 8}

    asyncio.run(run())


def test_offsets_may_be_given_in_every_form() -> None:
    given = {A: 4, ("t", 1): (6, "note"), C: CommittedOffset(9, "x", 5)}
    assert offsets_of(given) == {A: (4, -1, ""), B: (6, -1, "note"), C: (9, 5, "x")}  # type: ignore[arg-type]
    assert offsets_of({A: CommittedOffset(0), B: CommittedOffset(1, leader_epoch=0)}) == {A: (0, -1, ""), B: (1, 0, "")}
    assert offsets_of(record(B, 6)) == {B: (7, 3, "")}, "a record means the offset behind it"
    assert committed_offset((4, 0, "m")) == CommittedOffset(4, "m", 0)
    assert committed_offset((4, -1, "")) == CommittedOffset(4, "", None)


@pytest.mark.parametrize(
    "wrong", [-1, "5", True, (5,), (5, None), (-1, ""), CommittedOffset(-1), CommittedOffset(1, "", -1)]
)
def test_an_offset_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError, OttlaError)):
        offsets_of({A: wrong})  # type: ignore[dict-item]


def test_a_failed_commit_is_raised_reported_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    failure = KafkaError(ErrorCode.ILLEGAL_GENERATION)

    async def run() -> None:
        consumer = Consumer()
        reported: list[Failure] = []
        await consumer.commit_and_report({A: 1}, reported.append)
        await consumer.commit_and_report(None, None)
        assert reported == [None] and not caplog.text
        consumer.group.failure = failure
        with pytest.raises(KafkaError):
            await consumer.commit()
        await consumer.commit_and_report(None, reported.append)
        assert reported == [None, failure] and not caplog.text
        await consumer.commit_and_report(None, None)
        assert "group g: an asynchronous commit failed" in caplog.text

    with caplog.at_level(logging.WARNING, "ottla.client"):
        asyncio.run(run())


def test_a_callback_of_a_commit_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Failure) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "ottla.client"):
        asyncio.run(Consumer().commit_and_report({A: 1}, fails))
    assert "ZeroDivisionError" in caplog.text


def test_commits_need_a_group_and_an_outsider_may_make_them() -> None:
    async def run() -> None:
        alone = Consumer(group_id=None, enable_auto_commit=False)
        with pytest.raises(OttlaError, match=r"commit needs group\.id"):
            await alone.commit()
        with pytest.raises(OttlaError, match=r"committed needs group\.id"):
            await alone.committed([A])
        outside = Consumer()
        outside._group = None
        await outside.commit({A: 1})
        assert outside.outsiders == 1 and outside.group.commits[0][0] == {A: (1, -1, "")}
        with pytest.raises(OttlaError, match=r"group_metadata needs group\.id"):
            outside.group_metadata()
        assert Consumer().group_metadata() == GroupMetadata("g", 7, "member", "instance")

    asyncio.run(run())


def test_committed_offsets_are_told_for_every_partition_that_was_asked_for() -> None:
    async def run() -> None:
        consumer = Consumer()
        consumer.group.known = {A: (4, 0, "m"), C: (1, -1, "")}
        assert await consumer.committed([A, B]) == {A: CommittedOffset(4, "m", 0), B: None}

    asyncio.run(run())


def test_commits_are_measured() -> None:
    async def run() -> None:
        consumer = Consumer()
        await consumer.commit()
        consumer.group.failure = KafkaError(ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(KafkaError):
            await consumer.commit()
        counted = consumer.meter.snapshot({}, {}, stable=False, now_ms=now_ms())
        assert counted.commit_total == 1, "one was confirmed"

    asyncio.run(run())


def test_a_poll_commits_by_itself_when_it_is_time_and_once_at_a_time() -> None:
    async def run() -> None:
        consumer = Consumer(auto_commit_interval_ms=1_000)
        consumer._committed_at_ms = now_ms() - 2_000
        consumer.group.may_go_on.clear()
        consumer._auto_commit()
        began = consumer._committed_at_ms
        assert now_ms() - began < 1_000
        first = consumer._committing
        assert first is not None
        await asyncio.sleep(0)
        assert consumer.group.commits == [(EVERYTHING, consumer.settings.default_api_timeout_ms)]
        consumer._auto_commit()
        assert consumer._committing is first, "the interval is not over"
        consumer._committed_at_ms -= 2_000
        consumer._auto_commit()
        assert consumer._committing is first, "the first is not over"
        consumer.group.may_go_on.set()
        await first
        consumer._auto_commit()
        assert consumer._committing is not first
        await asyncio.gather(consumer._committing)
        assert len(consumer.group.commits) == 2

    asyncio.run(run())


def test_a_commit_is_automatic_unless_the_program_asks_for_it() -> None:
    async def run() -> None:
        consumer = Consumer()
        consumer._auto_commit()
        assert consumer._committing is not None
        await consumer._committing
        await consumer.before_revoke()
        await consumer.commit()
        assert consumer.group.automatic == [True, True, False]

    asyncio.run(run())


def test_an_automatic_commit_is_of_what_was_polled_when_it_began() -> None:
    async def run() -> None:
        consumer = Consumer()
        consumer._auto_commit()
        consumer._positions[A].seek(100)
        assert consumer._committing is not None
        await consumer._committing
        assert consumer.group.commits[0][0] == EVERYTHING

    asyncio.run(run())


@pytest.mark.parametrize("why", ["off", "no group", "no partitions"])
def test_nothing_is_committed_by_itself(why: str) -> None:
    async def run() -> None:
        consumer = Consumer(enable_auto_commit=why != "off")
        if why == "no group":
            consumer._group = None
        if why == "no partitions":
            consumer._positions = {}
        consumer._auto_commit()
        await consumer.before_revoke()
        assert consumer._committing is None and not consumer.group.commits

    asyncio.run(run())


def test_partitions_are_committed_before_they_go_and_a_failure_does_not_keep_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        consumer = Consumer(auto_commit_interval_ms=1_000_000)
        await consumer.before_revoke()
        assert consumer.group.commits == [(EVERYTHING, consumer.settings.request_timeout_ms)]
        consumer.group.failure = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        await consumer.before_revoke()
        assert "the commit before a rebalance failed" in caplog.text
        consumer.settings = Consumer().settings
        consumer._committed_at_ms = 0
        consumer._auto_commit()
        assert consumer._committing is not None
        await consumer._committing
        assert "the automatic commit failed" in caplog.text

    with caplog.at_level(logging.WARNING, "ottla.client"):
        asyncio.run(run())
