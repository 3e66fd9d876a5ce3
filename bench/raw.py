"""Our own load: Produce requests over plain sockets, with no client between. One process, asyncio on uvloop.

    python -m bench.raw requests PORT TOPIC CONNECTIONS SECONDS
    python -m bench.raw latency PORT TOPIC RATE SECONDS WARMUP_SECONDS

`requests` sends one record of 100 bytes a request, each connection waiting for its answer (closed loop).
`latency` sends records of 1 KiB at a fixed rate over six partitions, a tick every 5 ms, and measures from the tick's
due time, not from when it was sent: a system that stalls is charged for every record that was due meanwhile.
"""

import asyncio
import json
import socket
import struct
import sys
import time
from typing import Any

import uvloop

from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.batch import build
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader

PRODUCE, CREATE_TOPICS = 0, 19
PRODUCE_VERSION, CREATE_VERSION = 8, 4  # not flexible: header 1, and the response header is the correlation id alone
ALREADY_THERE = 36
#: A topic that is being made, a controller that is starting: 3 UNKNOWN_TOPIC_OR_PARTITION, 5 LEADER_NOT_AVAILABLE,
#: 6 NOT_LEADER_OR_FOLLOWER, 7 REQUEST_TIMED_OUT, 41 NOT_CONTROLLER, 38 INVALID_REPLICATION_FACTOR (no broker yet).
NOT_YET = {3, 5, 6, 7, 38, 41}
TICK_S = 0.005
PARTITIONS = 6


def frame(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A request with its header and its length."""
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="bench"
    )
    data = encode(header, 1) + body
    return struct.pack(">i", len(data)) + data


def produce_body(topic: str, partition: int, records: int, record_bytes: int) -> bytes:
    """A Produce request of one batch for one partition."""
    now_ms = int(time.time() * 1000)
    batch = build([(now_ms, None, b"x" * record_bytes, []) for _ in range(records)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return encode(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)


def error_of(reply: bytes) -> int:
    """The error of a Produce response of one partition."""
    response, _ = decode(ProduceResponse, PRODUCE_VERSION, reply, 4)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


class Blocking:
    """A connection for what is done once."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._number = 0

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        self._number += 1
        self._socket.sendall(frame(key, version, self._number, body))
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("closed in the middle of a reply")
            data += chunk
        return bytes(data)


def create_topic(port: int, topic: str, partitions: int, deadline_s: float = 30) -> None:
    """Create a topic and return when every partition takes a record."""
    connection = Blocking(port)
    try:
        _create(connection, topic, partitions, time.monotonic() + deadline_s)
        for partition in range(partitions):
            _write(connection, topic, partition, time.monotonic() + deadline_s)
    finally:
        connection.close()


def first_record(port: int, topic: str, deadline_s: float) -> None:
    """Return when a record was acknowledged by a server that is starting now."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            connection = Blocking(port)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
            continue
        try:
            _create(connection, topic, 1, deadline)
            _write(connection, topic, 0, deadline)
            return
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
        finally:
            connection.close()


def _create(connection: Blocking, topic: str, partitions: int, deadline: float) -> None:
    made = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    body = encode(CreateTopicsRequest(topics=[made], timeout_ms=15_000), CREATE_VERSION)
    while True:
        reply = connection.ask(CREATE_TOPICS, CREATE_VERSION, body)
        code = decode(CreateTopicsResponse, CREATE_VERSION, reply, 4)[0].topics[0].error_code
        if code in (0, ALREADY_THERE):
            return
        _again(code, deadline)


def _write(connection: Blocking, topic: str, partition: int, deadline: float) -> None:
    body = produce_body(topic, partition, 1, 100)
    while code := error_of(connection.ask(PRODUCE, PRODUCE_VERSION, body)):
        _again(code, deadline)


def _again(code: int, deadline: float) -> None:
    if code not in NOT_YET or time.monotonic() > deadline:
        raise RuntimeError(f"the server answers error {code}")
    time.sleep(0.002)


async def requests(port: int, topic: str, connections: int, seconds: float) -> dict[str, Any]:
    """One record a request: how many a second, over this many connections."""
    body = produce_body(topic, 0, 1, 100)
    counts = [0] * connections
    began = asyncio.get_running_loop().time()
    until = began + seconds

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = frame(PRODUCE, PRODUCE_VERSION, number, body)
        while asyncio.get_running_loop().time() < until:
            writer.write(request)
            size = struct.unpack(">i", await reader.readexactly(4))[0]
            reply = await reader.readexactly(size)
            if code := error_of(reply):
                raise RuntimeError(f"the server answers error {code}")
            counts[number] += 1
        writer.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    took = asyncio.get_running_loop().time() - began
    assert all(counts), "a connection was never answered"
    return {"records": sum(counts), "records_per_s": sum(counts) / took}


class Latency(asyncio.Protocol):
    """Keeps the due time of every request until its answer comes; answers come in the order of the requests."""

    def __init__(self) -> None:
        self.due: list[float] = []
        self.answered = 0
        self.latencies: list[float] = []
        self.wanted = sys.maxsize
        self.complete = asyncio.Event()
        self.failure = ""
        self._buffer = bytearray()

    def check(self) -> None:
        """Is every request answered?"""
        if self.answered >= self.wanted or self.failure:
            self.complete.set()

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._buffer += data
        while len(self._buffer) >= 4:
            size = struct.unpack_from(">i", self._buffer)[0]
            if len(self._buffer) < 4 + size:
                break
            if code := error_of(bytes(self._buffer[4 : 4 + size])):
                self.failure = f"the server answers error {code}"
            del self._buffer[: 4 + size]
            self.latencies.append(now - self.due[self.answered])
            self.answered += 1
        self.check()


async def latency(port: int, topic: str, rate: int, seconds: float, warmup_s: float) -> dict[str, Any]:
    """Ack latencies at a fixed rate; each tick goes to the next partition."""
    records = max(1, round(rate * TICK_S))
    bodies = [produce_body(topic, partition, records, 1024) for partition in range(PARTITIONS)]
    frames = [frame(PRODUCE, PRODUCE_VERSION, 1, body) for body in bodies]
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(Latency, "127.0.0.1", port)
    began = time.perf_counter()
    ticks = round((seconds + warmup_s) / TICK_S)
    for tick in range(ticks):
        due = began + tick * TICK_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        protocol.due.append(due)
        transport.write(frames[tick % PARTITIONS])
    protocol.wanted = ticks
    protocol.check()
    try:
        await asyncio.wait_for(protocol.complete.wait(), 60)
    except TimeoutError:
        raise RuntimeError(f"{ticks - protocol.answered} of {ticks} requests without an answer") from None
    if protocol.failure:
        raise RuntimeError(protocol.failure)
    transport.close()
    measured = sorted(protocol.latencies[round(warmup_s / TICK_S) :])

    def at(share: float) -> float:
        return 1000 * measured[min(len(measured) - 1, int(len(measured) * share))]

    return {
        "records": ticks * records,
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": 1000 * measured[-1],
    }


def main(what: str, port: str, topic: str, number: str, *seconds: str) -> None:
    """Run one work and print its figures as a line of JSON."""
    work: Any = {"requests": requests, "latency": latency}[what]
    print(json.dumps(uvloop.run(work(int(port), topic, int(number), *map(float, seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
