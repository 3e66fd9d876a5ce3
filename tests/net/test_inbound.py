"""Frames are cut wherever the bytes are cut, replies leave in order, and a bad peer harms nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.host.disk import HostDisk
from ottla.host.loop import new_loop
from ottla.kernel.error import OttlaError
from ottla.kernel.ports import File
from ottla.net import listener
from ottla.net.inbound import Connection, ReceiveMemory, Slot
from ottla.net.listener import Gate, ListeningSocket, OpenGate
from ottla.net.memory import RequestMemory
from ottla.net.part import NO_REQUEST
from tests.net.turning import turn_until

FRAME_BYTES_MAX = 1 << 16


class Served:
    """A listener on a loop that the test turns by hand, and its clients."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        gate: Gate | None = None,
        requests: RequestMemory | None = None,
    ) -> None:
        self.loop = loop
        self.frames: list[bytes] = []
        self.slots: list[Slot] = []
        self.closed: list[str] = []
        self.answer: Callable[[bytes, Slot], None] = lambda frame, slot: slot.fill([frame])
        self.listener = ListeningSocket(
            "PLAINTEXT",
            loop,
            self.on_frame,
            lambda _, why: self.closed.append(why),
            frame_bytes_max=frame_bytes_max,
            idle_ms_max=0,
            gate=gate,
            requests=requests,
        )
        self.listener.bind("127.0.0.1", 0)
        self.listener.serve()

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        self.frames.append(bytes(frame))
        self.slots.append(slot)
        self.answer(bytes(frame), slot)

    def client(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.listener.port), timeout=5)
        sock.setblocking(False)
        return sock

    def until(self, done: Callable[[], bool]) -> None:
        turn_until(self.loop, done)

    def receive(self, sock: socket.socket, count: int) -> bytes:
        got = bytearray()

        def done() -> bool:
            try:
                got.extend(sock.recv(count - len(got)))
            except BlockingIOError:
                return False
            return len(got) >= count

        self.until(done)
        return bytes(got)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = new_loop()
    yield loop
    loop.close()


@pytest.fixture
def served(loop: asyncio.AbstractEventLoop) -> Iterator[Served]:
    served = Served(loop)
    yield served
    served.listener.close()


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_a_frame_sent_byte_by_byte_is_one_frame(served: Served) -> None:
    with served.client() as sock:
        data = framed(b"hello")
        for index in range(len(data)):
            sock.send(data[index : index + 1])
            served.until(lambda: bool(served.listener.connections))
            served.loop.run_until_complete(asyncio.sleep(0))
        served.until(lambda: bool(served.frames))
        assert served.frames == [b"hello"]
        assert served.receive(sock, 5) == b"hello"


