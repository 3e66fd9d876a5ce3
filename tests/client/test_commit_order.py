"""Commits of one group that are under way together: the last one that began is what stays. Without a socket."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ottla.client import AsyncConsumer, AsyncProducer, Consumer, OttlaError, TopicPartition
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.membership.group import Group, Owner
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class _Played(Group):
    """A member, and the coordinator that it commits at: requests come out of `asked`, and are answered by hand."""

    def __init__(self) -> None:
        settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g", "retry_backoff_ms": 0})
        super().__init__(Cluster(settings), settings, cast(Owner, None))
        #: The generation, or member epoch, of each request.
        self.generations: list[int] = []
        self.asked: asyncio.Queue[tuple[int, Callable[[ErrorCode | None], None]]] = asyncio.Queue()
        #: What each way to the coordinator waits for, the next one first.
        self.ways: list[Awaitable[None]] = []

    async def _coordinator(self, purpose: str = "coordinator") -> BrokerConnection:
        if self.ways:
            await self.ways.pop(0)
        return cast(BrokerConnection, self)

    def version_of(self, *_: object) -> int:
        return 9

    def send(self, request: OffsetCommitRequest, **_: object) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        part = request.topics[0].partitions[0]
        self.generations.append(request.generation_id_or_member_epoch)

        def answer(code: ErrorCode | None) -> None:
            said = OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=int(code or 0))
            topics = [OffsetCommitResponseTopic(name="t", partitions=[said])] if code is not None else []
            future.set_result(OffsetCommitResponse(topics=topics))

        self.asked.put_nowait((part.committed_offset, answer))
        return future

    def begin(self, partition: TopicPartition, offset: int) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.commit({partition: (offset, -1, "")}, 10_000))

    async def next(self) -> tuple[int, Callable[[ErrorCode | None], None]]:
        async with asyncio.timeout(3):
            return await self.asked.get()


class Coordinator(_Played, ClassicGroupMember):
    """Of the classic protocol."""


class _Broker(_Played, ConsumerGroupMember):
    """Of the protocol in which the broker assigns."""

    def at_epoch(self, epoch: int) -> None:
        """A heartbeat's answer brings this epoch."""
        self.membership.epoch = epoch
        self._set_identity(self.membership.member_id, epoch)


def played(play: Callable[[Coordinator], Awaitable[None]]) -> None:
    async def run() -> None:
        await play(Coordinator())

    asyncio.run(run())


def test_a_commit_that_was_refused_is_not_repeated_behind_a_later_one() -> None:
    async def play(group: Coordinator) -> None:
        first = group.begin(ONE, 5)
        offset, answer_first = await group.next()
        second = group.begin(ONE, 9)
        offset, answer_second = await group.next()
        assert offset == 9
        answer_first(ErrorCode.NOT_COORDINATOR)
        answer_second(ErrorCode.NONE)
        await second
        with pytest.raises(OttlaError, match="before a later one began"):
            await first
        assert group.asked.empty()

    played(play)


def test_a_commit_is_repeated_while_the_later_ones_are_of_other_partitions() -> None:
    async def play(group: Coordinator) -> None:
        first = group.begin(ONE, 5)
        _, answer = await group.next()
        second = group.begin(TWO, 9)
        _, answer_second = await group.next()
        answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer_second(ErrorCode.NONE)
        offset, answer = await group.next()
        assert offset == 5
        answer(ErrorCode.NONE)
        await asyncio.gather(first, second)

    played(play)


def test_a_commit_that_the_answer_leaves_out_is_not_confirmed() -> None:
    async def play(group: Coordinator) -> None:
        commit = group.begin(ONE, 5)
        _, answer = await group.next()
        answer(None)
        offset, answer = await group.next()
        assert (offset, commit.done()) == (5, False)
        answer(ErrorCode.NONE)
        await commit

    played(play)


