"""Share consumers: what is acknowledged, without a socket; and two of them against a real cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest

from ottla.client import (
    Acknowledge,
    Admin,
    AsyncShareConsumer,
    KafkaError,
    OttlaError,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from ottla.client.acknowledgement import GAP, Acknowledgements, Range, ranges
from ottla.client.connection.clock import now_ms
from ottla.client.share.fetcher import ShareFetcher, _Source
from ottla.client.share.session import ShareFetchSession
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
from tests.client.conftest import eventually, share_from_the_start

ONE = TopicPartition("t", 0)
ID = Uuid(b"i" * 16)


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, offset, 0, None, b"v", (), 0, 1)


# ---- without a socket


def test_offsets_that_follow_each_other_travel_together() -> None:
    assert ranges({5: 1, 4: 1, 6: 2, 9: GAP}) == [Range(4, 6, [1, 1, 2]), Range(9, 9, [0])]
    assert ranges({1: 3, 2: 3}) == [Range(1, 2, [3])]


def test_implicit_mode_accepts_all_of_the_last_poll() -> None:
    machine = Acknowledgements(explicit=False)
    machine.give([record(3), record(4)])
    machine.settle(for_poll=True)
    assert machine.take([ONE]) == {ONE: [Range(3, 4, [1])]}
    with pytest.raises(OttlaError, match="explicit"):
        machine.acknowledge(ONE, 3, Acknowledge.ACCEPT)


def test_explicit_mode_wants_a_word_about_each_record_before_the_next_poll() -> None:
    machine = Acknowledgements(explicit=True)
    machine.give([record(3), record(4)])
    machine.acknowledge(ONE, 3, Acknowledge.REJECT)
    machine.acknowledge(ONE, 3, Acknowledge.RELEASE)
    with pytest.raises(OttlaError, match="1 records of the last poll"):
        machine.settle(for_poll=True)
    machine.settle(for_poll=False)
    assert machine.take([ONE]) == {ONE: [Range(3, 3, [2])]}
    with pytest.raises(OttlaError, match="not in hand"):
        machine.acknowledge(ONE, 3, Acknowledge.ACCEPT)


def test_a_renewed_record_is_to_be_acknowledged_again() -> None:
    machine = Acknowledgements(explicit=True)
    machine.give([record(3)])
    machine.acknowledge(ONE, 3, Acknowledge.RENEW)
    machine.settle(for_poll=False)
    assert machine.take([ONE]) == {ONE: [Range(3, 3, [4])]}
    machine.acknowledge(ONE, 3, Acknowledge.ACCEPT)
    machine.settle(for_poll=True)
    assert machine.take([ONE]) == {ONE: [Range(3, 3, [1])]}


def test_a_session_names_what_is_new_and_forgets_what_is_gone() -> None:
    session = ShareFetchSession()
    first = session.fetch({ONE: ID}, {})
    assert (first.share_session_epoch, [one.topic_id for one in first.topics]) == (0, [ID])
    assert session.answered(0)
    second = session.fetch({ONE: ID}, {ONE: [Range(1, 2, [1])]})
    assert second.share_session_epoch == 1
    assert second.topics[0].partitions[0].acknowledgement_batches[0].last_offset == 2
    session.answered(0)
    assert session.fetch({ONE: ID}, {}).topics == []
    session.answered(0)
    third = session.fetch({}, {})
    assert [(one.topic_id, one.partitions) for one in third.forgotten_topics_data] == [(ID, [0])]
    assert not session.answered(int(ErrorCode.SHARE_SESSION_NOT_FOUND))
    assert not session.began


def test_settings_that_are_the_groups_are_refused() -> None:
    with pytest.raises(OttlaError, match=r"set the group's share\.auto\.offset\.reset"):
        ShareConsumer("127.0.0.1:1", group_id="g", auto_offset_reset="earliest")  # type: ignore[call-arg]
    with pytest.raises(OttlaError, match=r"needs group\.id"):
        ShareConsumer("127.0.0.1:1")


def test_a_request_that_cannot_be_sent_ends_its_session_and_is_told() -> None:
    """The connection closes between its choice and the request: its acknowledgements fail, and a new session begins."""

    async def lost() -> None:
        async with AsyncShareConsumer("127.0.0.1:1", group_id="g") as consumer:
            fetcher = consumer._fetcher
            told: list[tuple[TopicPartition, list[int], KafkaError | None]] = []
            consumer.on_acknowledged = lambda *said: told.append(said)
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "closed")
            connection = Mock(closed=None, send=Mock(side_effect=error), call=ended())
            begin(fetcher, connection)
            consumer.acknowledgements.give([record(4), record(5)])
            consumer.acknowledgements.settle(for_poll=True)
            fetcher._ask(7, connection, {ONE: ID})
            assert told == [(ONE, [4, 5], error)]
            assert not fetcher.unanswered()
            assert not fetcher._session(7, connection).began

    asyncio.run(lost())


Heard = list[tuple[TopicPartition, list[int], KafkaError | None]]
TWO = TopicPartition("t", 1)


@asynccontextmanager
async def with_session(heard: Heard, **settings: Any) -> AsyncIterator[tuple[ShareFetcher, Mock]]:
    """A consumer that has a session with the leader of two partitions, and its connection; `send` is for the test."""
    async with AsyncShareConsumer("127.0.0.1:1", group_id="g", **settings) as consumer:
        consumer.on_acknowledged = lambda *said: heard.append(said)
        parts = [MetadataResponsePartition(partition_index=number, leader_id=7) for number in (0, 1)]
        topic = MetadataResponseTopic(name="t", topic_id=ID, partitions=parts)
        brokers = [MetadataResponseBroker(node_id=7, host="h", port=1)]
        consumer._cluster.metadata.apply(MetadataResponse(brokers=brokers, topics=[topic]), now_ms())
        send = Mock(side_effect=lambda *_, **__: asyncio.Future())
        connection = Mock(closed=None, send=send, call=ended())
        begin(consumer._fetcher, connection)
        yield consumer._fetcher, connection


def ended() -> AsyncMock:
    """A call on a connection that ends with the consumer."""
    return AsyncMock(side_effect=ConnectionLost("closed by this client"))


def begin(fetcher: ShareFetcher, connection: Mock, node_id: int = 7) -> None:
    """A session with this node, in which records of both partitions were acquired."""
    session = fetcher._session(node_id, connection)
    session.answered(ErrorCode.NONE)
    fetcher._connections[node_id] = connection
    fetcher._sources.update({each: _Source(node_id, session, ID) for each in (ONE, TWO)})


def said(fetcher: ShareFetcher, *partitions: TopicPartition) -> None:
    for one in partitions:
        fetcher._acknowledgements.acknowledge_unseen(one, [4, 5], Acknowledge.ACCEPT)


def test_acknowledgements_of_a_partition_that_is_gone_travel_alone() -> None:
    """A fetch cannot name the partition: it would acquire more of it, and its session may not know it."""

    async def run() -> None:
        async with with_session([]) as (fetcher, connection):
            fetcher.assigned, fetcher.poll_waits = {ONE}, True
            said(fetcher, ONE, TWO)
            fetcher._ask(7, connection, {ONE: ID})
            (request,) = connection.send.call_args.args
            assert isinstance(request, ShareAcknowledgeRequest)
            assert [part.partition_index for part in request.topics[0].partitions] == [0, 1]

    asyncio.run(run())


LIMITS = {"fetch_max_wait_ms": 300, "fetch_min_bytes": 2, "fetch_max_bytes": 9000, "max_poll_records": 17}


@pytest.mark.parametrize(("mode", "number"), [("record_limit", 1), ("batch_optimized", 0)])
def test_a_poll_that_waits_asks_for_records_within_its_settings(mode: str, number: int) -> None:
    async def run() -> None:
        async with with_session([], share_acquire_mode=mode, request_timeout_ms=2000, **LIMITS) as (
            fetcher,
            connection,
        ):
            fetcher.assigned, fetcher.poll_waits, fetcher.member_id = {ONE}, True, "me"
            fetcher._pass(now_ms())
            (request,) = connection.send.call_args.args
            assert isinstance(request, ShareFetchRequest)
            assert (request.group_id, request.member_id, request.share_session_epoch) == ("g", "me", 1)
            assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (300, 2, 9000)
            assert (request.max_records, request.batch_size, request.share_acquire_mode) == (17, 17, number)
            assert [part.partition_index for part in request.topics[0].partitions] == [0], "only what is assigned"
            assert connection.send.call_args.kwargs == {"timeout_ms": 2300}, "the broker may wait before it answers"

    asyncio.run(run())


def fetched(*batches: AcquiredRecords, code: int = 0) -> ShareFetchResponse:
    part = FetchedData(partition_index=0, error_code=code, acquired_records=list(batches), records=b"")
    return ShareFetchResponse(responses=[ShareFetchableTopicResponse(topic_id=ID, partitions=[part])])


async def answered(response: ShareFetchResponse, **settings: Any) -> tuple[Exception | None, int]:
    """The error for the poll that waits, and how many ms after this answer its next fetch goes out."""
    async with with_session([], **settings) as (fetcher, connection):
        fetcher.assigned, fetcher.poll_waits = {ONE}, True
        answer: asyncio.Future[ShareFetchResponse] = asyncio.Future()
        connection.send.side_effect = [answer, asyncio.Future()]
        session = fetcher._sessions[7][1]
        fetcher._ask(7, connection, {ONE: ID})
        answer.set_result(response)
        now = now_ms()
        with (
            patch("ottla.client.share.fetcher.now_ms", return_value=now),
            patch.object(fetcher, "_open_connection", return_value=connection),
        ):
            fetcher._answered(7, session, answer)
            for late in range(1_000):
                fetcher._pass(now + late)
                if connection.send.call_count == 2:
                    return fetcher.error, late
    raise AssertionError("the node is not asked again")


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (9999, False),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_a_poll_raises_what_no_retry_cures(code: int, raised: bool) -> None:
    error, late = asyncio.run(answered(fetched(code=int(code)), retry_backoff_ms=100))
    assert (error is not None, late) == (raised, 100)


def test_a_failure_that_the_broker_does_not_explain_is_not_raised() -> None:
    failed = ShareFetchResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert asyncio.run(answered(failed, retry_backoff_ms=100)) == (None, 100)


@pytest.mark.parametrize("setting", ["fetch_min_bytes", "fetch_max_wait_ms"])
def test_fetches_that_do_not_wait_for_records_do_not_follow_at_once(setting: str) -> None:
    assert asyncio.run(answered(fetched())) == (None, 0), "the broker has waited"
    assert asyncio.run(answered(fetched(), **{setting: 0})) == (None, 5)
    gap = AcquiredRecords(first_offset=4, last_offset=4, delivery_count=1)
    assert asyncio.run(answered(fetched(gap), **{setting: 0})) == (None, 0), "there was something"


def test_nothing_is_asked_for_when_no_poll_waits_and_nothing_was_said() -> None:
    async def run() -> None:
        async with with_session([]) as (fetcher, connection):
            fetcher.assigned = {ONE}
            fetcher._ask(7, connection, {ONE: ID})
            fetcher.poll_waits, fetcher.records = True, [record(1)]
            fetcher._ask(7, connection, {ONE: ID})
            assert not connection.send.called
            assert not fetcher.unanswered()

    asyncio.run(run())


@pytest.mark.parametrize("renews", [True, False])
def test_a_renewal_travels_alone_and_says_what_it_is(renews: bool) -> None:
    async def run() -> None:
        async with with_session([]) as (fetcher, connection):
            fetcher.assigned, fetcher.poll_waits = {ONE}, True
            kind = Acknowledge.RENEW if renews else Acknowledge.ACCEPT
            fetcher._acknowledgements.acknowledge_unseen(ONE, [4], kind)
            fetcher._ask(7, connection, {ONE: ID})
            (request,) = connection.send.call_args.args
            assert isinstance(request, ShareAcknowledgeRequest) == renews
            assert request.is_renew_ack == renews
            (batch,) = request.topics[0].partitions[0].acknowledgement_batches
            assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (4, 4, [int(kind)])

    asyncio.run(run())


def test_what_an_answer_leaves_out_was_not_acknowledged() -> None:
    async def run() -> None:
        heard: Heard = []
        async with with_session(heard) as (fetcher, connection):
            fetcher.assigned = {ONE, TWO}
            said(fetcher, ONE, TWO)
            answer: asyncio.Future[ShareAcknowledgeResponse] = asyncio.Future()
            connection.send.side_effect = [answer]
            fetcher._ask(7, connection, {ONE: ID, TWO: ID})
            answer.set_result(acknowledged({0: ErrorCode.NONE}))
            await asyncio.sleep(0)
            assert {partition: error and error.code for partition, _, error in heard} == {
                ONE: None,
                TWO: ErrorCode.INVALID_RECORD_STATE,
            }

    asyncio.run(run())


def acknowledged(codes: dict[int, ErrorCode]) -> ShareAcknowledgeResponse:
    parts = [PartitionData(partition_index=number, error_code=int(code)) for number, code in codes.items()]
    return ShareAcknowledgeResponse(responses=[ShareAcknowledgeTopicResponse(topic_id=ID, partitions=parts)])


def test_a_close_tells_of_each_partition_what_became_of_its_acknowledgements() -> None:
    async def run() -> None:
        elsewhere = TopicPartition("u", 0)
        heard: Heard = []
        async with with_session(heard) as (fetcher, connection):
            fetcher._sources[elsewhere] = _Source(8, ShareFetchSession(), ID)
            said(fetcher, ONE, TWO, elsewhere)

            async def call(*_: object, **__: object) -> ShareAcknowledgeResponse:
                return acknowledged({0: ErrorCode.NONE, 1: ErrorCode.INVALID_RECORD_STATE})

            connection.call = call
            await fetcher.finish(1_000)
            assert {partition: error and error.code for partition, _, error in heard} == {
                ONE: None,
                TWO: ErrorCode.INVALID_RECORD_STATE,
                elsewhere: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            }

    asyncio.run(run())


def test_a_close_without_an_answer_says_so() -> None:
    async def run() -> None:
        heard: Heard = []
        async with with_session(heard) as (fetcher, connection):
            said(fetcher, ONE)
            connection.call = Mock(side_effect=OttlaError("no such version"))
            await fetcher.finish(1_000)
            assert [(partition, error and error.code) for partition, _, error in heard] == [
                (ONE, ErrorCode.NETWORK_EXCEPTION)
            ]

    asyncio.run(run())


# ---- with a cluster


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    """A topic of one partition: with fewer members than partitions each of these has one member only."""
    admin.create_topic(name, 1)
    return name


@pytest.fixture
def group(bootstrap: str, admin: Admin, topic: str, name: str) -> str:
    """A share group that begins with the topic's ten records."""
    share_from_the_start(admin, name)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    return name


