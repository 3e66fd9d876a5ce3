"""How fast throttled replicas may be copied (KIP-73, KIP-113), as Kafka's ReplicationQuotaManager measures it. Pure.

Rules:
- A throttle has a bound in bytes a second, and by topic the partitions that it is for. Everything that is copied of
  them counts; whether a replica waits is asked before it is copied, so that one answer may go beyond the bound.
- The rate is what came in the last windows, by the time since the oldest of them began, at least one window.
- Replicas that are in sync never wait: who asks says so, and a throttle delays no acks=all.
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
    """A rate by the time that has passed since the oldest window began, as Kafka's class of this name."""

    __slots__ = ()

    def measured_ms(self, now_ms: int) -> float:
        return max(self.elapsed_ms(now_ms), self.window_ms)

    def elapsed_ms(self, now_ms: int) -> float:
        """Since the oldest window began."""
        return now_ms - self._samples[0][0] if self._samples else 0


class Throttle:
    """A bound in one direction: what a leader sends, what a follower fetches, or what moves between directories."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._rate = SimpleRate(windows, window_ms)
        self._topics: dict[str, Collection[int] | None] = {}
        #: Bytes a second.
        self.bound = LONG_MAX

    def mark(self, topic: str, partitions: Collection[int] | None) -> None:
        """From now on these partitions of a topic are throttled, and no others of it; ALL is every partition."""
        if partitions is ALL or partitions:
            self._topics[topic] = partitions
        else:
            self._topics.pop(topic, None)

    def applies_to(self, tp: TopicPartition) -> bool:
        """Is the partition in the list of throttled replicas?"""
        partitions = self._topics.get(tp.topic, ())
        return partitions is ALL or tp.partition in partitions

    def record(self, size: int, now_ms: int) -> None:
        """So many bytes of throttled partitions were copied."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Is more copied than the bound allows?"""
        return self.bound < LONG_MAX and self.per_second(now_ms) > self.bound

    @property
    def bytes_max(self) -> int:
        """As much as the bound allows in all windows: of more at once a part is forgotten before it is waited for."""
        return max(1, self.bound * self._rate.windows * self._rate.window_ms // 1000)

    def per_second(self, now_ms: int) -> float:
        """Bytes a second of throttled partitions (Kafka's byte-rate)."""
        return self._rate.per_second(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long until the bound is kept again when nothing more is copied; 0 when it is kept now."""
        if not self.is_exceeded(now_ms):
            return 0
        span_ms = self._rate.windows * self._rate.window_ms
        if not self.bound:
            return span_ms
        down_ms = self.per_second(now_ms) * self._rate.measured_ms(now_ms) / self.bound
        return min(span_ms, ceil(down_ms - self._rate.elapsed_ms(now_ms)))


def partitions_of(text: str, broker_id: int) -> Collection[int] | None:
    """The partitions of `broker_id` in a list of throttled replicas: `*` (ALL) or `partition:broker,...`.

    A number of more than 32 bits, which the setting takes, is that of no partition and no broker.
    """
    if text.strip() == "*":
        return ALL
    entries = (each.strip().partition(":") for each in text.split(",") if each.strip())
    found = (whole_number(partition, 32) for partition, _, broker in entries if whole_number(broker, 32) == broker_id)
    return frozenset(each for each in found if each is not None)


def bound_of(name: str, own: Mapping[str, str], all_brokers: Mapping[str, str]) -> int:
    """The rate that was set for a broker, else for all brokers; none if that is no number."""
    rate = whole_number(own.get(name, all_brokers.get(name, "")))
    return LONG_MAX if rate is None else rate
