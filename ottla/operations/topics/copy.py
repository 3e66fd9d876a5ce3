"""A copy of one topic's records to another.

Rules:
- Keys, values, headers and timestamps are copied byte for byte. With `keeps`, each record keeps its partition; without
  it, the key decides. Offsets are new.
- A copy that ends early knows which records were acknowledged, and where to continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.client import Consumer, Producer, TopicPartition
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.offsets import Offsets, bounds, partitions_of
from ottla.operations.reading import from_first_left, never_creating, polls
from ottla.operations.writing import InputRecord, Writer

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.columns.record import ConsumerRecord


class TopicCopy:
    """A copy from `begins` to `ends`, with the settings of the clients on both sides."""

    def __init__(
        self,
        source: dict[str, object],
        destination: dict[str, object],
        begins: Offsets,
        ends: Offsets,
        target: str,
        *,
        keeps: bool,
    ) -> None:
        self._source = source
        self._destination = destination
        self._begins = begins
        self._ends = ends
        self._target = target
        self._keeps = keeps
        self.total = sum(max(0, ends[partition] - begins[partition]) for partition in begins)
        #: The number of acknowledged records, and partition -> the offset after the last of them.
        self.written = 0
        self.reached = dict(begins)
        #: True once the clients on both sides exist.
        self.has_begun = False
        self._sent: deque[tuple[TopicPartition, int]] = deque()

    @property
    def unsure(self) -> int:
        """The number of records that were sent and may be in the target, although they are not counted as written."""
        return len(self._sent)

    def run(self, progress: Callable[[int], None]) -> None:
        """Copy, calling `progress` with the acknowledged records after each poll. `written` is final when it raises."""
        sink = never_creating(self._destination)
        with Consumer(from_first_left(self._source)) as consumer, Producer(sink) as producer:
            writer = Writer(producer, self._target)
            self.has_begun = True
            try:
                for records in polls(consumer, self._begins, self._ends):
                    for record in records:
                        self._send(writer, record)
                    writer.look()
                    self._count(writer)
                    progress(self.written)
                writer.finish()
            finally:
                writer.settle()
                self._count(writer)

    def _send(self, writer: Writer, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        if record.offset >= self._ends[partition]:
            return
        self._sent.append((partition, record.offset))
        timestamp = record.timestamp if record.timestamp >= 0 else None
        number = record.partition if self._keeps else None
        writer.send(InputRecord(record.value, record.key, list(record.headers), number, timestamp, 0))

    def _count(self, writer: Writer) -> None:
        for _ in range(writer.written - self.written):
            partition, offset = self._sent.popleft()
            self.reached[partition] = offset + 1
        self.written = writer.written


def prepare_target(
    ask: Admin, target: str, partitions: int, own: Mapping[str, str] | None = None, *, append: bool = False
) -> int:
    """Check or create the target of a copy, and return its number of partitions.

    With `own`, the source topic's own settings, a missing target is created with `partitions`. A target with records is
    refused unless `append`, so that a copy started twice duplicates nothing. Raises OttlaError.
    """
    from ottla.client import NewTopic

    try:
        there = partitions_of(ask, target)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if own is None:
            raise OttlaError(f"there is no topic {target}; --create creates it like the source") from error
        ask.create_topics([NewTopic(target, partitions, configs=own)]).check()
        return partitions
    if not append:
        starts, ends = bounds(ask, there)
        if held := sum(ends[tp] - starts[tp] for tp in there):
            raise OttlaError(f"{target} already has {held:,} records; use --append to add to them")
    return len(there)
