"""Where fetches go, without a socket: to the leader, or to the replica that it names (KIP-392)."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, cast
from unittest.mock import patch

import pytest

from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.consumer.fetch_session import FetchSession, WantedPartition
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import PartitionPosition
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable, RequestTimedOut
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.batch import build

ONE = TopicPartition("t", 0)


class Watched(Fetcher):
    """Its connections are always there, and what it asks is written down: the node and the offsets."""

    def __init__(self, cluster: Cluster, positions: dict[TopicPartition, PartitionPosition]) -> None:
        settings = cast(ConsumerSettings, cluster.settings)
        super().__init__(cluster, settings, positions, threading.Lock(), ConsumerMeter(0))
        self.asked: list[tuple[int, int]] = []

    def _open_connection(self, node_id: int) -> BrokerConnection | None:
        return cast(BrokerConnection, object())

    def _fetch(
        self, node_id: int, connection: BrokerConnection, wants: dict[TopicPartition, WantedPartition], full: bool
    ) -> None:
        self.asked.append((node_id, wants[ONE].offset))


def reader_of_one(**more: object) -> tuple[Cluster, Watched]:
    """A fetcher at offset 5 of a partition that node 1 leads and node 2 follows."""
    cluster = Cluster(ConsumerSettings.read("127.0.0.1:1", {"client_rack": "here"} | more))
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)]
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1, 2])
    topic = MetadataResponseTopic(name="t", topic_id=Uuid(b"i" * 16), partitions=[partition])
    cluster.metadata.apply(MetadataResponse(brokers=brokers, topics=[topic]), now_ms())
    state = PartitionPosition(ONE)
    state.seek(5)
    fetcher = Watched(cluster, {ONE: state})
    return cluster, fetcher


def scene(answers: list[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Which nodes are asked, first and after each of these answers."""

    async def run() -> list[tuple[int, int]]:
        cluster, fetcher = reader_of_one()
        fetcher._pass(now_ms())
        want = WantedPartition(5, 0, 1, cluster.metadata.topics["t"].id)
        for answer in answers:
            fetcher._take_in(ONE, want, PartitionData(partition_index=0, **answer))
            fetcher._pass(now_ms())
        fetcher.close()
        await cluster.close()
        return fetcher.asked

    return asyncio.run(run())


def wanted_of(*changes: Any, max_partition_fetch_bytes: int = 1000) -> list[list[int]]:
    """The partitions of t that are fetched first, and after each change of their positions."""

    async def run() -> list[list[int]]:
        cluster = Cluster(
            ConsumerSettings.read("127.0.0.1:1", {"max_partition_fetch_bytes": max_partition_fetch_bytes})
        )
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[1])
            for number in range(3)
        ]
        topic = MetadataResponseTopic(name="t", topic_id=Uuid(b"i" * 16), partitions=partitions)
        broker = MetadataResponseBroker(node_id=1, host="h", port=1)
        cluster.metadata.apply(MetadataResponse(brokers=[broker], topics=[topic]), now_ms())
        positions = {TopicPartition("t", number): PartitionPosition(TopicPartition("t", number)) for number in range(3)}
        asked: list[list[int]] = []

        class Noting(Watched):
            def _fetch(
                self,
                node_id: int,
                connection: BrokerConnection,
                wants: dict[TopicPartition, WantedPartition],
                full: bool,
            ) -> None:
                asked.append([one.partition for one in wants])

        fetcher = Noting(cluster, positions)
        for state in positions.values():
            state.seek(5)
        for change in (lambda *_: None, *changes):
            change(*positions.values())
            fetcher._pass(now_ms())
        fetcher.close()
        await cluster.close()
        return asked

    return asyncio.run(run())


def test_without_room_for_a_partition_one_batch_is_fetched_at_a_time() -> None:
    def holding(first: PartitionPosition, *_: PartitionPosition) -> None:
        first.buffered = 1

    assert wanted_of(holding, max_partition_fetch_bytes=0) == [[0, 1, 2], [1, 2]]


def test_only_partitions_that_may_be_read_are_fetched() -> None:
    def pause(_: PartitionPosition, second: PartitionPosition, third: PartitionPosition) -> None:
        second.paused = third.paused = True

    def fetching(first: PartitionPosition, second: PartitionPosition, third: PartitionPosition) -> None:
        first.fetching, second.paused = True, False

    def plenty(first: PartitionPosition, second: PartitionPosition, third: PartitionPosition) -> None:
        second.buffered, third.buffered = 1000, 999
        third.paused = False

    def failed(first: PartitionPosition, second: PartitionPosition, third: PartitionPosition) -> None:
        first.fetching, third.paused = False, False
        second.error = KafkaError(ErrorCode.CORRUPT_MESSAGE)
        third.position = None

    assert wanted_of(pause, fetching, failed) == [[0, 1, 2], [0], [1], [0]]
    assert wanted_of(plenty) == [[0, 1, 2], [0, 2]], "enough of the second waits to be polled"


