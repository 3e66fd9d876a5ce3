"""Acknowledgements of a share consumer go to the broker that delivered the records, in the session in which it did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.client import AsyncShareConsumer, TopicPartition
from ottla.client.acknowledgement import Acknowledge
from ottla.client.connection.clock import now_ms
from ottla.client.share.fetcher import ShareFetcher
from ottla.kernel.client_error import ConnectionLost
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.wire.api.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.api.share_fetch import PartitionData as FetchedData
from ottla.wire.batch import build
from tests.client.hurried import hurried, passing
from tests.client.test_share_consumer import ID, ONE, TWO, Heard, begin, ended, record, said, with_session

THREE = TopicPartition("t", 2)


class Broker:
    """A connection that notes its requests; the test answers them."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.asked = asyncio.Event()
        self.connection = Mock(closed=None, send=self._send, call=ended())

    def _send(self, request: Any, **_: object) -> asyncio.Future[Any]:
        self.requests.append(request)
        self.asked.set()
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    async def answer(self, response: Any) -> None:
        """Answer the last request, and let the fetcher take that in."""
        self.asked.clear()
        self.answers[-1].set_result(response)
        for _ in range(4):
            await asyncio.sleep(0)


def led(fetcher: ShareFetcher, leaders: dict[int, int], topic_id: Uuid = ID) -> None:
    """Metadata of topic `t`: its leaders, by partition; -1: none now."""
    parts = [
        MetadataResponsePartition(partition_index=number, leader_id=node, leader_epoch=5)
        for number, node in leaders.items()
    ]
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, partitions=parts)
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in (7, 8, 9)]
    fetcher._cluster.metadata.apply(MetadataResponse(brokers=brokers, topics=[topic]), now_ms())


def scene(play: Callable[[AsyncShareConsumer, Broker, Heard], Awaitable[None]], **settings: Any) -> None:
    """A consumer that has records 4 and 5 of partition 0 from node 7, and a session with it."""

    async def run() -> None:
        heard: Heard = []
        async with with_session(heard, share_acknowledgement_mode="explicit", **settings) as (fetcher, _):
            broker = Broker()
            begin(fetcher, broker.connection)
            consumer: AsyncShareConsumer = fetcher._on_answer.__self__  # type: ignore[attr-defined]
            consumer.acknowledgements.give([record(4), record(5)])
            for offset in (4, 5):
                consumer.acknowledgements.acknowledge(ONE, offset, Acknowledge.ACCEPT)
            await play(consumer, broker, heard)

    hurried(run())


def _lose_connection(fetcher: ShareFetcher, broker: Broker) -> None:
    broker.connection.closed = "gone"


def _connect_again(fetcher: ShareFetcher, broker: Broker) -> None:
    broker.connection.closed = "gone"
    fetcher._connections[7] = fetcher_connection = Broker().connection
    fetcher._session(7, fetcher_connection).answered(ErrorCode.NONE)


def _move_leader(fetcher: ShareFetcher, broker: Broker) -> None:
    led(fetcher, {0: 8, 1: 7})


def _end_session(fetcher: ShareFetcher, broker: Broker) -> None:
    fetcher._failed(7, None)


@pytest.mark.parametrize("end", [_lose_connection, _connect_again, _move_leader, _end_session])
def test_a_commit_after_the_session_fails_at_once_because_the_records_come_again(end: Callable[..., None]) -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        end(consumer._fetcher, broker)
        before = now_ms()
        outcome = await consumer.commit()
        assert {each: error and error.code for each, error in outcome.items()} == {
            ONE: ErrorCode.NOT_LEADER_OR_FOLLOWER
        }
        assert now_ms() - before < 50
        assert [(each, offsets) for each, offsets, _ in heard] == [(ONE, [4, 5])]
        assert broker.requests == [], "another session must not acknowledge what it has not delivered"

    scene(play)


def test_a_commit_while_the_partition_has_no_known_leader_goes_to_the_broker_that_delivered_the_records() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        led(consumer._fetcher, {0: -1, 1: 8})
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        (request,) = broker.requests
        assert [part.partition_index for topic in request.topics for part in topic.partitions] == [0]
        await broker.answer(acknowledged({0: ErrorCode.NONE}))
        assert await commit == {ONE: None}

    scene(play)


