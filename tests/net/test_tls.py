"""TLS on a listener: frames however the bytes are cut, and peers that stop, lie, or do not read."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.host.disk import HostDisk
from ottla.host.loop import new_loop
from ottla.kernel.ports import File
from ottla.net.handshake import Handshakes
from ottla.net.inbound import Connection, PeerError, Slot
from ottla.net.listener import ListeningSocket
from ottla.net.tls import TlsSocket
from ottla.net.tls_inbound import TlsAcceptor
from tests.client import certificate
from tests.client.certificate import Certificates
from tests.net.turning import turn_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


class Served:
    """A listener with TLS on a loop that the test turns by hand."""

    def __init__(self, certificates: Certificates, pool: ThreadPoolExecutor, seconds: float = 60.0) -> None:
        self.loop = new_loop()
        self.frames: list[bytes] = []
        self.closed: list[str] = []
        self.socks: list[socket.socket] = []
        self.answer: Callable[[bytes, Slot], None] = lambda frame, slot: slot.fill([framed(frame)])
        self.secured: Callable[[Connection, ssl.SSLObject], None] = lambda connection, made: None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificates.broker)
        self.context.load_verify_locations(certificates.ca)
        self.trusting = ssl.create_default_context(cafile=certificates.ca)
        turns = Handshakes(self.loop, pool)
        self.side = TlsAcceptor(
            self.loop, lambda: turns, lambda: self.context, lambda *words: self.secured(*words), seconds
        )
        self.listener = ListeningSocket(
            "SSL",
            self.loop,
            self.on_frame,
            lambda _, why: self.closed.append(why),
            frame_bytes_max=1 << 22,
            idle_ms_max=0,
            connection=self.side.connection,
        )
        self.listener.bind("127.0.0.1", 0)
        self.listener.serve()

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        self.frames.append(bytes(frame))
        self.answer(bytes(frame), slot)

    def raw(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.listener.port), timeout=5)
        sock.setblocking(False)
        self.socks.append(sock)
        return sock

    def close(self) -> None:
        self.listener.close()
        for sock in self.socks:
            sock.close()
        self.loop.close()

    def client(self) -> Client:
        return Client(self, self.raw(), self.trusting)

    def until(self, done: Callable[[], bool]) -> None:
        turn_until(self.loop, done)


class Client:
    """The other end, whose bytes the test cuts as it likes."""

    def __init__(self, served: Served, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.served = served
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def shake(self, *, send_last: bool = True) -> None:
        """The handshake; without `send_last` its last message waits for the next push."""

        def done() -> bool:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.push()
                self.pull()
                return False
            return True

        self.served.until(done)
        if send_last:
            self.push()

    def push(self) -> None:
        data = self.outgoing.read()
        if data:
            self.sock.sendall(data)

    def pull(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self.sock.recv(1 << 16)
            if data:
                self.incoming.write(data)
            else:
                self.incoming.write_eof()

    def receive(self, count: int) -> bytes:
        got = bytearray()

        def done() -> bool:
            self.pull()
            with contextlib.suppress(ssl.SSLWantReadError):
                while len(got) < count:
                    got.extend(self.tls.read(count - len(got)))
            return len(got) >= count

        self.served.until(done)
        return bytes(got)


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def served(certificates: Certificates, pool: ThreadPoolExecutor) -> Iterator[Served]:
    served = Served(certificates, pool)
    yield served
    served.close()


@pytest.mark.parametrize("seed", range(8))
def test_frames_come_whole_however_records_and_segments_are_cut(served: Served, seed: int) -> None:
    rng = random.Random(seed)
    client = served.client()
    client.shake()
    sizes = [rng.choice((0, 1, 100, 16_384, 70_000, 1 << 20)) for _ in range(6)]
    frames = [rng.randbytes(size) for size in sizes]
    plain = b"".join(map(framed, frames))
    at = 0
    while at < len(plain):
        step = rng.choice((1, 3, 5_000, 1 << 18, 1 << 18, 1 << 18, 1 << 20))
        client.tls.write(plain[at : at + step])
        at += step
    encrypted = client.outgoing.read()
    sent, replies = 0, bytearray()

    def done() -> bool:
        nonlocal sent
        if sent < len(encrypted):
            with contextlib.suppress(BlockingIOError):
                sent += client.sock.send(encrypted[sent : sent + rng.choice((1, 7, 1_000, 1 << 16, 1 << 17, 1 << 17))])
        client.pull()
        with contextlib.suppress(ssl.SSLWantReadError):
            replies.extend(client.tls.read(1 << 20))
        return len(replies) >= len(plain)

    served.until(done)
    assert served.frames == frames
    assert bytes(replies) == plain


def test_requests_that_come_with_the_end_of_the_handshake_are_answered(served: Served) -> None:
    client = served.client()
    client.shake(send_last=False)
    for number in range(300):
        client.tls.write(framed(b"%d" % number))
    client.push()
    served.until(lambda: len(served.frames) == 300)


def test_a_read_when_nothing_has_come_would_block(served: Served) -> None:
    client = served.client()
    client.shake()
    client.tls.write(framed(b"x"))
    client.push()
    served.until(lambda: len(served.frames) == 1)
    (connection,) = served.listener.connections
    with pytest.raises(BlockingIOError):
        connection._sock.recv_into(memoryview(bytearray(10)))
    assert not served.closed


def test_a_slow_reader_gets_all_of_a_file(served: Served, tmp_path: Path) -> None:
    data = random.Random(0).randbytes(2_000_000)
    (tmp_path / "log").write_bytes(data)
    file = HostDisk().open(str(tmp_path / "log"))

    class Piece:
        def __init__(self, position: int, size: int) -> None:
            self.file: File = file
            self.position, self._size = position, size

        def __len__(self) -> int:
            return self._size

        def bytes(self) -> bytes:
            return data[self.position : self.position + self._size]

    served.answer = lambda frame, slot: slot.fill([b"head", Piece(10, 900_000), b"between", Piece(900_010, 1_099_990)])
    client = served.client()
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.shake()
    client.tls.write(framed(b"give"))
    client.push()
    expected = b"head" + data[10:900_010] + b"between" + data[900_010:]
    assert client.receive(len(expected)) == expected
    file.close()


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", framed(b"\0\x12\0\3\0\0\0\1"), b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\0" * 50],
)
def test_plaintext_on_a_tls_port_costs_its_connection_only(served: Served, garbage: bytes) -> None:
    good = served.client()
    good.shake()
    bad = served.raw()
    with contextlib.suppress(OSError):
        bad.sendall(garbage)
    served.until(lambda: bool(served.closed))
    assert served.closed[0].startswith("the TLS handshake failed"), served.closed
    assert served.side.handshakes_running == 0
    good.tls.write(framed(b"on"))
    good.push()
    assert good.receive(6) == framed(b"on")


@pytest.mark.parametrize("said", [0, 1, 40])
def test_a_handshake_that_stops_is_cut(certificates: Certificates, pool: ThreadPoolExecutor, said: int) -> None:
    served = Served(certificates, pool, seconds=0.01)
    client = served.client()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.sock.sendall(client.outgoing.read()[:said])
    served.until(lambda: bool(served.closed))
    assert served.closed == ["the TLS handshake failed: the TLS handshake was not over after 0.01 s"]
    assert served.side.handshakes_running == 0
    served.close()


def test_one_who_goes_in_the_middle_of_a_handshake_is_forgotten(served: Served) -> None:
    client = served.client()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.push()
    served.until(lambda: served.side.handshakes_running == 1)
    client.sock.close()
    served.until(lambda: bool(served.closed))
    assert served.side.handshakes_running == 0
    assert not served.listener.connections


def test_a_handshake_that_ends_in_an_error_of_ours_does_not_hold_the_others(served: Served) -> None:
    class Failing(list[str]):
        def append(self, why: str) -> None:
            super().append(why)
            raise RuntimeError("what follows from a lost connection fails")

    failed: list[object] = []
    served.loop.set_exception_handler(lambda loop, context: failed.append(context["exception"]))
    served.closed = Failing()
    served.raw().close()
    served.until(lambda: len(served.closed) == 1)
    served.closed = []
    served.client().shake()
    assert [str(each) for each in failed] == ["what follows from a lost connection fails"]


def test_a_node_that_stops_does_not_wait_for_handshakes(served: Served) -> None:
    client = served.client()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.push()
    served.until(lambda: served.side.handshakes_running == 1)
    served.listener.close()
    assert served.closed == ["the node stops"]
    assert served.side.handshakes_running == 0


class Watched(ThreadPoolExecutor):
    """A thread that says how many have given it something to do at once."""

    def __init__(self) -> None:
        super().__init__(1)
        self.under_way = 0
        self.most = 0

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        step: Future[Any] = super().submit(*arguments, **options)
        # The loop has heard of it when its own callbacks ran, and it asks for the next one only then.
        step.add_done_callback(lambda _: self.ended())
        return step

    def ended(self) -> None:
        self.under_way -= 1


def test_many_handshakes_at_once_go_on_one_at_a_time(certificates: Certificates) -> None:
    with Watched() as thread, contextlib.closing(Served(certificates, thread)) as served:
        served.secured = lambda connection, made: names.append(connection)
        names: list[Connection] = []
        silent = served.raw()
        clients = [served.client() for _ in range(20)]

        def done() -> bool:
            for client in clients:
                client.pull()
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.tls.do_handshake()
                client.push()
            return len(names) == len(clients)

        served.until(done)
        assert thread.most == 1
        # One that says nothing holds nobody up, and one that goes neither.
        silent.close()
        served.until(lambda: len(served.closed) == 1)
        served.client().shake()


class Stepless:
    """A handshake that has nothing to do when its turn comes."""

    def has_work(self) -> bool:
        return False


class Clockwork:
    """A loop that notes the pauses and makes none."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], None]] = deque()
        self.pauses: list[float] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self.due.append(work)

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self.pauses.append(seconds)
        self.due.append(work)


