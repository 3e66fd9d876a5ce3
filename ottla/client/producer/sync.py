"""The synchronous producer: an `AsyncProducer` on the loop thread.

Rules:
- `send` appends to the batch in the calling thread; any number of threads may share a producer.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from ottla.client.connection.clock import now_ms, wall_ms
from ottla.client.connection.loop_thread import fork_aware, forked, loop_thread
from ottla.client.membership.commit import Offsets
from ottla.client.producer.accumulator import RECORD_OVERHEAD, TopicQueue
from ottla.client.producer.delivery import Delivery, ProducerBatch, TableDelivery
from ottla.client.producer.metric import ProducerMetrics
from ottla.client.producer.partitioner import key_hash
from ottla.client.producer.producer import AsyncProducer, Headers, Progress, buffer_full, convert
from ottla.client.producer.unclosed import close_at_end
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

_now_s = time.time


class Producer(Generic[K, V]):
    """A Kafka producer. Any number of threads may share it; `with` or `close` ends it.

    At the end of the program, a producer that is still open delivers its records, for at most five seconds.

    >>> with Producer("127.0.0.1:9092") as producer:
    ...     producer.send("flights", "UA 1545", key="UA").result()
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ProducerOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """

        async def make() -> AsyncProducer[K, V]:
            return AsyncProducer(settings, **keywords)

        self._thread = loop_thread()
        self._async = self._thread.run(make())
        self.settings = self._async.settings
        read = self.settings
        self._transactions = self._async._transactions
        self._fast_path_possible = (
            # Without a GIL tickets are no single step (before Python 3.14), and threads lose changes of `room`.
            getattr(sys, "_is_gil_enabled", lambda: True)()
            and read.key_serializer is None
            and read.value_serializer is None
            and read.partitioner == "default"
            and not read.tracing_enable
        )
        self._lock = self._async._lock
        self._room = threading.Condition(self._lock)
        self._accumulator = self._async._accumulator
        #: Topics for which `send` may take its fast path: all or none. With transactions, only while one is open.
        self._fast_topics: dict[str, TopicQueue] = {}
        self._set_fast_path(self._transactions is None)
        self._append: Callable[..., Delivery | None] = self._async.append
        self._sender = self._async._sender
        # Weakly: the loop must not keep a producer alive that the program has dropped.
        weak = weakref.ref(self)
        self._sender.on_progress.append(lambda: None if (me := weak()) is None else me._progressed())
        self._is_child = False
        fork_aware.add(self)
        self._unclosed = close_at_end(self, self._async, self._thread)

    def _in_child(self) -> None:
        """After a fork, send every record through the check in `_wait`, which refuses it."""
        self._is_child = True
        self._fast_path_possible = False
        self._set_fast_path(False)
        # The parent's thread may have held the lock when it forked.
        self._lock = threading.Lock()
        self._append = _nowhere

    def _set_fast_path(self, allowed: bool) -> None:
        self._fast_topics = self._accumulator.topics if allowed and self._fast_path_possible else {}

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
        """Queue a record; the returned `Delivery`'s `result` gives its partition and offset.

        `timestamp` is in milliseconds since 1970-01-01 UTC. See `AsyncProducer.send` for the arguments and errors.
        """
        # `Accumulator.append` is inlined for bytes into a batch with room: a call would double the time. `Filling` says
        # why this needs no lock.
        content: Any = value
        name: Any = key
        if (
            content.__class__ is bytes
            and partition is None
            and headers is None
            and timestamp is None
            and (name is None or name.__class__ is bytes)
            and topic.__class__ is str
            and (queue := self._fast_topics.get(topic)) is not None
        ):
            size = len(content) + RECORD_OVERHEAD
            keys: Any = None
            if name is None:
                batch = queue.keyless.open
            else:
                batch = queue.partitions[key_hash(name) % queue.count].open
                size += len(name)
                keys = None if batch is None else batch.key_slots
            if (
                batch is not None
                and (name is None or keys is not None)
                and batch.since_s <= _now_s() < batch.until_s
                and (room := batch.room - size) >= 0
            ):
                batch.room = room
                handle = Delivery()
                handle.batch = batch
                handle.index = ticket = next(batch.tickets)
                try:
                    if name is not None:
                        keys[ticket] = name
                    batch.slots[ticket] = content
                    batch.stored.append(None)
                    if not batch.sealed:
                        return handle
                except IndexError:
                    pass
                with self._lock:
                    if batch.place(ticket, content, name):
                        return handle
        return self._send(topic, value, key, partition, headers, timestamp)

    def _send(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        headers: Headers | None,
        timestamp: int | None,
    ) -> Delivery:
        raw_value, raw_key, partition, pairs, timestamp = convert(
            self.settings, topic, value, key, partition, headers, timestamp
        )
        deadline_ms: int | None = None
        if partition is None and self._accumulator.partitioner is not None:
            deadline_ms = self._async.block_deadline_ms()
            self._check_usable(topic, deadline_ms=deadline_ms)
            partition = self._accumulator.chosen(topic, raw_key)
        if partition is not None and self._accumulator.lacks(topic, partition):
            deadline_ms = self._async.block_deadline_ms(deadline_ms)
            self._check_usable(topic, partition, deadline_ms=deadline_ms)
        record = raw_value, raw_key, partition, pairs, timestamp
        try:
            with self._lock:
                delivery = self._append(topic, *record)
        except KeyError:
            delivery = None
        if delivery is None:
            delivery = self._wait(topic, *record, self._async.block_deadline_ms(deadline_ms))
        if self._accumulator.stirred:
            self._accumulator.stirred = False
            try:
                self._sender.signal()
            except BaseException:
                # Ctrl-C: the next record wakes the sender.
                self._accumulator.stirred = True
                raise
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
        """Queue the rows of a table as records; the returned `TableDelivery`'s `result` waits until all are delivered.

        See `AsyncProducer.send_table` for the arguments and errors. Rows are encoded in the calling thread.
        """
        needs_arrow("send_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        from ottla.client.producer.outgoing import ColumnMapping

        self._check_usable(topic)
        batches: list[ProducerBatch] = []
        columns = ColumnMapping(value, key, timestamp, partition, headers, value_serde, key_serde)
        for batch in self._async.table_batches(topic, table, columns):
            if isinstance(batch, int):
                self._check_usable(topic, batch)
                continue
            with self._lock:
                self._with_room(functools.partial(self._async.put, batch), self._async.block_deadline_ms())
            self._sender.signal()
            batches.append(batch)
        return TableDelivery(batches)

    def _wait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        pairs: Sequence[Header] | None,
        timestamp: int | None,
        deadline_ms: int,
    ) -> Delivery:
        """Append a record whose topic's metadata is missing, or that found no room."""
        self._check_usable(topic, deadline_ms=deadline_ms)
        # As in Java, the wait for room does not make a record younger.
        timestamp = wall_ms() if timestamp is None else timestamp
        append = functools.partial(self._append, topic, value, key, partition, pairs, timestamp)
        with self._lock:
            return self._with_room(append, deadline_ms)

    def _check_usable(self, topic: str, partition: int = 0, *, deadline_ms: int | None = None) -> None:
        """Raise if this producer is closed or belongs to the parent process; get the topic's metadata if needed."""
        if self._is_child:
            raise forked()
        if self._async._closed:
            raise ClientClosed("this producer is closed")
        if self._accumulator.lacks(topic_name(topic), partition):
            self._thread.run(self._async.admit(topic, partition, deadline_ms=deadline_ms))

    def _with_room(self, put: Callable[[], T | None], deadline_ms: int) -> T:
        """Call `put` until there is room, and return its result. Under the lock; BufferFull at the deadline.

        Those who wait already come first.
        """
        accumulator, place = self._accumulator, object()
        appended = put()
        if appended is not None:
            return appended
        try:
            accumulator.line.append(place)
            while appended is None:
                self._sender.signal()
                if not self._room.wait(max(0, deadline_ms - now_ms()) / 1000):
                    raise buffer_full(self.settings)
                appended = accumulator.in_turn(place, put)
            return appended
        finally:
            # Ctrl-C may come behind any call.
            if place in accumulator.line:
                accumulator.line.remove(place)
            # There may be room for the next one, too.
            self._room.notify_all()

    def _progressed(self) -> None:
        if self._accumulator.line:
            with self._lock:
                self._room.notify_all()

    def flush(self, timeout: float | None = None, progress: Progress | None = None) -> None:
        """Send all queued records without lingering, and return when every record sent so far is delivered.

        `progress` is called on the client's loop with the number of records still to be delivered. Raises the first
        KafkaError among the deliveries whose outcome the program has not looked at; TimeoutError after `timeout`
        seconds (default: no limit).
        """
        self._thread.run(self._async.flush(progress), optional_seconds(timeout))

    def metrics(self) -> ProducerMetrics:
        """A snapshot of the producer's metrics, under Kafka's names."""
        return self._async.metrics()

    # ---- transactions

    def transaction(self) -> ProducerTransaction:
        """A context manager for one transaction: commits at the end of its body, aborts if the body raises."""
        return ProducerTransaction(self)

    def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Fence every earlier producer with this transactional id and abort its open transaction (KIP-98).

        With `keep_prepared`, a transaction that the earlier producer prepared is kept: the call returns it (None if
        there is none), and it can only be committed, aborted or completed (KIP-939). Unsupported if the brokers do not
        have two-phase commit.
        """
        return self._thread.run(self._async.init_transactions(keep_prepared=keep_prepared))

    def prepare_transaction(self) -> PreparedTransaction:
        """Deliver all records of the transaction, and keep it open for a decision even if this producer dies.

        Store the result where the decision is made (such as a database, in the same transaction as its own changes);
        `complete_transaction` then commits or aborts. Needs transaction.two.phase.commit.enable=true (KIP-939).
        """
        self._set_fast_path(self._transactions is None)
        return self._thread.run(self._async.prepare_transaction())

    def complete_transaction(self, decided: PreparedTransaction) -> bool:
        """Commit the prepared transaction if it equals `decided`, otherwise abort it. Returns True if committed."""
        self._set_fast_path(self._transactions is None)
        return self._thread.run(self._async.complete_transaction(decided))

    def begin_transaction(self) -> None:
        """Open a transaction; records sent from now on belong to it. Call `init_transactions` once before."""
        self._thread.run(self._async.begin_transaction())
        self._set_fast_path(True)

    def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """Commit consumed offsets as part of the transaction (KIP-447).

        `offsets` defaults to the consumer's positions. They take effect when the transaction commits, and never if it
        aborts. `reader` is the consumer or its `group_metadata()`: the coordinator then refuses a member that has lost
        its partitions since. A group's name works, too, without that check.
        """
        group, to_commit = group_offsets(reader, offsets)
        self._thread.run(self._async._transacting().send_offsets(group, to_commit))

    def commit_transaction(self) -> None:
        """Deliver all records and commit. See `AsyncProducer.commit_transaction`."""
        self._set_fast_path(self._transactions is None)
        self._thread.run(self._async.commit_transaction())

    def abort_transaction(self) -> None:
        """Abort the transaction. Records not sent yet fail with TransactionAborted."""
        self._set_fast_path(self._transactions is None)
        self._thread.run(self._async.abort_transaction())

    # ---- the rest

    def partitions_for(self, topic: str) -> list[int]:
        """The partition numbers of a topic."""
        return self._thread.run(self._async.partitions_for(topic))

    def close(self, *, flush: bool = True) -> None:
        """Deliver the queued records (with `flush=False`, fail them) and close. An open transaction is aborted."""
        try:
            self._thread.run(self._async.close(flush=flush))
        finally:
            self._unclosed.detach()

    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)


class ProducerTransaction:
    """A transaction of a `Producer`; `with` begins and ends it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """Commit consumed offsets with this transaction; see `Producer.send_offsets`."""
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
    """Replaces `Accumulator.append` in a forked child, so that nothing is appended."""