def test_records_of_a_topic_that_was_made_again_are_acknowledged_under_their_own_id() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        fetcher = consumer._fetcher
        led(fetcher, {0: 7, 1: 7}, Uuid(b"n" * 16))
        fetcher.assigned, fetcher.poll_waits = {ONE}, True
        consumer.acknowledgements.settle(for_poll=True)
        fetcher._pass(now_ms())
        (request,) = broker.requests
        assert isinstance(request, ShareAcknowledgeRequest)
        assert [topic.topic_id for topic in request.topics] == [ID]
        fetcher.poll_waits = False

    scene(play)


def test_records_that_were_acquired_again_are_acknowledged_in_the_new_session() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        fetcher = consumer._fetcher
        broker.connection.closed = "gone"
        assert (await consumer.commit()).keys() == {ONE}
        newer = Broker()
        fetcher._connections[7] = newer.connection
        fetcher.assigned, fetcher.poll_waits = {ONE}, True
        fetcher._pass(now_ms())
        (request,) = newer.requests
        assert (request.share_session_epoch, request.topics[0].partitions[0].acknowledgement_batches) == (0, [])
        again = FetchedData(partition_index=0, records=build([(7, None, b"v", ())], base_offset=4))
        again.acquired_records = [AcquiredRecords(first_offset=4, last_offset=4, delivery_count=2)]
        await newer.answer(ShareFetchResponse(responses=[ShareFetchableTopicResponse(topic_id=ID, partitions=[again])]))
        fetcher.poll_waits = False
        consumer.acknowledgements.give(fetcher.records)
        consumer.acknowledgements.acknowledge(ONE, 4, Acknowledge.ACCEPT)
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        assert newer.requests[-1].share_session_epoch == 1
        await newer.answer(acknowledged({0: ErrorCode.NONE}))
        assert await commit == {ONE: None}

    scene(play)


def acknowledged(codes: dict[int, ErrorCode], **more: Any) -> ShareAcknowledgeResponse:
    parts = [PartitionData(partition_index=number, error_code=int(code)) for number, code in codes.items()]
    return ShareAcknowledgeResponse(responses=[ShareAcknowledgeTopicResponse(topic_id=ID, partitions=parts)], **more)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_commit_that_the_broker_cannot_store_now_is_sent_again(code: ErrorCode) -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        sent_ms = now_ms()
        await broker.answer(acknowledged({0: code}))
        assert len(broker.requests) == 1 and heard == [], "not at once, and it has not failed"
        await broker.asked.wait()
        assert now_ms() - sent_ms >= 200
        first, second = (each.topics[0].partitions[0].acknowledgement_batches for each in broker.requests)
        assert first == second
        await broker.answer(acknowledged({0: ErrorCode.NONE}))
        assert await commit == {ONE: None}

    scene(play, retry_backoff_ms=200)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_RECORD_STATE,
    ],
)
def test_a_commit_of_records_that_are_locked_no_more_is_not_sent_again(code: ErrorCode) -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        metadata = consumer._cluster.metadata
        due = metadata.update_due_ms()
        await broker.answer(acknowledged({0: code}))
        assert {each: error and error.code for each, error in (await commit).items()} == {ONE: code}
        assert (metadata.update_due_ms() < due) == (code is not ErrorCode.INVALID_RECORD_STATE)
        assert len(broker.requests) == 1

    scene(play)


def test_a_word_that_was_given_meanwhile_replaces_the_one_that_is_sent_again() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        acknowledgements = consumer.acknowledgements
        acknowledgements.acknowledge(ONE, 5, Acknowledge.RENEW)
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        assert broker.requests[0].is_renew_ack
        acknowledgements.acknowledge(ONE, 5, Acknowledge.REJECT)
        acknowledgements.settle(for_poll=False)
        await broker.answer(acknowledged({0: ErrorCode.COORDINATOR_NOT_AVAILABLE}))
        assert acknowledgements.ready == {ONE: {4: Acknowledge.ACCEPT, 5: Acknowledge.REJECT}}
        await broker.asked.wait()
        await broker.answer(acknowledged({0: ErrorCode.NONE}))
        assert await commit == {ONE: None}

    scene(play)


