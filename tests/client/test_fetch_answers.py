"""What a consumer does with each answer to a fetch: which errors pass, which a poll raises, and who is asked next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.consumer.fetch_session import FetchSession, WantedPartition
from ottla.client.consumer.fetcher import Fetcher
from ottla.kernel.client_error import AuthenticationFailed, ConnectionLost, NotReachable, RequestTimedOut, TlsFailed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.batch import build
from tests.client.test_fetcher import ONE, Watched, reader_of_one

#: Errors that fresh metadata or a little time cure, as in Apache Kafka's FetchCollector.
PASS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
]
RAISED = [
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
]


def scene(play: Callable[[Cluster, Watched], None], **settings: Any) -> None:
    async def run() -> None:
        cluster, fetcher = reader_of_one(**settings)
        play(cluster, fetcher)
        fetcher.close()
        await cluster.close()

    asyncio.run(run())


def wanted(cluster: Cluster) -> WantedPartition:
    return WantedPartition(5, 0, 1000, cluster.metadata.topics["t"].id)


def refused(code: ErrorCode, **more: Any) -> PartitionData:
    return PartitionData(partition_index=0, error_code=int(code), **more)


@pytest.mark.parametrize("code", PASS)
def test_an_error_that_passes_is_not_raised_and_the_metadata_are_asked_for(code: ErrorCode) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        assert not fetcher._take_in(ONE, wanted(cluster), refused(code)), "not at once"
        assert cluster.metadata.update_due_ms() <= now_ms()
        state = fetcher._positions[ONE]
        assert (state.error, state.position, state.reset) == (None, 5, None)

    scene(play)


@pytest.mark.parametrize("code", PASS)
@pytest.mark.parametrize("epoch", [-1, 0, 1])
def test_a_newer_leader_that_the_answer_names_is_asked_at_once(code: ErrorCode, epoch: int) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=epoch)
        assert fetcher._take_in(ONE, wanted(cluster), refused(code, current_leader=hint)) == (epoch == 1)
        assert (cluster.metadata.update_due_ms() <= now_ms()) == (epoch != 1)
        fetcher._pass(now_ms())
        assert fetcher.asked == [(2 if epoch == 1 else 1, 5)]

    scene(play)


@pytest.mark.parametrize("code", RAISED)
@pytest.mark.parametrize("seeked", [False, True])
def test_an_error_that_stays_is_raised_by_the_next_poll_unless_the_program_went_elsewhere(
    code: ErrorCode, seeked: bool
) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        state = fetcher._positions[ONE]
        if seeked:
            state.seek(9)
        assert fetcher._take_in(ONE, wanted(cluster), refused(code))
        if seeked:
            assert state.error is None
        else:
            with pytest.raises(KafkaError, match="t-0 at offset 5") as raised:
                state.raise_error()
            assert raised.value.code is code
        assert state.position == (9 if seeked else 5)
        assert cluster.metadata.update_due_ms() > now_ms()

    scene(play)


@pytest.mark.parametrize(
    ("policy", "position", "reset"),
    [("none", 5, None), ("earliest", None, "earliest"), ("latest", None, "latest")],
)
def test_a_position_out_of_range_is_found_by_the_policy_or_raised(
    policy: str, position: int | None, reset: str | None
) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        state = fetcher._positions[ONE]
        fetcher.all_positioned = True
        assert fetcher._take_in(ONE, wanted(cluster), refused(ErrorCode.OFFSET_OUT_OF_RANGE))
        assert (state.position, state.reset) == (position, reset)
        assert fetcher.all_positioned == (policy == "none")
        if policy == "none":
            said = "t-0: offset 5 is out of range, and auto.offset.reset is none: seek or set it"
            with pytest.raises(KafkaError, match=said) as raised:
                state.raise_error()
            assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    scene(play, auto_offset_reset=policy)


def test_an_answer_without_a_complete_batch_is_an_error() -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        state = fetcher._positions[ONE]
        part = PartitionData(partition_index=0, records=build([(1, b"k", b"v", [])], base_offset=5)[:-1])
        assert fetcher._take_in(ONE, wanted(cluster), part)
        said = "t-0 at offset 5: the broker's answer contains no complete batch"
        with pytest.raises(KafkaError, match=said) as raised:
            state.raise_error()
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        state.seek(9)
        assert fetcher._take_in(ONE, wanted(cluster), part)
        assert state.error is None, "of before a seek"

    scene(play)


def test_a_good_answer_says_how_far_the_log_goes_and_whom_to_ask() -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        state = fetcher._positions[ONE]
        part = PartitionData(
            partition_index=0, high_watermark=30, last_stable_offset=20, log_start_offset=4, preferred_read_replica=2
        )
        before = now_ms()
        assert fetcher._take_in(ONE, wanted(cluster), part)
        assert (state.high_watermark, state.last_stable_offset, state.log_start_offset) == (30, 20, 4)
        assert (state.end_offset(stable=True), state.end_offset(stable=False)) == (20, 30)
        assert state.preferred is not None
        node, until = state.preferred
        assert node == 2 and before + 70_000 <= until <= now_ms() + 70_000, "for metadata.max.age.ms"
        fetcher._pass(until - 1)
        fetcher._pass(until)
        fetcher._pass(until - 1)
        assert fetcher.asked == [(2, 5), (1, 5), (1, 5)], "then the leader decides again"

    scene(play, metadata_max_age_ms=70_000)


def answered(fetcher: Fetcher, cluster: Cluster, outcome: FetchResponse | Exception | None) -> FetchSession:
    """The fetcher gets this answer of node 1, or a cancelled request (None), in a session that had begun."""
    session = FetchSession()
    session.next_request({ONE: wanted(cluster)})
    assert session.answered(0, 77) and session.epoch == 1
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if outcome is None:
        answer.cancel()
    elif isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
    fetcher._positions[ONE].fetching = True
    fetcher._busy.add(1)
    fetcher._answered(1, session, {ONE: wanted(cluster)}, now_ms(), answer)
    assert not fetcher._positions[ONE].fetching and 1 not in fetcher._busy
    return session


@pytest.mark.parametrize("outcome", [ConnectionLost("gone"), RequestTimedOut("late"), None])
def test_a_fetch_without_an_answer_begins_a_new_session_after_a_pause(outcome: Exception | None) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        before = now_ms()
        session = answered(fetcher, cluster, outcome)
        assert (session.id, session.epoch) == (77, 0), "the new session takes the place of the old one"
        assert cluster.metadata.update_due_ms() <= now_ms()
        state = fetcher._positions[ONE]
        assert state.error is None and state.held is not None
        node, until = state.held
        assert node == 1 and before + 300 <= until <= now_ms() + 300

    scene(play, retry_backoff_ms=300)


@pytest.mark.parametrize(
    ("code", "session_id", "logged", "paused"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, False, False),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77, False, False),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77, False, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, 77, False, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 77, False, True),
        (ErrorCode.UNSUPPORTED_VERSION, 77, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 77, True, True),
        (ErrorCode.INVALID_REQUEST, 77, True, True),
    ],
)
def test_an_answer_that_fails_as_a_whole_begins_a_new_session_and_is_not_raised(
    code: ErrorCode, session_id: int, logged: bool, paused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Java's client, which logs it: a leader that is upgraded or downgraded may answer the next one."""

    def play(cluster: Cluster, fetcher: Watched) -> None:
        session = answered(fetcher, cluster, FetchResponse(error_code=int(code)))
        assert (session.id, session.epoch) == (session_id, 0)
        state = fetcher._positions[ONE]
        assert state.error is None
        assert ("node 1" in caplog.text and code.name in caplog.text) == logged == bool(caplog.text)
        assert (state.held is not None) == paused

    scene(play)


