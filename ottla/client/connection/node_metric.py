"""A client's metrics per broker (Kafka's producer-node-metrics, consumer-node-metrics and so on)."""

from __future__ import annotations

from typing import Any

from ottla.client.connection.metric import Sampled, named
from ottla.kernel.frozen import frozen


@frozen
class NodeMetrics:
    """A snapshot of one broker's metrics. Times in milliseconds, sizes in bytes, rates per second."""

    request_total: int
    request_rate: float
    request_size_avg: float
    request_size_max: float
    outgoing_byte_total: int
    outgoing_byte_rate: float
    response_total: int
    response_rate: float
    incoming_byte_total: int
    incoming_byte_rate: float
    request_latency_avg: float
    request_latency_max: float

    def named(self) -> dict[str, Any]:
        """The metrics as a dict under Kafka's names, such as `request-latency-avg`."""
        return named(self)


class NodeMeter:
    """Counts the requests and answers of all connections of a client to one address."""

    def __init__(self, now_ms: int) -> None:
        self._requests = Sampled(now_ms)
        self._responses = Sampled(now_ms)
        self._latency_ms = Sampled(now_ms)

    def sent(self, size: int, now_ms: int) -> None:
        """Note that a request was written."""
        self._requests.record(size, now_ms)

    def answered(self, size: int, latency_ms: int, now_ms: int) -> None:
        """Note an answer."""
        self._responses.record(size, now_ms)
        self._latency_ms.record(latency_ms, now_ms)

    def snapshot(self, now_ms: int) -> NodeMetrics:
        """A snapshot of the metrics."""
        requests, responses, latency = self._requests, self._responses, self._latency_ms
        return NodeMetrics(
            request_total=requests.count,
            request_rate=requests.frequency(now_ms),
            request_size_avg=requests.mean(now_ms),
            request_size_max=requests.greatest(now_ms),
            outgoing_byte_total=int(requests.total),
            outgoing_byte_rate=requests.rate(now_ms),
            response_total=responses.count,
            response_rate=responses.frequency(now_ms),
            incoming_byte_total=int(responses.total),
            incoming_byte_rate=responses.rate(now_ms),
            request_latency_avg=latency.mean(now_ms),
            request_latency_max=latency.greatest(now_ms),
        )
