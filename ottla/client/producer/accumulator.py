"""The producer's undelivered records: per partition an open batch, waiting batches and batches in flight.

Pure: it gets its clock and randomness, and never waits.

Rules:
- A batch is ready when it has `batch.size` bytes, has lingered, or is waited for (flush, full memory).
- A configured `batch.size` limits a batch including its header; only a single record may exceed it. Without one, a
  batch stays open and grows while the broker is busy, up to `max.request.size`: batches become large under load.
- A partition's batches are sent in order. A retried batch waits until nothing else of its partition is in flight, so
  that nothing overtakes it.
- Memory is counted by reservation: a batch reserves `batch.size` when it opens, and as much again each time it grows.
- Callers that wait for memory stand in `line`, and later ones get none before them: a large batch would otherwise wait
  behind small ones until `max.block.ms`.

KIPs: 98 (sequences), 480 (sticky partitions), 91 (delivery timeout).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.client.producer.delivery import Delivery, ProducerBatch
from ottla.client.producer.partitioner import key_hash, next_sticky
from ottla.client.settings.producer import ProducerSettings
from ottla.kernel.argument import whole
from ottla.kernel.client_error import ClientClosed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Clock, Rng
from ottla.wire.batch import HEADER_BYTES, Header

T = TypeVar("T")

#: Upper bound of a record's size beyond its key and value: lengths, deltas, header count (varints) and attributes.
RECORD_OVERHEAD = 24
#: Upper bound of a header's size beyond its name and value: two lengths.
_HEADER_OVERHEAD = 10


class PartitionQueue:
    """The batches of one partition."""

    __slots__ = ("closed", "in_flight", "next_sequence", "number", "open", "topic")

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        #: The batch that takes records; None until a record arrives.
        self.open: ProducerBatch | None = None
        #: Batches that wait to be sent, in order. Retries stand before batches that were never sent.
        self.closed: deque[ProducerBatch] = deque()
        #: Batches in flight, in sending order.
        self.in_flight: list[ProducerBatch] = []
        self.next_sequence = 0

    def waiting(self) -> list[ProducerBatch]:
        """The batches that are not in flight."""
        # Ctrl-C may have come while the open batch was closed: then it is in both.
        return [*self.closed, *([self.open] if self.open is not None and self.open not in self.closed else [])]


class TopicQueue:
    """The partitions of one topic, as many as the metadata has shown."""

    __slots__ = ("available", "count", "keyless", "name", "partitions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: list[PartitionQueue] = []
        #: The number of partitions that the topic has. There are more in `partitions` after it was deleted and created
        #: again with fewer; they keep their sequences, since an old answer about the topic may come late.
        self.count = 0
        #: Numbers of the partitions with a leader; all partitions if none has one.
        self.available: Sequence[int] = ()
        #: The partition for records without a key.
        self.keyless = PartitionQueue(name, 0)


class Accumulator:
    """All records of a producer that are not delivered yet. The owner serialises the calls."""

    def __init__(self, settings: ProducerSettings, clock: Clock, rng: Rng) -> None:
        self.topics: dict[str, TopicQueue] = {}
        #: Partitions with waiting records; the one that waits longest for its turn comes first.
        self.active: dict[PartitionQueue, None] = {}
        #: Batches neither delivered nor failed.
        self.incomplete: dict[ProducerBatch, None] = {}
        #: No batch expires before this time, so that a pass without one does not look at all of them.
        self._expires_from_ms = 0
        #: Number of flushes in progress; any makes every batch ready.
        self.flushing = 0
        #: Set when a batch was opened or has grown, so that the sender should be woken.
        self.stirred = False
        #: True while a sender waits for memory.
        self.starved = False
        self.memory_used = 0
        #: The callers that wait for memory, the first one first; and which of them calls `append` or `put` now.
        self.line: deque[object] = deque()
        self._turn: object = None
        #: The loop on which batches are sent; the sender sets it.
        self.loop: object = None
        #: After `close`, nothing is sent, so nothing is accepted.
        self.closed = False
        #: Topics of the batches opened since `topics_in_use` was called last.
        self._used: set[str] = set()
        self._serial = 0
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._batch_size = max(1, settings.batch_size)
        self._record_bytes_max = settings.max_request_size - HEADER_BYTES
        self._grows = "batch_size" not in settings.given
        #: Upper bound of a batch with several records, in bytes.
        self._batch_bytes_max = self._record_bytes_max
        if not self._grows:
            self._batch_bytes_max = max(1, min(self._batch_size - HEADER_BYTES, self._record_bytes_max))
        self._round_robin = settings.partitioner == "round_robin"
        #: The program's own, or None.
        self.partitioner = settings.partitioner if callable(settings.partitioner) else None

    def topics_in_use(self) -> set[str]:
        """The topics that records were added to since the last call, and those with undelivered records."""
        used, self._used = self._used, set()
        return used.union(batch.topic for batch in self.incomplete)

    # ---- in

    def set_partitions(self, topic: str, count: int, available: Sequence[int]) -> None:
        """Apply a topic's metadata."""
        queue = self.topics.get(topic)
        if queue is None:
            queue = TopicQueue(topic)
        for number in range(len(queue.partitions), count):
            queue.partitions.append(PartitionQueue(topic, number) if number else queue.keyless)
        queue.count = count
        queue.available = available or range(count)
        sticky = queue.keyless.number
        if sticky not in queue.available or (len(queue.partitions) == count and sticky == 0):
            self.choose_sticky(queue)
        # The last step: `Producer.send` looks without the lock.
        self.topics[topic] = queue

    def lacks(self, topic: str, partition: int) -> bool:
        """True if no metadata of this topic with this partition were set yet."""
        queue = self.topics.get(topic)
        return queue is None or partition >= queue.count

    def chosen(self, topic: str, key: bytes | None) -> int | None:
        """The partition that the program's partitioner chooses, for `append`; None without a partitioner.

        Not under the lock: a partitioner may use its producer. KeyError if the topic's partitions are not set yet.
        """
        if self.partitioner is None:
            return None
        return whole(self.partitioner(topic, key, self.topics[topic].count), "the partitioner's result")

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header] | None,
        timestamp: int | None,
    ) -> Delivery | None:
        """Add a record, with its own timestamp (ms) or the clock's. None if there is no room: the caller tries again.

        KeyError if the topic's partitions are not set yet.
        """
        queue = self.topics[topic]
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if partition is None:
            if key is not None:
                partition = key_hash(key) % queue.count
            else:
                partition = queue.keyless.number
        elif not 0 <= partition < queue.count:
            raise _no_partition(queue, partition)
        if headers:
            for name, content in headers:
                size += _HEADER_OVERHEAD + 3 * len(name) + len(content or b"")
        batch = queue.partitions[partition].open
        if batch is None or batch.sealed or size > batch.room:
            batch = self._batch_with_room(queue, partition, size)
            if batch is None:
                return None
            self.stirred = True
        batch.room -= size
        ticket = batch.add(value, key, headers, timestamp, self._clock.now_ms())
        if self._round_robin and key is None:
            self._choose_next(queue)
        return Delivery.of(batch, ticket)

    def _batch_with_room(self, queue: TopicQueue, number: int, size: int) -> ProducerBatch | None:
        """The partition's open batch, grown or new, with room for `size` more bytes; None if memory is exhausted."""
        self._check_open()
        partition = queue.partitions[number]
        if size > self._record_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is larger than max.request.size={self._settings.max_request_size}",
            )
        if size > self._settings.buffer_memory:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is larger than buffer.memory={self._settings.buffer_memory}",
            )
        batch = partition.open
        if batch is not None:
            if not batch.sealed and batch.size + size <= self._batch_bytes_max:
                more = max(self._batch_size, size)
                if not self._has_room(more):
                    return None
                limit = min(batch.limit + more, self._batch_bytes_max)
                # Without a call in between: Ctrl-C must not leave memory taken that no batch returns.
                self.memory_used += more
                batch.reserved += more
                batch.room += limit - batch.limit
                batch.limit = limit
                return batch
            self.close_batch(partition)
            if queue.keyless is partition and not self._round_robin:
                # The current record stays with this partition; the next ones go elsewhere.
                self.choose_sticky(queue)
        wanted = max(self._batch_size, size)
        if not self._has_room(wanted):
            return None
        now_ms = self._clock.monotonic_ms()
        batch = ProducerBatch(queue.name, number, now_ms, now_ms + self._settings.delivery_timeout_ms)
        batch.loop = self.loop
        batch.limit = batch.room = max(size, min(wanted, self._batch_bytes_max))
        self._used.add(queue.name)
        # Without a call in between: Ctrl-C must not leave an open batch that is never sent, or its memory taken.
        self.memory_used += wanted
        batch.reserved = wanted
        self.active[partition] = None
        self.incomplete[batch] = None
        partition.open = batch
        return batch

    def put(self, partition: PartitionQueue, batch: ProducerBatch) -> bool:
        """Add an encoded batch. False if there is no room for it."""
        self._check_open()
        size = batch.size
        if not self._has_room(size):
            return False
        batch.loop = self.loop
        self.close_batch(partition)
        self._used.add(batch.topic)
        # Unlike the others, it may have waited for room since it got its deadline.
        self._expires_from_ms = min(self._expires_from_ms, batch.deadline_ms)
        # Without a call in between, as above.
        self.memory_used += size
        batch.reserved = size
        partition.closed += (batch,)
        self.active[partition] = None
        self.incomplete[batch] = None
        return True

    def close(self) -> list[ProducerBatch]:
        """Accept nothing more (ClientClosed from now on). Returns the batches that are not delivered."""
        self.closed = True
        left = list(self.incomplete)
        self.incomplete.clear()
        self.active.clear()
        self.memory_used = 0
        for batch in left:
            batch.reserved = 0
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.open is not None:
                    partition.open.seal()
                partition.open = None
                partition.closed.clear()
        return left

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed("this producer is closed")

    def in_turn(self, place: object, put: Callable[[], T | None]) -> T | None:
        """Call `put`, which appends something, for the caller with this place in `line`."""
        self._turn = place
        try:
            return put()
        finally:
            self._turn = None

    def _has_room(self, size: int) -> bool:
        """True if the caller may take so much memory now; otherwise it waits for its turn."""
        # An empty buffer takes any batch, however small buffer.memory is: otherwise nothing would ever be sent.
        full = self.memory_used + size > self._settings.buffer_memory and self.memory_used > 0
        if full or (self.line and self.line[0] is not self._turn):
            self.starved = True
            return False
        return True

    def choose_sticky(self, queue: TopicQueue) -> int:
        """Choose another partition for records without a key; returns its number."""
        load = [len(partition.closed) + len(partition.in_flight) for partition in queue.partitions]
        number = next_sticky(queue.available, load, queue.keyless.number, self._rng)
        queue.keyless = queue.partitions[number]
        return number

    def _choose_next(self, queue: TopicQueue) -> None:
        later = [number for number in queue.available if number > queue.keyless.number]
        queue.keyless = queue.partitions[later[0] if later else queue.available[0]]

    def close_batch(self, partition: PartitionQueue) -> None:
        """Close the open batch, so that it takes no more records."""
        batch = partition.open
        if batch is None:
            return
        # In steps that can be done again, because Ctrl-C may come behind any.
        batch.seal()
        if not batch.records:
            # The call that opened it was interrupted.
            return self.complete(partition, batch)
        if not partition.closed or partition.closed[-1] is not batch:
            partition.closed.append(batch)
        partition.open = None

    def undelivered(self) -> list[ProducerBatch]:
        """The batches that are neither delivered nor failed, without those that Ctrl-C has left without a record.

        These end: a thread that is about to put a record into one puts it into another batch.
        """
        for batch in list(self.incomplete):
            if not batch.records:
                self.close_batch(self.topics[batch.topic].partitions[batch.partition])
        return list(self.incomplete)

    # ---- out

    def due_ms(self, partition: PartitionQueue, now_ms: int) -> int | None:
        """When to send the partition's first batch; a time in the past means now. None while it must wait."""
        if partition.closed:
            batch = partition.closed[0]
            if batch.attempts and partition.in_flight:
                return None
            return batch.retry_at_ms
        batch_open = partition.open
        if batch_open is None or not batch_open.records:
            return None
        if self.flushing or self.starved or batch_open.size >= self._threshold(partition):
            return now_ms
        return batch_open.created_ms + self._settings.linger_ms

    def _threshold(self, partition: PartitionQueue) -> int:
        """The size at which the open batch need not linger: it grows with the number of batches in flight."""
        if not self._grows:
            return self._batch_bytes_max
        return min(self._batch_size << len(partition.in_flight), self._batch_bytes_max >> 1)

    def take(self, partition: PartitionQueue) -> ProducerBatch:
        """Move the partition's first batch to those in flight, and return it."""
        if not partition.closed:
            self.close_batch(partition)
            queue = self.topics[partition.topic]
            if queue.keyless is partition and not self._round_robin:
                self.choose_sticky(queue)
        batch = partition.closed.popleft()
        if batch is partition.open:
            # Ctrl-C had come before it was closed.
            partition.open = None
        if batch.serial < 0:
            batch.serial = self._serial
            self._serial += 1
        partition.in_flight.append(batch)
        self.active.pop(partition, None)
        if partition.closed or partition.open is not None:
            # The others come first: its batches could fill every request.
            self.active[partition] = None
        return batch

    def put_back(self, partition: PartitionQueue, batch: ProducerBatch, retry_at_ms: int) -> None:
        """Queue a batch again at its old place: before all batches with a later sequence.

        Nothing is sent beside a retry, so the batch stands before what was split off the same batch behind it.
        """
        partition.in_flight.remove(batch)
        batch.attempts += 1
        batch.retry_at_ms = retry_at_ms
        self._insert(partition, batch)

    def _insert(self, partition: PartitionQueue, batch: ProducerBatch) -> None:
        waiting = partition.closed
        place = 0
        while place < len(waiting) and waiting[place].attempts and waiting[place].serial < batch.serial:
            place += 1
        waiting.insert(place, batch)
        self.active[partition] = None

    def complete(self, partition: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch that was delivered or has failed, and release its memory."""
        if batch in partition.in_flight:
            partition.in_flight.remove(batch)
        else:
            if batch in partition.closed:
                partition.closed.remove(batch)
            if batch is partition.open:
                batch.seal()
                partition.open = None
            if not partition.closed and partition.open is None:
                self.active.pop(partition, None)
        # Memory first: behind the next call Ctrl-C may come.
        self.memory_used -= batch.reserved
        batch.reserved = 0
        self.incomplete.pop(batch, None)
        self.starved = False

    def split(self, partition: PartitionQueue, batch: ProducerBatch) -> None:
        """Split a batch in flight that the broker finds too large; it must have more than one record."""
        partition.in_flight.remove(batch)
        self.incomplete.pop(batch, None)
        for part in reversed(batch.halves()):
            part.reserved = batch.reserved // 2
            self.incomplete[part] = None
            self._insert(partition, part)
        self.memory_used -= batch.reserved - 2 * (batch.reserved // 2)
        batch.reserved = 0

    def expired(self, now_ms: int, *, in_flight: bool = False) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """The batches whose delivery.timeout.ms has passed: those that wait, and with `in_flight` all others, too."""
        if now_ms < self._expires_from_ms:
            return []
        expired = []
        for batch in self.incomplete:
            if now_ms >= batch.deadline_ms:
                partition = self.topics[batch.topic].partitions[batch.partition]
                if in_flight or batch not in partition.in_flight:
                    expired.append((partition, batch))
        # Batches that `append` opens later expire later: all have the same delivery.timeout.ms.
        self._expires_from_ms = min((batch.deadline_ms for batch in self.incomplete), default=0)
        return expired

    def next_deadline_ms(self) -> int | None:
        """When the next batch expires; None without batches."""
        return min((batch.deadline_ms for batch in self.incomplete), default=None)


def _no_partition(queue: TopicQueue, partition: int) -> KafkaError:
    why = f"topic {queue.name} has no partition {partition} (expected 0 to {queue.count - 1})"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
