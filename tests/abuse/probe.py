"""What one client may do to a node: each probe attacks for a while, over raw sockets, and comes back."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache

from ottla.kernel.error import ErrorCode
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.batch import CHECKED, assemble, build
from ottla.wire.codec import Codec, compress
from tests.abuse.served import Beside, Served, drain, drain_frame, frame, produced, send
from tests.abuse.wide import WIDE
from tests.broker.test_transaction import begun

_NOW = 1_700_000_000_000
Probe = Callable[[Served, Beside], None]


def _batch(body: bytes, count: int, codec: Codec, newest: int = _NOW) -> bytes:
    return assemble(0, -1, CHECKED.pack(codec, count - 1, _NOW, newest, -1, -1, -1, count), compress(codec, body))


def claimed_lengths(served: Served, beside: Beside) -> None:
    with ExitStack() as stack:
        socks = [stack.enter_context(served.raw()) for _ in range(300)]
        for sock in socks:
            send(sock, (100 << 20).to_bytes(4, "big") + bytes(1024))
        beside.wait_for(60)


def odd_bytes(served: Served, beside: Beside) -> None:
    pieces = [
        (0x7FFFFFFF).to_bytes(4, "big") + b"x",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 65536,
        (14).to_bytes(4, "big") + b"\x7f\xff\x00\x00\x00\x00\x00\x01\x00\x04",
    ]
    for piece in pieces * 5:
        with served.raw() as sock:
            send(sock, piece)
            drain(sock, 0.02)


def refused_requests(served: Served, beside: Beside) -> None:
    """Versions that nobody has, names that are no text, partitions that are not there or too many to be."""
    for key, version in ((0, -1), (1, 99), (3, 32767), (18, 99), (999, 0)):
        with served.raw() as sock:
            body = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff" + bytes(64)
            send(sock, len(body).to_bytes(4, "big") + body)
            drain(sock, 0.05)
    odd = b"\xff\xfe\x80a"
    for head in (b"\x00\x03\x00\x04", b"\x00\x0c\x00\x00", b"\x00\x09\x00\x01"):
        with served.raw() as sock:
            text = len(odd).to_bytes(2, "big") + odd
            body = head + bytes(4) + text + b"\x00\x00\x00\x01" + text + bytes(16)
            send(sock, len(body).to_bytes(4, "big") + body)
            drain(sock, 0.05)
    records = build([(_NOW, b"k", b"v", ())])
    for name in ("not-there", "good"):
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=7, records=records)])
        for acks in (1, 0):
            with served.raw() as sock:
                send(sock, frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), 9))
                drain(sock, 0.1)
    with served.client() as client:
        for partitions in (2_000_000_000, (1 << 31) - 1):
            topic = CreatableTopic(name="huge", num_partitions=partitions, replication_factor=1)
            (answer,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
            assert answer.error_code != ErrorCode.NONE
    beside.wait_for(30)


def huge_arrays(served: Served, beside: Beside) -> None:
    for key, version in ((3, 4), (0, 3), (1, 4), (2, 1), (8, 2), (9, 1), (10, 4), (19, 4), (32, 1)):
        with served.raw() as sock:
            body = (
                key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + b"\x7f\xff\xff\xff" * 8
            )
            send(sock, len(body).to_bytes(4, "big") + body)
            drain(sock, 0.05)


def many_metadata_unread(served: Served, beside: Beside) -> None:
    """72 KB that ask for 600 MB."""
    served.create("wide", 5000)
    with served.raw() as sock:
        send(sock, frame(MetadataRequest(topics=None), 1) * 3000)
        beside.wait_for(240)


def metadata_behind_a_join(served: Served, beside: Beside) -> None:
    """The member waits for another one of its group, and the answers behind its join take 130 MB."""
    served.create("wide", 5000)

    def join(member_id: str = "") -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m")]
        return JoinGroupRequest(
            group_id="behind",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )

    with served.client() as first, served.raw() as sock:
        joined = JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
        while joined.error_code:
            first.ask(FindCoordinatorRequest(key="behind"), 3)
            joined = first.ask(join(), 3)
        first.ask(
            SyncGroupRequest(
                group_id="behind", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]
            ),
            2,
        )
        send(sock, frame(join(), 3) + frame(MetadataRequest(topics=None), 1) * 990)
        beside.wait_for(240)


def fifty_floods(served: Served, beside: Beside) -> None:
    request = frame(MetadataRequest(topics=[MetadataRequestTopic(name="good")]), 9)
    with ExitStack() as stack:
        socks = [stack.enter_context(served.raw()) for _ in range(50)]
        for sock in socks:
            sock.settimeout(0.02)
            send(sock, request * 20_000)
        beside.wait_for(180)


_PATTERNS = ("(a+)+$", "(a|aa)+$", "[ab]*a[ab]{400}", "((a?){100}){20}a{100}")


def exponential_pattern(served: Served, beside: Beside) -> None:
    with served.client() as client:
        begun(client, "a" * 60 + "!")
        for pattern in _PATTERNS * 3:
            client.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)


def subscribed_patterns(served: Served, beside: Beside) -> None:
    """Members whose expressions are as hard as the engine allows."""
    served.create("a" * 60)
    with served.client() as client:
        client.ask(FindCoordinatorRequest(key="patterns"), 3)
        for number, pattern in enumerate(_PATTERNS * 3):
            request = ConsumerGroupHeartbeatRequest(
                group_id="patterns",
                member_id=f"member-{number}",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_regex=pattern,
                topic_partitions=[],
            )
            answer = client.ask(request, 1)
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION), answer


@cache
def _absent_topics() -> bytes:
    topics = [MetadataRequestTopic(name=f"{number:06d}") for number in range(400_000)]
    return frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


@cache
def _many_coordinators() -> bytes:
    return frame(FindCoordinatorRequest(key_type=0, coordinator_keys=[f"{each:06d}" for each in range(300_000)]), 4)


@cache
def _absent_offsets() -> bytes:
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(200_000)]
    topics = [ListOffsetsTopic(name="good", partitions=partitions)]
    return frame(ListOffsetsRequest(replica_id=-1, topics=topics), 5)


@cache
def _wide_session() -> bytes:
    partitions = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(30_000)]
    topics = [FetchTopic(topic="x", partitions=partitions)]
    return frame(FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics), 11)


@cache
def _tiny_records() -> bytes:
    count = 6_300_000
    return _batch(b"\x0c\x00\x00\x00\x01\x01\x00" * count, count, Codec.ZSTD, _NOW + 1000)


@cache
def _bombs() -> list[bytes]:
    return [build([(_NOW, b"k", bytes(60 << 20), ())], codec=codec) for codec in (Codec.GZIP, Codec.ZSTD)]


def absent_topics(served: Served, beside: Beside) -> None:
    with served.raw() as sock:
        send(sock, _absent_topics())
        drain_frame(sock)


def many_coordinators(served: Served, beside: Beside) -> None:
    with served.raw() as sock:
        send(sock, _many_coordinators())
        drain_frame(sock)


def absent_offsets(served: Served, beside: Beside) -> None:
    with served.raw() as sock:
        send(sock, _absent_offsets())
        drain_frame(sock)


def wide_sessions(served: Served, beside: Beside) -> None:
    for _ in range(12):
        with served.raw() as sock:
            send(sock, _wide_session())
            drain_frame(sock)


def tiny_records(served: Served, beside: Beside) -> None:
    """4.7 KB of zstd that are 6.3 million records: to a compacted topic, to a plain one, and looked up by time."""
    served.create("compacted", cleanup_policy="compact")
    served.create("plain")
    records = _tiny_records()
    with served.client() as client:
        client.sock.settimeout(120)
        (answer,) = client.ask(produced("compacted", records), 9).responses[0].partition_responses
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        client.ask(produced("plain", records), 9)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=_NOW + 500)
        client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=[wanted])]), 5)


def bombs(served: Served, beside: Beside) -> None:
    served.create("bomb-plain")
    served.create("bomb-compacted", cleanup_policy="compact")
    served.create("bomb-gzip", compression_type="gzip")
    for name in ("bomb-plain", "bomb-compacted", "bomb-gzip"):
        for batch in _bombs():
            with served.client() as client:
                client.sock.settimeout(60)
                client.ask(produced(name, batch), 9)


#: What takes the attacker long to make is made before, so that the attack is no pause.
PREPARE: dict[Probe, Callable[[], object]] = {
    absent_topics: _absent_topics,
    many_coordinators: _many_coordinators,
    absent_offsets: _absent_offsets,
    wide_sessions: _wide_session,
    tiny_records: _tiny_records,
    bombs: _bombs,
    **WIDE,
}


def slow_readers(served: Served, beside: Beside) -> None:
    served.create("big")
    batch = build([(_NOW, b"k", bytes(900_000), ())])
    with served.client() as client:
        for _ in range(60):
            client.ask(produced("big", batch), 9)
    wanted = FetchPartition(partition=0, partition_max_bytes=60 << 20)
    request = FetchRequest(max_wait_ms=0, max_bytes=60 << 20, topics=[FetchTopic(topic="big", partitions=[wanted])])
    with ExitStack() as stack:
        for _ in range(20):
            send(stack.enter_context(served.raw()), frame(request, 11) * 5)
        beside.wait_for(60)


def long_names(served: Served, beside: Beside) -> None:
    for key in (3, 19):
        with served.raw() as sock:
            head = key.to_bytes(2, "big") + b"\x00\x04" + bytes(4) + b"\xff\xff" + b"\0\0\0\1"
            body = head + b"\x7f\xff" + b"x" * (10 << 20)
            send(sock, len(body).to_bytes(4, "big") + body)
            drain(sock, 0.2)


def idle_connections(served: Served, beside: Beside) -> None:
    with ExitStack() as stack:
        for _ in range(5000):
            stack.enter_context(served.raw())
        beside.wait_for(60)


def slow_writers(served: Served, beside: Beside) -> None:
    """Requests that come byte by byte."""
    request = frame(MetadataRequest(topics=None), 9)
    with ExitStack() as stack:
        socks = [stack.enter_context(served.raw()) for _ in range(200)]
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            for sock in socks:
                send(sock, bytes((byte,)))
        beside.wait_for(60)


def reconnect_storm(served: Served, beside: Beside) -> None:
    request = frame(MetadataRequest(topics=[]), 9)
    for _ in range(3000):
        with served.raw() as sock:
            send(sock, request)
    beside.wait_for(30)


def guessed_passwords(served: Served, beside: Beside) -> None:
    """A thousand sign-ins with wrong passwords; each is refused, after its delay."""
    hello = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    for first in range(0, 1000, 100):
        with ExitStack() as stack:
            socks = [stack.enter_context(served.raw(served.secured[0])) for _ in range(100)]
            for number, sock in enumerate(socks, first):
                token = b"\0ann\0guess %d" % number
                send(sock, hello + frame(SaslAuthenticateRequest(auth_bytes=token), 2))
            for sock in socks:
                sock.settimeout(60)
                answers = b""
                while piece := sock.recv(1 << 16):
                    answers += piece
                # The last answer's length, correlation id, tags, and error code.
                second = 4 + int.from_bytes(answers[:4], "big")
                code = int.from_bytes(answers[second + 9 : second + 11], "big", signed=True)
                assert code == ErrorCode.SASL_AUTHENTICATION_FAILED, answers
    beside.wait_for(30)


def renegotiations(served: Served, beside: Beside) -> None:
    """Handshakes by TLS 1.2 that begin again and again on their connections, and some that end half way."""
    hello = _client_hello()
    with ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(served.raw(served.secured[1]))
            # The second message asks for a new handshake before the first is over.
            send(sock, hello + hello)
        for _ in range(200):
            sock = stack.enter_context(served.raw(served.secured[1]))
            send(sock, hello[:40])
        beside.wait_for(60)


@cache
def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


#: Those that end in a second or two are in `make test`.
QUICK: tuple[Probe, ...] = (
    *(claimed_lengths, odd_bytes, huge_arrays, exponential_pattern, subscribed_patterns, tiny_records, fifty_floods),
)
SLOW: tuple[Probe, ...] = (
    *(many_metadata_unread, metadata_behind_a_join, absent_topics, many_coordinators, absent_offsets, wide_sessions),
    *(bombs, slow_readers),
    *(long_names, idle_connections, refused_requests, slow_writers, reconnect_storm),
    *(guessed_passwords, renegotiations),
    *WIDE,
)
#: These need a node with SASL_PLAINTEXT and SSL.
SECURED: frozenset[Probe] = frozenset({guessed_passwords, renegotiations})
