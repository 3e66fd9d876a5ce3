"""Incomplete requests of all listeners share `queued.max.request.bytes`; further ones wait in their order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from ottla.net.memory import RequestMemory
from tests.net.test_inbound import Served, framed

BYTES_MAX = 100


@pytest.fixture
def requests() -> RequestMemory:
    return RequestMemory(BYTES_MAX)


@pytest.fixture
def served(requests: RequestMemory) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    served = Served(loop, requests=requests)
    yield served
    served.listener.close()
    for connection in list(served.listener.connections):
        connection.close("the test ends")
    assert requests.used_bytes == 0 and not requests._waiting
    loop.close()


def first_bytes(served: Served, frame: bytes, count: int) -> socket.socket:
    """A client that has sent the first bytes of the frame, which the node has read."""
    count_before = len(served.listener.connections)
    sock = served.client()
    served.until(lambda: len(served.listener.connections) > count_before)
    connection = list(served.listener.connections)[-1]
    sock.send(frame[:count])
    served.until(lambda: connection._partial is not None or connection._held is not None)
    return sock


def test_a_request_waits_while_others_take_the_memory_and_is_read_in_its_turn(
    served: Served, requests: RequestMemory
) -> None:
    frames = [framed(bytes([65 + number]) * 90) for number in range(4)]
    socks = [first_bytes(served, frame, 10) for frame in frames]
    # The second may exceed the limit, as in Apache Kafka; the third and the fourth wait.
    assert requests.used_bytes == 2 * 94 and len(requests._waiting) == 2
    socks[3].send(frames[3][10:])
    socks[2].send(frames[2][10:])
    # A complete small request needs no memory, whoever waits.
    with served.client() as small:
        small.send(framed(b"small"))
        assert served.receive(small, 5) == b"small"
    socks[0].send(frames[0][10:])
    socks[1].send(frames[1][10:])
    served.until(lambda: len(served.frames) == 5)
    assert served.frames[1:3] == [frames[0][4:], frames[1][4:]]
    assert sorted(served.frames[3:]) == [frames[2][4:], frames[3][4:]]
    for sock, frame in zip(socks, frames, strict=True):
        assert served.receive(sock, 90) == frame[4:]
        sock.close()


def test_a_client_that_leaves_frees_what_it_had_and_waits_no_more(served: Served, requests: RequestMemory) -> None:
    frame = framed(b"x" * 96)
    first, second, third = (first_bytes(served, frame, 10) for _ in range(3))
    assert (requests.used_bytes, len(requests._waiting)) == (100, 2)
    second_connection = list(served.listener.connections)[1]
    second_connection.close("it leaves while it waits")
    first.close()
    served.until(lambda: not requests._waiting)
    assert requests.used_bytes == 100
    third.send(frame[10:])
    assert served.receive(third, 96) == frame[4:]
    assert requests.used_bytes == 0
    for sock in (second, third):
        sock.close()


def test_a_length_that_comes_in_pieces_is_reserved_once_it_is_known(served: Served, requests: RequestMemory) -> None:
    frame = framed(b"y" * 60)
    sock = first_bytes(served, frame, 2)
    assert requests.used_bytes == 4
    sock.send(frame[2:20])
    served.until(lambda: requests.used_bytes == 64)
    sock.send(frame[20:] + framed(b"next"))
    assert served.receive(sock, 64) == frame[4:] + b"next"
    assert requests.used_bytes == 0
    sock.close()


def test_a_connection_that_is_closed_by_its_own_request_gives_back_once(
    served: Served, requests: RequestMemory
) -> None:
    frame = framed(b"z" * 60)
    sock = first_bytes(served, frame, 10)
    connection = next(iter(served.listener.connections))
    served.answer = lambda *_: connection.close("refused")
    sock.send(frame[10:])
    served.until(lambda: connection.closed)
    assert requests.used_bytes == 0
    sock.close()


def test_the_limit_is_that_of_all_listeners_together(served: Served, requests: RequestMemory) -> None:
    other = Served(served.loop, requests=requests)
    frame = framed(b"o" * 120)
    sock, waiting = first_bytes(other, frame, 10), first_bytes(served, frame, 10)
    assert len(requests._waiting) == 1
    sock.send(frame[10:])
    waiting.send(frame[10:])
    assert other.receive(sock, 120) == served.receive(waiting, 120) == frame[4:]
    other.listener.close()
    for each in (sock, waiting):
        each.close()


def test_without_a_limit_nobody_waits() -> None:
    requests = RequestMemory()
    assert all(requests.reserve(1 << 30, lambda _: None) for _ in range(100))
