"""One connection without a network: answers by number, and how it ends for those who wait for an answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.node_metric import NodeMeter
from ottla.kernel.client_error import ConnectionLost, NotReachable, RequestTimedOut
from ottla.settings.client.client import ClientSettings
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.compile import encode

MINUTE_MS = 60_000


class Transport(Mock):
    """What was written, and whether the socket is closed."""

    def get_extra_info(self, name: str) -> None:
        return None


def connect() -> tuple[BrokerConnection, Transport]:
    connection = BrokerConnection("b", 9092, "me", NodeMeter(0))
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


def send(connection: BrokerConnection, timeout_ms: int = MINUTE_MS) -> asyncio.Future[Any]:
    return connection.send(HeartbeatRequest(group_id="g"), timeout_ms=timeout_ms, version=0)


def receive(connection: BrokerConnection, *frames: bytes) -> None:
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    connection.get_buffer(len(data))[: len(data)] = data
    connection.buffer_updated(len(data))


def answer(number: int, code: int = 0) -> bytes:
    return number.to_bytes(4, "big") + encode(HeartbeatResponse(error_code=code), 0)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene()

    asyncio.run(main())


def test_answers_are_matched_in_order() -> None:
    async def scene() -> None:
        connection, transport = connect()
        first, second = send(connection), send(connection)
        assert connection.in_flight == 2 and transport.writelines.call_count == 2
        receive(connection, answer(1, code=25))
        assert (await first).error_code == 25 and not second.done() and connection.in_flight == 1
        receive(connection, answer(2, code=27))
        assert (await second).error_code == 27 and connection.in_flight == 0
        assert connection.closed is None

    run(scene)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda connection: connection.close(), "closed by this client"),
        (lambda connection: connection.close("enough"), "enough"),
        (lambda connection: connection.connection_lost(None), "the broker closed the connection"),
        (lambda connection: connection.connection_lost(ConnectionResetError(104, "reset")), "reset"),
        (
            lambda connection: connection.connection_lost(ConnectionRefusedError(111, "no")),
            "connection refused: is a broker running there?",
        ),
    ],
)
def test_who_waits_is_told_why_and_who_comes_later_too(end: Callable[[BrokerConnection], None], why: str) -> None:
    async def scene() -> None:
        connection, transport = connect()
        waiting = [send(connection), send(connection)]
        end(connection)
        assert connection.closed == why and transport.abort.call_count == 1
        for each in waiting:
            with pytest.raises(ConnectionLost) as caught:
                await each
            assert caught.value.message == f"b:9092: {why}"
        assert connection.in_flight == 0
        for ask in (send, lambda it: it.send_unanswered(HeartbeatRequest(), 0)):
            with pytest.raises(ConnectionLost) as caught:
                ask(connection)
            assert caught.value.message == f"b:9092: {why}"
        assert transport.writelines.call_count == 2
        connection.close("again")
        connection.connection_lost(ssl.SSLError("late"))
        assert (connection.closed, transport.abort.call_count) == (why, 1)

    run(scene)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([answer(2)], "the broker's answer to Heartbeat cannot be read"),
        ([answer(1)[:-1]], "the broker's answer to Heartbeat cannot be read"),
        ([answer(1), answer(2), answer(3)], "the broker sent an answer without a request"),
    ],
)
def test_an_answer_that_fits_no_request_ends_the_connection(frames: list[bytes], why: str) -> None:
    async def scene() -> None:
        connection, _ = connect()
        first, second = send(connection), send(connection)
        receive(connection, *frames)
        assert connection.closed is not None and connection.closed.startswith(why)
        if len(frames) == 1:
            for each in (first, second):
                with pytest.raises(ConnectionLost):
                    await each
        else:
            assert (await first).error_code == (await second).error_code == 0

    run(scene)


def test_what_comes_behind_an_unreadable_answer_is_not_looked_at() -> None:
    async def scene() -> None:
        connection, _ = connect()
        waiting = [send(connection), send(connection)]
        receive(connection, answer(9), answer(2))
        for each in waiting:
            with pytest.raises(ConnectionLost):
                await each

    run(scene)


def test_a_request_without_an_answer_in_time_ends_the_connection_for_all() -> None:
    async def scene() -> None:
        connection, _ = connect()
        slow, other = send(connection, timeout_ms=1), send(connection)
        with pytest.raises(RequestTimedOut, match="b:9092 did not answer Heartbeat in 1 ms"):
            await slow
        with pytest.raises(ConnectionLost, match="the broker did not answer Heartbeat in 1 ms"):
            await other
        assert connection.closed == "the broker did not answer Heartbeat in 1 ms"

    run(scene)


def test_an_answer_stops_the_clock_of_its_request() -> None:
    async def scene() -> None:
        connection, _ = connect()
        quick = send(connection, timeout_ms=1)
        receive(connection, answer(1))
        # The loop runs its timers in their order, so the request's would be over.
        later = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, later.set_result, None)
        await later
        assert (await quick).error_code == 0 and connection.closed is None

    run(scene)


def test_who_waits_for_room_goes_on_when_there_is_some_and_when_the_connection_ends() -> None:
    ends: list[Callable[[BrokerConnection], None]] = [BrokerConnection.resume_writing, BrokerConnection.close]

    async def scene() -> None:
        for end in ends:
            connection, _ = connect()
            connection.pause_writing()
            waiting = asyncio.ensure_future(connection.writable())
            await asyncio.sleep(0)
            assert not waiting.done()
            end(connection)
            await asyncio.wait_for(waiting, 1)

    run(scene)


def test_a_connection_whose_end_is_cancelled_leaves_no_request_and_no_socket() -> None:
    async def scene() -> None:
        connection, transport = connect()
        waiting = send(connection)
        finishing = asyncio.ensure_future(connection.finish())
        await asyncio.sleep(0)
        finishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        assert transport.abort.call_count == 1
        with pytest.raises(ConnectionLost, match="closed by this client"):
            await asyncio.wait_for(waiting, 1)

    run(scene)


def test_a_connection_is_finished_when_its_socket_is_closed() -> None:
    async def scene() -> None:
        connection, transport = connect()
        finishing = asyncio.ensure_future(connection.finish())
        await asyncio.sleep(0)
        assert transport.close.call_count == 1 and transport.abort.call_count == 0 and not finishing.done()
        with pytest.raises(ConnectionLost, match="closed by this client"):
            send(connection)
        connection.connection_lost(None)
        await asyncio.wait_for(finishing, 1)
        await connection.finish()
        assert transport.close.call_count == 1 and connection.closed == "closed by this client"

    run(scene)


def test_a_loss_after_the_first_answer_hints_at_authentication() -> None:
    async def scene() -> None:
        connection, _ = connect()
        first = send(connection)
        receive(connection, answer(1))
        await first
        connection.connection_lost(None)
        assert connection.closed == (
            "the broker closed the connection after the first request: does it require authentication "
            "(security.protocol)?"
        )

    run(scene)


@pytest.mark.parametrize("address", [("a..b", 9092), ("x" * 64, 9092), ("127.0.0.1", 99_999)])
def test_an_address_that_cannot_be_is_one_that_is_not_reached(address: tuple[str, int]) -> None:
    """A broker may advertise it. The error of the name's encoding ended heartbeats, and the other brokers were left."""

    async def run() -> None:
        cluster = Cluster(ClientSettings.read("127.0.0.1:1", {}))
        with pytest.raises(NotReachable, match="cannot be reached"):
            await cluster.address(address)
        await cluster.close()

    asyncio.run(run())
