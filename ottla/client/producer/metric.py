"""A producer's metrics (Kafka's producer-metrics and producer-topic-metrics), and the meter that counts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.client.connection.cluster import Cluster
from ottla.client.connection.metric import Sampled, named
from ottla.client.connection.node_metric import NodeMetrics
from ottla.client.connection.otlp import Point
from ottla.client.connection.telemetry import connection_points, points_of
from ottla.kernel.frozen import frozen


@frozen
class ProducerTopicMetrics:
    """A snapshot of one topic's metrics. Sizes in bytes, rates per second."""

    record_send_total: int
    record_send_rate: float
    byte_total: int
    byte_rate: float
    record_retry_total: int
    record_retry_rate: float
    record_error_total: int
    record_error_rate: float

    def named(self) -> dict[str, Any]:
        """The metrics as a dict under Kafka's names, such as `record-send-rate`."""
        return named(self)


@frozen
class ProducerMetrics:
    """A snapshot of a producer's metrics. Times in milliseconds, sizes in bytes, rates per second."""

    record_send_total: int
    record_send_rate: float
    record_error_total: int
    record_error_rate: float
    record_retry_total: int
    record_retry_rate: float
    records_per_request_avg: float
    batch_size_avg: float
    batch_size_max: float
    record_queue_time_avg: float
    record_queue_time_max: float
    outgoing_byte_total: int
    outgoing_byte_rate: float
    request_total: int
    request_rate: float
    request_latency_avg: float
    request_latency_max: float
    produce_throttle_time_avg: float
    produce_throttle_time_max: float
    requests_in_flight: int
    buffer_total_bytes: int
    buffer_available_bytes: int
    bufferpool_wait_time_total: float
    waiting_threads: int
    #: Further metrics by topic and by node id.
    topics: Mapping[str, ProducerTopicMetrics]
    nodes: Mapping[int, NodeMetrics]

    def named(self) -> dict[str, Any]:
        """The metrics as a dict under Kafka's names, such as `record-send-rate`."""
        return named(self)


def producer_points(metrics: ProducerMetrics, cluster: Cluster) -> Iterator[Point]:
    """All metrics as they are pushed to the cluster (KIP-714)."""
    figures = metrics.named()
    # The only metric that Kafka has in nanoseconds, under another name.
    figures["bufferpool-wait-time-ns-total"] = 1e6 * figures.pop("bufferpool-wait-time-total")
    yield from points_of("producer", figures)
    for topic, topic_metrics in metrics.topics.items():
        yield from points_of("producer.topic", topic_metrics.named(), topic=topic)
    yield from connection_points("producer", cluster, metrics.nodes)


class ProducerTopicMeter:
    """The counts of one topic."""

    def __init__(self, now_ms: int) -> None:
        self.records = Sampled(now_ms)
        self.bytes = Sampled(now_ms)
        self.retries = Sampled(now_ms)
        self.errors = Sampled(now_ms)

    def snapshot(self, now_ms: int) -> ProducerTopicMetrics:
        """A snapshot of the topic's metrics."""
        return ProducerTopicMetrics(
            record_send_total=int(self.records.total),
            record_send_rate=self.records.rate(now_ms),
            byte_total=int(self.bytes.total),
            byte_rate=self.bytes.rate(now_ms),
            record_retry_total=int(self.retries.total),
            record_retry_rate=self.retries.rate(now_ms),
            record_error_total=int(self.errors.total),
            record_error_rate=self.errors.rate(now_ms),
        )


class ProducerMeter:
    """Counts the batches and requests that the sender reports, on the loop."""

    def __init__(self, now_ms: int) -> None:
        self._records = Sampled(now_ms)
        self._errors = Sampled(now_ms)
        self._retries = Sampled(now_ms)
        self._requests = Sampled(now_ms)
        self._batch_bytes = Sampled(now_ms)
        self._queue_ms = Sampled(now_ms)
        self._sent_bytes = Sampled(now_ms)
        self._latency_ms = Sampled(now_ms)
        self._throttle_ms = Sampled(now_ms)
        self._room_ms = Sampled(now_ms)
        self._topics: dict[str, ProducerTopicMeter] = {}

    def _topic(self, topic: str, now_ms: int) -> ProducerTopicMeter:
        meter = self._topics.get(topic)
        if meter is None:
            meter = self._topics[topic] = ProducerTopicMeter(now_ms)
        return meter

    def batch_sent(self, topic: str, records: int, size: int, queued_ms: int, now_ms: int) -> None:
        """Note a batch that went into a request."""
        meter = self._topic(topic, now_ms)
        meter.records.record(records, now_ms)
        meter.bytes.record(size, now_ms)
        self._batch_bytes.record(size, now_ms)
        self._queue_ms.record(queued_ms, now_ms)

    def request_sent(self, records: int, size: int, now_ms: int) -> None:
        """Note a request that was sent."""
        self._requests.record(records, now_ms)
        self._records.record(records, now_ms)
        self._sent_bytes.record(size, now_ms)

    def answered(self, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Note an answer, and for how long its broker throttles this client."""
        self._latency_ms.record(latency_ms, now_ms)
        self._throttle_ms.record(throttle_ms, now_ms)

    def retried(self, topic: str, records: int, now_ms: int) -> None:
        """Note a batch that will be sent again."""
        self._topic(topic, now_ms).retries.record(records, now_ms)
        self._retries.record(records, now_ms)

    def failed(self, topic: str, records: int, now_ms: int) -> None:
        """Note a batch that was given up."""
        self._topic(topic, now_ms).errors.record(records, now_ms)
        self._errors.record(records, now_ms)

    def waited_for_room(self, waited_ms: int, now_ms: int) -> None:
        """Note how long a `send` waited for memory."""
        self._room_ms.record(waited_ms, now_ms)

    def snapshot(
        self,
        *,
        in_flight: int,
        memory: int,
        memory_used: int,
        waiting: int,
        nodes: Mapping[int, NodeMetrics],
        now_ms: int,
    ) -> ProducerMetrics:
        """A snapshot of the metrics."""
        return ProducerMetrics(
            record_send_total=int(self._records.total),
            record_send_rate=self._records.rate(now_ms),
            record_error_total=int(self._errors.total),
            record_error_rate=self._errors.rate(now_ms),
            record_retry_total=int(self._retries.total),
            record_retry_rate=self._retries.rate(now_ms),
            records_per_request_avg=self._requests.mean(now_ms),
            batch_size_avg=self._batch_bytes.mean(now_ms),
            batch_size_max=self._batch_bytes.greatest(now_ms),
            record_queue_time_avg=self._queue_ms.mean(now_ms),
            record_queue_time_max=self._queue_ms.greatest(now_ms),
            outgoing_byte_total=int(self._sent_bytes.total),
            outgoing_byte_rate=self._sent_bytes.rate(now_ms),
            request_total=self._requests.count,
            request_rate=self._requests.frequency(now_ms),
            request_latency_avg=self._latency_ms.mean(now_ms),
            request_latency_max=self._latency_ms.greatest(now_ms),
            produce_throttle_time_avg=self._throttle_ms.mean(now_ms),
            produce_throttle_time_max=self._throttle_ms.greatest(now_ms),
            requests_in_flight=in_flight,
            buffer_total_bytes=memory,
            buffer_available_bytes=max(0, memory - memory_used),
            bufferpool_wait_time_total=self._room_ms.total,
            waiting_threads=waiting,
            topics={topic: meter.snapshot(now_ms) for topic, meter in list(self._topics.items())},
            nodes=nodes,
        )
