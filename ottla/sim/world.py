"""A world of simulated hosts: one heap of events, one random generator, one history per seed.

    world = World(seed)
    one, two = world.host("one"), world.host("two")
    world.network.cut(one, two)
    world.run_for(5_000)

Rules:
- Events are ordered by (time in microseconds, number): the seed decides every order.
- A host has its own clock (offset, drift in parts per million, steps of its wall clock) and its own loop, on which
  unmodified nodes and clients run. A callback takes time: the loop's next callback runs after it.
- An exception out of a callback ends the run, except the `Crashed` of a planned crash.
- `trace` is a hash of every event: two runs with one seed have the same one, in any process.

Read `run_until` first, then `ottla/sim/host.py`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random

from ottla.sim.host import Host
from ottla.sim.network import Network

_EVENTS_MAX = 50_000_000


class Event:
    """A planned action, which can be cancelled."""

    __slots__ = ("action", "cancelled", "label")

    def __init__(self, action: Callable[[], None], label: str) -> None:
        self.action = action
        self.label = label
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """The hosts, the network between them, and the queue of events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        #: True time in microseconds since the world began. No host sees it.
        self.now_us = 0
        self.hosts: list[Host] = []
        self.network = Network(self)
        self.events = 0
        self._heap: list[tuple[int, int, Event]] = []
        self._number = 0
        self._trace = hashlib.blake2b(digest_size=8)

    def host(self, name: str) -> Host:
        """Add a machine to the network, without a process."""
        host = Host(self, name, f"192.0.2.{len(self.hosts) + 1}")
        self.hosts.append(host)
        return host

    def at(self, when_us: int, action: Callable[[], None], label: str = "") -> Event:
        """Plan `action` for a true time; a past time means now."""
        event = Event(action, label)
        self._number += 1
        heapq.heappush(self._heap, (max(when_us, self.now_us), self._number, event))
        return event

    def after(self, delay_us: int, action: Callable[[], None], label: str = "") -> Event:
        return self.at(self.now_us + delay_us, action, label)

    def run_until(self, done: Callable[[], bool], *, limit_ms: int) -> bool:
        """Run events until `done`, for at most `limit_ms` of true time. Returns `done`."""
        end_us = self.now_us + limit_ms * 1000
        while not done():
            if not self._heap or self._heap[0][0] > end_us:
                self.now_us = end_us
                return done()
            self._step()
        return True

    def run_for(self, ms: int) -> None:
        """Run events for `ms` milliseconds of true time."""
        self.run_until(lambda: False, limit_ms=ms)

    def _step(self) -> None:
        when, _, event = heapq.heappop(self._heap)
        if event.cancelled:
            return
        self.now_us = when
        self.events += 1
        assert self.events < _EVENTS_MAX, f"nothing comes to an end: {_EVENTS_MAX} events"
        self.note(event.label)
        event.action()

    def note(self, what: str) -> None:
        """Add an event to the trace."""
        self._trace.update(b"%d %s\n" % (self.now_us, what.encode()))

    @property
    def trace(self) -> str:
        """The hash of all events so far."""
        return self._trace.hexdigest()
