"""A consumer's metrics (Kafka's consumer-fetch-manager-metrics, consumer-coordinator-metrics and consumer-metrics), and
the events from which they are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.client.connection.cluster import Cluster
from ottla.client.connection.metric import Sampled, named
from ottla.client.connection.node_metric import NodeMetrics
from ottla.client.connection.otlp import Point
from ottla.client.connection.telemetry import connection_points, points_of
from ottla.client.consumer.position import PartitionPosition
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition

_FETCHES = "consumer.fetch.manager"
#: What stands in which of Kafka's groups, by how its name begins; the rest is in consumer-metrics.
_GROUPS = {
    _FETCHES: ("records-", "bytes-", "fetch-"),
    "consumer.coordinator": ("commit-", "rebalance-", "assigned-"),
}


@frozen
class ConsumerTopicMetrics:
    """A snapshot of one topic."""

    records_consumed_total: int
    records_consumed_rate: float
    records_per_request_avg: float
    bytes_consumed_total: int
    bytes_consumed_rate: float
    fetch_size_avg: float
    fetch_size_max: float

    def named(self) -> dict[str, Any]:
        """By Kafka's names: `records-consumed-rate`, ..."""
        return named(self)


@frozen
class ConsumerPartitionMetrics:
    """A snapshot of one assigned partition. NaN as long as nothing was fetched."""

    #: How many records are still to read, and how many are there before the position.
    records_lag: float
    records_lead: float
    #: The replica that the leader sent us to, -1 if we read from the leader (KIP-392).
    preferred_read_replica: int

    def named(self) -> dict[str, Any]:
        """By Kafka's names: `records-lag`, ..."""
        return named(self)


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
    records_lead_min: float
    commit_total: int
    commit_rate: float
    commit_latency_avg: float
    commit_latency_max: float
    time_between_poll_avg: float
    time_between_poll_max: float
    last_poll_seconds_ago: float
    rebalance_total: int
    assigned_partitions: int
    #: By topic, by assigned partition, and by node id.
    topics: Mapping[str, ConsumerTopicMetrics]
    partitions: Mapping[TopicPartition, ConsumerPartitionMetrics]
    nodes: Mapping[int, NodeMetrics]

    def named(self) -> dict[str, Any]:
        """By Kafka's names: `records-consumed-rate`, ..."""
        return named(self)


def consumer_points(metrics: ConsumerMetrics, cluster: Cluster) -> Iterator[Point]:
    """All of it as it is pushed to the cluster (KIP-714), in Kafka's three groups."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in metrics.named().items():
        group = next((group for group, prefixes in _GROUPS.items() if name.startswith(prefixes)), "consumer")
        groups.setdefault(group, {})[name] = value
    for group, figures in groups.items():
        yield from points_of(group, figures)
    for topic, each in metrics.topics.items():
        yield from points_of(_FETCHES, each.named(), topic=topic)
    for tp, one in metrics.partitions.items():
        yield from points_of(_FETCHES, one.named(), topic=tp.topic, partition=str(tp.partition))
    yield from connection_points("consumer", cluster, metrics.nodes)


class ConsumerTopicMeter:
    """Counts of one topic."""

    def __init__(self, now_ms: int) -> None:
        self.records = Sampled(now_ms)
        self.bytes = Sampled(now_ms)

    def snapshot(self, now_ms: int) -> ConsumerTopicMetrics:
        """How things stand."""
        fetches = max(1, self.bytes.count)
        return ConsumerTopicMetrics(
            records_consumed_total=int(self.records.total),
            records_consumed_rate=self.records.rate(now_ms),
            records_per_request_avg=self.records.total / fetches,
            bytes_consumed_total=int(self.bytes.total),
            bytes_consumed_rate=self.bytes.rate(now_ms),
            fetch_size_avg=self.bytes.mean(now_ms),
            fetch_size_max=self.bytes.greatest(now_ms),
        )


def partition_metrics(state: PartitionPosition, *, stable: bool, now_ms: int) -> ConsumerPartitionMetrics:
    """The figures of one assigned partition."""
    lag = lead = math.nan
    if state.position is not None and state.high_watermark >= 0:
        lag = max(0, state.end_offset(stable=stable) - state.position)
        lead = max(0, state.position - max(0, state.log_start_offset))
    there = state.preferred is not None and now_ms < state.preferred[1]
    return ConsumerPartitionMetrics(lag, lead, state.preferred[0] if there and state.preferred else -1)


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
        self._topics: dict[str, ConsumerTopicMeter] = {}

    def topic(self, topic: str, now_ms: int) -> ConsumerTopicMeter:
        """Its counts."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = ConsumerTopicMeter(now_ms)
        return found

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

    def snapshot(
        self,
        states: Mapping[TopicPartition, PartitionPosition],
        nodes: Mapping[int, NodeMetrics],
        *,
        stable: bool,
        now_ms: int,
    ) -> ConsumerMetrics:
        """How things stand."""
        partitions = {one: partition_metrics(state, stable=stable, now_ms=now_ms) for one, state in states.items()}
        known = {one: found for one, found in partitions.items() if not math.isnan(found.records_lag)}
        lag = {one: int(found.records_lag) for one, found in known.items()}
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
            records_lead_min=min((found.records_lead for found in known.values()), default=math.nan),
            commit_total=self._commit_ms.count,
            commit_rate=self._commit_ms.frequency(now_ms),
            commit_latency_avg=self._commit_ms.mean(now_ms),
            commit_latency_max=self._commit_ms.greatest(now_ms),
            time_between_poll_avg=self._between_ms.mean(now_ms),
            time_between_poll_max=self._between_ms.greatest(now_ms),
            last_poll_seconds_ago=(now_ms - self._polled_at_ms) / 1000 if self._polled_at_ms >= 0 else math.nan,
            rebalance_total=self._rebalances,
            assigned_partitions=len(partitions),
            topics={topic: meter.snapshot(now_ms) for topic, meter in list(self._topics.items())},
            partitions=partitions,
            nodes=nodes,
        )