def test_commits_are_sent_in_the_order_in_which_they_began() -> None:
    async def play(group: Coordinator) -> None:
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.ways = [found]
        first = group.begin(ONE, 5)
        await asyncio.sleep(0)
        second = group.begin(ONE, 9)
        for _ in range(5):
            await asyncio.sleep(0)
        found.set_result(None)
        sent = [await group.next(), await group.next()]
        assert [offset for offset, _ in sent] == [5, 9]
        for _, answer in sent:
            answer(ErrorCode.NONE)
        await asyncio.gather(first, second)

    played(play)


@pytest.mark.parametrize("first_ends", ["sent", "failed", "cancelled"])
def test_commits_that_wait_for_their_turn_are_sent_in_order_however_the_first_ends(first_ends: str) -> None:
    async def play(group: Coordinator) -> None:
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.ways = [found]
        first, second, given_up, last = (group.begin(ONE, offset) for offset in (5, 6, 7, 8))
        for _ in range(5):
            await asyncio.sleep(0)
        assert group._sending.locked() and group.asked.empty()
        given_up.cancel()
        if first_ends == "sent":
            found.set_result(None)
        elif first_ends == "failed":
            found.set_exception(NotReachable("the coordinator is gone"))
        else:
            first.cancel()
        sent = [await group.next() for _ in range(3 if first_ends == "sent" else 2)]
        assert [offset for offset, _ in sent] == ([5, 6, 8] if first_ends == "sent" else [6, 8])
        for _, answer in sent:
            answer(ErrorCode.NONE)
        await asyncio.gather(second, last)
        outcome = (await asyncio.gather(first, return_exceptions=True))[0]
        kinds = {"sent": type(None), "failed": OttlaError, "cancelled": asyncio.CancelledError}
        assert isinstance(outcome, kinds[first_ends]) and given_up.cancelled()
        assert not group._sending.locked() and group.asked.empty()

    played(play)


def test_a_commit_that_did_not_reach_the_coordinator_does_not_follow_a_later_one() -> None:
    async def play(group: Coordinator) -> None:
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.set_exception(NotReachable("the coordinator is gone"))
        group.ways = [lost]
        first = group.begin(ONE, 5)
        second = group.begin(ONE, 9)
        offset, answer = await group.next()
        assert offset == 9
        answer(ErrorCode.NONE)
        await second
        with pytest.raises(OttlaError, match="before a later one began"):
            await first

    played(play)


def test_a_commit_that_is_not_waited_for_has_the_positions_at_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may come to it only after the program's next poll."""
    consumer = Consumer[bytes, bytes]("127.0.0.1:1", group_id="g", enable_auto_commit=False)
    committed: list[object] = []

    async def commit(offsets: object, _: int) -> None:
        committed.append(offsets)

    monkeypatch.setattr(consumer._async, "_commit", commit)
    consumer.assign([ONE])
    state = consumer._async._positions[ONE]
    state.seek(5)
    polled, over = threading.Event(), threading.Event()
    consumer._thread.loop.call_soon_threadsafe(polled.wait, 30)
    consumer.commit_async(told=lambda _: over.set())
    state.seek(9)
    polled.set()
    assert over.wait(30)
    assert committed == [{ONE: (5, -1, "")}]
    consumer.close()