@pytest.mark.parametrize(("count", "longest", "altogether"), [(1, 0, 0), (2, 0.004, 0.004), (200, 0.004, 0.796)])
def test_handshakes_pause_only_while_others_wait(count: int, longest: float, altogether: float) -> None:
    pauses = pauses_of(count)
    assert max(pauses, default=0) == longest
    assert sum(pauses) == pytest.approx(altogether)


def test_the_pauses_hardly_delay_a_storm() -> None:
    pauses = pauses_of(5_000)
    # Without the bound they would be twenty seconds.
    assert sum(pauses) < 4.5
    assert min(pauses) < 0.00021


def pauses_of(count: int) -> list[float]:
    loop = Clockwork()
    turns = Handshakes(cast(Any, loop), None)
    for _ in range(count):
        turns.wait(cast(Any, Stepless()))
    while loop.due:
        loop.due.popleft()()
    return loop.pauses


def test_a_record_that_was_changed_on_the_way_ends_the_connection(served: Served) -> None:
    client = served.client()
    client.shake()
    client.tls.write(framed(b"x" * 100))
    data = bytearray(client.outgoing.read())
    data[-1] ^= 1
    client.sock.sendall(data)
    served.until(lambda: bool(served.closed))
    assert not served.frames


def test_a_client_may_say_that_it_ends(served: Served) -> None:
    client = served.client()
    client.shake()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.push()
    served.until(lambda: bool(served.closed))
    assert served.closed == ["the peer closed the connection"]


def test_one_who_is_not_let_in_after_the_handshake_is_closed(served: Served) -> None:
    def refuse(connection: Connection, made: ssl.SSLObject) -> None:
        raise PeerError("no rule names it")

    served.secured = refuse
    client = served.client()
    client.shake()
    served.until(lambda: bool(served.closed))
    assert served.closed == ["no rule names it"]


class _Given:
    """A socket that has some bytes, and lets something happen before they are taken."""

    def __init__(self, data: bytes, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.data = data
        self.meanwhile = meanwhile

    def recv_into(self, buffer: memoryview, size: int) -> int:
        buffer[: len(self.data)] = self.data
        self.meanwhile()
        return len(self.data)


def test_loops_on_two_threads_do_not_read_into_one_buffer() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other = TlsSocket(cast(socket.socket, _Given(b"B" * 100)), context)

    def meanwhile() -> None:
        thread = threading.Thread(target=other.receive_handshake)
        thread.start()
        thread.join()

    one = TlsSocket(cast(socket.socket, _Given(b"A" * 100, meanwhile)), context)
    assert one.receive_handshake() == 100
    assert (one._in.read(), other._in.read()) == (b"A" * 100, b"B" * 100)
