"""The bench's own requests to a system: Produce and CreateTopics over a plain blocking socket.

Rules:
- Produce 8 and CreateTopics 4 are the last versions that are not flexible: the body begins after the correlation id,
  and the error code of a Produce response for one partition is at a fixed position.
- Requests to a system that is starting, or creating a topic, are retried until a timeout. Any other error ends the
  bench.
"""

import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.batch import build
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader

PRODUCE, CREATE_TOPICS = 0, 19
PRODUCE_VERSION, CREATE_VERSION = 8, 4
ALREADY_THERE = 36
#: 3 UNKNOWN_TOPIC_OR_PARTITION, 5 LEADER_NOT_AVAILABLE, 6 NOT_LEADER_OR_FOLLOWER, 7 REQUEST_TIMED_OUT,
#: 38 INVALID_REPLICATION_FACTOR (no broker is registered yet), 41 NOT_CONTROLLER.
NOT_YET = frozenset({3, 5, 6, 7, 38, 41})
PAUSE_S = 0.002
#: A thousand partitions are created by one request.
ANSWER_TIMEOUT_S = 90.0
#: The position of the correlation id in a frame: after the length, the key and the version.
CORRELATION_ID_AT = 8


def frame(key: int, version: int, body: bytes) -> bytearray:
    """A request with its length in front and correlation id 0, which the sender overwrites."""
    header = RequestHeader(request_api_key=key, request_api_version=version, client_id="bench")
    data = encode(header, 1) + body
    return bytearray(struct.pack(">i", len(data)) + data)


def produce_frame(topic: str, partitions: list[int], records: int, record_bytes: int, acks: int = -1) -> bytearray:
    """A Produce request with one batch for each of the partitions."""
    now_ms = int(time.time() * 1000)
    batch = build([(now_ms, None, b"x" * record_bytes, []) for _ in range(records)])
    data = [PartitionProduceData(index=partition, records=batch) for partition in partitions]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics)
    return frame(PRODUCE, PRODUCE_VERSION, encode(request, PRODUCE_VERSION))


def error_at(topic: str) -> int:
    """The position of the error code in a Produce response for one partition of this topic.

    Correlation id, count of topics, name, count of partitions, index.
    """
    return 4 + 4 + 2 + len(topic) + 4 + 4


class Connection:
    """A blocking connection, for setup requests. A context manager."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: bytearray) -> bytes:
        self.send(request)
        return self.read()

    def send(self, request: bytearray) -> None:
        self._socket.sendall(request)

    def read(self) -> bytes:
        """The next answer, without its length."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

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


def create_topic(
    port: int, topic: str, partitions: int, settings: Mapping[str, str] | None = None, within_s: float = 60
) -> None:
    """Create a topic; wait until every partition has acknowledged a record."""
    deadline = time.monotonic() + within_s
    with Connection(port) as connection:
        _create(connection, topic, partitions, settings or {}, deadline)
        _write(connection, topic, partitions, deadline)


def until_acknowledged(port: int, topic: str, partitions: int, *, create: bool, within_s: float) -> None:
    """Retry until every partition of the topic in a starting system has acknowledged a record."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            with Connection(port) as connection:
                if create:
                    _create(connection, topic, partitions, {}, deadline)
                _write(connection, topic, partitions, deadline)
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def _create(connection: Connection, topic: str, partitions: int, settings: Mapping[str, str], deadline: float) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
    made = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
    body = encode(CreateTopicsRequest(topics=[made], timeout_ms=30_000), CREATE_VERSION)
    while True:
        reply = connection.ask(frame(CREATE_TOPICS, CREATE_VERSION, body))
        code = decode(CreateTopicsResponse, CREATE_VERSION, reply, 4)[0].topics[0].error_code
        if code in (0, ALREADY_THERE):
            return
        _again(code, deadline)


def _write(connection: Connection, topic: str, partitions: int, deadline: float) -> None:
    """Write one record into each partition; retry those that do not serve yet."""
    missing = list(range(partitions))
    while True:
        reply = connection.ask(produce_frame(topic, missing, 1, 100))
        answers = decode(ProduceResponse, PRODUCE_VERSION, reply, 4)[0].responses[0].partition_responses
        refused = {answer.index: answer.error_code for answer in answers if answer.error_code}
        if not refused:
            return
        missing = list(refused)
        _again(max(refused.values()), deadline)


def _again(code: int, deadline: float) -> None:
    if code not in NOT_YET or time.monotonic() > deadline:
        raise RuntimeError(f"the system answers error {code}")
    time.sleep(PAUSE_S)
