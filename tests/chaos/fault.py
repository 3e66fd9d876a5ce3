"""The faults of a chaos run, by name. Each begins, lasts a while, and is ended; all of them can be ended twice.

| name | what |
|---|---|
| kill9 | the process is gone at once |
| stop | SIGTERM, and a start |
| pause | SIGSTOP for a while, longer or shorter than a session |
| cut | two nodes do not hear each other |
| oneway | one node does not hear another |
| isolate | a node hears no other node; clients reach it |
| full | its disk is full |
| slow | what it sends to other nodes, and their answers, come late, each connection for itself; other faults go on |
| clock | its wall clock steps ahead or back, and later again; other faults go on |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from ottla.sim.history import OperationHistory
from tests.chaos.network import Network
from tests.chaos.nodes import ChaosNodes

#: Shorter and longer than a broker's session and than replica.lag.time.max.ms.
_LASTS_S = (0.3, 9.0)
_BETWEEN_S = (0.5, 4.0)
#: Beyond every timeout and session, below message.timestamp.after.max.ms.
_STEP_S = (0.5, 30.0, 1500.0)
_LATE_MS = (20, 800)
SLOW, CLOCK = "slow", "clock"
KINDS = ("kill9", "stop", "pause", "cut", "oneway", "isolate", "full", SLOW, CLOCK)
Fault = Callable[[int], Awaitable[None]]


class Faults:
    """Begins and ends faults, one or two at a time, never more than a minority of nodes down by its own doing."""

    def __init__(
        self, nodes: ChaosNodes, network: Network, rng: Random, names: list[str], history: OperationHistory | None
    ) -> None:
        kinds: dict[str, Fault] = {
            "kill9": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "oneway": self._one_way,
            "isolate": self._isolate,
            "full": self._full,
            SLOW: self._slow,
            CLOCK: self._step,
        }
        self._kinds = [(each, kinds[each]) for each in names]
        self._history = history
        #: Faults that end by themselves.
        self._ends: set[asyncio.Task[None]] = set()
        self._nodes = nodes
        self._network = network
        self._rng = rng
        self.counts: dict[str, int] = {}
        #: What happened, (seconds since the beginning, words).
        self.story: list[tuple[float, str]] = []
        self._began = asyncio.get_running_loop().time()

    async def run(self, until: float) -> None:
        """Let things fail until this moment of the loop's clock."""
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self._rng.uniform(*_BETWEEN_S))
            name, fault = self._rng.choice(self._kinds)
            node = self._rng.choice(list(self._network.nodes))
            self.counts[name] = self.counts.get(name, 0) + 1
            self.note(f"{name} {node}")
            if self._history is not None:
                self._history.fault(name, f"node {node}")
            await fault(node)
            for each in self._nodes.revive():
                self.note(f"node {each} had ended by itself")
        await asyncio.gather(*self._ends)

    def note(self, words: str) -> None:
        self.story.append((asyncio.get_running_loop().time() - self._began, words))

    async def _lasts(self) -> None:
        await asyncio.sleep(self._rng.uniform(*_LASTS_S))

    def _others(self, node: int) -> list[int]:
        return [each for each in self._network.nodes if each != node]

    async def _kill(self, node: int) -> None:
        self._nodes.kill(node)
        await self._lasts()
        self._nodes.start(node)

    async def _stop(self, node: int) -> None:
        if not await asyncio.to_thread(self._nodes.stop, node):
            self.note(f"node {node} did not stop in its time")
        await self._lasts()
        self._nodes.start(node)

    async def _pause(self, node: int) -> None:
        if not self._nodes.runs(node):
            return
        self._nodes.pause(node)
        await self._lasts()
        self._nodes.resume(node)

    async def _cut(self, node: int) -> None:
        other = self._rng.choice(self._others(node))
        await self._apart([(node, other), (other, node)])

    async def _one_way(self, node: int) -> None:
        await self._apart([(node, self._rng.choice(self._others(node)))])

    async def _isolate(self, node: int) -> None:
        await self._apart([pair for other in self._others(node) for pair in ((node, other), (other, node))])

    async def _apart(self, pairs: list[tuple[int, int]]) -> None:
        for source, target in pairs:
            self._network.cut(source, target)
        await self._lasts()
        for source, target in pairs:
            self._network.heal(source, target)

    async def _slow(self, node: int) -> None:
        low, high = sorted(self._rng.uniform(*_LATE_MS) for _ in range(2))
        self._network.delay(node, low, high)
        self._ends_later(lambda: self._network.delay(node, 0, 0))

    async def _step(self, node: int) -> None:
        step_s = self._rng.choice(_STEP_S) * self._rng.choice((1, -1))
        self.note(f"the clock of {node} is {step_s:+} s off")
        self._nodes.move_clock(node, step_s)
        self._ends_later(lambda: self._nodes.move_clock(node, 0))

    def _ends_later(self, end: Callable[[], None]) -> None:
        async def wait() -> None:
            await self._lasts()
            end()

        task = asyncio.get_running_loop().create_task(wait())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _full(self, node: int) -> None:
        await asyncio.to_thread(self._nodes.fill, node)
        await self._lasts()
        self._nodes.empty(node)
