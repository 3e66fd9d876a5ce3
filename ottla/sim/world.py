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
- `trace` is a hash of every event: two runs with one seed have the same one, in any process. Not so in any version of
  Python: asyncio takes other numbers of turns since 3.12.

Read `_run` first, then `ottla/sim/host.py`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random

from ottla.sim.host import Host
from ottla.sim.network import Network

_EVENTS_MAX = 50_000_000
#: The number of events that are hashed at once.
_NOTES = 4_096


class World:
    """The hosts, the network between them, and the queue of events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        #: True time in microseconds since the world began. No host sees it.
        self.now_us = 0
        self.hosts: list[Host] = []
        self.network = Network(self)
        #: (time, number, action, label): the number decides between events of one moment.
        self._heap: list[tuple[int, int, Callable[[], object], str]] = []
        self._number = 0
        self._trace = hashlib.blake2b(digest_size=8)
        #: The number of events in the trace, and the events that are not in it yet.
        self._hashed = 0
        self._notes: list[str] = []
        #: The source of `between`; the hottest callers draw from it themselves.
        self.draw = self.rng.getrandbits

    def host(self, name: str) -> Host:
        """Add a machine to the network, without a process."""
        host = Host(self, name, f"192.0.2.{len(self.hosts) + 1}")
        self.hosts.append(host)
        return host

    def at(self, when_us: int, action: Callable[[], object], label: str = "") -> None:
        """Plan `action` for a true time; a past time means now."""
        now_us = self.now_us
        self._number += 1
        heapq.heappush(self._heap, (when_us if when_us > now_us else now_us, self._number, action, label))

    def after(self, delay_us: int, action: Callable[[], object], label: str = "") -> None:
        self.at(self.now_us + delay_us, action, label)

    def between(self, low: int, high: int) -> int:
        """`rng.randrange(low, high)`: the same draws in a third of the time."""
        count = high - low
        bits = count.bit_length()
        drawn = self.draw(bits)
        while drawn >= count:
            drawn = self.draw(bits)
        return low + drawn

    def run_until(self, done: Callable[[], bool], *, limit_ms: int) -> bool:
        """Run events until `done`, for at most `limit_ms` of true time. Returns `done`."""
        end_us, heap = self.now_us + limit_ms * 1000, self._heap
        while not done():
            if not heap or heap[0][0] > end_us:
                self.now_us = end_us
                return done()
            self._run(heap[0][0], 1)
        return True

    def run_for(self, ms: int) -> None:
        """Run events for `ms` milliseconds of true time."""
        end_us = self.now_us + ms * 1000
        self._run(end_us, _EVENTS_MAX)
        self.now_us = end_us

    def _run(self, end_us: int, count: int) -> None:
        """Run at most `count` events until a true time."""
        heap, notes, pop = self._heap, self._notes, heapq.heappop
        while count and heap and heap[0][0] <= end_us:
            count -= 1
            self.now_us, _, action, label = pop(heap)
            notes.append(f"{self.now_us} {label}\n")
            if len(notes) == _NOTES:
                self._hash_notes()
            action()

    def _hash_notes(self) -> None:
        self._hashed += len(self._notes)
        assert self._hashed < _EVENTS_MAX, f"nothing comes to an end: {_EVENTS_MAX} events"
        self._trace.update("".join(self._notes).encode())
        self._notes.clear()

    @property
    def events(self) -> int:
        """The number of events so far."""
        return self._hashed + len(self._notes)

    @property
    def trace(self) -> str:
        """The hash of all events so far."""
        self._hash_notes()
        return self._trace.hexdigest()
