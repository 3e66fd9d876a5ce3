"""The table of a transactional id's states, against every short sequence of requests."""

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.contract import TimePassed
from ottla.kernel.ids import TopicPartition
from ottla.kernel.now import Now
from ottla.txn import transaction
from ottla.txn.coordinator import TransactionCoordinator
from ottla.wire.record.transaction import parse
from tests.machine import Transitions, table
from tests.txn.test_coordinator import Scene

_STEPS = 4


class _Walk(Scene):
    """A client that always has the newest producer id and epoch."""

    @property
    def producer(self) -> Any:
        found = self.machine.transactions.get("t")
        pair = (-1, -1) if found is None else found.client
        return SimpleNamespace(producer_id=pair[0], producer_epoch=pair[1])

    def hold(self) -> None:
        """Write no markers for now, or those that wait."""
        self.holding = not self.holding
        if not self.holding:
            self.write_markers()

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.carry_out(self.machine.step(TimePassed(), Now(self.now_ms, self.now_ms)))


_CALLS: tuple[Callable[[_Walk], object], ...] = (
    lambda walk: walk.init(),
    lambda walk: walk.add(walk.producer, TopicPartition("a", 0)),
    lambda walk: walk.end(walk.producer, commit=True),
    lambda walk: walk.end(walk.producer, commit=False),
    _Walk.hold,
    lambda walk: walk.wait(100_000),
    lambda walk: walk.wait(8 * 24 * 3_600_000),
)


def test_a_transactional_id_takes_the_states_of_the_table_and_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Transitions = set()
    replay = TransactionCoordinator.replay

    def spy(self: TransactionCoordinator, key: bytes, value: bytes | None) -> None:
        name = parse(key, value)[0].transactional_id
        before = self.transactions.get(name)
        replay(self, key, value)
        after = self.transactions.get(name)
        names = ["NONE" if each is None else each.state.name for each in (before, after)]
        if names[0] != names[1]:
            seen.add((names[0], names[1]))

    monkeypatch.setattr(TransactionCoordinator, "replay", spy)
    for calls in product(_CALLS, repeat=_STEPS):
        walk = _Walk()
        walk.init()
        for call in calls:
            call(walk)
    assert seen == table(transaction)
