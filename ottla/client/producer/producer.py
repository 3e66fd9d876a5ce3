"""The asyncio producer. `producer.sync.Producer` is the synchronous form.

Rules:
- `send` appends a record to its partition's open batch and returns. It waits only for a topic's metadata and for room
  in `buffer.memory`, each at most `max.block.ms`.
- A partition's records keep the order of their `send` calls.
- A transactional producer takes records only while a transaction is open, and they belong to that transaction.

KIPs: 98 (idempotence), 480 (sticky partitions), 794 (balance), 82 (headers), 91 (delivery timeout).
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from ottla.client.checked import checked
from ottla.client.connection.clock import current_clock, now_ms, randomness, wall_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.loop_thread import needs_loop
from ottla.client.connection.telemetry import TelemetryPush
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.delivery import Delivery, ProducerBatch, TableDelivery
from ottla.client.producer.metric import ProducerMetrics, producer_points
from ottla.client.producer.sender import Sender
from ottla.client.producer.unclosed import forget, watch
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.api import TransactionCalls
from ottla.client.transaction.driver import Transactor
from ottla.client.transaction.state import Transactions
from ottla.kernel.argument import needs_arrow, serde_of, topic_name, whole
from ottla.kernel.client_error import BufferFull, ClientClosed
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.memory import Frames
from ottla.kernel.typevar import K, V
from ottla.serde.serializer import headers_of, plain_bytes, serialized
from ottla.settings.client.schema import Given
from ottla.wire.batch import HEADER_BYTES, Header

if TYPE_CHECKING:
    from ottla.client.producer.outgoing import ColumnMapping, Columns
    from ottla.client.settings.option import ProducerOptions
    from ottla.serde.serde import Serde

T = TypeVar("T")

#: Headers as pairs or as a mapping. A header's value is bytes, text (sent as UTF-8) or None.
Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
#: Callback of `flush`: gets the number of records still to be delivered.
Progress = Callable[[int], None]

#: Size of the batches that carry a table's rows: large enough that the cost of encoding one is its bytes only.
TABLE_BATCH_BYTES = 512 * 1024
#: The most batch buffers that are kept for reuse while a table is sent.
_FRAMES_MAX = 64


class AsyncProducer(TransactionCalls, Generic[K, V]):
    """A Kafka producer for asyncio.

    Create it on a running loop; `async with` or `close` ends it.

    >>> async with AsyncProducer("127.0.0.1:9092") as producer:
    ...     delivery = await producer.send("flights", "UA 1545", key="UA")
    ...     metadata = await delivery
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ProducerOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
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
        #: `Accumulator.append`; a transactional producer first checks that a transaction is open.
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
        self._unclosed = watch(self, self._accumulator)

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
        """Queue a record; await the returned `Delivery` for its partition and offset.

        `key` and `value` go through the serializers of the settings; without one they are bytes, or text sent as UTF-8.
        `timestamp` is in milliseconds since 1970-01-01 UTC (default: now). Without `partition`, the partitioner chooses
        one: by the key's hash, or any partition for a record without a key. Raises TypeError or ValueError for an
        invalid argument, before anything is queued; BufferFull if buffer.memory stays full for max.block.ms; KafkaError
        if the topic does not exist or the record is larger than max.request.size.
        """
        if self._closed:
            raise ClientClosed("this producer is closed")
        raw_value, raw_key, partition, pairs, timestamp = convert(
            self.settings, topic, value, key, partition, headers, timestamp
        )
        deadline_ms: int | None = None
        if partition is None and self._accumulator.partitioner is not None:
            if topic not in self._accumulator.topics:
                deadline_ms = self.block_deadline_ms()
                await self.admit(topic, deadline_ms=deadline_ms)
            partition = self._accumulator.chosen(topic, raw_key)
        if partition is not None and self._accumulator.lacks(topic, partition):
            deadline_ms = self.block_deadline_ms(deadline_ms)
            await self.admit(topic, partition, deadline_ms=deadline_ms)
        delivery: Delivery | None = None
        while True:
            try:
                with self._lock:
                    delivery = self.append(topic, raw_value, raw_key, partition, pairs, timestamp)
                break
            except KeyError:
                deadline_ms = self.block_deadline_ms(deadline_ms)
                await self.admit(topic, deadline_ms=deadline_ms)
        if delivery is None:
            # As in Java, the wait for room does not make a record younger.
            timestamp = wall_ms() if timestamp is None else timestamp
            append = functools.partial(self.append, topic, raw_value, raw_key, partition, pairs, timestamp)
            delivery = await self._in_line(append, self.block_deadline_ms(deadline_ms))
        if self._accumulator.stirred:
            self._accumulator.stirred = False
            self._sender.wake()
        return delivery

    def block_deadline_ms(self, known: int | None = None) -> int:
        """Until when a call may wait for metadata and room: that of its first wait, or max.block.ms from now."""
        return now_ms() + self.settings.max_block_ms if known is None else known

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
        """Queue the rows of a table as records; await the returned `TableDelivery` until all are delivered.

        `table` is a pyarrow Table, RecordBatch or RecordBatchReader, or any object with Arrow's PyCapsule interface,
        such as a data frame of pandas or polars. The other arguments name its columns: `value` and `key` are binary or
        string columns (a null is a tombstone, or no key), or any type that the serde writes, with several columns
        becoming one struct; `timestamp` is a timestamp or integer column (milliseconds since 1970-01-01 UTC);
        `partition` an integer column; `headers` a map column, or a list of structs of a key and a value. Rows are
        partitioned as by `send`, and it raises the same errors. Needs the extra ottla[arrow].
        """
        needs_arrow("send_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        from ottla.client.producer.outgoing import ColumnMapping

        if self._closed:
            raise ClientClosed("this producer is closed")
        if topic_name(topic) not in self._accumulator.topics:
            await self.admit(topic)
        batches: list[ProducerBatch] = []
        for batch in self.table_batches(
            topic, table, ColumnMapping(value, key, timestamp, partition, headers, value_serde, key_serde)
        ):
            if isinstance(batch, int):
                await self.admit(topic, batch)
                continue
            deadline_ms = self.block_deadline_ms()
            with self._lock:
                has_room = self.put(batch)
            if not has_room:
                await self._in_line(functools.partial(self.put, batch), deadline_ms)
            self._sender.wake()
            batches.append(batch)
            # Yield, so that the loop sends this batch while the next one is encoded.
            await asyncio.sleep(0)
        return TableDelivery(batches)

    def table_batches(self, topic: str, table: Any, columns: ColumnMapping) -> Iterator[ProducerBatch | int]:
        """Encode the rows of a table as batches, one at a time, as the caller iterates.

        A number instead of a batch is a partition that the caller must `admit` first.
        """
        from ottla.client.producer.outgoing import cuts, fill

        settings = self.settings
        queue = self._accumulator.topics[topic]
        wanted = settings.batch_size - HEADER_BYTES if "batch_size" in settings.given else TABLE_BATCH_BYTES
        batch_bytes = max(1, min(wanted, settings.max_request_size // 2))
        # Memory of delivered batches is reused for the next ones, while it is still in the CPU's caches.
        frames = Frames(_FRAMES_MAX, settings.buffer_memory)
        for cut in cuts(table, columns, lambda: queue.count, batch_bytes, current_clock().now_ms):
            if isinstance(cut, int):
                yield cut
                continue
            number = cut.partition
            if number is None:
                with self._lock:
                    number = self._accumulator.choose_sticky(queue)
            now = now_ms()
            batch = ProducerBatch(topic, number, now, now + settings.delivery_timeout_ms)
            fill(batch, cut, settings.compression_type, settings.compression_level, frames.take)
            yield batch

    def put(self, batch: ProducerBatch) -> bool | None:
        """Append an encoded batch; None if there is no room. Under the lock."""
        if self._transactions is not None:
            self._transactions.check_open()
        return self._accumulator.put(self._accumulator.topics[batch.topic].partitions[batch.partition], batch) or None

    async def admit(self, topic: str, partition: int = 0, *, deadline_ms: int | None = None) -> None:
        """Fetch a topic's metadata before its first record, or its first one for a new partition."""
        left_ms = max(0, self.block_deadline_ms(deadline_ms) - now_ms())
        await self._cluster.known_partition(TopicPartition(topic_name(topic), partition), left_ms)
        with self._lock:
            self._sender.set_partitions(topic)

    async def _in_line(self, put: Callable[[], T | None], deadline_ms: int) -> T:
        """Wait for memory behind those who wait already, and return the result of `put`; BufferFull at the deadline."""
        accumulator, place = self._accumulator, object()
        accumulator.line.append(place)
        try:
            while True:
                await self.wait_for_room(deadline_ms)
                with self._lock:
                    result = accumulator.in_turn(place, put)
                if result is not None:
                    return result
        finally:
            accumulator.line.remove(place)
            # There may be room for the next one, too.
            self._progressed()

    async def wait_for_room(self, deadline_ms: int) -> None:
        """Wait until memory is released; BufferFull at the deadline."""
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
            if freed in self._waiting:
                self._waiting.remove(freed)
            self._sender.meter.waited_for_room(now_ms() - began_ms, now_ms())

    async def flush(self, progress: Progress | None = None) -> None:
        """Send all queued records without lingering, and return when every record sent so far is delivered.

        `progress` is called with the number of records still to be delivered. Raises the first KafkaError among the
        deliveries whose outcome the program has not looked at.
        """
        await self.settle(progress)
        failed, self._sender.failed = self._sender.failed, []
        for batch in failed:
            if not batch.seen and batch.error is not None:
                raise batch.error.with_traceback(None)

    async def settle(self, progress: Progress | None = None) -> None:
        """Send all queued records without lingering, and return when each has succeeded or failed."""
        with self._lock:
            self._accumulator.flushing += 1
            waiting = self._accumulator.undelivered()
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
        """The partition numbers of a topic."""
        await self._cluster.known([topic], self.settings.max_block_ms)
        return [state.partition for state in self._cluster.metadata.topics[topic].partitions]

    def metrics(self) -> ProducerMetrics:
        """A snapshot of the producer's metrics, under Kafka's names."""
        return self._sender.meter.snapshot(
            in_flight=self._sender.requests_in_flight,
            memory=self.settings.buffer_memory,
            memory_used=self._accumulator.memory_used,
            waiting=len(self._accumulator.line),
            nodes=self._cluster.node_metrics(),
            now_ms=now_ms(),
        )

    async def close(self, *, flush: bool = True) -> None:
        """Deliver the queued records (with `flush=False`, fail them) and close. An open transaction is aborted."""
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
            self._unclosed.detach()
            forget(self._accumulator)
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
) -> tuple[bytes | None, bytes | None, int | None, Sequence[Header] | None, int | None]:
    """A record's parts as bytes, through the serializers. TypeError or ValueError for an invalid argument."""
    if not isinstance(topic, str):
        topic_name(topic)
    if partition is not None and partition.__class__ is not int:
        partition = whole(partition, "partition", 0)
    if timestamp is not None and (timestamp.__class__ is not int or not 0 <= timestamp < 1 << 63):
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
    """The error of a record that found no room within max.block.ms."""
    return BufferFull(
        f"buffer.memory={settings.buffer_memory} stayed full for max.block.ms={settings.max_block_ms}: "
        "the cluster takes records more slowly than they are sent"
    )


async def _until_done(when_done: Callable[[Callable[[], None]], None]) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def on_done() -> None:
        loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

    when_done(on_done)
    await done
