"""The producer for asyncio. `producer_sync.Producer` is the same for code that does not await.

Rules:
- `send` puts a record into its partition's open batch and returns; it waits only for a topic's metadata, and for room
  in `buffer.memory`, at most `max.block.ms`.
- Records of one partition keep the order of their `send` calls.
- With transactions a record is taken only while one is open, and belongs to that one.

KIPs: 98 (idempotence), 480 (sticky partitions), 794 (balance), 82 (headers), 91 (delivery timeout).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast

from ottla.client.checked import checked
from ottla.client.connection.clock import current_clock, now_ms, randomness, wall_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.loop_thread import needs_loop
from ottla.client.connection.telemetry import TelemetryPush
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.delivery import Delivery, ProducerBatch, TableDelivery
from ottla.client.producer.metric import ProducerMetrics, producer_points
from ottla.client.producer.sender import Sender
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.api import TransactionCalls
from ottla.client.transaction.driver import Transactor
from ottla.client.transaction.state import Transactions
from ottla.kernel.argument import needs_arrow, serde_of, topic_name, whole
from ottla.kernel.client_error import BufferFull, ClientClosed
from ottla.kernel.error import KafkaError
from ottla.kernel.memory import Frames
from ottla.kernel.typevar import K, V
from ottla.serde.serializer import headers_of, plain_bytes, serialized
from ottla.settings.client.schema import Given
from ottla.wire.batch import HEADER_BYTES, Header

if TYPE_CHECKING:
    from ottla.client.producer.outgoing import ColumnMapping as Named
    from ottla.client.producer.outgoing import Columns
    from ottla.client.settings.option import ProducerOptions
    from ottla.serde.serde import Serde

#: What `headers` may be: pairs, or a mapping; contents bytes, text (as UTF-8) or None.
Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
#: Called by `flush` with the number of records that are still to be delivered.
Progress = Callable[[int], None]

#: Rows of a table travel in batches of this size: large enough that encoding one is a matter of its bytes only.
TABLE_BATCH_BYTES = 512 * 1024
#: So many batches' memory is kept while a table is sent.
_FRAMES_MAX = 64


class AsyncProducer(TransactionCalls, Generic[K, V]):
    """A producer for asyncio. Made on a running loop; `async with` or `close` ends it.

    >>> async with AsyncProducer("127.0.0.1:9092") as producer:
    ...     delivery = await producer.send("flights", "UA 1545", key="UA")
    ...     metadata = await delivery
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ProducerOptions]) -> None:
        """`settings`: host:port, several of these, or a mapping by Kafka's names; keywords: settings in snake_case.

        docs/reference/client-settings.md has them all. OttlaError for an unknown name or a value that does not fit.
        """
        needs_loop("AsyncProducer")
        self.settings = ProducerSettings.read(settings, cast(Mapping[str, object], keywords))
        self._lock = threading.Lock()
        self._cluster = Cluster(self.settings)
        self._accumulator = Accumulator(self.settings, current_clock(), randomness())
        name, timeout_ms = self.settings.transactional_id, self.settings.transaction_timeout_ms
        self._transactions = (
            None
            if name is None
            else Transactions(name, timeout_ms, two_phase=self.settings.transaction_two_phase_commit_enable)
        )
        self._sender = Sender(self._cluster, self._accumulator, self.settings, self._lock, self._transactions)
        self._sender.on_progress.append(self._progressed)
        self._transactor = None
        if self._transactions is not None:
            self._transactor = Transactor(self._cluster, self._sender, self.settings, self._lock, self._transactions)
        #: `Accumulator.append`; with transactions only while one is open.
        self.append: Callable[..., Delivery | None] = (
            self._accumulator.append if self._transactions is None else self._append_open
        )
        if self.settings.tracing_enable:
            from ottla.client.tracing import ProducerTracing

            self.append = ProducerTracing(self.settings.client_id, self.append).append
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []
        self._telemetry = TelemetryPush(
            self._cluster,
            lambda: producer_points(self.metrics(), self._cluster),
            lambda: {"client_rack": self.settings.client_rack, "transactional_id": name or ""},
            enabled=self.settings.enable_metrics_push,
        )

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Hand over a record; await what comes back to know where it lies.

        `timestamp` is in ms since 1970, now by default. Without `partition` the key decides, and without a key any
        partition will do. TypeError and ValueError for what a record cannot have, before anything is queued; BufferFull
        when there is no room for max.block.ms; KafkaError when the topic is not found.
        """
        if self._closed:
            raise ClientClosed("this producer is closed")
        record = convert(self.settings, topic, value, key, partition, headers, timestamp)
        deadline_ms: int | None = None
        while True:
            try:
                with self._lock:
                    delivery = self.append(topic, *record)
            except KeyError:
                await self.admit(topic)
                continue
            if delivery is not None:
                if self._accumulator.stirred:
                    self._accumulator.stirred = False
                    self._sender.wake()
                return delivery
            if deadline_ms is None:
                deadline_ms = now_ms() + self.settings.max_block_ms
            await self.room(deadline_ms)

    def _append_open(self, *record: Any) -> Delivery | None:
        assert self._transactions is not None
        self._transactions.check_open()
        return self._accumulator.append(*record)

    async def send_table(
        self,
        topic: str,
        table: Any,
        *,
        value: Columns = "value",
        key: Columns | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        headers: str | None = None,
        value_serde: Serde | None = None,
        key_serde: Serde | None = None,
    ) -> TableDelivery:
        """Hand over the rows of a table; await what comes back until all are delivered.

        A table is pyarrow's Table, RecordBatch or RecordBatchReader, or a data frame of pandas, polars or whatever
        gives Arrow's PyCapsules. The arguments name its columns: `value` and `key` are binary or string (a null is a
        tombstone, or no key), or any type that the serde writes, several columns as one struct; `timestamp` is a
        timestamp or integer (ms); `partition` an integer; `headers` a map, or a list of structs of a key and a value.
        Rows go where `send` would put them. Needs the extra ottla[arrow].
        """
        needs_arrow("send_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        from ottla.client.producer.outgoing import ColumnMapping as Named

        if self._closed:
            raise ClientClosed("this producer is closed")
        if topic_name(topic) not in self._accumulator.topics:
            await self.admit(topic)
        batches: list[ProducerBatch] = []
        for batch in self.table_batches(
            topic, table, Named(value, key, timestamp, partition, headers, value_serde, key_serde)
        ):
            deadline_ms = now_ms() + self.settings.max_block_ms
            while True:
                with self._lock:
                    if self.put(batch):
                        break
                await self.room(deadline_ms)
            self._sender.wake()
            batches.append(batch)
            # The loop sends what is ready while the next batch is encoded.
            await asyncio.sleep(0)
        return TableDelivery(batches)

    def table_batches(self, topic: str, table: Any, columns: Named) -> Iterator[ProducerBatch]:
        """The rows of a table as batches, each encoded when it is asked for."""
        from ottla.client.producer.outgoing import cuts, fill

        settings = self.settings
        queue = self._accumulator.topics[topic]
        wanted = settings.batch_size - HEADER_BYTES if "batch_size" in settings.given else TABLE_BATCH_BYTES
        batch_bytes = max(1, min(wanted, settings.max_request_size // 2))
        # What was sent makes room for what is encoded next, in memory that is at hand.
        frames = Frames(_FRAMES_MAX, settings.buffer_memory)
        for cut in cuts(table, columns, len(queue.partitions), batch_bytes, current_clock().now_ms):
            number = cut.partition
            if number is None:
                with self._lock:
                    number = self._accumulator.turn(queue)
            now = now_ms()
            batch = ProducerBatch(topic, number, now, now + settings.delivery_timeout_ms)
            fill(batch, cut, settings.compression_type, settings.compression_level, frames.take)
            yield batch

    def put(self, batch: ProducerBatch) -> bool:
        """Take an encoded batch; False if there is no room. Under the lock."""
        if self._transactions is not None:
            self._transactions.check_open()
        return self._accumulator.put(self._accumulator.topics[batch.topic].partitions[batch.partition], batch)

    async def admit(self, topic: str) -> None:
        """Get a topic's partitions before its first record."""
        topic_name(topic)
        await self._cluster.known([topic], self.settings.max_block_ms)
        with self._lock:
            self._sender.set_partitions(topic)

    async def room(self, deadline_ms: int) -> None:
        """Wait until some memory is free; BufferFull at the deadline."""
        self._sender.wake()
        freed = asyncio.get_running_loop().create_future()
        self._waiting.append(freed)
        began_ms = now_ms()
        try:
            async with asyncio.timeout(max(0, deadline_ms - began_ms) / 1000):
                await freed
        except TimeoutError:
            raise buffer_full(self.settings) from None
        finally:
            self._sender.meter.waited_for_room(now_ms() - began_ms, now_ms())

    async def flush(self, progress: Progress | None = None) -> None:
        """Send what waits without lingering, and return when all records sent so far are delivered.

        Raises the first KafkaError of a record whose delivery was not looked at.
        """
        await self.settle(progress)
        failed, self._sender.failed = self._sender.failed, []
        for batch in failed:
            if not batch.seen and batch.error is not None:
                raise batch.error.with_traceback(None)

    async def settle(self, progress: Progress | None = None) -> None:
        """Send what waits without lingering, and return when it is all over, one way or the other."""
        with self._lock:
            self._accumulator.flushing += 1
            waiting = list(self._accumulator.incomplete)
        self._sender.wake()
        try:
            left = sum(batch.records for batch in waiting)
            for batch in waiting:
                if progress is not None:
                    progress(left)
                left -= batch.records
                while not batch.done:
                    await _until_done(batch.when_done)
            if progress is not None:
                progress(0)
        finally:
            with self._lock:
                self._accumulator.flushing -= 1

    @checked
    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        await self._cluster.known([topic], self.settings.max_block_ms)
        return [one.partition for one in self._cluster.metadata.topics[topic].partitions]

    def metrics(self, *, blocked: int = 0) -> ProducerMetrics:
        """What the producer has measured of itself, by Kafka's names. `blocked` threads wait for room beside tasks."""
        return self._sender.meter.snapshot(
            in_flight=self._sender.requests_in_flight,
            memory=self.settings.buffer_memory,
            memory_used=self._accumulator.memory_used,
            waiting=len(self._waiting) + blocked,
            nodes=self._cluster.node_metrics(),
            now_ms=now_ms(),
        )

    async def close(self, *, flush: bool = True) -> None:
        """Deliver what waits (or let it fail, with `flush=False`), and end. An open transaction is aborted."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._transactor is not None:
                await self._transactor.close(self.settle)
            if flush:
                await self.flush()
        finally:
            self._sender.close()
            await self._telemetry.close()
            await self._cluster.close()

    def _progressed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for freed in waiting:
            if not freed.done():
                freed.set_result(None)

    async def __aenter__(self) -> AsyncProducer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=kind is None)


def convert(
    settings: ProducerSettings,
    topic: object,
    value: object,
    key: object,
    partition: Any,
    headers: object,
    timestamp: Any,
) -> tuple[bytes | None, bytes | None, int | None, Sequence[Header] | None, int]:
    """A record's parts as bytes, through the serializers. TypeError or ValueError for what a record cannot have."""
    if not isinstance(topic, str):
        topic_name(topic)
    if partition is not None and partition.__class__ is not int:
        partition = whole(partition, "partition", 0)
    if timestamp is None:
        timestamp = wall_ms()
    elif timestamp.__class__ is not int or not 0 <= timestamp < 1 << 63:
        timestamp = whole(timestamp, "timestamp (ms since 1970)", 0)
    if value is not None and (value.__class__ is not bytes or settings.value_serializer is not None):
        to_bytes = settings.value_serializer
        value = plain_bytes(value, "value") if to_bytes is None else serialized(to_bytes(value), "value")
    if key is not None and (key.__class__ is not bytes or settings.key_serializer is not None):
        to_bytes = settings.key_serializer
        key = plain_bytes(key, "key") if to_bytes is None else serialized(to_bytes(key), "key")
    pairs: Sequence[Header] | None = None
    if headers is not None:
        pairs = headers_of(headers)
    return value, key, partition, pairs, timestamp


def buffer_full(settings: ProducerSettings) -> KafkaError:
    """The error of a record that found no room in time."""
    return BufferFull(
        f"buffer.memory={settings.buffer_memory} stayed full for max.block.ms={settings.max_block_ms}: "
        "the cluster takes records more slowly than they are sent"
    )


async def _until_done(when_done: Callable[[Callable[[], None]], None]) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def tell() -> None:
        loop.call_soon_threadsafe(lambda: None if over.done() else over.set_result(None))

    when_done(tell)
    await over


def _transactions(settings: ProducerSettings) -> Transactions | None:
    name = settings.transactional_id
    if name is None:
        return None
    two_phase = settings.transaction_two_phase_commit_enable
    return Transactions(name, settings.transaction_timeout_ms, two_phase=two_phase)
