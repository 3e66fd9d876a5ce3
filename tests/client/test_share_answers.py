"""What a share consumer does with each answer of a leader, and which of its calls say what: without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.client import AsyncShareConsumer, ShareConsumer, ShareRecord, TopicPartition
from ottla.client.acknowledgement import Acknowledge
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.share.fetcher import ShareFetcher
from ottla.client.share.group import ShareGroupMember
from ottla.kernel.client_error import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionLost,
    NotReachable,
    RequestTimedOut,
    TlsFailed,
)
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.wire.api.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from ottla.wire.batch import build
from tests.client.test_share_consumer import ID, ONE, TWO, Heard, record, said, with_session

ACCEPT, RELEASE = int(Acknowledge.ACCEPT), int(Acknowledge.RELEASE)
_LOST = ConnectionLost("h:1: gone")
#: Of a whole answer: is it logged? No poll raises it, as in Java's client: the heartbeat tells what stays.
WHOLE = [
    (ErrorCode.SHARE_SESSION_NOT_FOUND, False),
    (ErrorCode.INVALID_SHARE_SESSION_EPOCH, False),
    (ErrorCode.SHARE_SESSION_LIMIT_REACHED, False),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, True),
    (ErrorCode.INVALID_REQUEST, True),
    (ErrorCode.UNKNOWN_SERVER_ERROR, True),
]


def answered(*parts: PartitionData, **more: Any) -> ShareFetchResponse:
    return ShareFetchResponse(
        responses=[ShareFetchableTopicResponse(topic_id=ID, partitions=list(parts))] if parts else [], **more
    )


async def ask(fetcher: ShareFetcher, connection: Mock) -> asyncio.Future[Any]:
    """A fetch with acknowledgements of offsets 4 and 5 of the first partition; what the test answers it with."""
    fetcher.assigned, fetcher.poll_waits = {ONE, TWO}, True
    said(fetcher, ONE)
    answer: asyncio.Future[Any] = asyncio.Future()
    connection.send.side_effect = [answer]
    fetcher._ask(7, connection, {ONE: ID, TWO: ID})
    return answer


def scene(play: Callable[[ShareFetcher, Mock, Heard], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        heard: Heard = []
        async with with_session(heard, **settings) as (fetcher, connection):
            await play(fetcher, connection, heard)
            fetcher.error = None

    asyncio.run(run())


@pytest.mark.parametrize(("code", "logged"), WHOLE)
def test_an_answer_that_fails_as_a_whole_is_told_of_each_acknowledgement_and_asked_again_later(
    code: ErrorCode, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        answer = await ask(fetcher, connection)
        due = fetcher._cluster.metadata.update_due_ms()
        before = now_ms()
        answer.set_result(answered(error_code=int(code), error_message="why"))
        await asyncio.sleep(0)
        [(partition, offsets, error)] = heard
        assert (partition, offsets, error and error.code) == (ONE, [4, 5], code)
        assert error is not None and "why" in str(error)
        assert not fetcher._session(7, connection).began
        assert fetcher.error is None, "no poll raises it"
        assert ("node 7" in caplog.text and code.name in caplog.text) == logged == bool(caplog.text)
        assert fetcher._cluster.metadata.update_due_ms() < due, "the metadata are asked for"
        assert before + 200 <= fetcher._held[7] <= now_ms() + 200
        assert not fetcher.unanswered()

    scene(play, retry_backoff_ms=200)


@pytest.mark.parametrize("how", ["lost", "cancelled"])
def test_a_request_without_an_answer_fails_its_acknowledgements(how: str) -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        answer = await ask(fetcher, connection)
        if how == "lost":
            answer.set_exception(_LOST)
        else:
            answer.cancel()
        await asyncio.sleep(0)
        [(partition, offsets, error)] = heard
        assert (partition, offsets) == (ONE, [4, 5])
        assert error is not None and error.code is ErrorCode.NETWORK_EXCEPTION
        assert ("h:1: gone" if how == "lost" else "the request was cancelled") in str(error)
        assert fetcher.error is None, "no poll is told: the records come again"
        assert not fetcher._session(7, connection).began

    scene(play)


def test_a_node_that_refused_is_asked_again_after_its_pause_only() -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        answer = await ask(fetcher, connection)
        answer.set_result(answered(PartitionData(partition_index=1, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))))
        await asyncio.sleep(0)
        until = fetcher._held[7]
        connection.send.side_effect = lambda *_, **__: asyncio.Future()
        fetcher._pass(until - 1)
        assert connection.send.call_count == 1
        fetcher._pass(until)
        assert connection.send.call_count == 2
        fetcher._pass(until)
        assert connection.send.call_count == 2, "one request at a time"

    scene(play, retry_backoff_ms=60_000)


#: Of one partition: what the next poll raises.
PARTS = [
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    (ErrorCode.FENCED_LEADER_EPOCH, False),
    (ErrorCode.KAFKA_STORAGE_ERROR, False),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    (ErrorCode.UNKNOWN_TOPIC_ID, False),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
    (ErrorCode.UNKNOWN_SERVER_ERROR, False),
]


@pytest.mark.parametrize(("code", "told"), PARTS)
def test_a_partition_that_fails_is_looked_for_and_what_passes_is_not_told(code: ErrorCode, told: bool) -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        answer = await ask(fetcher, connection)
        due = fetcher._cluster.metadata.update_due_ms()
        good = PartitionData(partition_index=0, records=build([(7, None, b"v", ())], base_offset=3))
        good.acquired_records = [AcquiredRecords(first_offset=3, last_offset=3, delivery_count=2)]
        bad = PartitionData(partition_index=1, error_code=int(code), error_message="why")
        answer.set_result(answered(bad, good, acquisition_lock_timeout_ms=5000))
        await asyncio.sleep(0)
        assert heard == [(ONE, [4, 5], None)]
        assert [(each.offset, each.delivery_count) for each in fetcher.records] == [(3, 2)], "the others are taken in"
        assert isinstance(fetcher.error, KafkaError) == told
        if told:
            assert "t-1: why" in str(fetcher.error)
        assert fetcher._cluster.metadata.update_due_ms() < due
        assert 7 in fetcher._held and fetcher.lock_timeout_ms == 5000
        assert fetcher._session(7, connection).began

    scene(play)


def test_a_leader_that_the_answer_names_is_asked_at_once() -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        answer = await ask(fetcher, connection)
        due = fetcher._cluster.metadata.update_due_ms()
        moved = PartitionData(partition_index=1, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        moved.current_leader = LeaderIdAndEpoch(leader_id=8, leader_epoch=4)
        answer.set_result(
            answered(
                moved, PartitionData(partition_index=0), node_endpoints=[NodeEndpoint(node_id=8, host="i", port=2)]
            )
        )
        await asyncio.sleep(0)
        leader = fetcher._cluster.metadata.leader(*TWO)
        assert leader is not None and (leader.leader, leader.leader_epoch) == (8, 4)
        assert fetcher._cluster.metadata.nodes[8].host == "i"
        assert 7 not in fetcher._held and fetcher._cluster.metadata.update_due_ms() >= due

    scene(play)


def test_a_lock_time_that_an_answer_does_not_name_stays() -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        for named in (0, 5000, 0):
            answer = await ask(fetcher, connection)
            answer.set_result(answered(PartitionData(partition_index=0), acquisition_lock_timeout_ms=named))
            await asyncio.sleep(0)
        assert fetcher.lock_timeout_ms == 5000

    scene(play)


def test_records_of_a_partition_that_was_given_up_meanwhile_are_released() -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        answer = await ask(fetcher, connection)
        fetcher.assigned = {ONE}
        late = PartitionData(partition_index=1, records=build([(7, None, b"v", ())] * 2, base_offset=3))
        late.acquired_records = [AcquiredRecords(first_offset=3, last_offset=4, delivery_count=1)]
        answer.set_result(answered(late, PartitionData(partition_index=0)))
        await asyncio.sleep(0)
        assert fetcher.records == []
        assert fetcher._acknowledgements.ready == {TWO: {3: RELEASE, 4: RELEASE}}

    scene(play)


def test_a_close_that_the_broker_refuses_says_so_of_each_acknowledgement() -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        said(fetcher, ONE)
        connection.call = Mock(side_effect=KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "why"))
        await fetcher.finish(1_000)
        assert [(each[0], each[2] and each[2].code) for each in heard] == [(ONE, ErrorCode.INVALID_SHARE_SESSION_EPOCH)]

    scene(play)


# ---- the consumer's calls


def consumer_scene(play: Callable[[AsyncShareConsumer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with AsyncShareConsumer("127.0.0.1:1", group_id="g", **settings) as consumer:
            await play(consumer)

    asyncio.run(run())


def other(offset: int) -> ShareRecord:
    return ShareRecord("t", 1, offset, 0, None, b"v", (), 0, 1)


def test_what_is_revoked_is_released_unless_the_program_has_it() -> None:
    async def play(consumer: AsyncShareConsumer) -> None:
        fetcher = consumer._fetcher
        fetcher.assigned = {ONE, TWO}
        fetcher.records = [record(1), other(7), record(2)]
        consumer.acknowledgements.give([record(0)])
        await consumer.revoke({ONE})
        assert consumer.owned() == {TWO}
        assert fetcher.records == [other(7)]
        assert consumer.acknowledgements.ready == {ONE: {1: RELEASE, 2: RELEASE}}
        await consumer.assign_more({ONE})
        assert consumer.owned() == {ONE, TWO}
        fetcher.records = []

    consumer_scene(play)


def test_an_unsubscription_acknowledges_gives_up_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(consumer: AsyncShareConsumer) -> None:
        left: list[str] = []

        async def leave(_: ShareGroupMember, reason: str) -> None:
            left.append(reason)

        monkeypatch.setattr(ShareGroupMember, "leave", leave)
        assert consumer.subscription() == set()
        await consumer.unsubscribe()
        assert left == [], "of no group"
        consumer.subscribe("t")
        assert consumer.subscription() == {"t"} and await consumer.subscribed() == {"t"}
        assert consumer.pattern_text() is None
        consumer.subscribe(["t", "u"])
        assert consumer.subscription() == {"t", "u"}
        member = consumer._group
        assert member is not None and consumer._fetcher.member_id == member.membership.member_id != ""
        fetcher = consumer._fetcher
        fetcher.assigned, fetcher.records = {ONE}, [record(1)]
        await consumer.unsubscribe()
        assert (left, consumer.subscription(), consumer.owned()) == (["the consumer unsubscribed"], set(), set())
        assert fetcher.records == []
        with pytest.raises(OttlaError, match=r"^this consumer has no topics to read: subscribe first$"):
            await consumer.poll(0)

    consumer_scene(play)


def test_a_commit_that_is_not_answered_in_time_says_so() -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        said(fetcher, ONE)
        consumer = fetcher._on_answer.__self__  # type: ignore[attr-defined]
        with pytest.raises(RequestTimedOut, match=r"acknowledgements were not answered within 20 ms"):
            await consumer.commit()
        assert connection.send.called and heard == []

    scene(play, default_api_timeout_ms=20, request_timeout_ms=10)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [AuthenticationFailed("wrong password"), TlsFailed("not trusted")])
def test_a_poll_raises_once_what_only_the_program_can_mend(
    error: OttlaError, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader refuses the connection, and the coordinator does not."""

    async def node(_: Cluster, node_id: int, purpose: str = "") -> BrokerConnection:
        if purpose == "share":
            raise error
        raise NotReachable("gone")

    monkeypatch.setattr(Cluster, "node", node)

    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        consumer: AsyncShareConsumer = fetcher._on_answer.__self__  # type: ignore[attr-defined]
        fetcher._sessions.clear()
        fetcher._connections.clear()
        consumer.subscribe("t")
        fetcher.assigned = {ONE}
        if not waits:
            while fetcher.refusal is None:
                assert await consumer.poll(0) == []
        with pytest.raises(type(error), match=str(error)):
            await asyncio.wait_for(consumer.poll(60), 10)
        fetcher.assigned = set()
        assert await consumer.poll(0) == [], "once"

    scene(play)


