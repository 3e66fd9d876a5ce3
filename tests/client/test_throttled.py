"""A client above its quota sends nothing on the connection for the time that the answer names (KIP-219)."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.client.connection.clock import now_ms
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.throttle import throttle_ms
from ottla.kernel.client_error import ConnectionLost, RequestTimedOut
from ottla.wire.api import API, ApiKey
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.compile import encode
from tests.client.hurried import hurried, passing
from tests.client.test_connection import Transport, connect, receive

MINUTE_MS = 60_000


def send(connection: BrokerConnection, timeout_ms: int = MINUTE_MS, version: int = 2) -> asyncio.Future[Any]:
    return connection.send(HeartbeatRequest(group_id="g"), timeout_ms=timeout_ms, version=version)


def answer(connection: BrokerConnection, number: int, throttle_time_ms: int = 0, version: int = 2) -> None:
    body = encode(HeartbeatResponse(throttle_time_ms=throttle_time_ms), version)
    receive(connection, number.to_bytes(4, "big") + body)


def written(transport: Transport) -> list[int]:
    """The correlation ids of the requests on the wire, in order."""
    return [int.from_bytes(b"".join(call.args[0])[8:12], "big") for call in transport.writelines.call_args_list]


def test_requests_wait_for_the_end_of_the_throttle_and_go_in_their_order() -> None:
    async def scene() -> None:
        connection, transport = connect()
        first = send(connection)
        answer(connection, 1, 5_000)
        assert first.result().throttle_time_ms == 5_000, "the answer itself is not held back"
        began = now_ms()
        later = [send(connection), send(connection)]
        assert (connection.throttled, connection.in_flight) == (True, 2)
        assert written(transport) == [1]
        await passing(4.9)
        assert written(transport) == [1]
        await passing(0.11)
        assert written(transport) == [1, 2, 3]
        assert (connection.throttled, connection.in_flight) == (False, 2)
        send(connection)
        assert written(transport) == [1, 2, 3, 4], "at once again"
        for number in (2, 3):
            answer(connection, number)
        assert all(each.done() for each in later)
        assert 5_000 <= now_ms() - began < 5_100

    hurried(scene())


@pytest.mark.parametrize(("second_ms", "ends_ms"), [(1_000, 5_000), (9_000, 9_000)])
def test_of_two_throttles_the_later_end_counts(second_ms: int, ends_ms: int) -> None:
    async def scene() -> None:
        connection, transport = connect()
        send(connection)
        send(connection)
        answer(connection, 1, 5_000)
        answer(connection, 2, second_ms)
        send(connection)
        await passing(ends_ms / 1000 - 0.01)
        assert written(transport) == [1, 2]
        await passing(0.02)
        assert written(transport) == [1, 2, 3]

    hurried(scene())


def test_a_request_s_timeout_does_not_run_while_the_client_is_throttled() -> None:
    """A throttle longer than the timeout would otherwise cost the connection, and the client would start again."""

    async def scene() -> None:
        connection, _ = connect()
        send(connection)
        in_flight = send(connection, timeout_ms=2_000)
        answer(connection, 1, 10_000)
        held = send(connection, timeout_ms=1_000)
        began = now_ms()
        await passing(10.9)
        assert connection.closed is None and not held.done() and not in_flight.done()
        with pytest.raises(RequestTimedOut, match="b:9092 did not answer Heartbeat in 1000 ms"):
            await held
        assert 11_000 <= now_ms() - began < 11_100
        with pytest.raises(ConnectionLost):
            await in_flight

    hurried(scene())


def test_a_request_that_is_held_back_has_its_whole_timeout_after_a_throttle_that_grows() -> None:
    """It would time out before it was sent, and cost the connection."""

    async def scene() -> None:
        connection, transport = connect()
        send(connection)
        send(connection)
        answer(connection, 1, 5_000)
        held = send(connection, timeout_ms=2_000)
        began = now_ms()
        await passing(1)
        answer(connection, 2, 20_000)
        await passing(20.5)
        assert connection.closed is None and written(transport) == [1, 2, 3]
        with pytest.raises(RequestTimedOut):
            await held
        assert 23_000 <= now_ms() - began < 23_100

    hurried(scene())


def test_a_request_that_was_in_flight_times_out_after_the_throttle() -> None:
    async def scene() -> None:
        connection, _ = connect()
        send(connection)
        in_flight = send(connection, timeout_ms=2_000)
        answer(connection, 1, 10_000)
        began = now_ms()
        with pytest.raises(RequestTimedOut):
            await in_flight
        assert 12_000 <= now_ms() - began < 12_100

    hurried(scene())


def test_an_answer_stops_the_clock_of_a_request_that_was_given_more_time() -> None:
    async def scene() -> None:
        connection, _ = connect()
        send(connection)
        send(connection, timeout_ms=100)
        answer(connection, 1, 1_000)
        answer(connection, 2)
        await passing(5)
        assert connection.closed is None

    hurried(scene())


def test_a_broker_that_waited_before_it_answered_is_not_waited_for_again() -> None:
    async def scene() -> None:
        connection, transport = connect()
        send(connection, version=1)
        answer(connection, 1, 5_000, version=1)
        send(connection)
        assert written(transport) == [1, 2]

    hurried(scene())


#: The versions in which brokers answered after the throttle time, by KIP-219's table.
BEFORE = {
    ApiKey.PRODUCE: 5,
    ApiKey.FETCH: 7,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 5,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.INIT_PRODUCER_ID: 0,
    ApiKey.END_TXN: 0,
    ApiKey.SHARE_FETCH: -1,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: -1,
    ApiKey.ELECT_LEADERS: -1,
}


@pytest.mark.parametrize("key", BEFORE, ids=lambda key: key.name)
def test_each_version_since_then_is_throttled(key: ApiKey) -> None:
    response = API[key].response(throttle_time_ms=70)
    assert throttle_ms(key, BEFORE[key], response) == 0 or BEFORE[key] < 0
    assert throttle_ms(key, BEFORE[key] + 1, response) == 70


def test_answers_without_a_throttle_time_are_not_throttled() -> None:
    assert throttle_ms(ApiKey.SASL_HANDSHAKE, 1, API[ApiKey.SASL_HANDSHAKE].response()) == 0
    assert throttle_ms(ApiKey.HEARTBEAT, 4, HeartbeatResponse(throttle_time_ms=-1)) == 0


@pytest.mark.parametrize("end", [BrokerConnection.close, lambda connection: connection.connection_lost(None)])
def test_requests_held_back_fail_with_their_connection(end: Any) -> None:
    async def scene() -> None:
        connection, transport = connect()
        send(connection)
        answer(connection, 1, 5_000)
        held = send(connection)
        end(connection)
        with pytest.raises(ConnectionLost):
            await held
        assert not connection.throttled and connection.in_flight == 0
        await passing(6)
        assert written(transport) == [1]

    hurried(scene())


def test_requests_without_an_answer_count_as_written_when_they_are_no_longer_held_back() -> None:
    """Otherwise a producer with acks=0 would fill the memory with them, beyond buffer.memory."""

    async def scene() -> None:
        connection, transport = connect()
        send(connection)
        answer(connection, 1, 5_000)
        began = now_ms()
        states = [connection.is_writable]
        connection.send_unanswered(HeartbeatRequest(), 2)
        states.append(connection.is_writable)
        assert states == [True, False]
        await connection.writable()
        assert 5_000 <= now_ms() - began < 5_100
        assert written(transport) == [1, 2]

    hurried(scene())


def test_a_connection_is_not_finished_before_its_requests_without_an_answer_are_on_the_wire() -> None:
    async def scene() -> None:
        connection, transport = connect()
        transport.close = Mock(side_effect=lambda: connection.connection_lost(None))
        send(connection)
        answer(connection, 1, 5_000)
        connection.send_unanswered(HeartbeatRequest(), 2)
        await connection.finish()
        assert written(transport) == [1, 2]

    hurried(scene())


def test_a_sign_in_that_is_due_at_the_end_of_the_throttle_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        connection, transport = connect()
        signed_in = asyncio.Event()

        async def authenticate(timeout_ms: int) -> None:
            await signed_in.wait()

        monkeypatch.setattr(connection, "_authenticate", authenticate)
        send(connection)
        connection._sign_in_at = asyncio.get_running_loop().time() + 3
        answer(connection, 1, 5_000)
        send(connection)
        await passing(6)
        assert written(transport) == [1]
        signed_in.set()
        await passing(0.1)
        assert written(transport) == [1, 2]

    hurried(scene())


def test_nothing_is_sent_into_a_sign_in_when_the_connection_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        connection, transport = connect()
        transport.close = Mock(side_effect=lambda: connection.connection_lost(None))

        async def authenticate(timeout_ms: int) -> None:
            await passing(60)

        monkeypatch.setattr(connection, "_authenticate", authenticate)
        connection._sign_in_at = 0.0
        connection.send_unanswered(HeartbeatRequest(), 2)
        await connection.finish()
        assert written(transport) == []

    hurried(scene())


def test_a_throttle_goes_on_after_a_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        connection, transport = connect()

        async def authenticate(timeout_ms: int) -> None:
            answer(connection, 1, 5_000)

        monkeypatch.setattr(connection, "_authenticate", authenticate)
        send(connection)
        connection._sign_in_at = 0.0
        send(connection)
        await passing(4.9)
        assert written(transport) == [1]
        await passing(0.2)
        assert written(transport) == [1, 2]

    hurried(scene())
