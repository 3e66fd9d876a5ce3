"""What all replicas of a node share: the brokers eligible for the ISR, commit notifications, and replica fetchers.

Rules:
- Waiters for commits and consumers are notified once per turn of the loop, after all high watermarks have moved.
- All partitions share one view of the eligible brokers, updated in place.
- Lagging ISR members are looked for every half replica.lag.time.max.ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.kernel.callbacks import call_each
from ottla.kernel.lazy import LazyModule
from ottla.metadata.image import NO_LEADER, Image
from ottla.replica.leader import LeaderSettings, ProposeIsr, TimePassed
from ottla.replica.partition import Partition
from ottla.replica.replica_session import ReplicaSessions
from ottla.replica.selector import LEADER, LEADER_ONLY, RACK_AWARE, nearest

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.broker.limits.throttles import Throttles
    from ottla.broker.partitions import fetcher as replica_fetcher
    from ottla.broker.partitions import isr_changes
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.runtime import Dial, Runtime
    from ottla.replica.followed import FollowedPartition
else:
    # A single-node cluster has no followers and no leaders elsewhere.
    replica_fetcher = LazyModule("ottla.broker.partitions.fetcher")
    isr_changes = LazyModule("ottla.broker.partitions.isr_changes")

_log = logging.getLogger("ottla.broker")


class Replication:
    """A node's replication. The node creates it, passes it changes of the brokers, and stops it."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[tuple[str, int], Partition],
        controllers: Controllers,
        flusher: Flusher,
        log_dirs: LogDirs,
        throttles: Throttles,
        dial: Dial,
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._controllers = controllers
        self._flusher = flusher
        self._log_dirs = log_dirs
        self._throttles = throttles
        self._dial = dial
        self.monotonic_ms = runtime.clock.monotonic_ms
        #: Broker id -> epoch of the brokers eligible for the ISR: unfenced and not in controlled shutdown.
        self.brokers: dict[int, int] = {}
        self.sessions = ReplicaSessions(runtime.rng)
        #: Leader id -> fetcher.
        self.fetchers: dict[int, replica_fetcher.ReplicaFetcher] = {}
        #: Created with the first proposal.
        self._isr_changes: isr_changes.IsrChanges | None = None
        self._committed: dict[Partition, None] = {}
        self._lag_timer: asyncio.TimerHandle | None = None
        #: Whether consumers are sent to the replica in their rack (KIP-392).
        self.selects = runtime.settings.replica_selector_class == RACK_AWARE

    def settings_of(self, min_isr: int) -> LeaderSettings:
        """The settings of a leader with this `min.insync.replicas`."""
        return LeaderSettings(self._runtime.node_id, self._runtime.settings.replica_lag_time_max_ms, min_isr)

    def start(self) -> None:
        """Schedule the first check for lagging replicas."""
        selector = self._runtime.settings.replica_selector_class
        if selector not in (None, "", RACK_AWARE, LEADER_ONLY):
            _log.warning("unknown replica.selector.class=%s: consumers will read from leaders", selector)
        self._schedule()

    def nearest(self, partition: Partition, rack: str, offset: int) -> int:
        """The broker from which a consumer in `rack` should read `offset`; LEADER for this one."""
        if partition.machine is None or not rack or not self.selects:
            return LEADER
        racks = {broker_id: broker.rack for broker_id, broker in self._runtime.image.brokers.items()}
        return nearest(partition.machine, racks, rack, offset)

    def stop(self) -> None:
        """Stop the timers and close the fetchers and the followers' sessions."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        if self._isr_changes is not None:
            self._isr_changes.close()
        for fetcher in self.fetchers.values():
            fetcher.close()
        self.fetchers.clear()
        self.sessions.close_all()

    def follow_brokers(self, old: Image, new: Image) -> None:
        """Apply a change of the brokers: which are eligible for the ISR, and their addresses."""
        if new.brokers is not old.brokers:
            self.brokers.clear()
            self.brokers.update((broker.broker_id, broker.epoch) for broker in new.brokers.values() if broker.is_active)
            for fetcher in list(self.fetchers.values()):
                fetcher.brokers_changed()
            # Brokers that were fenced may be eligible now, although their incremental fetches carry nothing new.
            self._check_isr()

    # ---- followers

    def follow(self, replica: FollowedPartition) -> None:
        """Start fetching for this replica, if it has a leader."""
        if replica.leader_id != NO_LEADER:
            fetcher = self.fetchers.get(replica.leader_id)
            if fetcher is None:
                fetcher = self.fetchers[replica.leader_id] = replica_fetcher.ReplicaFetcher(
                    self._runtime, self._flusher, self._log_dirs, self._throttles, self._dial, replica.leader_id
                )
            fetcher.add(replica)

    def forget(self, replica: FollowedPartition) -> None:
        """Stop fetching for a replica that has ended."""
        fetcher = self.fetchers.get(replica.leader_id)
        if fetcher is not None:
            fetcher.remove(replica)
            if not fetcher:
                # A new epoch may name the same leader within this turn of the loop, so close the fetcher afterwards.
                self._runtime.loop.call_soon(self._close_idle, replica.leader_id)

    def _close_idle(self, leader_id: int) -> None:
        fetcher = self.fetchers.get(leader_id)
        if fetcher is not None and not fetcher:
            del self.fetchers[leader_id]
            fetcher.close()

    # ---- leaders

    def committed(self, partition: Partition) -> None:
        """Note that the high watermark of a partition has moved."""
        # A waiter that comes later sees the new high watermark itself.
        if partition.waiting or partition.commits.first_offset is not None:
            if not self._committed:
                self._runtime.loop.call_soon(self._notify_committed)
            self._committed[partition] = None
        if self.selects:
            # Consumers may be waiting at the followers, which are woken at once, as in Apache Kafka.
            for session in partition.sessions:
                session.wake()

    def _notify_committed(self) -> None:
        committed, self._committed = self._committed, {}

        def wake_readers() -> None:
            call_each(dict.fromkeys(wake for partition in committed for wake in partition.waiting))

        call_each([*(partition.complete_commits for partition in committed), wake_readers])

    @property
    def isr_counts(self) -> tuple[int, int, int]:
        """(ISR expansions, ISR shrinks, refused changes) since the start, as answered by the controller."""
        made = self._isr_changes
        return (0, 0, 0) if made is None else (made.expands, made.shrinks, made.failures)

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Ask the controller to change the ISR."""
        if self._isr_changes is None:
            self._isr_changes = isr_changes.IsrChanges(self._runtime, self._controllers, self._partitions)
        self._isr_changes.propose(partition, proposal)

    def _schedule(self) -> None:
        seconds = max(1, self._runtime.settings.replica_lag_time_max_ms) / 2000
        self._lag_timer = self._runtime.loop.call_later(seconds, self._check_lag)

    def _check_lag(self) -> None:
        self._schedule()
        self._check_isr()

    def _check_isr(self) -> None:
        for partition in list(self._partitions.values()):
            if partition.machine is not None:
                partition.step(TimePassed())