def test_a_closed_consumer_says_so() -> None:
    async def play(consumer: AsyncShareConsumer) -> None:
        consumer.subscribe("t")
        consumer._group = None
        await consumer.close()
        await consumer.close()
        with pytest.raises(ClientClosed, match=r"^this consumer is closed$"):
            await consumer.poll(0)

    consumer_scene(play)


def test_an_iteration_polls_until_the_consumer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(consumer: AsyncShareConsumer) -> None:
        waits: list[float] = []

        async def poll(timeout: float = 0.5) -> list[ShareRecord]:
            waits.append(timeout)
            consumer.acknowledgements.settle(for_poll=True)
            found = [record(2 * len(waits)), record(2 * len(waits) + 1)]
            consumer.acknowledgements.give(found)
            return found

        monkeypatch.setattr(consumer, "poll", poll)
        seen = []
        async for each in consumer:
            seen.append(each.offset)
            if each.offset == 6:
                consumer._closed = True
        assert seen == [2, 3, 4, 5, 6] and waits == [1.0, 1.0, 1.0]
        consumer.acknowledgements.settle(for_poll=True)
        ready = consumer.acknowledgements.ready[ONE]
        assert ready == {2: ACCEPT, 3: ACCEPT, 4: ACCEPT, 5: ACCEPT, 6: ACCEPT, 7: RELEASE}
        consumer._closed = False

    consumer_scene(play)