def test_a_good_answer_wakes_the_poll_and_its_nodes_are_known() -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        woken: list[None] = []
        fetcher.on_data.append(lambda: woken.append(None))
        records = build([(1, b"k", b"v", [])], base_offset=5)
        topic = FetchableTopicResponse(
            topic_id=wanted(cluster).topic_id,
            partitions=[
                PartitionData(partition_index=0, records=records),
                PartitionData(partition_index=9, records=records),
            ],
        )
        there = [NodeEndpoint(node_id=4, host="other", port=5, rack="r")]
        session = answered(fetcher, cluster, FetchResponse(responses=[topic], session_id=77, node_endpoints=there))
        assert (session.id, session.epoch) == (77, 2)
        state = fetcher._positions[ONE]
        assert (state.buffered, state.fetch_offset, state.held) == (len(records), 6, None)
        node = cluster.metadata.nodes[4]
        assert (node.host, node.port, node.rack) == ("other", 5, "r") and woken == [None]

    scene(play)


def test_an_answers_size_and_time_are_counted_in_all_and_for_each_topic_with_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        records = build([(1, b"k", b"v", [])], base_offset=5)
        data = [PartitionData(partition_index=number, records=records) for number in (0, 9)]
        empty = PartitionData(partition_index=0, records=None)
        topics = [
            FetchableTopicResponse(topic="empty", partitions=[empty]),
            FetchableTopicResponse(topic_id=wanted(cluster).topic_id, partitions=data),
            FetchableTopicResponse(topic="other", partitions=data[:1]),
        ]
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(FetchResponse(responses=topics, throttle_time_ms=900))
        sent_ms = now_ms()
        monkeypatch.setattr("ottla.client.consumer.fetcher.now_ms", lambda: sent_ms + 40)
        fetcher._answered(1, FetchSession(), {ONE: wanted(cluster)}, sent_ms, answer)
        meter, size = fetcher._meter, len(records)
        assert (meter._fetch_bytes.total, meter._fetch_bytes.count) == (3 * size, 1)
        assert (meter._fetch_ms.total, meter._fetch_ms.count) == (40, 1)
        told = meter.snapshot({}, {}, stable=False, now_ms=sent_ms).named()
        assert (told["fetch-throttle-time-avg"], told["fetch-throttle-time-max"]) == (900, 900)
        found = {name: topic.bytes.total for name, topic in meter._topics.items()}
        assert found == {"t": 2 * size, "other": size}

    scene(play)


