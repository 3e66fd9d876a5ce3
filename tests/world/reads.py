"""Records whose leader dies right after a consumer was served them: histories by seeds, on slow links.

Many producers send at once: when records that were served are lost, those of another producer come to their offsets.
"""

from __future__ import annotations

from random import Random

from ottla.sim.workload import produce
from tests.world.cluster import servers_of
from tests.world.history import _TOPIC
from tests.world.slow_links import SlowLinksHistory

_PRODUCERS = 12
_LOOK_US = 2_000
#: Of the looks at which the consumer has records that it did not have before.
_DIES = 0.6


class ReadsHistory(SlowLinksHistory):
    """The leader of the partition dies of which the consumer was served last."""

    def _begin(self) -> None:
        super()._begin()
        for number in range(_PRODUCERS):
            host = self.world.host(f"producer{number}")
            host.boot()
            rng, ledger = Random(f"{self.world.seed} {host.name}"), self.ledgers[0]
            self._start(host, produce(host.name, servers_of(self.brokers), ledger, rng, lambda: self.going))
        self._served = 0
        self._rng = Random(f"{self.world.seed} reads")
        self._look_at_consumer()

    def _look_at_consumer(self) -> None:
        if not self.going:
            return
        seen = self.ledgers[0].seen.get("consumer", [])
        last = seen[-1] if len(seen) > self._served else None
        self._served = len(seen)
        if last is not None:
            self._kill_leader(_TOPIC, last[0], self._rng, _DIES)
        self.world.after(_LOOK_US, self._look_at_consumer, "look")


def run_reads(seed: int) -> ReadsHistory:
    """A history by a seed; AssertionError when a promise is broken."""
    history = ReadsHistory(seed)
    history.run()
    return history
