"""When leaders are asked whether a log was cut, and what becomes of their answers (KIP-320)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from ottla.client import LogTruncation
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.consumer.fetch_session import WantedPartition
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import PartitionPosition
from ottla.client.consumer.validation import Validation
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable, RequestTimedOut
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api.fetch import LeaderIdAndEpoch, PartitionData
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.test_position_epoch import ONE, batch

TOPIC_ID = Uuid(b"i" * 16)


def metadata(leader: int, epoch: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)]
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2])
    return MetadataResponse(
        brokers=brokers, topics=[MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])]
    )


class Broker:
    """Answers what it is told to, and writes down what it is asked."""

    def __init__(self, version: int = 4) -> None:
        self.version = version
        self.asked: list[OffsetForLeaderEpochRequest] = []
        self.answer: EpochEndOffset | KafkaError | NotReachable | None = None

    def supports(self, key: int, version: int) -> bool:
        return version <= self.version

    async def call(self, request: OffsetForLeaderEpochRequest, kind: type, *, timeout_ms: int) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, (KafkaError, NotReachable)):
            raise self.answer
        answers = [] if self.answer is None else [self.answer]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=answers)])


class Watched(Fetcher):
    """Its connections are always there; what it fetches is written down. It passes when it is told, or is `awake`."""

    awake = False

    def __init__(self, cluster: Cluster, positions: dict[TopicPartition, PartitionPosition], broker: Broker) -> None:
        settings = cast(ConsumerSettings, cluster.settings)
        super().__init__(cluster, settings, positions, threading.Lock(), ConsumerMeter(0))
        self.fetched: list[tuple[int, WantedPartition]] = []
        self.broker = broker
        self.nodes: list[int] = []

        async def node(node_id: int, purpose: str = "") -> BrokerConnection:
            self.nodes.append(node_id)
            return cast(BrokerConnection, broker)

        cast(Any, cluster).node = node

    def wake(self) -> None:
        if self.awake:
            super().wake()

    def _update_metadata(self) -> None: ...

    def _open_connection(self, node_id: int) -> BrokerConnection | None:
        return cast(BrokerConnection, object())

    def _fetch(
        self, node_id: int, connection: BrokerConnection, wants: dict[TopicPartition, WantedPartition], full: bool
    ) -> None:
        self.fetched.append((node_id, wants[ONE]))


async def turns(fetcher: Fetcher) -> None:
    """A pass, and all that it started."""
    fetcher._pass(now_ms())
    while fetcher._tasks:
        await asyncio.gather(*fetcher._tasks)


def play(work: Callable[[Watched, PartitionPosition], Coroutine[Any, Any, None]], **settings: object) -> None:
    async def run() -> None:
        cluster = Cluster(ConsumerSettings.read("127.0.0.1:1", settings))
        cluster.metadata.apply(metadata(1, 3), now_ms())
        state = PartitionPosition(ONE)
        fetcher = Watched(cluster, {ONE: state}, Broker())
        state.seek(15, 3)
        fetcher.broker.answer = EpochEndOffset(leader_epoch=3, end_offset=15)
        await work(fetcher, state)
        fetcher.close()
        await cluster.close()

    asyncio.run(run())


def test_a_restored_position_is_validated_once_and_then_fetched() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        await turns(fetcher)
        (request,) = fetcher.broker.asked
        (topic,) = request.topics
        (asked,) = topic.partitions
        assert request.replica_id == -1
        assert (topic.topic, asked.partition, asked.current_leader_epoch, asked.leader_epoch) == ("t", 0, 3, 3)
        assert fetcher.nodes == [1]
        assert fetcher.fetched == []
        await turns(fetcher)
        await turns(fetcher)
        assert len(fetcher.broker.asked) == 1
        assert [(node, want.offset, want.leader_epoch) for node, want in fetcher.fetched] == [(1, 15, 3)] * 2

    play(work)


def test_a_new_leader_is_asked_also_about_what_is_paused_full_or_being_fetched() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        await turns(fetcher)
        state.paused = state.fetching = True
        state.buffered = 1 << 30
        fetcher._cluster.metadata.apply(metadata(2, 4), now_ms())
        await turns(fetcher)
        assert fetcher.nodes == [1, 2]
        assert not state.validating

    play(work)


def test_a_leader_that_a_broker_hints_at_is_asked_too() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        await turns(fetcher)
        want = WantedPartition(15, 3, 1, TOPIC_ID)
        hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=4)
        fetcher._take_in(
            ONE, want, PartitionData(partition_index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH, current_leader=hint)
        )
        await turns(fetcher)
        assert fetcher.nodes == [1, 2]
        assert fetcher.broker.asked[1].topics[0].partitions[0].current_leader_epoch == 4

    play(work)


def test_what_an_older_leader_answers_late_counts_for_nothing() -> None:
    answers = [
        PartitionData(partition_index=0, records=batch(15, 3), high_watermark=20),
        PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]

    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        await turns(fetcher)
        want = WantedPartition(15, 3, 1, TOPIC_ID)
        fetcher._cluster.metadata.apply(metadata(2, 4), now_ms())
        fetcher._pass(now_ms())
        assert state.doubt() is not None
        for answer in answers:
            assert fetcher._take_in(ONE, want, answer)
        await turns(fetcher)
        assert state.doubt() is None
        for answer in answers:
            assert fetcher._take_in(ONE, want, answer)
        assert (state.position, state.error, state.has_records, state.high_watermark) == (15, None, False, -1)

    play(work)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        None,
    ],
)
def test_a_broker_that_cannot_say_is_asked_again_with_newer_metadata(code: ErrorCode | None) -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher.broker.answer = None if code is None else EpochEndOffset(error_code=code)
        await turns(fetcher)
        assert state.validating and state.error is None
        assert fetcher._cluster.metadata.update_due_ms() <= now_ms()
        await turns(fetcher)
        assert len(fetcher.broker.asked) == 1, "not in a tight loop"
        state.validate_at_ms = 0
        fetcher.broker.answer = EpochEndOffset(leader_epoch=3, end_offset=15)
        await turns(fetcher)
        assert not state.validating

    play(work)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NotReachable("away"), False),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), False),
        (KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED), True),
    ],
)
def test_a_request_that_fails_is_made_again(failure: KafkaError | NotReachable, told: bool) -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher.broker.answer = failure
        await turns(fetcher)
        assert state.validating
        assert (state.error is not None) == told

    play(work)


def test_a_topic_that_may_not_be_described_is_an_error_of_a_poll() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher.broker.answer = EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await turns(fetcher)
        with pytest.raises(KafkaError, match="t-0"):
            state.raise_error()
        await turns(fetcher)
        assert len(fetcher.broker.asked) == 2, "and is tried again once it was told"

    play(work)


def test_a_broker_that_takes_no_such_request_of_consumers_is_not_asked() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher.broker.version = 2
        await turns(fetcher)
        assert fetcher.broker.asked == []
        await turns(fetcher)
        assert [want.offset for _, want in fetcher.fetched] == [15]

    play(work)


def test_a_cut_is_told_in_the_log_or_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        told: list[bool] = []
        fetcher.on_data.append(lambda: told.append(True))
        fetcher.all_positioned = True
        fetcher.broker.answer = EpochEndOffset(leader_epoch=1, end_offset=8)
        await turns(fetcher)
        assert told, "a poll that waits looks again"
        if fetcher._settings.auto_offset_reset == "none":
            assert isinstance(state.error, LogTruncation)
            assert caplog.messages == []
            await turns(fetcher)
            assert len(fetcher.broker.asked) == 1, "not before the program has heard of it"
            with pytest.raises(LogTruncation):
                state.raise_error()
            await turns(fetcher)
            assert isinstance(state.error, LogTruncation), "and then again, until it seeks"
        else:
            assert (state.position, state.epoch) == (8, 1)
            assert (
                "t-0: the log was truncated below offset 15 (leader epoch 3); continuing from offset 8" in caplog.text
            )
            await turns(fetcher)
            assert [want.offset for _, want in fetcher.fetched] == [8]

    play(work, auto_offset_reset="none")
    play(work, auto_offset_reset="latest")


def test_a_cut_at_an_unknown_place_has_a_poll_find_the_position() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher.all_positioned = True
        fetcher.broker.answer = EpochEndOffset(leader_epoch=-1, end_offset=-1)
        await turns(fetcher)
        assert (state.position, state.reset, fetcher.all_positioned) == (None, "earliest", False)

    play(work, auto_offset_reset="earliest")


def test_a_position_is_told_when_it_is_validated() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher.awake = True
        fetcher.broker.answer = EpochEndOffset(leader_epoch=1, end_offset=8)
        await fetcher.settled(state, now_ms() + 10_000)
        assert state.position == 8
        state.seek(15, 3)
        fetcher._settings = cast(Any, fetcher._validation)._settings = ConsumerSettings.read(
            "127.0.0.1:1", {"auto_offset_reset": "none"}
        )
        with pytest.raises(LogTruncation):
            await fetcher.settled(state, now_ms() + 10_000)
        fetcher.broker.answer = None
        with pytest.raises(RequestTimedOut, match="t-0"):
            await fetcher.settled(state, now_ms() + 1)

    play(work, auto_offset_reset="latest")


def test_a_newer_epoch_than_the_metadata_knows_waits_for_metadata() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        cluster = fetcher._cluster
        await turns(fetcher)
        for epoch in (-1, 2, 3):
            cluster.epoch_seen(ONE, epoch)
            assert cluster.metadata.leader("t", 0) is not None
        cluster.epoch_seen(TopicPartition("other", 0), 9)
        cluster.epoch_seen(TopicPartition("t", 1), 9)
        cluster.epoch_seen(ONE, 5)
        state.seek(15, 5)
        for late in (metadata(1, 3), metadata(2, 4)):
            cluster.metadata.apply(late, now_ms())
            await turns(fetcher)
            assert len(fetcher.broker.asked) == 1, "this leader would not know the epoch"
            assert cluster.metadata.update_due_ms() <= now_ms()
        cluster.metadata.apply(metadata(2, 5), now_ms())
        await turns(fetcher)
        assert fetcher.nodes == [1, 2]
        assert fetcher.broker.asked[1].topics[0].partitions[0].leader_epoch == 5

    play(work)


def test_epochs_of_old_brokers_are_not_relied_on() -> None:
    async def work(fetcher: Watched, state: PartitionPosition) -> None:
        fetcher._cluster.metadata.apply(metadata(2, 4), now_ms(), epochs=False)
        await turns(fetcher)
        assert fetcher.broker.asked == []
        assert [(node, want.leader_epoch) for node, want in fetcher.fetched] == [(2, -1)]

    play(work)


def test_a_validation_of_many_partitions_is_one_request() -> None:
    async def run() -> None:
        cluster = Cluster(ConsumerSettings.read("127.0.0.1:1", {}))
        broker = Broker()
        places = [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)]
        positions = {place: PartitionPosition(place) for place in places}
        for state in positions.values():
            state.seek(5, 1)
            state.led_by(1, 1)
        Watched(cluster, positions, broker).close()
        validation = Validation(cluster, cast(ConsumerSettings, cluster.settings), positions, threading.Lock())
        doubts = {place: doubt for place, state in positions.items() if (doubt := state.doubt())}
        broker.answer = EpochEndOffset(partition=2, leader_epoch=1, end_offset=5)
        assert await validation.ask(1, doubts), "two of them were not answered"
        (request,) = broker.asked
        assert [(topic.topic, [one.partition for one in topic.partitions]) for topic in request.topics] == [
            ("t", [0, 2]),
            ("u", [1]),
        ]
        assert [state.validating for state in positions.values()] == [True, False, True]
        await cluster.close()

    asyncio.run(run())
