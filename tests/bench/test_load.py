"""The load generator against a server that answers as it is told to."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from bench import load
from ottla.wire.api.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.compile import encode

TOPIC = "t"
#: Takes a connection and the correlation ids of requests that came over it.
Serve = Callable[[socket.socket], None]


def answer(correlation_id: int, error: int = 0) -> bytes:
    partition = PartitionProduceResponse(index=0, error_code=error)
    response = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[partition])])
    body = struct.pack(">i", correlation_id) + encode(response, 8)
    return struct.pack(">i", len(body)) + body


def correlation_ids(connection: socket.socket) -> Iterator[int]:
    stream = connection.makefile("rb")
    with stream:
        while head := stream.read(4):
            yield struct.unpack_from(">i", stream.read(struct.unpack(">i", head)[0]), 4)[0]


@contextmanager
def server(serve: Serve) -> Iterator[int]:
    """The port of a server of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            # The generator hangs up when it has what it wants, whatever is under way.
            with connection, suppress(ConnectionError):
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(50)


def test_a_stall_is_charged_to_every_record_that_was_due_meanwhile() -> None:
    def stall(connection: socket.socket) -> None:
        seen = []
        for correlation_id in correlation_ids(connection):
            seen.append(correlation_id)
            if len(seen) == 100:
                connection.sendall(b"".join(map(answer, seen)))

    with server(stall) as port:
        figures = load.latency(port, TOPIC, 1, rate=1_000, seconds=0.1, warmup_s=0)
    # Nothing was answered before the last request, due 99 ms after the first, was there.
    assert figures["max_ms"] >= 99
    assert figures["p50_ms"] >= 49


def test_an_error_ends_the_measurement() -> None:
    def refuse(connection: socket.socket) -> None:
        for correlation_id in correlation_ids(connection):
            connection.sendall(answer(correlation_id, error=3))

    with server(refuse) as port, pytest.raises(RuntimeError, match="error 3"):
        load.requests(port, TOPIC, 1, connections=1, seconds=0.05)


def test_a_reply_to_another_request_ends_the_measurement() -> None:
    def confuse(connection: socket.socket) -> None:
        for correlation_id in correlation_ids(connection):
            connection.sendall(answer(correlation_id + 1))

    with server(confuse) as port, pytest.raises(RuntimeError, match="request 1 answered as 2"):
        load.requests(port, TOPIC, 1, connections=1, seconds=0.05)


def test_answers_that_come_in_pieces_are_counted_once() -> None:
    def trickle(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for correlation_id in correlation_ids(connection):
            data = answer(correlation_id)
            for place in range(len(data)):
                connection.sendall(data[place : place + 1])

    with server(trickle) as port:
        figures = load.latency(port, TOPIC, 1, rate=1_000, seconds=0.02, warmup_s=0)
    assert figures["records"] == 20
