"""One side of a comparison: a server, raw connections to it, and the transcript of what it answered."""

import re
import socket
import struct
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from ottla.wire.api import API, ApiKey
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from ottla.wire.schema import Struct, fields
from tests.client.conftest import eventually
from tests.interop.oracle.allowed import allowed
from tests.interop.server import Server

TIMEOUT_S = 45.0
CLOSED = "closed"
COORDINATOR_LOAD_IN_PROGRESS = 14
#: What a coordinator answers while it is not there yet.
NOT_YET = (COORDINATOR_LOAD_IN_PROGRESS, 15, 16)
# Servers are shared by all scripts: a topic's name must never come again.
_SETTLED = count(1)
#: Lists whose order says something. All others come in any order: Apache keeps much of it in hash maps, whose order
#: changes with the names.
ORDERED = {"acquired_records", "record_errors", "aborted_transactions", "cluster_id", "records"}

#: Fields that hold an id made by the server, by the kind of id.
IDS = {
    "topic_id": "topic",
    "producer_id": "producer",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
    "directory_id": "directory",
    "incarnation_id": "incarnation",
    "client_instance_id": "instance",
}
#: Fields that hold a moment or a port of this run.
TIMES = {"log_append_time_ms", "transaction_start_time_ms", "last_timestamp", "start_timestamp", "end_timestamp"}


class Connection:
    """A connection that speaks frames. A side makes it; it closes with the side."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._next = 0

    def ask(self, request: Any, version: int) -> Any:
        """The decoded response, or CLOSED."""
        key = key_of(request)
        self._next += 1
        self.send(frame(request, version, self._next))
        body = self.reply()
        if body is None:
            return CLOSED
        header, position = decode(ResponseHeader, response_header_version(key, version), body)
        assert header.correlation_id == self._next, f"reply {header.correlation_id} to request {self._next}"
        if key == ApiKey.API_VERSIONS and version not in API[key].versions:
            version = 0  # what Apache answers to a version that it does not know
        response, end = decode(API[key].response, version, body, position)
        assert end == len(body), f"{len(body) - end} bytes after the response"
        return response

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reply(self) -> bytes | None:
        """The body of the next frame, None when the peer closed."""
        try:
            size = self._exactly(4)
            return self._exactly(struct.unpack(">i", size)[0]) if size is not None else None
        except ConnectionResetError:
            return None

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                return None
            data += chunk
        return bytes(data)


class Side:
    """A server, what it answered so far, and the ids that it made."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.transcript: list[tuple[str, Any]] = []
        self._ids: dict[str, dict[Any, str]] = {}
        self._connections: list[Connection] = []
        self._main: Connection | None = None

    def connect(self) -> Connection:
        connection = Connection(self.server.port)
        self._connections.append(connection)
        return connection

    def ask(self, name: str, version: int, *, on: Connection | None = None, note: bool = True, **values: Any) -> Any:
        """Send a request by Kafka's name, note the reply in the transcript, and give the reply."""
        connection = on
        if connection is None:
            connection = self._main = self._main or self.connect()
        reply = connection.ask(message(name, **values), version)
        if note:
            self.note(f"{name} v{version}", reply, version)
        if reply == CLOSED and connection is self._main:
            self._main = None
        return reply

    def note(self, what: str, reply: Any, version: int = 0) -> None:
        plain = self._plain(reply, version, "") if isinstance(reply, Struct) else reply
        self.transcript.append((what, plain))

    def create(self, topic: str, partitions: int = 1, **configs: str) -> bytes:
        """A topic that can be written and read; its id. Not part of the transcript."""
        entries = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        made = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": entries}
        response = self.ask("CreateTopics", 7, note=False, topics=[made], timeout_ms=15_000)
        assert response.topics[0].error_code == 0, response
        return self.await_topic(topic, partitions)

    def await_topic(self, topic: str, partitions: int) -> bytes:
        """Wait until every partition has a leader, as a client would; the topic's id."""
        asked = [{"partition_index": partition, "timestamp": -1} for partition in range(partitions)]
        topics = [{"name": topic, "partitions": asked}]

        def served() -> bool:
            # Metadata may name a leader that does not know it yet: what ListOffsets can read is there.
            listed = self.ask("ListOffsets", 7, note=False, replica_id=-1, topics=topics)
            return all(one.error_code == 0 for one in listed.topics[0].partitions)

        eventually(served)
        response = self.ask("Metadata", 12, note=False, topics=[{"name": topic}], allow_auto_topic_creation=False)
        (found,) = response.topics
        assert len(found.partitions) == partitions, found
        topic_id: bytes = found.topic_id
        return topic_id

    def settle(self) -> None:
        """Wait until the broker has applied what its controller wrote so far.

        Apache's broker may take several of the controller's writes as one step, in which it applies topics first, then
        settings, quotas, users, tokens and ACLs, then the coordinators' view. The first topic may share its step with
        what is waited for; the second is in a later step, which begins after that one ended.
        """
        for _ in range(2):
            self.create(f"settled-{next(_SETTLED):06}")

    def await_coordinators(self) -> None:
        """Wait until every group and every transactional id has a coordinator that has loaded."""
        # Enough for one in each partition of the internal topics.
        names = [f"wake-{number}" for number in range(64)]

        def loaded(key_type: int) -> bool:
            self.ask("FindCoordinator", 4, note=False, key_type=key_type, coordinator_keys=names)
            if key_type:
                found = self.ask("DescribeTransactions", 0, note=False, transactional_ids=names).transaction_states
            else:
                found = self.ask("DescribeGroups", 5, note=False, groups=names).groups
            return not any(each.error_code in NOT_YET for each in found)

        for key_type in (0, 1):
            eventually(partial(loaded, key_type))

    def producer_id(self) -> int:
        """A new producer id. A server that has just started may not have a block of them yet."""
        while True:
            reply = self.ask("InitProducerId", 4, note=False, transactional_id=None, transaction_timeout_ms=60_000)
            if reply.error_code != COORDINATOR_LOAD_IN_PROGRESS:
                assert reply.error_code == 0, reply
                made: int = reply.producer_id
                return made

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _plain(self, value: Any, version: int, name: str) -> Any:
        if isinstance(value, Struct):
            there = [field.name for field in fields(type(value)) if version in field.versions]
            return {each: self._plain(getattr(value, each), version, each) for each in there}
        if isinstance(value, list):
            # A list of ids is named in the plural: topic_ids.
            return [self._plain(each, version, name.removesuffix("s")) for each in value]
        nothing = (-1,) if name == "producer_id" else (0, "", None, bytes(16))
        if name in IDS and value not in nothing:
            known = self._ids.setdefault(IDS[name], {})
            return known.setdefault(value, f"{IDS[name]} {len(known) + 1}")
        if name in TIMES and value > 0:
            return "time"
        if name == "port" and value == self.server.port:
            return "port"
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (memoryview, bytes, bytearray)):
            return bytes(value).hex()
        return value

    def _text(self, text: str) -> str:
        """A text in which ids, ports and paths of this run are replaced: an assignor's leader, a log directory."""
        for known, symbol in self._ids.get("member", {}).items():
            text = re.sub(rf"(?<![\w.-]){re.escape(known)}(?![\w-])", symbol, text)
        text = text.replace(str(self.server.directory), "directory")
        return re.sub(r"(?<=127\.0\.0\.1:)\d+", "port", text)


