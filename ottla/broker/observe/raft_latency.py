"""Commit and election latency of the quorum, measured as in Apache Kafka's KafkaRaftMetrics.

Rules:
- Commit latency, on the leader: from the append of a batch to its commit, in milliseconds per record of the batch.
- Election latency: from when this node last became prospective or a candidate until it knows the leader.
- The values cover the last two windows of 30 s (the defaults of Kafka's metrics); NaN without samples.
"""

from __future__ import annotations

from collections import deque
from math import nan
from typing import TYPE_CHECKING

from ottla.raft.role import Candidate, Follower, Leader, Prospective, QuorumRole

if TYPE_CHECKING:
    from ottla.broker.metadata.metadata_log import MetadataLog
    from ottla.kernel.ports import Clock

_WINDOW_MS = 30_000
_WINDOWS = 2


class SampledLatency:
    """Average and maximum over the last windows. A window expires by the time of its last value."""

    def __init__(self) -> None:
        #: [start of the window, time of its last value, number of values, sum, maximum], oldest first.
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Add a latency."""
        if not self._samples or now_ms - self._samples[-1][0] >= _WINDOW_MS:
            self._samples.append([now_ms, now_ms, 0, 0.0, 0.0])
            self._forget(now_ms)
        sample = self._samples[-1]
        sample[1:] = [now_ms, sample[2] + 1, sample[3] + value, max(sample[4], value)]

    def measured(self, now_ms: int) -> tuple[float, float]:
        """(average, maximum)."""
        self._forget(now_ms)
        if not self._samples:
            return nan, nan
        count = sum(sample[2] for sample in self._samples)
        return sum(sample[3] for sample in self._samples) / count, max(sample[4] for sample in self._samples)

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][1] >= _WINDOWS * _WINDOW_MS:
            self._samples.popleft()


class RaftLatency:
    """The latencies of one node. `Observation` owns it; `watch` connects it."""

    def __init__(self) -> None:
        self.commits = SampledLatency()
        self.elections = SampledLatency()
        self._role: QuorumRole | None = None
        self._election_ms: int | None = None
        self._end_offset = 0
        #: (end offset, records, append time) of each uncommitted batch of this leader.
        self._appended: deque[tuple[int, int, int]] = deque()

    def watch(self, quorum: MetadataLog, clock: Clock) -> None:
        """Subscribe to the quorum."""
        raft = quorum.raft
        quorum.subscribe_step(lambda: self.look(raft.quorum.role, raft.log.end_offset, clock.monotonic_ms()))

    def look(self, role: QuorumRole, end_offset: int, now_ms: int) -> None:
        """Measure after a step of the quorum's machine."""
        if role is not self._role:
            self._role = role
            self._appended.clear()
            if isinstance(role, Prospective | Candidate):
                self._election_ms = now_ms
            elif isinstance(role, Leader | Follower) and self._election_ms is not None:
                self.elections.record(now_ms - self._election_ms, now_ms)
                self._election_ms = None
            if isinstance(role, Leader):
                self._end_offset = role.epoch_start_offset
        if not isinstance(role, Leader):
            return
        if end_offset > self._end_offset:
            self._appended.append((end_offset, end_offset - self._end_offset, now_ms))
            self._end_offset = end_offset
        while self._appended and self._appended[0][0] <= role.high_watermark:
            _, records, appended_ms = self._appended.popleft()
            self.commits.record((now_ms - appended_ms) / records, now_ms)
