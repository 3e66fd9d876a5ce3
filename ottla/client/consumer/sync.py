"""The synchronous consumer: runs an `AsyncConsumer` on the loop thread and waits for its calls.

Rules:
- One thread at a time uses a consumer; a second thread that polls meanwhile gets an OttlaError.
- Buffered records are taken and decoded in the program's own thread, without going through the loop.
- The rebalance listener is called in the program's thread, from within `poll`, and may use the consumer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from ottla.client.connection.clock import now_ms
from ottla.client.connection.loop_thread import fork_aware, loop_thread
from ottla.client.connection.one_thread import OneThread
from ottla.client.consumer.commit import Failure
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.consumer.handing_out import starts_of
from ottla.client.consumer.listener import RebalanceListener
from ottla.client.consumer.metric import ConsumerMetrics
from ottla.client.membership.commit import CommittedOffset, GroupMetadata, Offsets, offsets_of
from ottla.columns.record import ConsumerRecord
from ottla.kernel.argument import needs_arrow, serde_of, wait_ms
from ottla.kernel.ids import TopicPartition
from ottla.kernel.typevar import K, V
from ottla.settings.client.schema import Given

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.consumer.table import Taken
    from ottla.client.settings.option import ConsumerOptions
    from ottla.serde.serde import Serde

T = TypeVar("T")

#: (method, partitions, done): a listener call that the loop asks the program's thread to make; `done` reports its end.
_Call = tuple[Callable[..., Any], list[TopicPartition], "asyncio.Future[None]"]


class Consumer(Generic[K, V]):
    """A Kafka consumer. One thread at a time may use it; `with` or `close` ends it.

    >>> with Consumer("127.0.0.1:9092", group_id="g") as consumer:
    ...     consumer.subscribe(["flights"])
    ...     for record in consumer:
    ...         print(record.value)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ConsumerOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """

        async def make() -> AsyncConsumer[K, V]:
            return AsyncConsumer(settings, **keywords)

        self._only_thread = OneThread("consumer")
        self._thread = loop_thread()
        self._async = self._thread.run(make())
        self._async._call = self._call_in_program
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.settings = self._async.settings
        fork_aware.add(self)

    def _in_child(self) -> None:
        """After a fork, send every poll through the loop thread, which refuses it."""
        self._async._closed = True
        self._only_thread = OneThread("consumer")

    async def _call_in_program(self, method: Callable[..., Any], partitions: list[TopicPartition]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls.put((method, partitions, done))
        await done

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it, making the listener calls that it requests."""
        if self._async._listener is None:
            return self._thread.run(work)
        # A queue for each call: one interrupted by Ctrl-C leaves its end marker in its own queue.
        calls = self._calls = queue.SimpleQueue()
        future: concurrent.futures.Future[T] = self._thread.submit(work)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                method, partitions, done = call
                error: BaseException | None = None
                try:
                    method(partitions)
                except BaseException as raised:
                    error = raised
                self._thread.loop.call_soon_threadsafe(_end, done, error)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    # ---- what to read

    def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics as a member of `group.id`, replacing the last subscription.

        `topics` is a list of names, or a compiled pattern that names must match in full. With group.protocol=consumer a
        string that starts with "^" is a pattern that the broker evaluates (KIP-848). `listener` is called when
        partitions are assigned and revoked. OttlaError without group.id.
        """

        async def work() -> None:
            self._async.subscribe(topics, listener=listener)

        self._thread.run(work())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group membership; commits still go to group.id, if set."""

        async def work() -> None:
            self._async.assign(partitions)

        self._thread.run(work())

    def unsubscribe(self) -> None:
        """Stop reading and leave the group."""
        self._run(self._async.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """The partitions assigned now."""
        return self._async.assignment()

    def subscription(self) -> set[str]:
        """The subscribed topics; for a pattern, the topics known to match it."""
        return self._async.subscription()

    # ---- records

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Return the next records, or an empty list if none arrive within `timeout` seconds.

        At most `max_records` records are returned (default: max.poll.records), decoded in the calling thread. Raises
        RecordDeserializationError at a record that a deserializer cannot read, once all records before it were returned
        (see on.decode.error); KafkaError for an error of the broker; OttlaError without a subscription or assignment,
        or while another thread polls.
        """
        starts: dict[TopicPartition, int] = {}
        try:
            with self._only_thread:
                return self._poll(timeout, max_records, starts)
        except BaseException:
            self._async.interrupted(starts)
            raise

    def _poll(
        self, timeout: float, max_records: int | None, starts: dict[TopicPartition, int]
    ) -> list[ConsumerRecord[K, V]]:
        consumer = self._async
        deadline_ms: int | None = None
        waits_ms = wait_ms(timeout)
        count = consumer.records_max(max_records)
        while True:
            raw: list[ConsumerRecord[K, V]] = []
            if consumer.needs_no_upkeep:
                consumer.return_in_hand()
                raw = consumer.take(count, starts)
                if raw:
                    consumer.polled()
            if not raw:
                # Nothing is to be given back: the rebalance below may find other positions.
                starts.clear()
                if deadline_ms is None:
                    deadline_ms = now_ms() + waits_ms
                if not self._run(consumer._next(max(0, deadline_ms - now_ms()), consumer.waiting, 1)):
                    return []
                raw = consumer.take(count, starts)
            records, bad = consumer.read(raw)
            if bad:
                with consumer.given_back(raw):
                    failure = self._run(consumer._try_dead_letters(starts_of(raw), bad))
                if failure is not None:
                    return consumer.records_before(records, bad, failure)
            if records:
                consumer.polled_records(records)
                return records

    def poll_table(
        self,
        timeout: float = 1.0,
        *,
        max_records: int = 1_000_000,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> pyarrow.Table:
        """Return the next records as a pyarrow Table, or an empty one if none arrive within `timeout` seconds.

        The table has about `max_records` rows at most, decoded in the calling thread. See `AsyncConsumer.poll_table`
        for its columns, the serdes and the errors. OttlaError while another thread polls.
        """
        needs_arrow("poll_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        starts: dict[TopicPartition, int] = {}
        try:
            with self._only_thread:
                return self._poll_table(timeout, max_records, key_serde, value_serde, starts)
        except BaseException:
            self._async.interrupted(starts)
            raise

    def _poll_table(
        self,
        timeout: float,
        max_records: int,
        key_serde: Serde | None,
        value_serde: Serde | None,
        starts: dict[TopicPartition, int],
    ) -> pyarrow.Table:
        consumer = self._async
        deadline_ms: int | None = None
        waits_ms = wait_ms(timeout)
        count = consumer.records_max(max_records)
        while True:
            taken: list[Taken] = []
            if consumer.needs_no_upkeep:
                consumer.return_in_hand()
                taken = consumer.take_bytes(count, starts)
                if taken:
                    consumer.polled()
            if not taken:
                # Nothing is to be given back: the rebalance below may find other positions.
                starts.clear()
                if deadline_ms is None:
                    deadline_ms = now_ms() + waits_ms
                if not self._run(consumer._next(max(0, deadline_ms - now_ms()), consumer.waiting, 1)):
                    return consumer.table([], key_serde, value_serde)[0]
                taken = consumer.take_bytes(count, starts)
            table, bad = consumer.table(taken, key_serde, value_serde)
            if bad:
                begins = {fetch.partition: fetch.offset for fetch in taken}
                try:
                    failure = self._run(consumer._try_dead_letters(begins, bad))
                except BaseException:
                    consumer._give_back((partition, offset, None) for partition, offset in begins.items())
                    raise
                if failure is not None:
                    return consumer.table_before(taken, key_serde, value_serde, failure)
            if table.num_rows:
                return table

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        consumer = self._async
        while not consumer._closed:
            consumer._in_hand = self.poll(1.0)[::-1]
            # Behind a condition of `while` the interpreter may let another thread pause, which takes the records away.
            while True:
                if not (in_hand := consumer._in_hand):
                    break
                record = in_hand[-1]
                # Ctrl-C may come behind a call, as of `pop`: the record would be gone, and not yielded.
                del in_hand[-1]
                yield record

    # ---- positions and offsets

    def seek(self, partition: TopicPartition, offset: int | CommittedOffset) -> None:
        """Move the position: the next poll, or the next step of an iteration, starts at `offset`.

        For a `CommittedOffset` with a leader epoch, the client first asks the leader whether its log was truncated
        below that offset (KIP-320). OttlaError for a negative offset or a partition that is not assigned.
        """
        self._thread.run(self._async.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Move to the first record of these partitions (default: all assigned)."""
        self._thread.run(self._async.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Move to the end of these partitions (default: all assigned), to read only new records."""
        self._thread.run(self._async.seek_to_end(partitions))

    def seek_to_committed(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Move to the group's committed offsets of these partitions (default: all assigned).

        After an aborted transaction, that is where its records begin. auto.offset.reset applies to a partition without
        a committed offset.
        """
        self._thread.run(self._async.seek_to_committed(partitions))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that a poll returns."""
        return self._thread.run(self._async.position(partition))

    def lag(self, partition: TopicPartition) -> int | None:
        """The number of records still to read, as of the last fetch; None before the first fetch."""
        return self._thread.run(self._async.lag(partition))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        self._thread.run(self._async.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._thread.run(self._async.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._async.paused()

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        """Look up offsets by timestamp (milliseconds since 1970-01-01 UTC).

        Returns, for each partition, (offset, timestamp) of its first record at or after the given time, or None if
        there is no such record.
        """
        return self._thread.run(self._async.offsets_for_times(times))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of each partition's first record."""
        return self._thread.run(self._async.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after each partition's last record (with read_committed, its last stable offset)."""
        return self._thread.run(self._async.end_offsets(partitions))

    def partitions_for(self, topic: str) -> list[int]:
        """The partition numbers of a topic."""
        return self._thread.run(self._async.partitions_for(topic))

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets to the group and wait until the coordinator has confirmed.

        `offsets` is None for the current positions, a mapping from partition to the offset of the next record to read,
        or a record, to commit its partition up to and including it. KafkaError if the group has rebalanced: nothing was
        committed then. OttlaError without group.id.
        """
        self._thread.run(self._async.commit(offsets))

    def commit_async(self, offsets: Offsets | None = None, told: Callable[[Failure], Any] | None = None) -> None:
        """Commit as `commit` does, without waiting: by default the positions at this call.

        `told(error)` is called on the client's loop when the commit ends, with None on success; an exception from it is
        logged. Without `told`, a failure is logged.
        """
        if offsets is None:
            # Not on the loop, which may run after the program's next poll has moved the positions on.
            offsets = self._async.next_offsets()
        # The caller does not see what is raised on the loop.
        offsets_of(offsets)
        self._thread.submit(self._async.commit_and_report(offsets, told))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """The group's committed offset of each partition; None where there is none."""
        return self._thread.run(self._async.committed(partitions))

    def group_metadata(self) -> GroupMetadata:
        """This member's identity in its group, for a producer's `send_offsets`."""
        return self._async.group_metadata()

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record for each partition whose position is known."""
        return self._async.positions()

    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that `commit()` would commit: positions, with the leader epoch of the record before each."""
        return self._async.next_offsets()

    def metrics(self) -> ConsumerMetrics:
        """A snapshot of the consumer's metrics, under Kafka's names."""
        return self._async.metrics()

    def close(self) -> None:
        """Commit the consumed offsets (with auto-commit), leave the group and close the connections."""
        self._run(self._async.close())

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