_BY_NAME = {api.name: api for api in API.values()}


def key_of(request: Any) -> int:
    return _BY_NAME[type(request).__name__.removesuffix("Request")].key


def message(name: str, **values: Any) -> Any:
    """A request by Kafka's name of its API; structs are given as dictionaries."""
    return _struct(_BY_NAME[name].request, values)


def _struct(cls: type[Any], values: dict[str, Any]) -> Any:
    made = {}
    types = {field.name: field for field in fields(cls)}
    for name, value in values.items():
        inner = types[name].struct
        if inner is not None and isinstance(value, list):
            value = [_struct(inner, one) for one in value]
        elif inner is not None and isinstance(value, dict):
            value = _struct(inner, value)
        made[name] = value
    return cls(**made)


def frame(request: Any, version: int, correlation_id: int = 1, client_id: str = "oracle") -> bytes:
    """The bytes of a request with its length before it."""
    key = key_of(request)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    known = version in API[key].versions
    # A version that does not exist is sent with the body of the newest: what counts is the number in the header.
    body = encode(request, version if known else API[key].versions[-1])
    data = encode(header, request_header_version(key, version)) + body
    return struct.pack(">i", len(data)) + data


Script = Callable[[Side], None]


class Oracle:
    """Both sides. A fixture makes it for each test."""

    def __init__(self, reference: Server, subject: Server) -> None:
        self.reference, self.subject = Side(reference), Side(subject)

    def compare(self, script: Script) -> None:
        """Run the script on both sides; every difference that is not allowed fails, all in one message."""
        script(self.reference)
        script(self.subject)
        found: list[str] = []
        theirs, ours = self.reference.transcript, self.subject.transcript
        # Where the answers lead a script different ways, the first difference says why; the rest means nothing.
        for number, ((what, expected), (_, got)) in enumerate(zip(theirs, ours, strict=False)):
            for path, left, right in differences(expected, got):
                if not allowed(what, path, left, right):
                    found.append(f"{number + 1}. {what} {path}: Apache {left!r}, {self.subject.server.name} {right!r}")
        if len(theirs) != len(ours):
            found.append(f"Apache was asked {len(theirs)} times, {self.subject.server.name} {len(ours)}")
        assert not found, f"{len(found)} differences\n" + "\n".join(found)

    def close(self) -> None:
        self.reference.close()
        self.subject.close()


def differences(expected: Any, got: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(path, expected, got) for each leaf in which they differ."""
    if isinstance(expected, dict) and isinstance(got, dict):
        names = list(dict.fromkeys([*expected, *got]))
        return [
            one
            for name in names
            for one in differences(expected.get(name, "absent"), got.get(name, "absent"), f"{path}.{name}")
        ]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return [
            one
            for number, (left, right) in enumerate(_paired(expected, got, path.rpartition(".")[2]))
            for one in differences(left, right, f"{path}[{number}]")
        ]
    return [] if expected == got else [(path, expected, got)]


def _paired(expected: list[Any], got: list[Any], name: str) -> list[tuple[Any, Any]]:
    """What is compared with what: the same places, or where the order says nothing the same values first."""
    if not name or name in ORDERED or expected == got:
        return list(zip(expected, got, strict=True))
    left, right = list(expected), []
    for one in got:
        if one in left:
            left.remove(one)
        else:
            right.append(one)
    return list(zip(left, right, strict=True))
