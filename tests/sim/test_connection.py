"""A simulated connection is listened to, or not, as a real one."""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.sim.clock import SimClock
from ottla.sim.loop import SimLoop
from ottla.sim.net import SimConnection, SimListener


class Echo:
    """A listener that answers each frame with itself, and a client of it."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.loop = SimLoop(self.clock, Random(1))
        self.listener = SimListener(
            "X", self.loop, self._on_frame, lambda *_: None, frame_bytes_max=1000, idle_ms_max=1000
        )
        self.listener.serve()
        #: What came, and when (ms).
        self.replies: list[tuple[bytes, int]] = []
        self.connection: SimConnection = self.listener.connect(self._came, lambda: None)

    def _on_frame(self, connection: SimConnection, frame: memoryview, slot: Any) -> None:
        slot.fill([bytes(4), bytes(frame)])

    def _came(self, reply: bytes) -> None:
        self.replies.append((reply, self.clock.monotonic_ms()))

    def run(self) -> list[tuple[bytes, int]]:
        """Until nothing is waited for."""
        while self.loop.turn():
            pass
        came, self.replies = self.replies, []
        return came


def test_a_mute_ends_by_itself_and_loses_nothing() -> None:
    echo = Echo()
    echo.connection.mute(1.0)
    # The later end counts.
    echo.connection.mute(0.2)
    for frame in (b"one", b"two"):
        echo.connection.send(frame)
    assert echo.run() == [(b"one", 1000), (b"two", 1000)]
    echo.connection.mute(0.1)
    echo.connection.mute(0.3)
    echo.connection.send(b"three")
    assert echo.run() == [(b"three", 1300)]


def test_what_is_muted_and_paused_goes_on_when_both_are_over() -> None:
    echo = Echo()
    echo.connection.pause()
    echo.connection.mute(1.0)
    echo.connection.send(b"one")
    assert echo.run() == []
    echo.connection.mute(1.0)
    echo.connection.resume()
    assert echo.run() == [(b"one", 2000)]
    echo.connection.mute(1.0)
    echo.connection.send(b"two")
    echo.loop.call_soon(echo.connection.close, "gone")
    assert echo.run() == []
