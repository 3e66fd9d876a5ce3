"""A consumer's metrics (Kafka's consumer-fetch-manager-metrics, consumer-coordinator-metrics and consumer-metrics), and
the meter that counts them.
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
#: Kafka's metric groups by the prefixes of their metrics; all other metrics are in consumer-metrics.
_GROUPS = {
    _FETCHES: ("records-", "bytes-", "fetch-"),
    "consumer.coordinator": ("commit-", "rebalance-", "assigned-"),
}


@frozen
class ConsumerTopicMetrics:
    """A snapshot of one topic's metrics. Sizes in bytes, rates per second."""

    records_consumed_total: int
    records_consumed_rate: float
    records_per_request_avg: float
    bytes_consumed_total: int
    bytes_consumed_rate: float
    fetch_size_avg: float
    fetch_size_max: float

    def named(self) -> dict[str, Any]:
        """The metrics as a dict under Kafka's names, such as `records-consumed-rate`."""
        return named(self)


@frozen
class ConsumerPartitionMetrics:
    """A snapshot of one assigned partition's metrics. NaN until the first fetch."""

    #: The number of records still to read, and the number between the log start and the position.
    records_lag: float
    records_lead: float
    #: The replica that the leader sent this consumer to; -1 while it reads from the leader (KIP-392).
    preferred_read_replica: int

    def named(self) -> dict[str, Any]:
        """The metrics as a dict under Kafka's names, such as `records-lag`."""
        return named(self)


@frozen
class ConsumerMetrics:
    """A snapshot of a consumer's metrics. Times in milliseconds, sizes in bytes, rates per second."""

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
    fetch_throttle_time_avg: float
    fetch_throttle_time_max: float
    #: The number of records still to read by partition, as of the last fetch, without partitions not fetched yet.
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
    #: Further metrics by topic, by assigned partition and by node id.
    topics: Mapping[str, ConsumerTopicMetrics]
    partitions: Mapping[TopicPartition, ConsumerPartitionMetrics]
    nodes: Mapping[int, NodeMetrics]

    def named(self) -> dict[str, Any]:
        """The metrics as a dict under Kafka's names, such as `records-consumed-rate`."""
        return named(self)


def consumer_points(metrics: ConsumerMetrics, cluster: Cluster) -> Iterator[Point]:
    """All metrics as they are pushed to the cluster (KIP-714), in Kafka's three groups."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in metrics.named().items():
        group = next((group for group, prefixes in _GROUPS.items() if name.startswith(prefixes)), "consumer")
        groups.setdefault(group, {})[name] = value
    for group, figures in groups.items():
        yield from points_of(group, figures)
    for topic, topic_metrics in metrics.topics.items():
        yield from points_of(_FETCHES, topic_metrics.named(), topic=topic)
    for tp, partition_figures in metrics.partitions.items():
        yield from points_of(_FETCHES, partition_figures.named(), topic=tp.topic, partition=str(tp.partition))
    yield from connection_points("consumer", cluster, metrics.nodes)


class ConsumerTopicMeter:
    """The counts of one topic."""

    def __init__(self, now_ms: int) -> None:
        self.records = Sampled(now_ms)
        self.bytes = Sampled(now_ms)

    def snapshot(self, now_ms: int) -> ConsumerTopicMetrics:
        """A snapshot of the topic's metrics."""
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
    """The metrics of one assigned partition."""
    lag = lead = math.nan
    if state.position is not None and state.high_watermark >= 0:
        lag = max(0, state.end_offset(stable=stable) - state.position)
        lead = max(0, state.position - max(0, state.log_start_offset))
    has_preferred = state.preferred is not None and now_ms < state.preferred[1]
    return ConsumerPartitionMetrics(lag, lead, state.preferred[0] if has_preferred and state.preferred else -1)


class ConsumerMeter:
    """Counts the polls, fetches, commits and rebalances that the consumer and its fetcher report."""

    def __init__(self, now_ms: int) -> None:
        self._records = Sampled(now_ms)
        self._fetch_bytes = Sampled(now_ms)
        self._fetch_ms = Sampled(now_ms)
        self._throttle_ms = Sampled(now_ms)
        self._commit_ms = Sampled(now_ms)
        self._between_ms = Sampled(now_ms)
        self._rebalances = 0
        self._polled_at_ms = -1
        self._topics: dict[str, ConsumerTopicMeter] = {}

    def topic(self, topic: str, now_ms: int) -> ConsumerTopicMeter:
        """The topic's meter, created at first use."""
        meter = self._topics.get(topic)
        if meter is None:
            meter = self._topics[topic] = ConsumerTopicMeter(now_ms)
        return meter

    def polled(self, now_ms: int) -> None:
        """Note a poll of the program."""
        if self._polled_at_ms >= 0:
            self._between_ms.record(now_ms - self._polled_at_ms, now_ms)
        self._polled_at_ms = now_ms

    def consumed(self, records: int, now_ms: int) -> None:
        """Note records returned to the program."""
        self._records.record(records, now_ms)

    def fetched(self, size: int, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Note a fetch answered with `size` bytes of records, and for how long its broker throttles this client."""
        self._fetch_bytes.record(size, now_ms)
        self._fetch_ms.record(latency_ms, now_ms)
        self._throttle_ms.record(throttle_ms, now_ms)

    def committed(self, latency_ms: int, now_ms: int) -> None:
        """Note a confirmed commit."""
        self._commit_ms.record(latency_ms, now_ms)

    def rebalanced(self) -> None:
        """Note that partitions were assigned or revoked."""
        self._rebalances += 1

    def snapshot(
        self,
        states: Mapping[TopicPartition, PartitionPosition],
        nodes: Mapping[int, NodeMetrics],
        *,
        stable: bool,
        now_ms: int,
    ) -> ConsumerMetrics:
        """A snapshot of the metrics."""
        partitions = {
            partition: partition_metrics(state, stable=stable, now_ms=now_ms) for partition, state in states.items()
        }
        known = {partition: figures for partition, figures in partitions.items() if not math.isnan(figures.records_lag)}
        lag = {partition: int(figures.records_lag) for partition, figures in known.items()}
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
            fetch_throttle_time_avg=self._throttle_ms.mean(now_ms),
            fetch_throttle_time_max=self._throttle_ms.greatest(now_ms),
            records_lag=lag,
            records_lag_max=max(lag.values(), default=math.nan),
            records_lead_min=min((figures.records_lead for figures in known.values()), default=math.nan),
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