@given(
    bodies=st.lists(st.binary(max_size=3000), min_size=1, max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=4000), max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_frames_survive_any_cut(bodies: list[bytes], cuts: list[int]) -> None:
    loop = new_loop()
    served = Served(loop)
    data = b"".join(map(framed, bodies))
    with served.client() as sock:
        position = 0
        for cut in [*cuts, len(data)]:
            piece = data[position : position + cut]
            position += len(piece)
            if piece:
                sock.send(piece)
                loop.run_until_complete(asyncio.sleep(0))
        served.until(lambda: len(served.frames) == len(bodies))
    assert served.frames == bodies
    served.listener.close()
    loop.close()


def test_a_frame_larger_than_every_buffer_arrives_whole(loop: asyncio.AbstractEventLoop) -> None:
    served = Served(loop, frame_bytes_max=16 << 20)
    body = os.urandom(5 << 20)
    rest = memoryview(framed(body) + framed(b"next"))
    with served.client() as sock:

        def sent() -> bool:
            nonlocal rest
            with contextlib.suppress(BlockingIOError):
                rest = rest[sock.send(rest) :]
            return not rest

        served.answer = lambda frame, slot: slot.fill([frame[:4]])
        served.until(sent)
        served.until(lambda: len(served.frames) == 2)
    assert served.frames == [body, b"next"]
    served.listener.close()


def test_memory_of_a_handled_frame_is_used_again_and_bounded() -> None:
    memory = ReceiveMemory()
    first = [memory.take(100_000) for _ in range(5)]
    assert len({id(each.obj) for each in first}) == 5
    for each in first:
        memory.give_back(each)
    again = [memory.take(1 << 20) for _ in range(5)]
    assert [len(each) for each in again] == [1 << 20] * 5
    assert len({id(each.obj) for each in again} & {id(each.obj) for each in first}) == 2
    # Small frames and those beyond a spare have memory of their own, which is not kept.
    for size in (4, 60_000, 5 << 20):
        single = memory.take(size)
        memory.give_back(single)
        assert memory.take(size).obj is not single.obj


def test_replies_leave_in_the_order_of_the_requests(served: Served) -> None:
    served.answer = lambda frame, slot: None
    with served.client() as sock:
        sock.send(framed(b"1") + framed(b"2") + framed(b"3"))
        served.until(lambda: len(served.slots) == 3)
        served.slots[2].fill([b"three"])
        served.slots[0].fill([b"one"])
        served.slots[1].fill([b"two"])
        assert served.receive(sock, 11) == b"onetwothree"


def test_a_request_behind_a_waiting_one_ends_its_wait(served: Served) -> None:
    def park(frame: bytes, slot: Slot) -> None:
        if frame == b"wait":
            slot.superseded = lambda key: slot.fill([b"early"]) if key == int.from_bytes(b"ot", "big") else None
        else:
            slot.fill([b"second"])

    served.answer = park
    with served.client() as sock:
        sock.send(framed(b"wait"))
        served.until(lambda: len(served.slots) == 1)
        assert not served.slots[0].ready
        sock.send(framed(b"other"))
        assert served.receive(sock, 11) == b"earlysecond"


def test_a_peer_that_goes_ends_what_waits_for_it(served: Served) -> None:
    ended: list[bool] = []

    def park(frame: bytes, slot: Slot) -> None:
        slot.superseded = lambda key: ended.append(key == NO_REQUEST)

    served.answer = park
    with served.client() as sock:
        sock.send(framed(b"wait"))
        served.until(lambda: len(served.slots) == 1)
    served.until(lambda: bool(served.closed))
    assert ended == [True]


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1, 0x7FFFFFFF])
def test_a_lying_length_costs_its_connection_only(served: Served, size: int) -> None:
    with served.client() as bad, served.client() as good:
        served.until(lambda: len(served.listener.connections) == 2)
        bad.send((size & 0xFFFFFFFF).to_bytes(4, "big") + b"x")
        served.until(lambda: bool(served.closed))
        assert f"at most {FRAME_BYTES_MAX} are taken" in served.closed[0]
        good.send(framed(b"still served"))
        assert served.receive(good, 12) == b"still served"


class Piece:
    """A range of a file, as the log makes it."""

    def __init__(self, path: Path, position: int, size: int) -> None:
        self.file: File = HostDisk().open(str(path))
        self.position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def bytes(self) -> bytes:
        raise AssertionError("a file with a descriptor is never read")


def test_a_file_goes_out_between_its_neighbours(served: Served, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "log").write_bytes(content)
    piece = Piece(tmp_path / "log", 100, 2 << 20)
    served.answer = lambda frame, slot: slot.fill([b"head", piece, b"tail"])
    with served.client() as sock:
        sock.send(framed(b"x"))
        expected = b"head" + content[100 : 100 + (2 << 20)] + b"tail"
        assert served.receive(sock, len(expected)) == expected
    piece.file.close()


