"""How a client's connection ends, and what it sends: by its own request, by an error of the socket, after a reply."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.ports import File
from ottla.net import inbound
from ottla.net.inbound import Connection, Slot
from tests.net.test_inbound import FRAME_BYTES_MAX, Served, framed


def connection_of(served: Served) -> Connection:
    served.until(lambda: bool(served.listener.connections))
    [connection] = served.listener.connections
    return connection


def turns(served: Served, count: int = 30) -> None:
    for _ in range(count):
        served.loop.run_until_complete(asyncio.sleep(0))


class Altered:
    """A connection's socket, of which some methods do as the test says."""

    def __init__(self, connection: Connection, **methods: Any) -> None:
        self._real = connection._sock
        self.__dict__.update(methods)
        connection._sock = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def failing(*_: object) -> int:
    raise OSError(errno.EPIPE, "broken pipe")


def test_a_lying_length_in_a_flood_ends_the_connection_after_the_requests_before_it(served: Served) -> None:
    count = 3 * inbound.FRAMES_A_SLICE
    with served.client() as sock:
        connection_of(served)
        sock.send(framed(b"x") * count + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        served.until(lambda: bool(served.closed))
    assert served.closed == [f"a frame of {FRAME_BYTES_MAX + 1} bytes; at most {FRAME_BYTES_MAX} are taken"]
    assert len(served.frames) == count
    assert served.listener.memory.held_bytes == 0 and not served.listener.connections


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1])
def test_a_lying_length_that_comes_in_two_pieces_ends_the_connection(served: Served, size: int) -> None:
    length = (size & 0xFFFFFFFF).to_bytes(4, "big")
    with served.client() as sock:
        connection = connection_of(served)
        sock.send(length[:3])
        served.until(lambda: connection._partial is not None)
        sock.send(length[3:])
        served.until(lambda: bool(served.closed))
    assert f"a frame of {size} bytes" in served.closed[0]
    assert served.listener.memory.lent_bytes == 0


def test_frames_of_the_longest_length_and_of_none_are_taken(served: Served) -> None:
    bodies = [bytes(FRAME_BYTES_MAX), b"", b"x"]
    with served.client() as sock:
        served.answer = lambda frame, slot: slot.fill([b"."])
        sock.setblocking(True)
        sock.sendall(b"".join(map(framed, bodies)))
        served.until(lambda: len(served.frames) == 3)
    assert served.frames == bodies


@pytest.mark.parametrize("place", [0, 1, inbound.FRAMES_A_SLICE + 5])
def test_a_request_that_closes_its_connection_is_the_last_one(served: Served, place: int) -> None:
    def close(frame: bytes, slot: Slot) -> None:
        if len(served.frames) == place + 1:
            connection.close("refused")

    with served.client() as sock:
        connection = connection_of(served)
        served.answer = close
        sock.send(framed(b"x") * (place + 10))
        served.until(lambda: bool(served.closed))
        turns(served)
    assert len(served.frames) == place + 1
    assert served.closed == ["refused"] and served.listener.memory.held_bytes == 0


def test_a_close_is_told_once_with_its_first_reason(served: Served) -> None:
    with served.client():
        connection = connection_of(served)
        connection.close("first")
        connection.close("second")
        assert served.closed == ["first"]


def test_a_closed_connection_is_neither_muted_nor_paused_nor_answered(served: Served) -> None:
    served.answer = lambda frame, slot: None
    with served.client() as sock:
        connection = connection_of(served)
        sock.send(framed(b"x"))
        served.until(lambda: bool(served.slots))
        connection.close("it is over")
        connection.mute(1000)
        connection.pause()
        served.slots[0].fill([b"late"])
        assert connection._muted is None and not connection._paused
        assert not connection._out and served.closed == ["it is over"]


def test_the_timer_of_a_mute_goes_with_its_connection(served: Served) -> None:
    with served.client():
        connection = connection_of(served)
        connection.mute(1000)
        timer = connection._muted
        connection.close("")
        assert timer is not None and timer.cancelled()


def test_requests_of_a_muted_peer_do_not_keep_memory_when_it_is_closed(served: Served) -> None:
    def mute(frame: bytes, slot: Slot) -> None:
        connection.mute(1000)
        slot.fill([b"."])

    with served.client() as sock:
        connection = connection_of(served)
        served.answer = mute
        sock.send(framed(b"x") * 5)
        served.until(lambda: served.listener.memory.held_bytes > 0)
        connection.close("")
    assert served.frames == [b"x"] and served.listener.memory.held_bytes == 0


