"""A consumer's metrics (Kafka's consumer-fetch-manager-metrics, consumer-coordinator-metrics and consumer-metrics), and
the events from which they are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ottla.client.metric import Sampled, named
from ottla.kernel.name import TopicPartition
from ottla.kernel.value import frozen


@frozen
class ConsumerMetrics:
    """A snapshot. Times in ms, sizes in bytes, rates per second."""

    records_consumed_total: int
    records_consumed_rate: float
    bytes_consumed_total: int
    bytes_consumed_rate: float
    fetch_total: int
    fetch_rate: float
    fetch_size_avg: float
    fetch_size_max: float
    fetch_latency_avg: float
    fetch_latency_max: float
    #: By partition how many records are still to read, as of the last fetch; those not fetched yet are left out.
    records_lag: Mapping[TopicPartition, int]
    records_lag_max: float
    commit_total: int
    commit_rate: float
    commit_latency_avg: float
    commit_latency_max: float
    time_between_poll_avg: float
    time_between_poll_max: float
    last_poll_seconds_ago: float
    rebalance_total: int
    assigned_partitions: int

    def named(self) -> dict[str, Any]:
        """By Kafka's names: `records-consumed-rate`, ..."""
        return named(self)


class ConsumerMeter:
    """Counts. The consumer and its fetcher tell it of polls, fetches, commits and rebalances."""

    def __init__(self, now_ms: int) -> None:
        self._records = Sampled(now_ms)
        self._fetch_bytes = Sampled(now_ms)
        self._fetch_ms = Sampled(now_ms)
        self._commit_ms = Sampled(now_ms)
        self._between_ms = Sampled(now_ms)
        self._rebalances = 0
        self._polled_at_ms = -1

    def polled(self, now_ms: int) -> None:
        """The program has asked for records."""
        if self._polled_at_ms >= 0:
            self._between_ms.record(now_ms - self._polled_at_ms, now_ms)
        self._polled_at_ms = now_ms

    def consumed(self, records: int, now_ms: int) -> None:
        """The program has got records."""
        self._records.record(records, now_ms)

    def fetched(self, size: int, latency_ms: int, now_ms: int) -> None:
        """A fetch was answered with so many bytes of records."""
        self._fetch_bytes.record(size, now_ms)
        self._fetch_ms.record(latency_ms, now_ms)

    def committed(self, latency_ms: int, now_ms: int) -> None:
        """A commit was confirmed."""
        self._commit_ms.record(latency_ms, now_ms)

    def rebalanced(self) -> None:
        """Partitions have come or gone."""
        self._rebalances += 1

    def snapshot(self, lag: Mapping[TopicPartition, int], assigned: int, now_ms: int) -> ConsumerMetrics:
        """How things stand."""
        return ConsumerMetrics(
            records_consumed_total=int(self._records.total),
            records_consumed_rate=self._records.rate(now_ms),
            bytes_consumed_total=int(self._fetch_bytes.total),
            bytes_consumed_rate=self._fetch_bytes.rate(now_ms),
            fetch_total=self._fetch_ms.count,
            fetch_rate=self._fetch_ms.frequency(now_ms),
            fetch_size_avg=self._fetch_bytes.mean(now_ms),
            fetch_size_max=self._fetch_bytes.greatest(now_ms),
            fetch_latency_avg=self._fetch_ms.mean(now_ms),
            fetch_latency_max=self._fetch_ms.greatest(now_ms),
            records_lag=lag,
            records_lag_max=max(lag.values(), default=math.nan),
            commit_total=self._commit_ms.count,
            commit_rate=self._commit_ms.frequency(now_ms),
            commit_latency_avg=self._commit_ms.mean(now_ms),
            commit_latency_max=self._commit_ms.greatest(now_ms),
            time_between_poll_avg=self._between_ms.mean(now_ms),
            time_between_poll_max=self._between_ms.greatest(now_ms),
            last_poll_seconds_ago=(now_ms - self._polled_at_ms) / 1000 if self._polled_at_ms >= 0 else math.nan,
            rebalance_total=self._rebalances,
            assigned_partitions=assigned,
        )
