"""The replication throttle (KIP-73, KIP-113), measured as Kafka's ReplicationQuotaManager does. Pure.

Rules:
- A throttle has a bound in bytes per second and the throttled partitions of each topic. All bytes copied for them
  count. The bound is checked before a copy, so one response may exceed it.
- The rate is the bytes of the last windows divided by the time since the oldest window began, at least one window.
- In-sync replicas never wait, so that a throttle delays no acks=all; the caller makes that exception.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil

from ottla.kernel.ids import TopicPartition
from ottla.kernel.rate import Rate
from ottla.kernel.validators import LONG_MAX, whole_number

#: Every partition of a topic.
ALL = None


class SimpleRate(Rate):
    """A rate over the time since the oldest window began, like Kafka's class of this name."""

    __slots__ = ()

    def measured_ms(self, now_ms: int) -> float:
        return max(self.elapsed_ms(now_ms), self.window_ms)

    def elapsed_ms(self, now_ms: int) -> float:
        """The time since the oldest window began."""
        return now_ms - self._samples[0][0] if self._samples else 0


class Throttle:
    """The bound for what a leader sends, what a follower fetches, or what moves between directories."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._rate = SimpleRate(windows, window_ms)
        self._topics: dict[str, Collection[int] | None] = {}
        #: Bytes per second.
        self.bound = LONG_MAX

    def mark(self, topic: str, partitions: Collection[int] | None) -> None:
        """Throttle exactly these partitions of a topic; ALL is every partition."""
        if partitions is ALL or partitions:
            self._topics[topic] = partitions
        else:
            self._topics.pop(topic, None)

    def applies_to(self, tp: TopicPartition) -> bool:
        """Is the partition in the list of throttled replicas?"""
        partitions = self._topics.get(tp.topic, ())
        return partitions is ALL or tp.partition in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Count `size` copied bytes of throttled partitions."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Is the rate above the bound?"""
        return self.bound < LONG_MAX and self.per_second(now_ms) > self.bound

    @property
    def bytes_max(self) -> int:
        """The bytes that the bound allows in all windows together.

        A larger copy would drop out of the windows before it was waited for.
        """
        return max(1, self.bound * self._rate.windows * self._rate.window_ms // 1000)

    def per_second(self, now_ms: int) -> float:
        """Bytes per second of throttled partitions (Kafka's byte-rate)."""
        return self._rate.per_second(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """The time until the rate is back at the bound if nothing more is copied; 0 if it is not exceeded."""
        if not self.is_exceeded(now_ms):
            return 0
        span_ms = self._rate.windows * self._rate.window_ms
        if not self.bound:
            return span_ms
        drain_ms = self.per_second(now_ms) * self._rate.measured_ms(now_ms) / self.bound
        return min(span_ms, ceil(drain_ms - self._rate.elapsed_ms(now_ms)))


def throttled_partitions(text: str, broker_id: int) -> Collection[int] | None:
    """The partitions of `broker_id` in a list of throttled replicas: `*` (ALL) or `partition:broker,...`.

    The setting accepts numbers of more than 32 bits; they match no partition and no broker.
    """
    if text.strip() == "*":
        return ALL
    entries = (entry.strip().partition(":") for entry in text.split(",") if entry.strip())
    numbers = (whole_number(partition, 32) for partition, _, broker in entries if whole_number(broker, 32) == broker_id)
    return frozenset(number for number in numbers if number is not None)


def configured_rate(name: str, own: Mapping[str, str], all_brokers: Mapping[str, str]) -> int:
    """The rate set for a broker, otherwise for all brokers; unlimited if that is not a number."""
    rate = whole_number(own.get(name, all_brokers.get(name, "")))
    return LONG_MAX if rate is None else rate
