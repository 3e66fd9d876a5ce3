"""The producer for code that does not await: `AsyncProducer` on the loop thread.

Rules:
- `send` runs in the caller's thread up to the batch: any threads may share a producer.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from ottla.client.connection.clock import now_ms
from ottla.client.connection.loop_thread import forked, loop_thread, told_of_forks
from ottla.client.membership.commit import Offsets
from ottla.client.producer.accumulator import RECORD_OVERHEAD, TopicQueue
from ottla.client.producer.delivery import Delivery, ProducerBatch, TableDelivery
from ottla.client.producer.metric import ProducerMetrics
from ottla.client.producer.partitioner import key_hash
from ottla.client.producer.producer import AsyncProducer, Headers, Progress, buffer_full, convert
from ottla.client.transaction.api import Reader, group_offsets, not_aborted
from ottla.client.transaction.state import PreparedTransaction
from ottla.kernel.argument import needs_arrow, optional_seconds, serde_of, topic_name
from ottla.kernel.client_error import ClientClosed
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.typevar import K, V
from ottla.settings.client.schema import Given
from ottla.wire.batch import Header

if TYPE_CHECKING:
    from ottla.client.producer.outgoing import Columns
    from ottla.client.settings.option import ProducerOptions
    from ottla.serde.serde import Serde

T = TypeVar("T")

_now_ns = time.time_ns


class Producer(Generic[K, V]):
    """A producer for threads. `with` or `close` ends it.

    >>> with Producer("127.0.0.1:9092") as producer:
    ...     producer.send("flights", "UA 1545", key="UA").result()
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ProducerOptions]) -> None:
        """`settings`: host:port, several of these, or a mapping by Kafka's names; keywords: settings in snake_case.

        docs/reference/client-settings.md has them all. OttlaError for an unknown name or a value that does not fit.
        """

        async def make() -> AsyncProducer[K, V]:
            return AsyncProducer(settings, **keywords)

        self._thread = loop_thread()
        self._half = self._thread.run(make())
        self.settings = self._half.settings
        read = self.settings
        self._transactions = self._half._transactions
        self._may_be_plain = (
            read.key_serializer is None
            and read.value_serializer is None
            and read.partitioner == "default"
            and not read.tracing_enable
        )
        self._lock = self._half._lock
        self._acquire = self._lock.acquire
        self._release = self._lock.release
        self._room = threading.Condition(self._lock)
        self._blocked = 0
        self._accumulator = self._half._accumulator
        #: The topics for which `send` may take its short way: all or none. With transactions, while one is open.
        self._short: dict[str, TopicQueue] = {}
        self._shorten(self._transactions is None)
        self._append: Callable[..., Delivery | None] = self._half.append
        self._sender = self._half._sender
        self._sender.on_progress.append(self._progressed)
        self._is_child = False
        told_of_forks.add(self)

    def _in_child(self) -> None:
        """After a fork: no record goes past the check in `_wait`."""
        self._is_child = True
        self._may_be_plain = False
        self._shorten(False)
        # The parent's thread may have held the lock when it forked.
        self._lock = threading.Lock()
        self._append = _nowhere

    def _shorten(self, may: bool) -> None:
        self._short = self._accumulator.topics if may and self._may_be_plain else {}

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Hand over a record; ask what comes back for its `result` to know where it lies. See `AsyncProducer.send`."""
        # The common case, bytes into a batch that has room, is `Accumulator.append` written out: a call and a `with`
        # would double its time.
        content: Any = value
        name: Any = key
        if (
            content.__class__ is bytes
            and topic.__class__ is str
            and partition is None
            and headers is None
            and timestamp is None
            and (name is None or name.__class__ is bytes)
            and topic in self._short
        ):
            now = _now_ns()
            queue = self._short[topic]
            number = queue.sticky if name is None else key_hash(name) % len(queue.partitions)
            self._acquire()
            try:
                batch = queue.partitions[number].open
                if batch is not None and (batch.keys is None) is (name is None) and batch.headers is None:
                    size = batch.size + len(content) + RECORD_OVERHEAD
                    if name is not None:
                        size += len(name)
                    if size <= batch.limit:
                        batch.size = size
                        values = batch.values
                        index = len(values)
                        values.append(content)
                        if name is not None:
                            batch.keys.append(name)  # type: ignore[union-attr]
                        if not batch.since_ns <= now < batch.until_ns:
                            batch.stamp(index, now // 1_000_000)
                        return Delivery((batch, index))
            finally:
                self._release()
        record = convert(self.settings, topic, value, key, partition, headers, timestamp)
        try:
            with self._lock:
                delivery = self._append(topic, *record)
        except KeyError:
            delivery = None
        if delivery is None:
            delivery = self._wait(topic, *record)
        if self._accumulator.stirred:
            self._accumulator.stirred = False
            self._sender.signal()
        return delivery

    def send_table(
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
        """Hand over the rows of a table; ask what comes back for its `result`.

        See `AsyncProducer.send_table`. Rows are encoded in the caller's thread.
        """
        needs_arrow("send_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        from ottla.client.producer.outgoing import ColumnMapping

        self._check_usable(topic)
        batches: list[ProducerBatch] = []
        columns = ColumnMapping(value, key, timestamp, partition, headers, value_serde, key_serde)
        for batch in self._half.table_batches(topic, table, columns):
            with self._lock:
                self._with_room(functools.partial(self._put, batch))
            self._sender.signal()
            batches.append(batch)
        return TableDelivery(batches)

    def _put(self, batch: ProducerBatch) -> bool | None:
        return self._half.put(batch) or None

    def _wait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        pairs: Sequence[Header] | None,
        timestamp: int,
    ) -> Delivery:
        """The way of a record that finds no metadata or no room."""
        self._check_usable(topic)
        with self._lock:
            return self._with_room(functools.partial(self._append, topic, value, key, partition, pairs, timestamp))

    def _check_usable(self, topic: str) -> None:
        """Is this producer open, and ours? And what are the topic's partitions?"""
        if self._is_child:
            raise forked()
        if self._half._closed:
            raise ClientClosed("this producer is closed")
        if topic_name(topic) not in self._accumulator.topics:
            self._thread.run(self._half.admit(topic))

    def _with_room(self, put: Callable[[], T | None]) -> T:
        """What `put` gives as soon as there is room for it. Under the lock; BufferFull after max.block.ms."""
        deadline_ms = now_ms() + self.settings.max_block_ms
        while True:
            found = put()
            if found is not None:
                return found
            self._sender.signal()
            self._blocked += 1
            try:
                if not self._room.wait(max(0, deadline_ms - now_ms()) / 1000):
                    raise buffer_full(self.settings)
            finally:
                self._blocked -= 1

    def _progressed(self) -> None:
        if self._blocked:
            with self._lock:
                self._room.notify_all()

    def flush(self, timeout: float | None = None, progress: Progress | None = None) -> None:
        """Send what waits without lingering, and return when all records sent so far are delivered.

        Raises the first KafkaError of a record whose delivery was not looked at; TimeoutError after `timeout`
        seconds.
        """
        self._thread.run(self._half.flush(progress), optional_seconds(timeout))

    def metrics(self) -> ProducerMetrics:
        """What the producer has measured of itself, by Kafka's names."""
        return self._half.metrics(blocked=self._blocked)

    # ---- transactions

    def transaction(self) -> ProducerTransaction:
        """`with producer.transaction():` commits at the end of its body, and aborts when that raises."""
        return ProducerTransaction(self)

    def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Lock out every earlier producer with this transactional id; what it had open is aborted.

        With `keep_prepared` a transaction that it had open stays as it is, and can only be committed, aborted or
        completed: which one it is, or None when there is none (KIP-939). `Unsupported` from brokers that do not know
        two-phase commits.
        """
        return self._thread.run(self._half.init_transactions(keep_prepared=keep_prepared))

    def prepare_transaction(self) -> PreparedTransaction:
        """Deliver everything that was sent; the transaction then waits for its end, also when this producer dies.

        Store what this returns where the decision is made (a database, in the same transaction as its own changes);
        `complete_transaction` then does what was decided. Needs transaction.two.phase.commit.enable (KIP-939).
        """
        self._shorten(self._transactions is None)
        return self._thread.run(self._half.prepare_transaction())

    def complete_transaction(self, decided: PreparedTransaction) -> bool:
        """Commit the prepared transaction if it is the one that was `decided`, abort it if not. Was it committed?"""
        self._shorten(self._transactions is None)
        return self._thread.run(self._half.complete_transaction(decided))

    def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it."""
        self._thread.run(self._half.begin_transaction())
        self._shorten(True)

    def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """Commit offsets with the transaction: a consumer's positions, or these offsets of a group.

        They count for the group when the transaction is committed, and never if it is aborted. Give the consumer (or
        its `group_metadata()`), so that a member that has lost its partitions meanwhile is refused.
        """
        group, found = group_offsets(reader, offsets)
        self._thread.run(self._half.send_group_offsets(group, found))

    def commit_transaction(self) -> None:
        """Deliver what was sent and commit. See `AsyncProducer.commit_transaction`."""
        self._shorten(self._transactions is None)
        self._thread.run(self._half.commit_transaction())

    def abort_transaction(self) -> None:
        """Undo the transaction. What had not been sent fails with TransactionAborted."""
        self._shorten(self._transactions is None)
        self._thread.run(self._half.abort_transaction())

    # ---- the rest

    def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        return self._thread.run(self._half.partitions_for(topic))

    def close(self, *, flush: bool = True) -> None:
        """Deliver what waits (or let it fail, with `flush=False`), and end."""
        self._thread.run(self._half.close(flush=flush))

    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)


class ProducerTransaction:
    """An open transaction of a `Producer`; `with` begins and ends it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """The producer's `send_offsets`."""
        self._producer.send_offsets(reader, offsets)

    def __enter__(self) -> ProducerTransaction:
        self._producer.init_transactions()
        self._producer.begin_transaction()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return self._abort_for(error)
        try:
            self._producer.commit_transaction()
        except BaseException as failure:
            self._abort_for(failure)
            raise

    def _abort_for(self, error: BaseException) -> None:
        try:
            self._producer.abort_transaction()
        except (KafkaError, OttlaError) as failure:
            not_aborted(failure, error)


def _nowhere(*record: object) -> None:
    """`Accumulator.append` in a child of the process that made the producer: nothing is taken."""