def test_two_pauses_need_two_ends(served: Served) -> None:
    with served.client() as sock:
        connection = connection_of(served)
        connection.pause()
        connection.pause()
        sock.send(framed(b"x"))
        connection.resume()
        turns(served)
        assert not served.frames
        connection.resume()
        served.until(lambda: served.frames == [b"x"])


@pytest.mark.parametrize("reply", [[b"a short one"], [b"in", b" two"], [memoryview(b"as a view")], [b"x" * 100_000]])
def test_a_connection_that_is_to_close_sends_its_reply_first_and_no_later_one(
    served: Served, reply: list[bytes | memoryview]
) -> None:
    def last(frame: bytes, slot: Slot) -> None:
        if len(served.frames) == 1:
            slot.on_queued = connection.close_when_sent
        slot.fill(reply)

    served.answer = last
    expected = b"".join(reply)
    with served.client() as sock:
        connection = connection_of(served)
        sock.send(framed(b"1") + framed(b"2"))
        assert served.receive(sock, len(expected)) == expected
        served.until(lambda: bool(served.closed))
        assert served.closed == ["closed after the reply"]
        turns(served)
        assert sock.recv(100) == b"", "only the first one is answered"


def test_a_connection_that_is_to_close_without_a_reply_is_closed_at_once(served: Served) -> None:
    def last(frame: bytes, slot: Slot) -> None:
        slot.on_queued = connection.close_when_sent
        slot.fill([])

    served.answer = last
    with served.client() as sock:
        connection = connection_of(served)
        sock.send(framed(b"1"))
        served.until(lambda: bool(served.closed))
    assert served.closed == ["closed after the reply"]


def test_replies_without_a_reader_keep_the_connection_that_is_to_close_until_they_are_read(served: Served) -> None:
    def last(frame: bytes, slot: Slot) -> None:
        slot.on_queued = connection.close_when_sent
        slot.fill([bytes(1 << 20)] * 16)

    served.answer = last
    with served.client() as sock:
        connection = connection_of(served)
        sock.send(framed(b"1"))
        served.until(lambda: connection._writing)
        turns(served)
        assert not served.closed
        assert served.receive(sock, 16 << 20) == bytes(16 << 20)
        served.until(lambda: bool(served.closed))


def test_a_mark_is_called_when_its_bytes_are_sent_or_the_connection_ends(served: Served) -> None:
    called: list[str] = []
    served.answer = lambda frame, slot: slot.fill([bytes(1 << 20)] * 16)
    with served.client() as sock:
        connection = connection_of(served)
        connection.when_sent(lambda: called.append("nothing to send"))
        assert called == ["nothing to send"]
        sock.send(framed(b"1"))
        served.until(lambda: connection._writing)
        connection.when_sent(lambda: called.append("sent"))
        turns(served)
        assert called == ["nothing to send"]
        served.receive(sock, 16 << 20)
        served.until(lambda: len(called) == 2)
        sock.send(framed(b"2"))
        served.until(lambda: connection._writing)
        connection.when_sent(lambda: called.append("ended"))
        connection.close("")
    assert called == ["nothing to send", "sent", "ended"]


@pytest.mark.parametrize("parts", [1, 2])
def test_an_error_of_the_socket_while_it_writes_closes_the_connection(served: Served, parts: int) -> None:
    served.answer = lambda frame, slot: slot.fill([b"part"] * parts)
    with served.client() as sock:
        Altered(connection_of(served), send=failing, sendmsg=failing)
        sock.send(framed(b"x"))
        served.until(lambda: bool(served.closed))
    assert served.closed == ["broken pipe"]


def test_an_error_of_the_socket_while_it_reads_closes_the_connection(served: Served) -> None:
    with served.client() as sock:
        Altered(connection_of(served), recv_into=failing)
        sock.send(framed(b"x"))
        served.until(lambda: bool(served.closed))
    assert served.closed == ["broken pipe"]


def test_a_socket_that_has_nothing_after_all_is_read_again(served: Served) -> None:
    with served.client() as sock:
        connection = connection_of(served)
        connection._readable()
        assert not served.closed
        sock.send(framed(b"x"))
        assert served.receive(sock, 1) == b"x"


