"""A producer's request that cannot be sent, is not answered or is answered in part: a sender without a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client.connection.clock import now_ms
from ottla.kernel.client_error import AuthenticationFailed, ConnectionLost, NotReachable, RequestTimedOut, Unsupported
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.wire.api.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.test_sequence import LOST, Scene, played

_PLAIN: dict[str, Any] = {"enable_idempotence": False}


async def outcome(delivery: Any) -> KafkaError | None:
    try:
        async with asyncio.timeout(3):
            await delivery
    except KafkaError as error:
        return error
    return None


#: What the connection raises when it is given the request: is it sent again, and what is the program told?
RAISED: list[tuple[Exception, bool, ErrorCode | None]] = [
    (ConnectionLost("h:1: gone"), True, None),
    (KafkaError(ErrorCode.NETWORK_EXCEPTION, "why"), True, None),
    (Unsupported("h:1 does not know Produce"), False, ErrorCode.UNSUPPORTED_VERSION),
    (OttlaError("h:1 cannot"), False, ErrorCode.INVALID_REQUEST),
    (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "why"), False, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
]


@pytest.mark.parametrize("where", ["send", "version_of"])
@pytest.mark.parametrize(("error", "again", "told"), RAISED)
def test_a_request_that_cannot_be_sent_is_sent_again_if_that_may_help(
    error: Exception, again: bool, told: ErrorCode | None, where: str
) -> None:
    async def play(scene: Scene) -> None:
        good, calls = getattr(scene.broker, where), list[None]()

        def raising(*arguments: Any, **keywords: Any) -> Any:
            calls.append(None)
            if len(calls) == 1:
                raise error
            return good(*arguments, **keywords)

        setattr(scene.broker, where, raising)
        delivery = scene.send(0)
        if again:
            _, answer = await scene.request()
            assert not delivery.done and delivery.batch.attempts == 1
            answer()
            assert await outcome(delivery) is None
        else:
            failure = await outcome(delivery)
            assert failure is not None and failure.code is told
            assert str(error).partition(": ")[2] in str(failure)
        assert sum(scene.sender._in_flight.values()) == 0

    played(play, **_PLAIN)


def test_a_request_that_was_cancelled_is_sent_again() -> None:
    async def play(scene: Scene) -> None:
        delivery = scene.send(0)
        async with asyncio.timeout(3):
            _, future = await scene.broker.asked.get()
        future.cancel()
        _, answer = await scene.request()
        answer()
        assert await outcome(delivery) is None
        assert scene.sender._in_flight == {1: 0}

    played(play, **_PLAIN)


def test_a_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    async def play(scene: Scene) -> None:
        first, second = scene.send(0), scene.send(1)
        async with asyncio.timeout(3):
            sent, future = await scene.broker.asked.get()
        assert sorted(sent) == [0, 1]
        there = [PartitionProduceResponse(index=1, base_offset=70, log_append_time_ms=-1)]
        topic = TopicProduceResponse(topic_id=Uuid(b"i" * 16), partition_responses=there)
        future.set_result(ProduceResponse(responses=[topic]))
        assert await outcome(second) is None and second.result().offset == 70
        assert not first.done
        sent, answer = await scene.request()
        assert sorted(sent) == [0]
        answer()
        assert await outcome(first) is None

    played(play, **_PLAIN)


def test_a_producer_tells_for_how_long_brokers_have_throttled_it() -> None:
    async def play(scene: Scene) -> None:
        for throttle_ms in (0, 600):
            delivery = scene.send(0)
            async with asyncio.timeout(3):
                _, future = await scene.broker.asked.get()
            topic = TopicProduceResponse(
                topic_id=Uuid(b"i" * 16), partition_responses=[PartitionProduceResponse(index=0)]
            )
            future.set_result(ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms))
            assert await outcome(delivery) is None
        meter = scene.sender.meter
        told = meter.snapshot(in_flight=0, memory=1, memory_used=0, waiting=0, nodes={}, now_ms=now_ms()).named()
        assert (told["produce-throttle-time-avg"], told["produce-throttle-time-max"]) == (300, 600)

    played(play, **_PLAIN)


def test_what_an_answer_leaves_out_until_the_end_is_told_with_its_reason() -> None:
    async def play(scene: Scene) -> None:
        delivery = scene.send(0)
        async with asyncio.timeout(3):
            _, future = await scene.broker.asked.get()
        delivery.batch.deadline_ms = now_ms()
        future.set_result(ProduceResponse(responses=[]))
        failure = await outcome(delivery)
        assert isinstance(failure, RequestTimedOut)
        assert "not delivered within delivery.timeout.ms=90000 (last: " in str(failure)
        assert "the broker's answer lacks this partition" in str(failure)

    played(play, delivery_timeout_ms=90_000, **_PLAIN)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_broker_that_does_not_answer_holds_up_no_record_longer_than_its_delivery_timeout(idempotent: bool) -> None:
    """A request may wait for request.timeout.ms, which is longer."""

    async def play(scene: Scene) -> None:
        first = scene.send(0)
        sent, answer_first = await scene.request()
        failure = await outcome(first)
        assert isinstance(failure, RequestTimedOut)
        assert "not delivered within delivery.timeout.ms=40" in str(failure)
        assert scene.accumulator.memory_used == 0 and scene.sender._in_flight == {1: 1}
        # The answer changes nothing. With idempotence the next record waits for it: the first may have its number.
        second = scene.send(0)
        second.batch.deadline_ms += 60_000
        await scene.settled()
        assert scene.broker.asked.empty() is idempotent
        answer_first()
        sent, answer = await scene.request()
        assert sent == {0: (2, 0) if idempotent else (-1, -1)}
        answer()
        assert await outcome(second) is None
        assert await outcome(first) is failure
        assert scene.accumulator.memory_used == 0 and scene.sender._in_flight == {1: 0}

    played(play, delivery_timeout_ms=40, enable_idempotence=idempotent)


@pytest.mark.parametrize("error", [LOST, KafkaError(ErrorCode.UNSUPPORTED_VERSION)])
def test_a_request_that_fails_after_its_records_have_is_not_sent_again(error: KafkaError) -> None:
    async def play(scene: Scene) -> None:
        first, second = scene.send(0), scene.send(1)
        _, answer = await scene.request()
        second.batch.deadline_ms += 60_000
        assert isinstance(await outcome(first), RequestTimedOut)
        answer(error)
        if error is LOST:
            sent, answer = await scene.request()
            assert sorted(sent) == [1]
            answer()
        assert (await outcome(second) is None) is (error is LOST)
        assert isinstance(await outcome(first), RequestTimedOut)

    played(play, delivery_timeout_ms=40, **_PLAIN)


@pytest.mark.parametrize("hinted", [True, False])
def test_a_batch_follows_its_leader(hinted: bool) -> None:
    async def play(scene: Scene) -> None:
        metadata = scene.sender._cluster.metadata
        scene.send(0)
        async with asyncio.timeout(3):
            _, future = await scene.broker.asked.get()
        part = PartitionProduceResponse(index=0, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if hinted:
            part.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
        topic = TopicProduceResponse(topic_id=Uuid(b"i" * 16), partition_responses=[part])
        nodes = [NodeEndpoint(node_id=2, host="other", port=3)]
        scene.sender._connections[2] = scene.sender._connections[1]
        future.set_result(ProduceResponse(responses=[topic], node_endpoints=nodes))
        _, answer = await scene.request()
        leader = metadata.leader("t", 0)
        assert leader is not None and (leader.leader, leader.leader_epoch) == ((2, 9) if hinted else (1, -1))
        assert metadata.nodes[2].host == "other"
        assert scene.sender._in_flight == ({1: 0, 2: 1} if hinted else {1: 1})
        answer()

    # A new leader is asked at once.
    played(play, **_PLAIN, retry_backoff_ms=60_000 if hinted else 0, retry_backoff_max_ms=60_000)


def test_a_leader_that_refuses_a_batch_again_has_its_pause() -> None:
    async def play(scene: Scene) -> None:
        metadata = scene.sender._cluster.metadata
        scene.send(0)
        for epoch in (8, 9):
            metadata.leader_moved("t", 0, 1, epoch)
            scene.sender.wake()
            _, answer = await scene.request()
            answer(p0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await scene.settled()
        assert scene.broker.asked.empty()

    played(play, **_PLAIN, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "why"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "why"),
        (NotReachable("no broker can be reached"), ErrorCode.REQUEST_TIMED_OUT, "no broker can be reached"),
        (AuthenticationFailed("h:1 refused"), None, "refused"),
    ],
)
def test_records_fail_when_there_is_no_producer_id_for_them(
    error: Exception, code: ErrorCode | None, said: str
) -> None:
    async def play(scene: Scene) -> None:
        tries = []

        async def retry(attempt: Callable[[], Awaitable[Any]], timeout_ms: int, *_: Any, **__: Any) -> Any:
            tries.append(timeout_ms)
            if len(tries) == 1:
                raise error
            return await attempt()

        scene.sender._cluster.retry = retry  # type: ignore[method-assign]
        deliveries = [scene.send(0), scene.send(1)]
        for each in deliveries:
            failure = await outcome(each)
            assert failure is not None and said in str(failure)
            assert code is None or failure.code is code
        assert scene.accumulator.memory_used == 0 and scene.broker.asked.empty()
        assert [batch.error for batch in scene.sender.failed] == [each.batch.error for each in deliveries]
        # The next records ask again.
        delivery = scene.send(0)
        sent, answer = await scene.request()
        assert sent == {0: (1, 0)}
        answer()
        assert await outcome(delivery) is None
        assert tries == [90_000, 90_000]

    played(play, delivery_timeout_ms=90_000)


def test_a_refusal_is_logged_once_and_told_with_what_expires(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        caplog.set_level(logging.WARNING, logger="ottla.client")
        sender = scene.sender
        sender._connections.clear()
        scene.send(0)
        for _ in range(2):
            sender._refused(AuthenticationFailed("h:1 refused"))
        sender._refused(NotReachable("h:1 cannot be reached"))
        [said] = [each.getMessage() for each in caplog.records if "trying again" in each.getMessage()]
        assert "h:1 refused; trying again until delivery.timeout.ms" in said
        [(partition, batch)] = [(one, each) for one in scene.accumulator.active for each in one.waiting()]
        batch.deadline_ms = now_ms()
        sender._pass(now_ms())
        assert isinstance(batch.error, RequestTimedOut)
        assert "not delivered within delivery.timeout.ms=90000 (last: " in str(batch.error)
        assert "h:1 refused" in str(batch.error)
        assert not partition.closed and scene.accumulator.memory_used == 0

    played(play, delivery_timeout_ms=90_000, **_PLAIN)


def test_what_nobody_waits_for_is_logged_when_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        caplog.set_level(logging.WARNING, logger="ottla.client")
        told: list[None] = []
        scene.sender.on_progress.append(lambda: told.append(None))
        scene.send(0)
        scene.send(0)
        _, answer = await scene.request()
        answer(p0=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await scene.settled()
        [said] = [each.getMessage() for each in caplog.records]
        assert said.startswith("t-0: 2 records were not delivered: TOPIC_AUTHORIZATION_FAILED")
        assert told, "who waits for room is woken"

    played(play, **_PLAIN)


def test_a_close_fails_and_counts_what_was_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        caplog.set_level(logging.WARNING, logger="ottla.client")
        deliveries = [scene.send(0), scene.send(0), scene.send(1)]
        scene.sender.close()
        for each in deliveries:
            failure = await outcome(each)
            assert failure is not None and failure.code is ErrorCode.NETWORK_EXCEPTION
            assert "the producer was closed before the record was sent" in str(failure)
        assert [each.getMessage() for each in caplog.records] == [
            "3 records were not sent: the producer was closed without a flush"
        ]
        assert scene.broker.asked.empty()

    played(play, linger_ms=3_600_000, **_PLAIN)
