"""A consumer leaves no fetch session behind: the brokers' slots are for consumers that still read."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

import ottla
from ottla.client import AsyncConsumer, Consumer, Producer, TopicPartition
from ottla.client.connection.clock import now_ms
from ottla.client.consumer.fetch_session import FetchSession
from ottla.kernel.client_error import ConnectionLost
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.fetch import FetchRequest, FetchResponse
from tests.client.hurried import hurried, passing
from tests.client.test_fetcher import reader_of_one

ONE = TopicPartition("t", 0)


@pytest.mark.parametrize("waits", [False, True], ids=["between fetches", "while a fetch waits for records"])
def test_a_closed_consumer_has_no_session_left(waits: bool) -> None:
    with ottla.Node() as node, Producer(node.bootstrap_servers) as producer:
        producer.send("t", b"v").result()
        assert node._node is not None
        sessions = node._node.fetch_sessions
        wait_ms = 3_600_000 if waits else 1
        with Consumer(node.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=wait_ms) as consumer:
            consumer.assign([ONE])
            while not consumer.poll(10):
                pass
            if not waits:
                consumer.pause([ONE])
            busy = consumer._async._fetcher._busy
            while bool(busy) is not waits:
                pass
            assert len(sessions) == 1
        assert len(sessions) == 0


class Broker:
    """A connection that answers the last request of a session in its own way."""

    closed: str | None = None

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.asked: list[tuple[int, int]] = []

    async def call(self, request: FetchRequest, *_: object, timeout_ms: int) -> FetchResponse:
        self.asked.append((request.session_id, request.session_epoch))
        if self.outcome is None:
            await passing(3_600)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        assert isinstance(self.outcome, FetchResponse)
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "takes_ms"),
    [
        (FetchResponse(), 0),
        (FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)), 0),
        (ConnectionLost("gone"), 0),
        (KafkaError(ErrorCode.UNSUPPORTED_VERSION), 0),
        (None, 8_000),
    ],
    ids=["closed", "not known", "gone", "too old", "silent"],
)
def test_a_broker_that_does_not_end_its_session_holds_up_no_close(
    outcome: Any, takes_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for records is asked on another connection: Apache Kafka's brokers read no more on this one."""

    async def run() -> int:
        consumer = AsyncConsumer("127.0.0.1:1", request_timeout_ms=8_000)
        sessions: Any = consumer._fetcher._sessions
        for node_id, connection in enumerate((broker, waits, never, gone)):
            sessions[node_id] = (connection, FetchSession())
            sessions[node_id][1].answered(0, 70 + node_id if connection is not never else 0)
        consumer._fetcher._busy.add(1)
        monkeypatch.setattr(consumer._cluster, "node", AsyncMock(return_value=other))
        gone.closed = "it went"
        before = now_ms()
        await consumer.close()
        return now_ms() - before

    broker, other = Broker(outcome), Broker(FetchResponse())
    waits, never, gone = (Broker(None) for _ in range(3))
    assert takes_ms <= hurried(run()) < takes_ms + 300
    assert (broker.asked, other.asked) == ([(70, -1)], [(71, -1)])
    assert waits.asked == never.asked == gone.asked == []


def test_a_session_that_begins_again_on_another_connection_takes_the_place_of_the_old_one() -> None:
    sent: list[tuple[int, int]] = []

    class Connection:
        def version_of(self, *_: object) -> int:
            return 13

        def send(self, request: FetchRequest, **_: object) -> asyncio.Future[FetchResponse]:
            sent.append((request.session_id, request.session_epoch))
            answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
            answer.set_result(FetchResponse(session_id=77))
            return answer

    async def run() -> None:
        cluster, watched = reader_of_one()
        fetcher: Any = watched
        wanted: Any = {}
        first = Connection()
        for connection in (first, first, Connection()):
            super(type(fetcher), fetcher)._fetch(1, connection, wanted, False)
            await asyncio.sleep(0)
        fetcher.close()
        await cluster.close()

    asyncio.run(run())
    assert sent == [(0, 0), (77, 1), (77, 0)]
