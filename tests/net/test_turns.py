"""One connection cannot keep the loop: its requests are handled in slices, and connections take turns."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import pytest

from ottla.net import inbound, turns
from ottla.net.inbound import ReceiveMemory, Slot
from tests.net.test_inbound import Served, framed

#: Loop turns that a request of a well-behaved client may wait, whatever the others do.
TURNS_TO_WAIT = 10


#: uvloop may look at its sockets and run what was planned in one turn: a slice of each.
SLICES_A_TURN = 2


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices end by their count, so that a busy machine changes nothing."""
    monkeypatch.setattr(inbound, "SLICE_SECONDS", 1e9)
    monkeypatch.setattr(turns, "ROUND_SECONDS", 1e9)


def turn(served: Served) -> None:
    """One turn of the loop, no more."""
    served.loop.call_soon(served.loop.stop)
    served.loop.run_forever()


def flood(served: Served, sock: socket.socket, count: int, body: bytes = b"flood") -> None:
    """Have `count` requests in one go in the socket's buffer before the loop looks."""
    served.until(lambda: bool(served.listener.connections))
    data = framed(body) * count
    assert sock.send(data) == len(data)


def test_a_flood_of_requests_is_handled_a_slice_at_a_time_and_in_order(served: Served) -> None:
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        count = 20 * inbound.FRAMES_A_SLICE
        sock.send(b"".join(framed(struct.pack(">i", number)) for number in range(count)))
        handled, most = 0, 0
        while len(served.frames) < count:
            turn(served)
            most = max(most, len(served.frames) - handled)
            handled = len(served.frames)
        assert served.frames == [struct.pack(">i", number) for number in range(count)]
        assert most <= SLICES_A_TURN * inbound.FRAMES_A_SLICE
        assert served.receive(sock, 4 * count) == b"".join(served.frames)


