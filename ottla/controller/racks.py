"""Spreads replicas over racks and brokers like Apache Kafka's StripedReplicaPlacer.

Rules:
- The leader is an active broker of the next rack. The other replicas follow round-robin from there, so that they are in
  as many racks as possible. Within a rack, active brokers come before fenced ones.
- Each partition starts one rack and one broker after the previous one, so that leaders are spread as well.
- When every active broker has led, racks and brokers are shuffled, so that partitions do not all share the same
  followers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.kernel.ports import Rng
from ottla.metadata.image import BrokerImage


class _Stripe:
    """Brokers chosen in rotation."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._index = self._offset = self._round = 0

    def begin(self, rng: Rng) -> None:
        """Start at a random broker."""
        if len(self.brokers) > 1:
            self._offset = rng.randrange(len(self.brokers))

    def next(self, round_number: int) -> int | None:
        """Return the next broker of this round; None if all were chosen."""
        if not self.brokers:
            return None
        if self._round != round_number:
            self._round, self._index = round_number, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        self._index += 1
        return self.brokers[(self._index - 1 + self._offset) % len(self.brokers)]


class _Rack:
    def __init__(self) -> None:
        self.active = _Stripe()
        self.fenced = _Stripe()

    def next(self, round_number: int) -> int | None:
        broker = self.active.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class Racks:
    """The placement for one request; each call of `place` places one partition."""

    def __init__(self, brokers: Iterable[BrokerImage], rng: Rng) -> None:
        """Take the brokers, sorted by id; at least one is active."""
        self._rng = rng
        racks: dict[str | None, _Rack] = {}
        self._active_count = 0
        for broker in brokers:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.active).brokers.append(broker.broker_id)
            self._active_count += not broker.fenced
        self._racks = [racks[name] for name in sorted(racks, key=lambda name: (name is not None, name or ""))]
        for rack in self._racks:
            rack.fenced.begin(rng)
            rack.active.begin(rng)
        self._round = 0
        self._offset = rng.randrange(len(self._racks)) if len(self._racks) > 1 else 0

    def place(self, replication_factor: int) -> list[int]:
        """Return the replicas of the next partition. There must be enough brokers."""
        if self._round == self._active_count > 1:
            self._shuffle()
            self._round = 0
        racks, count = self._racks, len(self._racks)
        first = self._offset % count
        while (leader := racks[first].active.next(self._round)) is None:
            first = (first + 1) % count
        replicas = [leader]
        turn = self._offset % count
        leader_rack: int | None = first
        while len(replicas) < replication_factor:
            # The leader already used its rack's turn.
            if turn == leader_rack:
                leader_rack = None
            elif (broker := racks[turn].next(self._round)) is not None:
                replicas.append(broker)
            turn = (turn + 1) % count
        self._round += 1
        self._offset = (self._offset + 1) % count
        return replicas

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._rng)
        for rack in self._racks:
            _shuffle(rack.active.brokers, self._rng)
            _shuffle(rack.fenced.brokers, self._rng)


def _shuffle(things: list[Any], rng: Rng) -> None:
    for last in range(len(things) - 1, 0, -1):
        other = rng.randrange(last + 1)
        things[last], things[other] = things[other], things[last]
