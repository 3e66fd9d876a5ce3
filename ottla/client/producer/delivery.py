"""A producer's batch, and the `Delivery` that the sender of a record gets.

`Accumulator` creates and fills a batch. `Sender` encodes and sends it, and ends it with `succeed` or `fail`, which
wakes all who wait for its records.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ottla.client.producer.filling import Filling
from ottla.columns.encode_records import encode_records
from ottla.kernel.argument import optional_seconds
from ottla.kernel.client_error import RequestTimedOut
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.wire.batch import HEADER_BYTES, NO_LEADER_EPOCH, TRANSACTIONAL, assemble, read, seal
from ottla.wire.codec import Codec, compress

_log = logging.getLogger("ottla.client")
_CHECKED = struct.Struct(">hiqqqhii")


class RecordMetadata(NamedTuple):
    """Where a record was stored.

    `timestamp` is in milliseconds since 1970-01-01 UTC. `offset` is -1 if the broker did not return one (acks=0, or a
    duplicate too old for the broker to know its offset).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerBatch(Filling):
    """Records of one partition that are sent together."""

    __slots__ = (
        "append_time",
        "attempts",
        "base_sequence",
        "body",
        "created_ms",
        "deadline_ms",
        "done",
        "encoded",
        "parts",
        "error",
        "leader_epoch",
        "limit",
        "loop",
        "max_timestamp",
        "offset",
        "partition",
        "producer",
        "renews",
        "reserved",
        "retry_at_ms",
        "seen",
        "serial",
        "topic",
        "transactional",
        "waiters",
        "uncompressed",
    )

    def __init__(self, topic: str, partition: int, created_ms: int, deadline_ms: int) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.max_timestamp = -1
        #: The size up to which it may grow, of which `room` is left, and its share of buffer.memory.
        self.limit = 0
        self.reserved = 0
        #: Monotonic times.
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.retry_at_ms = 0
        self.attempts = 0
        #: The epoch of the leader that it was sent to last.
        self.leader_epoch = NO_LEADER_EPOCH
        #: Position in the sending order; -1 before the first send.
        self.serial = -1
        #: The two halves of a batch that was too large, each with the index of its first record.
        self.parts: list[tuple[int, ProducerBatch]] = []
        #: Producer id and epoch of `base_sequence`; None before the first send.
        self.producer: tuple[int, int] | None = None
        self.base_sequence = -1
        #: Whether the next send assigns a new sequence. Otherwise it keeps its sequence through all retries.
        self.renews = True
        self.transactional = False
        #: The compressed records, and the complete batch.
        self.body: bytes | None = None
        self.encoded: Buffer | None = None
        #: Uncompressed records with room for the header in front: copying them would cost as much as encoding them.
        self.uncompressed: memoryview | None = None
        #: The loop on which the batch is sent; None in a test.
        self.loop: object = None
        #: The outcome.
        self.done = False
        self.offset = -1
        self.append_time = -1
        self.error: KafkaError | None = None
        self.seen = False
        self.waiters: list[Callable[[], None]] = []

    @property
    def size(self) -> int:
        """An upper bound of the encoded size in bytes."""
        return self.limit - self.room

    def seal(self) -> None:
        """Take no more records. Under the lock."""
        super().seal()
        self.max_timestamp = max((timestamp for _, timestamp in self.runs), default=-1)

    def already_encoded(self, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Be the batch of so many records that never were objects; timestamps in ms."""
        self.sealed = True
        self.count = count
        # Only the base timestamp: the encoded records have the rest.
        self.runs = [(0, base_timestamp)]
        self.max_timestamp = max_timestamp

    def encode(self, codec: Codec, level: int | None) -> Buffer:
        """The bytes to send; encoded again only when the producer id, epoch or sequence has changed."""
        if self.encoded is None:
            if self.body is None and self.uncompressed is None:
                room = HEADER_BYTES if codec is Codec.NONE else 0
                records = encode_records(self.values, self.keys, self.headers, self.runs, room=room)
                if codec is Codec.NONE:
                    self.uncompressed = memoryview(records)
                else:
                    self.body = compress(codec, records, level)
            count = self.records
            producer_id, epoch = self.producer or (-1, -1)
            checked = _CHECKED.pack(
                codec | TRANSACTIONAL if self.transactional else codec,
                count - 1,
                self.runs[0][1],
                self.max_timestamp,
                producer_id,
                epoch,
                self.base_sequence,
                count,
            )
            if self.uncompressed is None:
                assert self.body is not None
                self.encoded = assemble(0, -1, checked, self.body)
            else:
                # The bytes sent before may still be in a socket: a retry with another sequence needs its own copy.
                self.encoded = seal(
                    self.uncompressed if not self.attempts else memoryview(bytearray(self.uncompressed)), 0, -1, checked
                )
        return self.encoded

    def sequence(self, producer: tuple[int, int], base_sequence: int, *, transactional: bool = False) -> None:
        """Assign producer id, epoch and base sequence; this changes the encoded bytes."""
        self.transactional = transactional
        self.producer = producer
        self.base_sequence = base_sequence
        self.renews = False
        self.encoded = None

    def halves(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Split the records into two batches. This batch is done when both are."""
        if not self.values:
            self._decode()
        middle = len(self.values) // 2
        parts = tuple(self._part(start, end) for start, end in ((0, middle), (middle, len(self.values))))
        self.parts = [(0, parts[0]), (middle, parts[1])]
        left = [2]

        def on_part_done() -> None:
            left[0] -= 1
            if not left[0]:
                self._finish()

        for part in parts:
            part.when_done(on_part_done)
        self.values = []
        return parts[0], parts[1]

    def _decode(self) -> None:
        """Decode the records from the bytes: rows of a table were never objects."""
        assert self.encoded is not None
        (batch,) = read(self.encoded)
        records = batch.records()
        self.values = [record.value for record in records]
        self.keys = [record.key for record in records]
        self.headers = [record.headers for record in records]
        self.runs = [(index, record.timestamp) for index, record in enumerate(records)]

    def _part(self, start: int, end: int) -> ProducerBatch:
        part = ProducerBatch(self.topic, self.partition, self.created_ms, self.deadline_ms)
        part.sealed = True
        part.count = end - start
        part.values = self.values[start:end]
        part.keys = None if self.keys is None else self.keys[start:end]
        part.headers = None if self.headers is None else self.headers[start:end]
        part.runs = [(0, self.timestamp_of(start))]
        part.runs += [(first - start, timestamp) for first, timestamp in self.runs if start < first < end]
        part.max_timestamp = max(timestamp for _, timestamp in part.runs)
        part.limit = self.size // 2
        part.loop = self.loop
        part.serial = self.serial
        part.attempts = self.attempts + 1
        part.leader_epoch = self.leader_epoch
        if self.producer is not None:
            sequence = (self.base_sequence + start) & 0x7FFFFFFF
            part.sequence(self.producer, sequence, transactional=self.transactional)
            part.renews = self.renews
        return part

    def succeed(self, offset: int, append_time: int) -> None:
        """End the batch as delivered. `append_time` is -1 if records keep their own timestamps."""
        self.offset = offset
        self.append_time = append_time
        self._finish()

    def fail(self, error: KafkaError) -> None:
        """End the batch as failed."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        self.done = True
        # The program may keep deliveries for a long time: release the records.
        self.encoded = self.body = self.uncompressed = self.keys = self.headers = self.loop = None
        self.values = []
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            try:
                waiter()
            except Exception:
                # From a callback of the program, or a closed loop: go on with the other waiters, as Java does.
                _log.exception("a callback for a record of %s-%d raised", self.topic, self.partition)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the batch ends, or at once if it has ended. Any thread may call this."""
        self.waiters.append(callback)
        if self.done and callback in self.waiters:
            # The batch ended between the caller's check and the append: the thread that removes the callback calls it.
            try:
                self.waiters.remove(callback)
            except ValueError:
                return
            callback()

    def timestamp_of(self, index: int) -> int:
        """A record's timestamp in milliseconds since 1970-01-01 UTC."""
        if self.append_time >= 0:
            return self.append_time
        timestamp_found = -1
        for first, timestamp in self.runs:
            if first > index:
                break
            timestamp_found = timestamp
        return timestamp_found


def how_many(records: int) -> str:
    """The subject of a line about so many records, with its verb."""
    return "1 record was" if records == 1 else f"{records:,} records were"


class Delivery:
    """The pending delivery of a record. Await it or call `result` to get its RecordMetadata, or its error."""

    # `send` makes one per record: without an `__init__`, which would cost twice as much.
    __slots__ = ("batch", "index")

    #: The record's batch, and its ticket there.
    batch: ProducerBatch
    index: int

    @classmethod
    def of(cls, batch: ProducerBatch, index: int) -> Delivery:
        """The delivery of one record of a batch."""
        delivery = cls()
        delivery.batch = batch
        delivery.index = index
        return delivery

    @property
    def done(self) -> bool:
        """True once the record is delivered or has failed."""
        return self.batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most `timeout` seconds (default: no limit).

        Raises the KafkaError with which the delivery failed; RequestTimedOut after `timeout`. OttlaError on the loop
        that sends the record, which would wait for itself.
        """
        batch = self.batch
        if not batch.done:
            if batch.loop is not None and batch.loop is _running_loop():
                raise OttlaError("the client's loop must not wait for a result: await the delivery there")
            done = threading.Event()
            timeout = optional_seconds(timeout)
            batch.when_done(done.set)
            if not done.wait(timeout):
                raise RequestTimedOut(f"no answer for the record within {timeout} s")
        return self._outcome()

    def when_done(self, told: Callable[[RecordMetadata | None, KafkaError | None], Any]) -> None:
        """Call `told(metadata, error)` at the end, with one of the two None.

        The call runs on the client's loop, so it must be brief. An exception from it is logged.
        """
        batch = self.batch

        def on_batch_done() -> None:
            try:
                outcome = self._outcome()
            except KafkaError as error:
                told(None, error)
            else:
                told(outcome, None)

        batch.when_done(on_batch_done)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self.batch
        if not batch.done:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()

            def on_batch_done() -> None:
                loop.call_soon_threadsafe(_resolve, done)

            batch.when_done(on_batch_done)
            yield from done
        return self._outcome()

    def __repr__(self) -> str:
        batch, index = self._locate()
        where = f"<Delivery to {batch.topic}-{batch.partition}: "
        if not self.done:
            return f"{where}pending>"
        if batch.error is not None:
            return f"{where}failed, {batch.error}>"
        return f"{where}at offset {batch.offset + index}>" if batch.offset >= 0 else f"{where}sent>"

    def _locate(self) -> tuple[ProducerBatch, int]:
        """The batch that carries the record now, which may be a half of its first one, and the index in it."""
        batch, index = self.batch, self.batch.position(self.index)
        while batch.parts:
            first, part = batch.parts[1] if index >= batch.parts[1][0] else batch.parts[0]
            batch, index = part, index - first
        return batch, index

    def _outcome(self) -> RecordMetadata:
        batch, index = self._locate()
        if batch.error is not None:
            batch.seen = True
            raise batch.error.with_traceback(None)
        offset = batch.offset + index if batch.offset >= 0 else -1
        return RecordMetadata(batch.topic, batch.partition, offset, batch.timestamp_of(index))


class TableDelivery:
    """The pending delivery of a table's rows. Await it or call `result`."""

    __slots__ = ("_deliveries",)

    def __init__(self, batches: Sequence[ProducerBatch]) -> None:
        self._deliveries = [Delivery.of(batch, 0) for batch in batches]

    @property
    def done(self) -> bool:
        """True once all rows are delivered or have failed."""
        return all(delivery.done for delivery in self._deliveries)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait for all rows, and return the RecordMetadata of the first row of each batch.

        `timeout` is in seconds, for each batch. Raises the first KafkaError; RequestTimedOut after `timeout`.
        """
        for delivery in self._deliveries:
            delivery.result(timeout)
        return self._outcomes()

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        for delivery in self._deliveries:
            yield from delivery.__await__()
        return self._outcomes()

    def _outcomes(self) -> list[RecordMetadata]:
        """The outcome of every batch, or of its halves if it was split."""
        left = [delivery.batch for delivery in reversed(self._deliveries)]
        outcomes: list[RecordMetadata] = []
        while left:
            batch = left.pop()
            if batch.parts:
                left += [part for _, part in reversed(batch.parts)]
            else:
                outcomes.append(Delivery.of(batch, 0).result())
        return outcomes


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