def test_a_slice_ends_when_its_time_is_over(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()

    def work(frame: bytes, slot: Slot) -> None:
        nonlocal now
        now += 0.01
        slot.fill([frame])

    monkeypatch.setattr(inbound, "SLICE_SECONDS", 0.001)
    served.answer = work
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        (connection,) = served.listener.connections
        monkeypatch.setattr(connection, "_now", lambda: now)
        flood(served, sock, 50)
        handled = 0
        while len(served.frames) < 50:
            turn(served)
            assert len(served.frames) - handled <= SLICES_A_TURN
            handled = len(served.frames)


def test_a_request_of_another_client_is_not_behind_a_flood(served: Served) -> None:
    floods = [served.client() for _ in range(10)]
    good = served.client()
    served.until(lambda: len(served.listener.connections) == 11)
    for sock in floods:
        flood(served, sock, 30 * inbound.FRAMES_A_SLICE)
    served.until(lambda: bool(served.frames))
    good.send(framed(b"good"))
    for _ in range(TURNS_TO_WAIT):
        turn(served)
    assert b"good" in served.frames
    assert len(served.frames) < 10 * 30 * inbound.FRAMES_A_SLICE
    for sock in [*floods, good]:
        sock.close()


def test_floods_take_turns(served: Served) -> None:
    first, second = served.client(), served.client()
    served.until(lambda: len(served.listener.connections) == 2)
    count = 30 * inbound.FRAMES_A_SLICE
    flood(served, first, count, b"1")
    flood(served, second, count, b"2")
    served.until(lambda: served.frames.count(b"1") == count or served.frames.count(b"2") == count)
    assert abs(served.frames.count(b"1") - served.frames.count(b"2")) <= 2 * inbound.FRAMES_A_SLICE
    first.close()
    second.close()


def test_answers_that_come_while_a_flood_waits_bring_it_no_second_turn(served: Served) -> None:
    served.answer = lambda frame, slot: None
    with served.client() as sock:
        flood(served, sock, 5 * inbound.FRAMES_A_SLICE)
        served.until(lambda: bool(served.frames))
        (connection,) = served.listener.connections
        for slot in list(served.slots):
            slot.fill([b"y"])
        assert len(connection.turns._waiting) == 1


def test_a_request_came_when_it_was_read_however_long_it_waited_for_its_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, came = 0.0, []

    def answer(frame: bytes, slot: Slot) -> None:
        nonlocal now
        now += 1.0
        (connection,) = served.listener.connections
        came.append(connection.received_at)
        slot.fill([frame])

    served.answer = answer
    count = 3 * inbound.FRAMES_A_SLICE
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        (connection,) = served.listener.connections
        monkeypatch.setattr(connection, "_now", lambda: now)
        flood(served, sock, count)
        served.until(lambda: len(served.frames) == count)
        sock.send(framed(b"later"))
        served.until(lambda: len(served.frames) == count + 1)
    assert came == [0.0] * count + [float(count)]


def test_a_flood_whose_replies_are_not_read_is_held_within_the_bound_of_unsent_bytes(served: Served) -> None:
    reply = bytes(1 << 18)
    served.answer = lambda frame, slot: slot.fill([reply])
    with served.client() as sock:
        flood(served, sock, 2000)
        for _ in range(500):
            turn(served)
        (connection,) = served.listener.connections
        # What the kernel took is no longer ours.
        assert connection._unsent_bytes <= inbound.UNSENT_BYTES_MAX + inbound.FRAMES_A_SLICE * len(reply)
        assert inbound.UNSENT_BYTES_MAX <= 16 << 20
        assert not connection._reading
        handled = len(served.frames)
        for _ in range(100):
            turn(served)
        assert len(served.frames) == handled
        # When the peer reads, everything is answered.
        got = 0

        def read() -> bool:
            nonlocal got
            with contextlib.suppress(BlockingIOError):
                got += len(sock.recv(1 << 20))
            return got == 2000 * len(reply)

        served.until(read)


def test_replies_that_wait_for_an_earlier_one_are_held_within_the_bound_of_unsent_bytes(served: Served) -> None:
    """The first request waits, as one to join a group does, and those behind it have large replies."""
    reply = bytes(1 << 18)
    first: list[Slot] = []
    served.answer = lambda frame, slot: slot.fill([reply]) if first else first.append(slot)
    with served.client() as sock:
        flood(served, sock, 500)
        for _ in range(100):
            turn(served)
        assert len(served.frames) * len(reply) <= inbound.UNSENT_BYTES_MAX + 2 * len(reply)
        first[0].fill([b"first"])
        got = 0

        def read() -> bool:
            nonlocal got
            with contextlib.suppress(BlockingIOError):
                got += len(sock.recv(1 << 20))
            return got == len(b"first") + 499 * len(reply)

        served.until(read)
        (connection,) = served.listener.connections
        assert not connection._is_overloaded() and connection._reading


def test_many_peers_that_read_nothing_get_fewer_replies_each(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they have more unsent than a few connections may."""
    monkeypatch.setattr(inbound, "UNSENT_BYTES_MANY", 8 << 20)
    reply = bytes(1 << 18)
    served.answer = lambda frame, slot: slot.fill([reply])
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(served.client()) for _ in range(10)]
        served.until(lambda: len(served.listener.connections) == 10)
        for sock in socks:
            sock.send(framed(b"flood") * 200)
        for _ in range(500):
            turn(served)
        unsent = sorted(connection._unsent_bytes for connection in served.listener.connections)
        assert sum(unsent) <= (8 << 20) + 10 * (inbound.UNSENT_BYTES_LITTLE + 2 * len(reply))
        assert served.listener.memory.unsent_bytes == sum(unsent)
        # The peers that read are answered, whatever the others do.
        got = 0

        def read() -> bool:
            nonlocal got
            with contextlib.suppress(BlockingIOError):
                got += len(socks[3].recv(1 << 20))
            return got == 200 * len(reply)

        served.until(read)
        for connection in list(served.listener.connections):
            connection.close("over")
        assert served.listener.memory.unsent_bytes == 0


def test_a_peer_whose_replies_were_awaited_is_read_again(served: Served) -> None:
    """More requests wait for their answers than a connection may have; when they have come, it goes on."""
    served.answer = lambda frame, slot: None
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        (connection,) = served.listener.connections
        count = inbound.PENDING_REPLIES_MAX + 500
        sent = memoryview(framed(b"x") * count)

        assert sock.send(sent) == len(sent)
        served.until(connection._is_overloaded)
        for _ in range(20):
            turn(served)
        assert not connection._reading
        assert inbound.PENDING_REPLIES_MAX <= len(served.frames) < count
        served.answer = lambda frame, slot: slot.fill([b"y"])
        for slot in list(served.slots):
            slot.fill([b"y"])
        served.until(lambda: len(served.frames) == count)
        assert served.receive(sock, count) == b"y" * count


def test_a_mute_in_a_flood_holds_the_rest(served: Served) -> None:
    def mute(frame: bytes, slot: Slot) -> None:
        slot.fill([frame])
        if len(served.frames) == 10:
            (connection,) = served.listener.connections
            connection.mute(0.05)

    served.answer = mute
    with served.client() as sock:
        flood(served, sock, 5 * inbound.FRAMES_A_SLICE)
        served.until(lambda: len(served.frames) >= 10)
        for _ in range(5):
            turn(served)
        assert len(served.frames) == 10
        served.until(lambda: len(served.frames) == 5 * inbound.FRAMES_A_SLICE)


def test_a_peer_that_goes_in_a_flood_ends_it(served: Served) -> None:
    with served.client() as sock:
        flood(served, sock, 50 * inbound.FRAMES_A_SLICE)
        served.until(lambda: bool(served.frames))
        (connection,) = served.listener.connections
        connection.close("the test ends it")
        handled = len(served.frames)
        for _ in range(5):
            turn(served)
        assert len(served.frames) == handled
        assert served.listener.memory.held_bytes == 0


def test_a_long_reply_to_a_fast_reader_leaves_the_loop_to_the_others(served: Served) -> None:
    """A write ends after so many bytes, though the socket would take more."""
    (memory,) = [served.listener.memory]
    served.answer = lambda frame, slot: slot.fill([bytes(1 << 20)] * 12)
    taken: list[int] = []

    class Fast:
        """A socket whose buffer is never full."""

        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock

        def __getattr__(self, name: str) -> object:
            return getattr(self._sock, name)

        def sendmsg(self, pieces: list[bytes], *_: object) -> int:
            taken.append(sum(map(len, pieces)))
            return taken[-1]

        def send(self, piece: bytes) -> int:
            taken.append(len(piece))
            return taken[-1]

    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        (connection,) = served.listener.connections
        connection._sock = Fast(connection._sock)  # type: ignore[assignment]
        sock.send(framed(b"x") * 3)
        written = most = 0
        while sum(taken) < 36 << 20:
            turn(served)
            most = max(most, sum(taken) - written)
            written = sum(taken)
        assert most <= 2 * (inbound.WRITE_BYTES_A_TURN + (12 << 20))
    assert memory.held_bytes == 0


def test_a_claimed_length_costs_what_was_sent() -> None:
    """Three hundred peers claim 100 MB each and send a kilobyte."""
    memory = ReceiveMemory()
    views = [memory.take(100 << 20, 1024) for _ in range(300)]
    assert sum(len(each) for each in views) <= 32 << 20
    for each in views:
        memory.give_back(each)
    assert memory.lent_bytes == 0
    # Nobody pays for them afterwards.
    assert len(memory.take(1 << 20, 1024)) == 1 << 20


def test_a_peer_that_goes_gives_its_memory_back(served: Served) -> None:
    with served.client() as sock:
        served.until(lambda: bool(served.listener.connections))
        sock.send((60_000).to_bytes(4, "big") + b"x")
        served.until(lambda: served.listener.memory.lent_bytes > 0)
    served.until(lambda: bool(served.closed))
    assert served.listener.memory.lent_bytes == 0


def test_many_floods_are_held_in_little_memory(served: Served) -> None:
    served.answer = lambda frame, slot: None
    memory = served.listener.memory
    for _ in range(300):
        memory.hold(1 << 18)
    assert len(memory.shared) <= 1 << 16
    memory.hold(-300 * (1 << 18))
    assert len(memory.shared) == inbound.RECEIVE_BUFFER_BYTES


def test_a_round_ends_in_time_and_goes_on_with_those_who_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "ROUND_SECONDS", 2.0)
    ran: list[str] = []
    queue = turns.Turns(served.loop, lambda: float(len(ran)))
    for name in "abcde":
        queue.wait(lambda name=name: ran.append(name))  # type: ignore[misc]
    queue._round()
    assert ran == ["a", "b"]
    served.until(lambda: len(ran) == 5)
    assert ran == ["a", "b", "c", "d", "e"]


def test_memory_that_was_given_back_is_not_lent() -> None:
    memory = ReceiveMemory()
    # The second is in a spare that is longer than itself.
    for size in (1000, 100_000, 5 << 20):
        taken = memory.take(size, 0)
        assert memory.lent_bytes >= size
        memory.give_back(taken)
        assert memory.lent_bytes == 0


def test_work_that_fails_is_told_and_does_not_hold_the_others(served: Served) -> None:
    ran: list[str] = []
    failures: list[object] = []
    served.loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    queue = turns.Turns(served.loop)

    def fail() -> None:
        ran.append("fails")
        raise RuntimeError("broken")

    queue.wait(lambda: ran.append("first"))
    queue.wait(fail)
    queue.wait(lambda: ran.append("last"))
    served.until(lambda: len(ran) == 3)
    turn(served)
    assert ran == ["first", "fails", "last"] and [str(each) for each in failures] == ["broken"]
    queue.wait(lambda: ran.append("later"))
    served.until(lambda: ran[-1] == "later")
