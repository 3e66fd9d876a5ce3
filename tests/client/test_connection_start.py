"""How a connection begins: versions, the errors of opening it, and an authentication in the middle of its work."""

from __future__ import annotations

import asyncio
import math
import random
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from ottla.client.connection import clock
from ottla.client.connection import connection as module
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.node_metric import NodeMeter
from ottla.kernel.client_error import AuthenticationFailed, ConnectionLost, NotReachable, Unsupported
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.security.sasl import SignIn
from ottla.security.sign_in import Security
from ottla.settings.client.client import ClientSettings
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.compile import encode
from tests.client.hurried import hurried
from tests.client.test_connection import Transport, answer, connect, receive, run, send

_MINUTE_MS = 60_000


def versions(number: int, version: int, *ranges: tuple[int, int, int], code: int = 0) -> bytes:
    """The frame of an answer to ApiVersions in this version."""
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]
    response = ApiVersionsResponse(error_code=code, api_keys=keys)
    return number.to_bytes(4, "big") + encode(response, version)


def asked(transport: Transport) -> list[tuple[int, int]]:
    """The (API key, version) of each request that was written."""
    frames = [b"".join(map(bytes, call.args[0])) for call in transport.writelines.call_args_list]
    return [(int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")) for frame in frames]


_VERSIONS = int(ApiKey.API_VERSIONS)


async def _negotiated(*answers: bytes) -> tuple[BrokerConnection, Transport]:
    connection, transport = connect()
    work = asyncio.ensure_future(connection._negotiate_versions(_MINUTE_MS))
    for frame in answers:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        receive(connection, frame)
    async with asyncio.timeout(3):
        await work
    return connection, transport


@pytest.mark.parametrize(("known", "second"), [([(_VERSIONS, 0, 2)], 2), ([], 0), ([(_VERSIONS, 0, 9)], 3)])
def test_an_older_broker_is_asked_again_in_a_version_that_it_knows(
    known: list[tuple[int, int, int]], second: int
) -> None:
    async def scene() -> None:
        refusal = versions(1, 0, *known, code=int(ErrorCode.UNSUPPORTED_VERSION))
        connection, transport = await _negotiated(refusal, versions(2, second, (12, 1, 3), (_VERSIONS, 0, 2)))
        assert asked(transport) == [(_VERSIONS, 4), (_VERSIONS, second)]
        assert connection.versions == {12: (1, 3), _VERSIONS: (0, 2)}
        heartbeat = ApiKey.HEARTBEAT
        assert [connection.version_of(heartbeat, most) for most in (None, 3, 2, 1)] == [3, 3, 2, 1]
        assert [connection.supports(heartbeat, version) for version in (0, 3, 4)] == [True, True, False]
        assert not connection.supports(ApiKey.PRODUCE)
        for key, most in ((ApiKey.PRODUCE, None), (heartbeat, 0)):
            with pytest.raises(Unsupported, match=r"^UNSUPPORTED_VERSION: b:9092 "):
                connection.version_of(key, most)

    run(scene)


def test_a_request_that_an_older_broker_cannot_be_asked_is_unsupported() -> None:
    """Kafka 4.0 lists the resources of client metrics and of no other type."""

    async def scene() -> None:
        listed = int(ApiKey.LIST_CONFIG_RESOURCES)
        connection, transport = await _negotiated(versions(1, 4, (listed, 0, 0), (_VERSIONS, 0, 4)))
        with pytest.raises(Unsupported, match=r"b:9092 takes ListConfigResources up to v0: .* cannot express"):
            connection.send(ListConfigResourcesRequest(resource_types=[32]), timeout_ms=_MINUTE_MS)
        assert len(asked(transport)) == 1

    run(scene)


def test_a_broker_that_refuses_again_is_told() -> None:
    async def scene() -> None:
        code = int(ErrorCode.UNSUPPORTED_VERSION)
        with pytest.raises(KafkaError) as raised:
            await _negotiated(versions(1, 0, code=code), versions(2, 0, code=code))
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError) as raised:
            await _negotiated(versions(1, 4, code=int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(scene)


# ---- opening


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def _speaks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_an_address_that_does_not_answer_does_not_hide_the_next_one_of_the_same_name(protocol: str) -> None:
    """As in Java's client with client.dns.lookup=use_all_dns_ips: a name may have an address that is gone."""

    async def scene() -> None:
        loop, tried = asyncio.get_running_loop(), []

        async def looked_up(host: str, port: int, **_: object) -> list[Any]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*kind, (f"10.0.0.{number}", port)) for number in (1, 2, 2, 3)]

        async def unanswered(_: object, host: str, port: int, *, server_hostname: str | None, **__: object) -> None:
            tried.append((host, port, server_hostname, round(loop.time() - began)))
            if len(tried) == 2:
                raise ConnectionRefusedError(111, "refused")
            await asyncio.Event().wait()

        settings = ClientSettings.read("b:9092", {"security_protocol": protocol})
        security = Security(settings)
        began = loop.time()
        loop.getaddrinfo = looked_up  # type: ignore[method-assign, assignment]
        loop.create_connection = unanswered  # type: ignore[method-assign, assignment]
        with pytest.raises(NotReachable, match="b:9092 did not answer within 10000 ms"):
            await BrokerConnection.open("b", 9092, settings, security, NodeMeter(0), 10_000)
        name = "b" if protocol == "SSL" else None
        assert tried == [(f"10.0.0.{number}", 9092, name, late) for number, late in ((1, 0), (2, 3), (3, 3))]
        assert round(loop.time() - began) == 10

    hurried(scene())


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        (_silent, "{} did not answer within 30 ms: is it a Kafka broker?"),
        (_closes, "{} does not speak Kafka's protocol (no Kafka broker, or another security.protocol: {}: "),
        (_speaks_http, "{} does not speak Kafka's protocol (no Kafka broker, or another security.protocol: {}: "),
        (None, "{} cannot be reached (connection refused: is a broker running there?)"),
    ],
)
def test_a_peer_that_is_no_broker_is_not_reached_and_the_error_says_how(peer: Peer | None, said: str) -> None:
    async def scene() -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await cast(Peer, peer)(reader, writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if peer is None:
            server.close()
            await server.wait_closed()
        patience = 30 if peer is _silent else 10_000
        settings = ClientSettings.read("127.0.0.1:1", {})
        where = f"127.0.0.1:{port}"
        with pytest.raises(NotReachable, match=re.escape(said.format(where, where))):
            await BrokerConnection.open("127.0.0.1", port, settings, Security(settings), NodeMeter(0), patience)
        server.close()
        if peer is not None:
            async with asyncio.timeout(3):
                await ended.wait()

    run(scene)


def test_a_broker_that_reads_nothing_holds_up_the_end_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FINISH_S", 0.01)

    async def scene() -> None:
        connection, transport = connect()
        waiting = send(connection)
        async with asyncio.timeout(3):
            await connection.finish()
        assert transport.close.called and transport.abort.called
        with pytest.raises(ConnectionLost, match=r"b:9092: closed by this client"):
            await waiting

    run(scene)


def test_five_seconds_are_enough_for_a_broker_to_read_the_rest() -> None:
    assert module._FINISH_S == 5


# ---- authenticating again


def _signing(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Future[int]]:
    """Each authentication waits for a future of this list, which gives the session's lifetime in ms."""
    signed: list[asyncio.Future[int]] = []

    async def authenticate(ask: object, sign_in: object, host: str, port: int) -> int:
        assert (host, port) == ("b", 9092)
        signed.append(asyncio.get_running_loop().create_future())
        return await signed[-1]

    monkeypatch.setattr(module, "authenticate", authenticate)
    monkeypatch.setattr(clock, "_random", random.Random(1))
    return signed


def _due(connection: BrokerConnection) -> None:
    connection._sign_in = cast(SignIn, object())
    connection._sign_in_at = 0.0


def test_requests_wait_while_a_client_signs_in_again_and_go_out_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    signed = _signing(monkeypatch)

    async def scene() -> None:
        connection, transport = connect()
        _due(connection)
        first = send(connection)
        connection.send_unanswered(HeartbeatRequest(group_id="unanswered"), 0)
        second = send(connection)
        await asyncio.sleep(0)
        assert transport.writelines.call_count == 0 and connection.in_flight == 3 and len(signed) == 1
        began = asyncio.get_running_loop().time()
        signed[0].set_result(100_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.writelines.call_count == 3 and connection.in_flight == 2
        receive(connection, answer(1), answer(3))
        assert (await first).error_code == 0 and (await second).error_code == 0
        # After 85 to 95 of the 100 seconds, as by Java's client.
        assert began + 85 <= connection._sign_in_at <= asyncio.get_running_loop().time() + 95
        send(connection).cancel()
        assert transport.writelines.call_count == 4 and len(signed) == 1, "not before"

    run(scene)


def test_a_session_without_an_end_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    signed = _signing(monkeypatch)

    async def scene() -> None:
        connection, _ = connect()
        _due(connection)
        send(connection).cancel()
        await asyncio.sleep(0)
        signed[0].set_result(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert connection._sign_in_at == math.inf

    run(scene)


def test_a_client_that_is_refused_later_loses_the_connection_and_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    signed = _signing(monkeypatch)

    async def scene() -> None:
        connection, transport = connect()
        _due(connection)
        waiting = [send(connection), send(connection)]
        await asyncio.sleep(0)
        signed[0].set_exception(AuthenticationFailed("b:9092 refuses to let this client in: expired"))
        for each in waiting:
            with pytest.raises(ConnectionLost, match=r"authenticating again failed: .*expired"):
                await each
        assert transport.writelines.call_count == 0 and transport.abort.called and connection.in_flight == 0

    run(scene)


@pytest.mark.parametrize("answered", [True, False])
def test_the_new_authentication_has_the_time_of_its_request(answered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    async def authenticate(_: BrokerConnection, timeout_ms: int) -> None:
        given.append(timeout_ms)

    monkeypatch.setattr(BrokerConnection, "_authenticate", authenticate)

    async def scene() -> None:
        connection, _ = connect()
        _due(connection)
        if answered:
            send(connection, 4321).cancel()
        else:
            connection.send_unanswered(HeartbeatRequest(group_id="g"), 0)
        await asyncio.sleep(0)
        assert given == [4321 if answered else 30_000]

    run(scene)


def test_what_is_sent_over_a_connection_that_ended_meanwhile_is_not_written() -> None:
    async def scene() -> None:
        connection, transport = connect()
        used: Any = connection.used_at
        connection.closed = "gone"
        connection._put(None, [b"x"])
        assert not transport.writelines.called and connection.used_at == used

    run(scene)
