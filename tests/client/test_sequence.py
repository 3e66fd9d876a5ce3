"""The numbers of batches through retries, given up neighbours and new producer ids: a sender without a socket."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest

from ottla.client.connection.clock import current_clock, now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.sender import Sender
from ottla.client.settings.producer import ProducerSettings
from ottla.kernel.client_error import ConnectionLost, TlsFailed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.wire.batch import header_at

#: By partition the producer id and the base sequence of the batch that was sent.
Sent = dict[int, tuple[int, int]]
LOST = ConnectionLost("the broker closed the connection")


class Broker:
    """A connection to the one broker: requests come out of `asked`, and are answered by hand."""

    closed = None

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[Sent, asyncio.Future[ProduceResponse]]] = asyncio.Queue()
        self.ids = 0

    def version_of(self, *_: object) -> int:
        return 13

    def send(self, request: ProduceRequest, **_: object) -> asyncio.Future[ProduceResponse]:
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        sent: Sent = {}
        for part in request.topic_data[0].partition_data:
            header = header_at(part.records or b"")
            sent[part.index] = (header.producer_id, header.base_sequence)
        self.asked.put_nowait((sent, answer))
        return answer

    async def call(self, *_: object, **__: object) -> InitProducerIdResponse:
        self.ids += 1
        return InitProducerIdResponse(producer_id=self.ids, producer_epoch=0)


class Scene:
    """A producer of two partitions of one leader."""

    def __init__(self, **given: object) -> None:
        settings = ProducerSettings.read("127.0.0.1:1", {"linger_ms": 0, "retry_backoff_ms": 0, **given})
        self.broker = Broker()
        cluster = Cluster(settings)

        async def any_broker() -> Any:
            return self.broker

        async def update(topics: Iterable[str] | None = None) -> None:
            cluster.metadata._next_update_ms = now_ms() + 1_000_000

        cluster.any = any_broker  # type: ignore[method-assign]
        cluster.update = update  # type: ignore[method-assign]
        parts = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in (0, 1)]
        topic = MetadataResponseTopic(name="t", topic_id=Uuid(b"i" * 16), partitions=parts)
        brokers = [MetadataResponseBroker(node_id=1, host="h", port=1)]
        cluster.metadata.apply(MetadataResponse(brokers=brokers, topics=[topic]), now_ms())
        self.accumulator = Accumulator(settings, current_clock(), random.Random(1))
        self.accumulator.set_partitions("t", 2, (0, 1))
        self.sender = Sender(cluster, self.accumulator, settings, threading.Lock(), None)
        self.sender._connections[1] = cast(BrokerConnection, self.broker)

    def send(self, partition: int, value: bytes = b"v") -> Delivery:
        delivery = self.accumulator.append("t", value, None, partition, None, 0)
        assert delivery is not None
        self.sender.wake()
        return delivery

    async def request(self) -> tuple[Sent, Callable[..., None]]:
        """The next request, and what answers it: an error code by partition, or an exception."""
        async with asyncio.timeout(3):
            sent, future = await self.broker.asked.get()

        def answer(error: Exception | None = None, **codes: ErrorCode) -> None:
            if error is not None:
                return future.set_exception(error)
            parts = [
                PartitionProduceResponse(index=number, error_code=int(codes.get(f"p{number}", ErrorCode.NONE)))
                for number in sent
            ]
            topic = TopicProduceResponse(topic_id=Uuid(b"i" * 16), partition_responses=parts)
            future.set_result(ProduceResponse(responses=[topic]))

        return sent, answer

    async def settled(self) -> None:
        """Whatever can be sent now has been."""
        for _ in range(20):
            await asyncio.sleep(0)


def played(play: Callable[[Scene], Awaitable[None]], **given: object) -> None:
    async def run() -> None:
        scene = Scene(**given)
        try:
            await play(scene)
        finally:
            scene.sender.close()

    asyncio.run(run())


def test_a_partition_whose_batches_fill_the_requests_does_not_hold_up_another_one() -> None:
    async def play(scene: Scene) -> None:
        for _ in range(3):
            scene.send(0, bytes(900))
        scene.send(1, bytes(200))
        order: list[int] = []
        for _ in range(4):
            sent, answer = await scene.request()
            order += sent
            # The program sends to the first partition faster than the broker takes it.
            scene.send(0, bytes(900))
            answer()
        assert order[:3] == [0, 1, 0]

    limits = {"max_request_size": 1_100, "batch_size": 1_000, "max_in_flight_requests_per_connection": 1}
    played(play, enable_idempotence=False, **limits)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_requests_are_in_flight_than_the_setting_allows(most: int) -> None:
    async def play(scene: Scene) -> None:
        for number in range(most + 2):
            scene.send(number % 2)
            await scene.settled()
        assert scene.broker.asked.qsize() == most
        _, answer = await scene.request()
        answer()
        await scene.settled()
        assert scene.broker.asked.qsize() == most

    played(play, max_in_flight_requests_per_connection=most)


@pytest.mark.parametrize(("largest", "requests"), [(1_000, [[0, 1]]), (300, [[0], [1]])])
def test_a_request_is_no_larger_than_the_setting_allows(largest: int, requests: list[list[int]]) -> None:
    async def play(scene: Scene) -> None:
        scene.send(0, bytes(200))
        scene.send(1, bytes(200))
        await scene.settled()
        assert [sorted((await scene.request())[0]) for _ in requests] == requests
        assert scene.broker.asked.empty()

    played(play, max_request_size=largest)


def test_a_batch_that_may_be_written_keeps_its_number_when_another_partition_gives_one_up() -> None:
    async def play(scene: Scene) -> None:
        kept, late = scene.send(0), scene.send(1)
        sent, answer = await scene.request()
        assert sent == {0: (1, 0), 1: (1, 0)}
        late.batch.deadline_ms = 0
        answer(LOST)
        # The broker may have the first batch: under another number it would be written twice.
        sent, answer = await scene.request()
        assert sent == {0: (1, 0)}
        assert late.done
        # The next one has the new id, under which the broker could not tell that it came too early.
        after = scene.send(0)
        await scene.settled()
        assert scene.broker.asked.empty()
        answer(LOST)
        sent, answer = await scene.request()
        assert sent == {0: (1, 0)}
        answer()
        sent, answer = await scene.request()
        assert sent == {0: (2, 0)}
        answer()
        await after
        assert kept.done
        scene.send(1)
        assert (await scene.request())[0] == {1: (2, 0)}
        assert scene.broker.ids == 2

    played(play)


@pytest.mark.parametrize("written", [True, False])
def test_batches_behind_one_that_was_given_up_keep_their_numbers_until_the_broker_denies_them(written: bool) -> None:
    async def play(scene: Scene) -> None:
        given_up = scene.send(0)
        _, answer_first = await scene.request()
        second = scene.send(0)
        sent, answer = await scene.request()
        assert sent == {0: (1, 1)}
        given_up.batch.deadline_ms = 0
        answer_first(LOST)
        answer(LOST)
        sent, answer = await scene.request()
        assert sent == {0: (1, 1)}, "if the first was written this one may be as well"
        if written:
            answer(p0=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        else:
            answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            sent, answer = await scene.request()
            assert sent == {0: (2, 0)}
            answer()
        await second
        scene.send(0)
        assert (await scene.request())[0] == {0: (2, 0 if written else 1)}
        assert scene.broker.ids == 2

    played(play)


def test_a_leader_that_has_lost_track_gets_all_of_its_partition_under_a_new_id() -> None:
    async def play(scene: Scene) -> None:
        scene.send(0)
        _, answer_first = await scene.request()
        scene.send(0)
        _, answer_second = await scene.request()
        scene.send(1)
        sent, answer_other = await scene.request()
        assert sent == {1: (1, 0)}
        answer_first(p0=ErrorCode.UNKNOWN_PRODUCER_ID)
        answer_second(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        answer_other(LOST)
        sent, answer = await scene.request()
        assert sent == {0: (2, 0), 1: (1, 0)}
        answer()
        assert (await scene.request())[0] == {0: (2, 1)}
        assert scene.broker.ids == 2

    played(play)


def test_answers_that_come_after_the_close_end_nothing_twice() -> None:
    async def play(scene: Scene) -> None:
        delivery = scene.send(0)
        _, answer = await scene.request()
        scene.sender.close()
        with pytest.raises(KafkaError, match="closed"):
            await delivery
        answer()
        await scene.settled()
        assert scene.accumulator.memory_used == 0
        assert not scene.accumulator.incomplete

    played(play)


def test_an_abort_fails_what_is_not_on_its_way_and_leaves_the_rest_to_its_answers() -> None:
    async def play(scene: Scene) -> None:
        sent = scene.send(0)
        _, answer = await scene.request()
        scene.sender.on_progress.append(lambda: told.append(late.done))
        told: list[bool] = []
        late = scene.send(0)
        scene.sender.abort(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "given up"))
        assert told == [True]
        with pytest.raises(KafkaError, match="given up"):
            await late
        assert scene.sender.failed == [], "the abort has told of it: a flush does not"
        assert not sent.done
        answer()
        await sent
        assert scene.accumulator.memory_used == 0

    played(play)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (TlsFailed("not trusted"), ErrorCode.REQUEST_TIMED_OUT),
        (ValueError("no such field"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_without_a_producer_id_records_fail_whatever_the_reason(failure: Exception, code: ErrorCode) -> None:
    async def play(scene: Scene) -> None:
        async def call(*_: object, **__: object) -> InitProducerIdResponse:
            raise failure

        scene.broker.call = call  # type: ignore[method-assign]
        delivery = scene.send(0)
        await scene.settled()
        with pytest.raises(KafkaError) as raised:
            delivery.result(0)
        assert raised.value.code is code

    played(play)
