"""What the replicas of a node have in common: who may be in sync, who waits for commits, and how followers fetch.

Rules:
- Waiters of commits and consumers are told once a turn of the loop, after everything that moved a high watermark in it.
- The view of the brokers that may be in sync is one object for all partitions, changed in place.
- Members of an ISR that lag are looked for every half replica.lag.time.max.ms.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.metadata.image import Image
from ottla.replica.followed import FollowedPartition
from ottla.replica.leader import LeaderSettings, ProposeIsr, TimePassed
from ottla.replica.partition import Partition
from ottla.replica.replica_session import ReplicaSessions

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_log = logging.getLogger("ottla.broker")


class Replication:
    """The node makes it, has it follow the brokers of the metadata, and stops it."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self.monotonic_ms = node.clock.monotonic_ms
        #: Broker id -> epoch of those that may be in sync: unfenced and not on their way out.
        self.brokers: dict[int, int] = {}
        self.sessions = ReplicaSessions(node.rng)
        self._committed: dict[Partition, None] = {}
        self._lag_timer: asyncio.TimerHandle | None = None

    def settings_of(self, min_isr: int) -> LeaderSettings:
        """How a leader with this `min.insync.replicas` is set."""
        return LeaderSettings(self._node.node_id, self._node.settings.replica_lag_time_max_ms, min_isr)

    def start(self) -> None:
        """Plan the first look at who lags."""
        self._plan()

    def stop(self) -> None:
        """Stop the timers, and end the followers' sessions."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        self.sessions.end_all()

    def follow_brokers(self, old: Image, new: Image) -> None:
        """The metadata changed, and perhaps which brokers may be in sync."""
        if new.brokers is not old.brokers:
            self.brokers.clear()
            self.brokers.update((each.broker_id, each.epoch) for each in new.brokers.values() if each.is_active)

    def follow(self, replica: FollowedPartition) -> None:
        """Fetch for this replica from now on, until it is ended."""

    # ---- leaders

    def committed(self, partition: Partition) -> None:
        """The high watermark of a partition has moved."""
        if not self._committed:
            self._node.loop.call_soon(self._tell_committed)
        self._committed[partition] = None

    def _tell_committed(self) -> None:
        committed, self._committed = self._committed, {}
        for partition in committed:
            partition.tell_committed()
        for wake in dict.fromkeys(wake for partition in committed for wake in partition.waiting):
            wake()

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Ask the controller for another ISR."""

    def _plan(self) -> None:
        seconds = max(1, self._node.settings.replica_lag_time_max_ms) / 2000
        self._lag_timer = self._node.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        for partition in list(self._node.partitions.values()):
            if partition.machine is not None:
                partition.step(TimePassed())
        self._plan()