def taken(state: PartitionPosition, answer: PartitionData, offset: int, **settings: object) -> bool:
    """The position takes an answer to a fetch from this offset. May the next fetch follow at once?"""

    async def run() -> bool:
        cluster = Cluster(ConsumerSettings.read("127.0.0.1:1", settings))
        fetcher = Watched(cluster, {ONE: state})
        at_once = fetcher._take_in(ONE, WantedPartition(offset, 0, 1000, Uuid(b"i" * 16)), answer)
        fetcher.close()
        await cluster.close()
        return at_once

    return asyncio.run(run())


@pytest.mark.parametrize("checks", [True, False])
def test_a_batch_with_a_wrong_crc_is_an_error_unless_nobody_wants_to_know(checks: bool) -> None:
    records = bytearray(build([(1, b"k", b"value", [])], base_offset=5))
    records[-3] ^= 1
    state = PartitionPosition(ONE)
    state.seek(5)
    taken(state, PartitionData(partition_index=0, records=bytes(records)), 5, check_crcs=checks)
    found = state.take(10)
    if checks:
        assert found == []
        assert isinstance(state.error, KafkaError)
        assert state.error.code is ErrorCode.CORRUPT_MESSAGE
        assert state.position == 5
    else:
        assert (len(found), state.position, state.error) == (1, 6, None)


@pytest.mark.parametrize(("seeked", "position"), [(None, None), (9, 9)])
def test_an_out_of_range_that_was_overtaken_by_a_seek_resets_nothing(seeked: int | None, position: int | None) -> None:
    state = PartitionPosition(ONE)
    state.seek(5)
    if seeked is not None:
        state.seek(seeked)
    answer = PartitionData(partition_index=0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    taken(state, answer, 5, auto_offset_reset="earliest")
    assert state.position == position
    assert state.reset == ("earliest" if seeked is None else None)


@pytest.mark.parametrize("paused", [False, True])
def test_an_out_of_range_behind_fetched_records_waits_until_they_are_given(paused: bool) -> None:
    state = PartitionPosition(ONE)
    state.seek(5)
    taken(state, PartitionData(partition_index=0, records=build([(1, b"k", b"value", [])], base_offset=5)), 5)
    state.paused = paused
    answer = PartitionData(partition_index=0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert not taken(state, answer, 6), "the broker would say the same again and again"
    assert (state.position, state.reset, state.error) == (5, None, None)
    assert [one.offset for one in state.take(10)] == [5]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE])
def test_an_error_of_before_a_seek_is_not_raised_behind_it(code: ErrorCode) -> None:
    records = bytearray(build([(1, b"k", b"value", [])], base_offset=5))
    records[16] = 9  # a magic that does not exist
    state = PartitionPosition(ONE)
    state.seek(9)
    taken(state, PartitionData(partition_index=0, error_code=int(code), records=bytes(records)), 5)
    assert (state.position, state.error) == (9, None)
    state.seek(5)
    taken(state, PartitionData(partition_index=0, error_code=int(code), records=bytes(records)), 5)
    assert isinstance(state.error, KafkaError)


def test_records_of_before_a_seek_are_dropped() -> None:
    records = build([(1, b"k", b"value", [])], base_offset=5)
    state = PartitionPosition(ONE)
    state.seek(5)
    taken(state, PartitionData(partition_index=0, records=records), 5)
    state.seek(9)
    assert (state.buffered, state.take(10)) == (0, [])
    taken(state, PartitionData(partition_index=0, records=records), 5)
    assert (state.buffered, state.take(10), state.position) == (0, [], 9)


def test_a_fetch_goes_to_the_replica_that_the_leader_names() -> None:
    assert scene([{"preferred_read_replica": 2, "high_watermark": 9}]) == [(1, 5), (2, 5)]


def test_a_replica_that_cannot_serve_sends_the_next_fetch_back_to_the_leader() -> None:
    behind = {"error_code": int(ErrorCode.OFFSET_NOT_AVAILABLE)}
    assert scene([{"preferred_read_replica": 2}, behind]) == [(1, 5), (2, 5), (1, 5)]


def test_a_replica_that_is_not_live_is_not_asked() -> None:
    assert scene([{"preferred_read_replica": 3}]) == [(1, 5), (1, 5)]


def test_a_replica_that_is_missing_in_the_metadata_is_looked_for() -> None:
    async def run() -> None:
        cluster = Cluster(ConsumerSettings.read("127.0.0.1:1", {}))
        cluster.metadata.apply(
            MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)]), now_ms()
        )
        fetcher = Watched(cluster, {ONE: PartitionPosition(ONE)})
        want = WantedPartition(5, -1, 1, Uuid(b"i" * 16))
        for known in (True, False):
            answer = PartitionData(partition_index=0, preferred_read_replica=1 if known else 2)
            assert fetcher._take_in(ONE, want, answer) is known, "the leader would send it there again at once"
            assert (cluster.metadata.update_due_ms() <= now_ms()) is not known
        fetcher.close()
        await cluster.close()

    asyncio.run(run())