def test_answers_for_a_closed_consumer_are_dropped() -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        fetcher._closed = True
        for outcome in (FetchResponse(), ConnectionLost("gone"), None):
            answered(fetcher, cluster, outcome)
        assert fetcher._positions[ONE].held is None

    scene(play)


@pytest.mark.parametrize(
    ("error", "told"),
    [(AuthenticationFailed("refused"), True), (TlsFailed("refused"), True), (NotReachable("gone"), False)],
)
def test_a_poll_is_woken_by_what_only_the_program_can_mend(error: Exception, told: bool) -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        woken: list[None] = []
        fetcher.on_data.append(lambda: woken.append(None))
        fetcher._refused(error)  # type: ignore[arg-type]
        assert (fetcher.refusal is error) == told == bool(woken)

    scene(play)


class Connection:
    """What is sent over it, or the error that it raises."""

    closed = None

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[tuple[FetchRequest, int, int]] = []
        self.at_most: list[int | None] = []

    def version_of(self, _: int, at_most: int | None = None) -> int:
        self.at_most.append(at_most)
        return 16

    def send(self, request: FetchRequest, *, timeout_ms: int, version: int) -> asyncio.Future[Any]:
        if self.error is not None:
            raise self.error
        self.sent.append((request, timeout_ms, version))
        return asyncio.get_running_loop().create_future()


LIMITS = {"fetch_max_wait_ms": 70, "fetch_min_bytes": 2, "fetch_max_bytes": 9000, "request_timeout_ms": 2000}


@pytest.mark.parametrize(("full", "waits"), [(False, 70), (True, 5)])
@pytest.mark.parametrize("committed", [False, True])
def test_a_fetch_has_the_settings_and_waits_little_beside_a_full_partition(
    full: bool, waits: int, committed: bool
) -> None:
    isolation = "read_committed" if committed else "read_uncommitted"

    def play(cluster: Cluster, fetcher: Watched) -> None:
        connection = Connection()
        Fetcher._fetch(fetcher, 1, cast(BrokerConnection, connection), {ONE: wanted(cluster)}, full)
        [(request, timeout_ms, version)] = connection.sent
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (waits, 2, 9000)
        assert (request.isolation_level, request.rack_id) == (int(committed), "here")
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert (timeout_ms, version, connection.at_most) == (2070, 16, [None])
        [topic] = request.topics
        [part] = topic.partitions
        assert (topic.topic, topic.topic_id) == ("t", wanted(cluster).topic_id)
        assert (part.partition, part.current_leader_epoch, part.fetch_offset, part.partition_max_bytes) == (
            0,
            0,
            5,
            1000,
        )
        assert fetcher._positions[ONE].fetching and fetcher._busy == {1}

    scene(play, isolation_level=isolation, **LIMITS)


def test_a_fetch_that_cannot_be_sent_begins_a_new_session_after_a_pause() -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        connection = Connection(ConnectionLost("gone"))
        Fetcher._fetch(fetcher, 1, cast(BrokerConnection, connection), {ONE: wanted(cluster)}, False)
        state = fetcher._positions[ONE]
        assert not state.fetching and fetcher._busy == set() and state.held is not None and state.held[0] == 1
        assert cluster.metadata.update_due_ms() <= now_ms()
        assert fetcher._sessions[1][1].epoch == 0 and fetcher._sessions[1][1].next_request({}).send == {}

    scene(play)


def test_another_connection_has_a_session_of_its_own() -> None:
    def play(cluster: Cluster, fetcher: Watched) -> None:
        first, second = (cast(BrokerConnection, Connection()) for _ in range(2))
        for connection in (first, first, second):
            fetcher._busy.clear()
            Fetcher._fetch(fetcher, 1, connection, {ONE: wanted(cluster)}, False)
            held, session = fetcher._sessions[1]
            assert held is connection
            session.answered(0, 77)
        assert [len(cast(Any, each).sent) for each in (first, second)] == [2, 1]
        assert [each[0].session_epoch for each in cast(Any, first).sent] == [0, 1]
        assert cast(Any, second).sent[0][0].session_epoch == 0

    scene(play)
