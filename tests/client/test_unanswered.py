"""Sends without an answer (acks=0) to a broker that reads slowly: they keep their room until the socket takes them."""

import asyncio
from typing import cast

from ottla.client.connection.connection import BrokerConnection
from ottla.wire.api.produce import ProduceRequest
from tests.client.test_sequence import Broker, Scene


class _Slow(Broker):
    """A connection whose transport is full until the test opens it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self.sent = 0

    @property
    def is_writable(self) -> bool:
        return self.opened.is_set()

    async def writable(self) -> None:
        await self.opened.wait()

    def send_unanswered(self, request: ProduceRequest, version: int) -> None:
        self.sent += sum(len(topic.partition_data) for topic in request.topic_data)


def test_records_keep_their_room_until_the_socket_has_taken_them() -> None:
    async def play() -> None:
        scene = Scene(acks=0, enable_idempotence=False, max_in_flight_requests_per_connection=3)
        broker = _Slow()
        scene.sender._connections[1] = cast(BrokerConnection, broker)
        try:
            deliveries = []
            for _ in range(10):
                deliveries.append(scene.send(0))
                await scene.settled()
            assert broker.sent == 3, "as many requests as may be in flight"
            assert not any(each.done for each in deliveries)
            assert scene.accumulator.memory_used > 0
            broker.opened.set()
            for each in deliveries:
                await each
            assert broker.sent <= 10 and scene.accumulator.memory_used == 0
        finally:
            scene.sender.close()

    asyncio.run(play())


def test_a_sender_that_closes_fails_what_waits_for_the_socket() -> None:
    async def play() -> None:
        scene = Scene(acks=0, enable_idempotence=False)
        scene.sender._connections[1] = cast(BrokerConnection, _Slow())
        delivery = scene.send(0)
        await scene.settled()
        scene.sender.close()
        await scene.settled()
        assert delivery.done and scene.accumulator.memory_used == 0

    asyncio.run(play())