def test_a_synchronous_iteration_polls_until_the_consumer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ShareConsumer[bytes, bytes]("127.0.0.1:1", group_id="g")
    half, waits = consumer._async, list[float]()

    def poll(timeout: float = 0.5) -> list[Any]:
        waits.append(timeout)
        half.acknowledgements.settle(for_poll=True)
        half.acknowledgements.give(found := [record(2 * len(waits)), record(2 * len(waits) + 1)])
        return found

    monkeypatch.setattr(consumer, "poll", poll)
    seen = []
    for each in consumer:
        seen.append(each.offset)
        if each.offset == 4:
            half._closed = True
    assert seen == [2, 3, 4] and waits == [1.0, 1.0]
    assert half.acknowledgements.ready == {ONE: {2: ACCEPT, 3: ACCEPT, 5: RELEASE}}
    half._closed = False
    consumer.subscribe("t")
    assert consumer.subscription() == {"t"}
    consumer._async._group = None
    consumer.unsubscribe()
    assert consumer.subscription() == set()
    consumer.close()


@pytest.mark.parametrize("partition", [ONE, TopicPartition("t", 5)])
def test_without_a_leader_the_metadata_are_asked_for(partition: TopicPartition) -> None:
    async def play(fetcher: ShareFetcher, connection: Mock, heard: Heard) -> None:
        metadata = fetcher._cluster.metadata
        fetcher.assigned, fetcher.poll_waits, due = {partition}, True, metadata.update_due_ms()
        fetcher._pass(now_ms())
        assert connection.send.called == (partition == ONE)
        assert (metadata.update_due_ms() < due) == (partition != ONE)

    scene(play)