def test_an_answer_to_a_commit_names_the_new_leader() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        answer = acknowledged({0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        answer.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=9, leader_epoch=6)
        answer.node_endpoints = [NodeEndpoint(node_id=9, host="i", port=2)]
        await broker.answer(answer)
        await commit
        leader = consumer._cluster.metadata.leader(*ONE)
        assert leader is not None and (leader.leader, leader.leader_epoch) == (9, 6)

    scene(play)


@pytest.mark.parametrize("mode", ["record_limit", "batch_optimized"])
def test_in_record_limit_mode_one_broker_at_a_time_is_asked_for_records_and_each_has_its_turn(mode: str) -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        fetcher = consumer._fetcher
        consumer.acknowledgements.in_hand.clear()
        brokers = {7: broker, 8: Broker(), 9: Broker()}
        for node_id, each in brokers.items():
            begin(fetcher, each.connection, node_id)
        led(fetcher, {0: 7, 1: 8, 2: 9})
        fetcher.assigned, fetcher.poll_waits = {ONE, TWO, THREE}, True
        asked: list[int] = []
        for _ in range(4):
            fetcher._pass(now_ms())
            waiting = [node for node, each in brokers.items() if each.answers and not each.answers[-1].done()]
            asked += waiting if mode == "record_limit" else waiting[:1]
            assert len(waiting) == (1 if mode == "record_limit" else 3)
            if len(asked) == 2:
                brokers[asked[-1]].answers[-1].set_exception(ConnectionLost("gone"))
                await asyncio.sleep(0)
                brokers[asked[-1]].connection.closed = None
            else:
                await brokers[asked[-1]].answer(ShareFetchResponse())
        if mode == "record_limit":
            assert asked == [7, 8, 9, 7]
        fetcher.poll_waits = False

    scene(play, share_acquire_mode=mode, retry_backoff_ms=0)


def test_in_record_limit_mode_acknowledgements_do_not_wait_for_another_brokers_records() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        fetcher, other = consumer._fetcher, Broker()
        led(fetcher, {0: 7, 1: 8})
        begin(fetcher, other.connection, 8)
        begin(fetcher, broker.connection, 7)
        fetcher.assigned, fetcher.poll_waits = {TWO}, True
        fetcher._pass(now_ms())
        fetcher.assigned = {ONE, TWO}
        consumer.acknowledgements.settle(for_poll=True)
        fetcher._pass(now_ms())
        assert [type(each) for each in other.requests + broker.requests] == [ShareFetchRequest, ShareAcknowledgeRequest]
        fetcher.poll_waits = False

    scene(play, share_acquire_mode="record_limit")


def test_a_close_ends_all_sessions_at_the_same_time_and_within_the_request_timeout() -> None:
    """Three brokers that do not answer, and a coordinator that cannot be reached."""
    heard: Heard = []

    async def run() -> int:
        async with with_session(heard, share_acknowledgement_mode="explicit", request_timeout_ms=8_000) as (fetcher, _):
            consumer: AsyncShareConsumer = fetcher._on_answer.__self__  # type: ignore[attr-defined]
            consumer.subscribe("t")
            assert consumer._group is not None

            async def leave(_: str) -> None:
                await passing(60)

            async def call(*_: object, timeout_ms: int, **__: object) -> None:
                await passing(timeout_ms / 1000)
                raise ConnectionLost("it did not answer")

            consumer._group.leave = leave  # type: ignore[assignment, method-assign]
            for node_id in (7, 8, 9):
                begin(fetcher, Mock(closed=None, call=call), node_id)
            said(fetcher, ONE)
            before = now_ms()
            await consumer.close()
            return now_ms() - before

    assert 8_000 <= hurried(run()) < 8_200
    assert [(each, error and error.code) for each, _, error in heard] == [(ONE, ErrorCode.NETWORK_EXCEPTION)]


@pytest.mark.parametrize("answer", ["records", "failure"])
def test_a_commit_while_its_broker_is_busy_is_decided_when_that_answer_comes(answer: str) -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        fetcher = consumer._fetcher
        fetcher.assigned, fetcher.poll_waits = {TWO}, True
        fetcher._pass(now_ms())
        fetcher.poll_waits = False
        commit = asyncio.ensure_future(consumer.commit())
        for _ in range(3):
            await asyncio.sleep(0)
        assert [type(each) for each in broker.requests] == [ShareFetchRequest]
        if answer == "records":
            await broker.answer(ShareFetchResponse())
            assert [type(each) for each in broker.requests] == [ShareFetchRequest, ShareAcknowledgeRequest]
            await broker.answer(acknowledged({0: ErrorCode.NONE}))
            assert await commit == {ONE: None}
        else:
            broker.connection.closed = "gone"
            broker.answers[-1].set_exception(ConnectionLost("gone"))
            before = now_ms()
            [(partition, error)] = (await commit).items()
            assert (partition, error and error.code) == (ONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert now_ms() == before, "at once"

    scene(play)


def test_commits_of_two_threads_both_hear_what_was_refused() -> None:
    """The second one began with a clean slate for both, and the first one to end left nothing to the other."""

    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        commits = [asyncio.ensure_future(consumer.commit()) for _ in range(2)]
        for _ in range(3):
            await asyncio.sleep(0)
        await broker.answer(acknowledged({0: ErrorCode.INVALID_RECORD_STATE}))
        outcomes = await asyncio.gather(*commits)
        codes = [{each: error and error.code for each, error in outcome.items()} for outcome in outcomes]
        assert codes == [{ONE: ErrorCode.INVALID_RECORD_STATE}] * 2
        assert await consumer.commit() == {}

    scene(play)


def test_a_commit_neither_waits_for_what_other_threads_acknowledge_later_nor_hears_of_it() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        first = asyncio.ensure_future(consumer.commit())
        await broker.asked.wait()
        said(consumer._fetcher, TWO)
        second = asyncio.ensure_future(consumer.commit())
        await asyncio.sleep(0)
        await broker.answer(acknowledged({0: ErrorCode.NONE}))
        assert first.done() and await first == {ONE: None}
        assert not second.done()
        await broker.answer(acknowledged({1: ErrorCode.INVALID_RECORD_STATE}))
        codes = {each: error and error.code for each, error in (await second).items()}
        assert codes == {ONE: None, TWO: ErrorCode.INVALID_RECORD_STATE}

    scene(play)


def test_a_commit_hears_nothing_of_what_another_thread_acknowledges_meanwhile() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        first = asyncio.ensure_future(consumer.commit())
        await broker.asked.wait()
        led(consumer._fetcher, {0: 7, 1: 8})
        said(consumer._fetcher, TWO)
        second = asyncio.ensure_future(consumer.commit())
        for _ in range(4):
            await asyncio.sleep(0)
        assert [partition for partition, _, _ in heard] == [TWO] and not first.done()
        await broker.answer(acknowledged({0: ErrorCode.NONE}))
        assert await first == {ONE: None}
        codes = {each: error and error.code for each, error in (await second).items()}
        assert codes == {ONE: None, TWO: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    scene(play)


def test_a_commit_waits_for_what_follows_a_renewal_in_flight() -> None:
    async def play(consumer: AsyncShareConsumer, broker: Broker, heard: Heard) -> None:
        consumer.acknowledgements.in_hand = {ONE: {4: Acknowledge.RENEW}}
        renewal = asyncio.ensure_future(consumer.commit())
        await broker.asked.wait()
        consumer.acknowledgements.acknowledge(ONE, 4, Acknowledge.ACCEPT)
        commit = asyncio.ensure_future(consumer.commit())
        await asyncio.sleep(0)
        await broker.answer(acknowledged({0: ErrorCode.NONE}))
        assert not commit.done()
        await broker.answer(acknowledged({0: ErrorCode.INVALID_RECORD_STATE}))
        error = (await commit)[ONE]
        assert error is not None and error.code is ErrorCode.INVALID_RECORD_STATE
        assert (await renewal).keys() == {ONE}

    scene(play)