def test_a_reply_of_many_pieces_and_one_that_the_socket_takes_in_part_come_whole(served: Served) -> None:
    pieces = [b"%05d" % number for number in range(1_000)]
    served.answer = lambda frame, slot: slot.fill(pieces if frame == b"many" else [b"".join(pieces)])
    with served.client() as sock:
        connection = connection_of(served)
        real = connection._sock
        Altered(connection, send=lambda data: real.send(data[:1_003]))
        for request in (b"many", b"one", b"many"):
            sock.send(framed(request))
            assert served.receive(sock, 5_000) == b"".join(pieces)


def test_a_long_reply_is_written_in_turns(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket would take all of it at once, piece by piece."""
    monkeypatch.setattr(inbound, "WRITE_BYTES_A_TURN", 1_000)
    file = Endless()
    served.answer = lambda frame, slot: slot.fill([file] * 100)
    monkeypatch.setattr(os, "sendfile", lambda *_: 100)
    with served.client() as sock:
        connection = connection_of(served)
        sock.send(framed(b"x"))
        served.until(lambda: bool(served.frames))
        before, most = connection._unsent_bytes, 0
        while connection._out:
            served.loop.call_soon(served.loop.stop)
            served.loop.run_forever()
            most = max(most, before - connection._unsent_bytes)
            before = connection._unsent_bytes
        # uvloop may look at its sockets twice in a turn.
        assert 0 < most <= 2 * 1_100


class Endless:
    """A range of a file that has a descriptor, which nothing reads."""

    position = 0

    def __init__(self) -> None:
        self.file: Any = self

    def descriptor(self) -> int:
        return 0

    def __len__(self) -> int:
        return 100

    def bytes(self) -> bytes:
        raise AssertionError("a file with a descriptor is never read")


class Range:
    """A range of a file on disk; `is_apart`: the file has no descriptor."""

    def __init__(self, path: Path, position: int, size: int, *, is_apart: bool = False) -> None:
        self.real = HostDisk().open(str(path))
        self.file: File = self.real
        if is_apart:
            self.file = Apart()  # type: ignore[assignment]
        self.position, self._size, self._path = position, size, path

    def __len__(self) -> int:
        return self._size

    def bytes(self) -> bytes:
        return self._path.read_bytes()[self.position : self.position + self._size]


class Apart:
    def descriptor(self) -> None:
        return None


def test_a_file_without_a_descriptor_is_sent_from_memory(served: Served, tmp_path: Path) -> None:
    data = os.urandom(20_000_000)
    (tmp_path / "log").write_bytes(data)
    piece = Range(tmp_path / "log", 1_000, 18_000_000, is_apart=True)
    served.answer = lambda frame, slot: slot.fill([b"head", piece, b"tail"])
    with served.client() as sock:
        sock.send(framed(b"x"))
        expected = b"head" + data[1_000:18_001_000] + b"tail"
        assert served.receive(sock, len(expected)) == expected
    piece.real.close()


def test_a_file_that_became_shorter_ends_the_connection(served: Served, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"short")
    piece = Range(tmp_path / "log", 0, 100)
    served.answer = lambda frame, slot: slot.fill([b"head", piece])
    with served.client() as sock:
        sock.send(framed(b"x"))
        served.until(lambda: bool(served.closed))
    assert served.closed == ["a log file became shorter while it was sent"]
    piece.real.close()


def test_a_plain_connection_has_no_certificate(served: Served) -> None:
    with served.client() as sock:
        assert connection_of(served).peer_certificate() is None
        assert isinstance(sock, socket.socket)


def test_another_handler_takes_the_frames_from_now_on_and_may_allow_longer_ones(served: Served) -> None:
    taken: list[bytes] = []

    def handler(connection: Connection, frame: memoryview, slot: Slot) -> None:
        taken.append(bytes(frame))
        slot.fill([b"."])

    with served.client() as sock:
        connection = connection_of(served)
        connection.replace_handler(handler)
        sock.send(framed(b"x"))
        served.until(lambda: taken == [b"x"])
        connection.replace_handler(handler, FRAME_BYTES_MAX + 1)
        sock.setblocking(True)
        sock.sendall(framed(bytes(FRAME_BYTES_MAX + 1)))
        served.until(lambda: len(taken) == 2)
        assert not served.frames


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_length_in_two_pieces_and_frames_right_behind_it_come_whole(served: Served, cut: int) -> None:
    with served.client() as sock:
        connection = connection_of(served)
        for _ in range(2):
            data = framed(b"first") + framed(b"second")
            sock.send(data[:cut])
            served.until(lambda: connection._partial is not None)
            sock.send(data[cut:])
            assert served.receive(sock, 11) == b"firstsecond"
            assert connection._partial is None and served.listener.memory.lent_bytes == 0


def test_a_peer_whose_requests_were_held_has_been_heard(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def answer(frame: bytes, slot: Slot) -> None:
        nonlocal now
        now += 1.0
        slot.fill([frame])

    monkeypatch.setattr(inbound, "SLICE_SECONDS", 1e9)
    served.answer = answer
    count = 2 * inbound.FRAMES_A_SLICE
    with served.client() as sock:
        connection = connection_of(served)
        monkeypatch.setattr(connection, "_now", lambda: now)
        sock.send(framed(b"x") * count)
        served.until(lambda: len(served.frames) == count)
        assert connection.heard_at >= inbound.FRAMES_A_SLICE, "it is not idle since its requests came"


def test_a_frame_that_came_in_two_pieces_is_handled_once(served: Served) -> None:
    with served.client() as sock:
        connection = connection_of(served)
        for body in (b"first one", b"second one", b"third one"):
            data = framed(body)
            sock.send(data[:7])
            served.until(lambda: connection._partial is not None)
            sock.send(data[7:])
            assert served.receive(sock, len(body)) == body
            assert connection._partial is None
    assert served.frames == [b"first one", b"second one", b"third one"]


@pytest.mark.parametrize("size", [1 << 14, FRAME_BYTES_MAX])
def test_a_request_that_breaks_the_protocol_gives_its_memory_back(served: Served, size: int) -> None:
    """A frame that came in pieces, in one piece of memory or in memory that grew."""

    def refuse(frame: bytes, slot: Slot) -> None:
        raise inbound.PeerError("unreadable")

    served.answer = refuse
    memory = served.listener.memory
    with served.client() as sock:
        connection = connection_of(served)
        # Little memory is left: a frame's memory grows with what has come.
        memory.lent_bytes = 16 << 20
        sock.send(framed(bytes(size))[:9])
        served.until(lambda: connection._partial is not None)
        sock.send(framed(bytes(size))[9:])
        served.until(lambda: bool(served.closed))
    assert served.closed == ["unreadable"]
    assert memory.lent_bytes == 16 << 20


def test_a_peer_that_takes_a_long_reply_slowly_is_not_idle(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    served.answer = lambda frame, slot: slot.fill([bytes(32 << 20)])
    served.listener._idle_seconds_max = 10.0
    with served.client() as sock:
        connection = connection_of(served)
        monkeypatch.setattr(connection, "_now", lambda: now)
        monkeypatch.setattr(served.listener._turns, "now", lambda: now)
        sock.send(framed(b"x"))
        served.until(lambda: connection._writing)
        for _ in range(3):
            now += 6.0
            unsent = connection._unsent_bytes
            served.receive(sock, 8 << 20)
            served.until(lambda unsent=unsent: connection._unsent_bytes < unsent)  # type: ignore[misc]
            served.listener._close_idle()
            assert served.closed == []
        turns(served)
        now += 11.0
        served.listener._close_idle()
    assert len(served.closed) == 1 and "idle" in served.closed[0]


def test_a_peer_is_idle_from_the_reply_on_that_it_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client counts from the reply, too, and closes a connection that it does not use before the node does."""
    now = 0.0
    served.answer = lambda frame, slot: None
    served.listener._idle_seconds_max = 10.0
    with served.client() as sock:
        connection = connection_of(served)
        monkeypatch.setattr(connection, "_now", lambda: now)
        monkeypatch.setattr(served.listener._turns, "now", lambda: now)
        sock.send(framed(b"x"))
        served.until(lambda: bool(served.slots))
        now += 9.0
        served.slots[0].fill([b"reply"])
        now += 9.0
        served.listener._close_idle()
        assert served.closed == []
        assert served.receive(sock, 5) == b"reply"
        now += 2.0
        served.listener._close_idle()
    assert len(served.closed) == 1 and "idle" in served.closed[0]