def test_a_commit_that_is_not_waited_for_refuses_at_once_what_cannot_be_committed() -> None:
    with (
        Consumer[bytes, bytes]("127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(ValueError, match="an offset to commit"),
    ):
        consumer.commit_async({ONE: -5})


def test_an_automatic_commit_that_is_sent_after_a_later_one_leaves_its_partitions_out() -> None:
    async def run() -> None:
        coordinator = Coordinator()
        number = coordinator.begin_commit([ONE, TWO])
        later = coordinator.begin(ONE, 9)
        offset, answer = await coordinator.asked.get()
        assert offset == 9
        both = {ONE: (3, -1, ""), TWO: (4, -1, "")}
        automatic = asyncio.ensure_future(coordinator.commit(both, 10_000, automatic=True, number=number))
        offset, answer_automatic = await coordinator.asked.get()
        assert offset == 4, "only the other partition"
        answer(ErrorCode.NONE)
        answer_automatic(ErrorCode.NONE)
        await asyncio.gather(later, automatic)
        await coordinator.commit({ONE: (3, -1, "")}, 10_000, automatic=True, number=number)
        assert coordinator.asked.empty()

    asyncio.run(run())


@pytest.mark.parametrize("automatic", [True, False])
def test_a_commit_with_an_epoch_that_is_over_waits_for_the_next_one_if_it_is_automatic(automatic: bool) -> None:
    """The coordinator has the next epoch before the heartbeat's answer brings it. Java: before a revocation only."""

    async def run() -> None:
        member = _Broker()
        member.at_epoch(3)
        commit = asyncio.ensure_future(member.commit({ONE: (5, -1, "")}, 10_000, automatic=automatic))
        _, answer = await member.next()
        answer(ErrorCode.STALE_MEMBER_EPOCH)
        if not automatic:
            with pytest.raises(KafkaError, match="STALE_MEMBER_EPOCH"):
                await commit
            return
        _, answer = await member.next()
        answer(ErrorCode.STALE_MEMBER_EPOCH)
        member.at_epoch(4)
        offset, answer = await member.next()
        assert (offset, member.generations) == (5, [3, 3, 4])
        answer(ErrorCode.NONE)
        await commit

    asyncio.run(run())


def test_an_automatic_commit_of_a_member_that_is_out_of_its_group_is_not_repeated() -> None:
    async def run() -> None:
        member = _Broker()
        member.at_epoch(3)
        commit = asyncio.ensure_future(member.commit({ONE: (5, -1, "")}, 10_000, automatic=True))
        _, answer = await member.next()
        member.membership.lost()
        answer(ErrorCode.STALE_MEMBER_EPOCH)
        with pytest.raises(KafkaError, match="STALE_MEMBER_EPOCH"):
            await commit

    asyncio.run(run())


def test_what_a_program_commits_right_after_a_poll_is_not_set_back_by_the_automatic_commit_of_that_poll(
    bootstrap: str, topic: str
) -> None:
    async def run() -> None:
        async with AsyncProducer(bootstrap) as producer:
            for number in range(5):
                await (await producer.send(topic, b"%d" % number, partition=0))
        async with AsyncConsumer(
            bootstrap, group_id=topic, auto_offset_reset="earliest", auto_commit_interval_ms=0, max_poll_records=1
        ) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.subscribe([topic])
            count = 0
            while count < 5:
                if not await consumer.poll(1):
                    continue
                count += 1
                await consumer.commit({partition: count})
                committed = (await consumer.committed([partition]))[partition]
                assert committed is not None and committed.offset == count

    asyncio.run(run())


def test_partitions_that_a_program_assigns_no_more_are_committed_first() -> None:
    """With auto-commit: no rebalance does that for them."""

    async def run() -> None:
        consumer = AsyncConsumer("127.0.0.1:1", group_id="g")
        consumer._group = group = Coordinator()
        consumer.assign([ONE, TWO])
        await consumer.seek(ONE, 5)
        consumer.assign([TWO])
        offset, answer_first = await group.next()
        assert offset == 5
        await consumer.seek(TWO, 9)
        consumer.assign([])
        closing = asyncio.ensure_future(consumer.close())
        answer_first(ErrorCode.NONE)
        offset, answer_second = await group.next()
        assert (offset, closing.done()) == (9, False)
        answer_second(ErrorCode.NONE)
        await closing

    asyncio.run(run())


def test_without_auto_commit_a_program_commits_before_it_assigns_others() -> None:
    async def run() -> None:
        consumer = AsyncConsumer("127.0.0.1:1", group_id="g", enable_auto_commit=False)
        consumer._group = group = Coordinator()
        consumer.assign([ONE])
        await consumer.seek(ONE, 5)
        consumer.assign([TWO])
        await consumer.close()
        assert group.asked.empty()

    asyncio.run(run())