def test_a_replica_that_has_not_got_the_offset_leaves_the_decision_to_the_leader() -> None:
    nowhere = {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE)}
    assert scene([{"preferred_read_replica": 2}, nowhere]) == [(1, 5), (2, 5), (1, 5)]
    # The leader's word counts: the position is looked for anew.
    assert scene([{"preferred_read_replica": 2}, nowhere, nowhere]) == [(1, 5), (2, 5), (1, 5)]


@pytest.mark.parametrize("how", ["silent", "unreachable"])
def test_a_replica_that_does_not_answer_sends_the_next_fetch_back_to_the_leader(how: str) -> None:
    """It may be cut off from this client alone: the metadata still have it, and the leader named it for minutes."""

    async def run() -> list[tuple[int, int]]:
        cluster, fetcher = reader_of_one(reconnect_backoff_ms=0)
        want = WantedPartition(5, 0, 1, cluster.metadata.topics["t"].id)
        fetcher._take_in(ONE, want, PartitionData(partition_index=0, preferred_read_replica=2))
        fetcher._pass(now_ms())
        if how == "silent":
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_exception(RequestTimedOut("no answer"))
            fetcher._answered(2, FetchSession(), {ONE: want}, now_ms(), answer)
        else:
            with patch.object(cluster, "node", side_effect=NotReachable("h:2 cannot be reached")):
                await fetcher._connect(2)
        fetcher._pass(now_ms())
        fetcher.close()
        await cluster.close()
        return fetcher.asked

    assert asyncio.run(run()) == [(2, 5), (1, 5)]


def first_asked(*answers: tuple[int, FetchResponse | Exception], **settings: object) -> list[tuple[int, int]]:
    """Which node is asked first after each answer of a node, and how many ms later, however often polls wake it."""

    async def run() -> list[tuple[int, int]]:
        cluster, fetcher = reader_of_one(**settings)
        want = WantedPartition(5, 0, 1, cluster.metadata.topics["t"].id)
        found: list[tuple[int, int]] = []
        now = now_ms()
        for node_id, outcome in answers:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
            fetcher.asked.clear()
            with patch("ottla.client.consumer.fetcher.now_ms", return_value=now):
                fetcher._answered(node_id, FetchSession(), {ONE: want}, now, answer)
            began = now
            for now in range(began, began + 1_000):
                fetcher._pass(now)
                if fetcher.asked:
                    break
            found.append((fetcher.asked[0][0], now - began))
        fetcher.close()
        await cluster.close()
        return found

    return asyncio.run(run())


def one_answer(**data: Any) -> FetchResponse:
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0, **data)])
    return FetchResponse(responses=[topic])


@pytest.mark.parametrize(
    "refusal",
    [
        one_answer(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        one_answer(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR)),
        one_answer(error_code=9999),
        FetchResponse(error_code=int(ErrorCode.KAFKA_STORAGE_ERROR)),
        FetchResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR)),
        RequestTimedOut("no answer"),
    ],
    ids=["of a partition", "unexplained", "of a newer release", "of the request", "unexplained, whole", "no answer"],
)
def test_a_node_that_refuses_a_fetch_has_a_pause_though_a_poll_waits(refusal: FetchResponse | Exception) -> None:
    """The answer woke the poll, and the poll the fetcher: hundreds of fetches a second for as long as an election."""
    assert first_asked((1, refusal), retry_backoff_ms=100) == [(1, 100)]


def test_a_replica_that_the_leader_names_again_and_again_has_a_pause_too() -> None:
    named, nowhere = one_answer(preferred_read_replica=2), one_answer(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    found = first_asked((1, named), (2, nowhere), (1, named), retry_backoff_ms=100)
    assert found == [(2, 0), (1, 0), (2, 100)], "the leader is asked at once, as by Java's client"


@pytest.mark.parametrize("setting", ["fetch_min_bytes", "fetch_max_wait_ms"])
def test_fetches_that_do_not_wait_for_records_do_not_follow_at_once(setting: str) -> None:
    records = build([(1, b"k", b"value", [])], base_offset=5)
    assert first_asked((1, one_answer())) == [(1, 0)], "the broker has waited"
    assert first_asked((1, one_answer()), **{setting: 0}) == [(1, 5)]
    assert first_asked((1, one_answer(preferred_read_replica=2)), **{setting: 0}) == [(2, 0)]
    assert first_asked((1, one_answer(records=records)), **{setting: 0}) == [(1, 0)]
