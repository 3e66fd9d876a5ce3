"""A bare server that only receives, writes and answers: the limit with which the table compares our node.

One loop over epoll. A Produce request is written unchanged to an unnamed file, and answered as if it were appended at
offset 0: no checksum, no log, no index. All other requests (versions, metadata, producer ids) are passed on to a node
behind it, which advertises the bare server's address, so that unmodified clients produce into it.

    python -m bench.bare DIRECTORY        prints its port, reads the node's, serves until killed

Not obvious:
- The load generator's requests (Produce 8) on a connection differ only in the correlation id, and so do the answers:
  the answer is built once. Other clients' requests name other partitions each time and must be decoded: there the
  figure is that of a server that receives, decodes, writes and answers.
- It does not serve Fetch from its file: consuming has no bare figure.
"""

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.raw import PRODUCE_VERSION
from bench.system import System
from ottla.wire.api.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.wire.compile import decode, decoder, encode
from ottla.wire.header import RequestHeader, request_header_version, response_header_version

BARE = "bare"
#: The works that a bare server supports: those that produce.
WORKS = frozenset(
    {
        "produce-100B-1",
        "produce-100B-6",
        "produce-1KiB",
        "produce-librdkafka",
        "requests",
        "ack-5000",
        "ack-20000",
    }
)
_RECEIVE_BYTES = 1 << 20
#: The head of a request: length, key, version, correlation id.
_HEAD = struct.Struct(">ihhi")
_INT = struct.Struct(">i")


class BareSystem(System):
    """A bare server with a node behind it, as a system of the bench."""

    _bare: subprocess.Popen[str] | None = None
    _port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Start both servers and tell each the other's port."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bench.bare", str(self.directory)]
        self._bare = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._bare.stdin is not None
        assert self._bare.stdout is not None
        self._port = int(self._bare.stdout.readline())
        self.server.settings = {"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}
        self.server.format()
        print(self.server.port, file=self._bare.stdin, flush=True)
        self.server.start()

    def topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> str:
        """Create the topic at the node, whose logs stay empty."""
        self._port, bare = self.server.port, self._port
        try:
            return super().topic(name, partitions, settings)
        finally:
            self._port = bare

    def stop(self) -> None:
        if self._bare is not None:
            self._bare.kill()
            self._bare.communicate()
        super().stop()


def system(name: str, directory: Path, quick: bool) -> System:
    """Apache Kafka, our node, or the bare server."""
    return BareSystem("ottla", directory, quick) if name == BARE else System(name, directory, quick)


class _Peer:
    """One connection, the file that takes what it sends, and a connection to the node behind."""

    def __init__(self, sock: socket.socket, directory: str, node_port: int) -> None:
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        #: An unnamed file, which disappears with the process.
        self._file = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
        self._position = 0
        self._node_port = node_port
        self._node: socket.socket | None = None
        #: The beginning of an incomplete frame.
        self._partial = bytearray()
        #: The answer to each of the load generator's requests, after the correlation id.
        self._body = b""

    def turn(self, memory: memoryview) -> bool:
        """Receive, write, and answer complete requests. False if the peer has disconnected."""
        try:
            count = self._socket.recv_into(memory)
        except ConnectionError:
            return False
        data = memory[:count]
        if self._partial:
            self._partial += data
            data = memoryview(bytes(self._partial))
            self._partial.clear()
        at, answers, end = 0, b"", len(data)
        while end - at >= _HEAD.size:
            size, key, version, correlation_id = _HEAD.unpack_from(data, at)
            if end - at < 4 + size:
                break
            frame = data[at : at + 4 + size]
            at += 4 + size
            if key:
                answers += self._from_node(frame)
            else:
                self._position += os.pwrite(self._file, frame, self._position)
                if version != PRODUCE_VERSION or not self._body:
                    self._body = _body(frame, version)
                answers += _INT.pack(4 + len(self._body)) + _INT.pack(correlation_id) + self._body
        if at < end:
            self._partial += data[at:]
        if answers:
            self._socket.sendall(answers)
        return count > 0

    def _from_node(self, frame: memoryview) -> bytes:
        if self._node is None:
            self._node = socket.create_connection(("127.0.0.1", self._node_port))
        self._node.sendall(frame)
        (size,) = _INT.unpack(self._node.recv(4, socket.MSG_WAITALL))
        return _INT.pack(size) + self._node.recv(size, socket.MSG_WAITALL)

    def close(self) -> None:
        self._socket.close()
        os.close(self._file)
        if self._node is not None:
            self._node.close()


def _body(frame: memoryview, version: int) -> bytes:
    """The response to a Produce request, after the correlation id."""
    _, position = decoder(RequestHeader, request_header_version(0, version))(frame, 4)
    request, _ = decode(ProduceRequest, version, frame, position)
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[PartitionProduceResponse(index=each.index) for each in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    tags = b"\0" if response_header_version(0, version) == 1 else b""
    return tags + encode(ProduceResponse(responses=topics), version)


def serve(directory: str) -> None:
    """Print the port, read the node's, and serve until killed."""
    memory = memoryview(bytearray(_RECEIVE_BYTES))
    peers: dict[int, _Peer] = {}
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as poll:
        print(listener.getsockname()[1], flush=True)
        node_port = int(sys.stdin.readline())
        poll.register(listener, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                if number == listener.fileno():
                    sock, _ = listener.accept()
                    peers[sock.fileno()] = _Peer(sock, directory, node_port)
                    poll.register(sock, select.EPOLLIN)
                elif not peers[number].turn(memory):
                    poll.unregister(number)
                    peers.pop(number).close()


if __name__ == "__main__":
    serve(sys.argv[1])