def offsets(consumer: ShareConsumer, count: int, timeout_s: float = 30) -> list[ShareRecord]:
    """Poll until so many records are there; whatever is not the last poll's is accepted on the way."""
    found: list[ShareRecord] = []

    def enough() -> bool:
        got = consumer.poll(0.3)
        found.extend(got)
        if len(found) < count and consumer.settings.share_acknowledgement_mode == "explicit":
            for one in got:
                consumer.acknowledge(one)
        return len(found) >= count

    eventually(enough, timeout_s)
    return found


def test_every_record_is_given_once_and_is_done_when_the_next_poll_comes(
    bootstrap: str, admin: Admin, topic: str, group: str
) -> None:
    with ShareConsumer(bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        found = offsets(consumer, 10)
        assert [(one.offset, one.value, one.delivery_count) for one in found] == [
            (number, b"%d" % number, 1) for number in range(10)
        ]
        assert consumer.lock_timeout_ms == 30_000
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert consumer.commit() == {}
    one = TopicPartition(topic, 0)
    eventually(lambda: admin.list_share_group_offsets(group, [one])[one].lag == 0)


def test_what_was_released_comes_again_and_what_was_rejected_does_not(bootstrap: str, topic: str, group: str) -> None:
    with ShareConsumer(bootstrap, group_id=group, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        for one in offsets(consumer, 10):
            words = {3: Acknowledge.RELEASE, 4: Acknowledge.REJECT}
            consumer.acknowledge(one, words.get(one.offset, Acknowledge.ACCEPT))
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        (again,) = offsets(consumer, 1)
        assert (again.offset, again.delivery_count) == (3, 2)
        consumer.acknowledge(again)
        assert consumer.poll(0.5) == []


def test_a_record_that_takes_longer_is_renewed_and_accepted_later(bootstrap: str, topic: str, group: str) -> None:
    with ShareConsumer(bootstrap, group_id=group, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        found = offsets(consumer, 10)
        for one in found:
            consumer.acknowledge(one, Acknowledge.RENEW if one.offset == 0 else Acknowledge.ACCEPT)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        with pytest.raises(OttlaError, match="not acknowledged"):
            consumer.poll(0.1)
        consumer.acknowledge(found[0])
        assert consumer.commit() == {TopicPartition(topic, 0): None}


def test_what_is_in_hand_when_a_consumer_is_closed_goes_to_another(bootstrap: str, topic: str, group: str) -> None:
    with ShareConsumer(bootstrap, group_id=group) as first:
        first.subscribe([topic])
        assert len(offsets(first, 10)) == 10
    with ShareConsumer(bootstrap, group_id=group) as second:
        second.subscribe([topic])
        assert [one.delivery_count for one in offsets(second, 10)] == [2] * 10


def test_two_members_share_one_partition(bootstrap: str, admin: Admin, topic: str, group: str) -> None:
    heard: list[KafkaError | None] = []
    with (
        ShareConsumer(bootstrap, group_id=group, max_poll_records=1, share_acquire_mode="record_limit") as first,
        ShareConsumer(bootstrap, group_id=group, max_poll_records=1, share_acquire_mode="record_limit") as second,
    ):
        first.on_acknowledged(lambda partition, some, error: heard.append(error))
        found: list[int] = []
        readers: set[int] = set()

        def read() -> None:
            for who, consumer in enumerate((first, second)):
                for one in consumer.poll(0.2):
                    found.append(one.offset)
                    readers.add(who)

        def both_have_it() -> bool:
            read()
            members = admin.describe_share_group(group).members
            return [member.assignment for member in members] == [(TopicPartition(topic, 0),)] * 2

        def all_read() -> bool:
            read()
            return len(found) >= 20

        for consumer in (first, second):
            consumer.subscribe([topic])
        eventually(both_have_it, 30)
        with Producer(bootstrap) as producer:
            for number in range(10):
                producer.send(topic, b"%d" % number, partition=0)
        eventually(all_read, 30)
        first.commit()
        second.commit()
        assert sorted(found) == list(range(20)), "each record is read once"
        assert readers == {0, 1}
        assert heard
        assert set(heard) == {None}