def test_a_peer_that_does_not_read_is_not_read_from(served: Served) -> None:
    """What waits for it is bounded in bytes: the limit, and what one slice of requests adds."""
    answer_bytes = 1 << 20
    served.answer = lambda frame, slot: slot.fill([bytes(answer_bytes)])
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        (connection,) = served.listener.connections
        asked = 0
        for _ in range(10):
            # Less than the kernel's buffers and the limit can take; as often as it takes to fill them.
            asked += 10
            sock.send(framed(b"more") * 10)
            for _ in range(200):
                served.loop.run_until_complete(asyncio.sleep(0))
            assert connection._unsent_bytes <= (8 << 20) + 10 * answer_bytes
        assert len(served.frames) < asked
        # It reads: it is read from again, to the last request.
        served.receive(sock, asked * answer_bytes)
        assert len(served.frames) == asked


def test_a_peer_with_many_requests_unanswered_is_not_read_from(served: Served) -> None:
    served.answer = lambda frame, slot: None
    with served.client() as sock:
        asked = 2000
        sock.send(framed(b"x") * asked)
        served.until(lambda: len(served.frames) > 1000)
        for _ in range(200):
            served.loop.run_until_complete(asyncio.sleep(0))
        assert len(served.frames) == 1001
        # All are answered, and the socket takes the answers at once: the rest is read.
        served.answer = lambda frame, slot: slot.fill([b"z"])
        early = list(served.slots)
        for slot in early:
            slot.fill([b"y"])
        served.until(lambda: len(served.frames) == asked)
        assert served.receive(sock, asked) == b"y" * len(early) + b"z" * (asked - len(early))


def test_a_taken_port_is_said_in_words(loop: asyncio.AbstractEventLoop, served: Served) -> None:
    other = ListeningSocket("PLAINTEXT", loop, lambda *_: None, lambda *_: None, frame_bytes_max=1, idle_ms_max=0)
    with pytest.raises(OttlaError, match="is taken by another process"):
        other.bind("127.0.0.1", served.listener.port)


def test_an_idle_connection_is_closed(loop: asyncio.AbstractEventLoop) -> None:
    served = Served(loop)
    served.listener._idle_seconds_max = 0.01
    served.listener._plan_sweep()
    with served.client():
        served.until(lambda: bool(served.closed))
    assert "connections.max.idle.ms" in served.closed[0]
    served.listener.close()


def test_a_muted_peer_is_answered_when_the_time_is_over_and_in_order(loop: asyncio.AbstractEventLoop) -> None:
    served = Served(loop)
    [connections] = [served.listener.connections]
    client = served.client()
    served.until(lambda: bool(connections))
    [connection] = connections

    def mute_on_first(frame: bytes, slot: Slot) -> None:
        slot.fill([frame])
        if frame == b"first":
            connection.mute(0.05)

    served.answer = mute_on_first
    client.sendall(b"".join(len(each).to_bytes(4, "big") + each for each in (b"first", b"second")) + b"\0\0")
    served.until(lambda: served.frames == [b"first"])
    client.sendall(b"\0\5third")
    served.until(lambda: len(served.frames) == 3)
    assert served.frames == [b"first", b"second", b"third"]
    client.close()
    served.listener.close()


@pytest.mark.parametrize(("first", "second"), [(30.0, 0.01), (0.01, 30.0)])
def test_of_two_mutes_the_later_end_counts(served: Served, first: float, second: float) -> None:
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        (connection,) = served.listener.connections
        connection.mute(first)
        connection.mute(second)
        assert connection._muted is not None
        assert connection._muted.when() > served.loop.time() + 20
        assert sock.fileno() >= 0


@pytest.mark.parametrize("step", ["Connection", "keep_alive"])
def test_a_peer_that_has_gone_before_it_has_a_name_gives_its_place_back(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    inside: list[str] = []

    class Counting(OpenGate):
        def enter(self, address: str) -> float | None:
            inside.append(address)
            return None

        def leave(self, address: str) -> None:
            inside.remove(address)

    def gone(*_: object) -> None:
        raise OSError("not connected any more")

    served = Served(loop, gate=Counting())
    monkeypatch.setattr(listener, step, gone)
    with served.client() as sock:
        served.until(lambda: _is_closed(sock))
    assert inside == []
    served.listener.close()


def _is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
