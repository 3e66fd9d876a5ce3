"""The consumer for code that does not await: `AsyncConsumer` on the loop thread, waited for.

Rules:
- One thread at a time uses a consumer: a second one that polls meanwhile is refused.
- Records that were fetched already are taken and decoded in the program's own thread, without a turn of the loop.
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
from ottla.client.connection.loop_thread import loop_thread, told_of_forks
from ottla.client.connection.one_thread import OneThread
from ottla.client.consumer.commit import Failure
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.consumer.handing_out import starts_of
from ottla.client.consumer.listener import RebalanceListener
from ottla.client.consumer.metric import ConsumerMetrics
from ottla.client.membership.commit import CommittedOffset, GroupMetadata, Offsets
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

#: A listener's call that the loop asks the program's thread to make, and how to say that it is over.
_Call = tuple[Callable[..., Any], list[TopicPartition], "asyncio.Future[None]"]


class Consumer(Generic[K, V]):
    """A consumer for threads. `with` or `close` ends it.

    >>> with Consumer("127.0.0.1:9092", group_id="g") as consumer:
    ...     consumer.subscribe(["flights"])
    ...     for record in consumer:
    ...         print(record.value)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ConsumerOptions]) -> None:
        """`settings`: host:port, several of these, or a mapping by Kafka's names; keywords: settings in snake_case.

        docs/reference/client-settings.md has them all. OttlaError for an unknown name or a value that does not fit.
        """

        async def make() -> AsyncConsumer[K, V]:
            return AsyncConsumer(settings, **keywords)

        self._one = OneThread("consumer")
        self._thread = loop_thread()
        self._half = self._thread.run(make())
        self._half._call = self._ask_program
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.settings = self._half.settings
        told_of_forks.add(self)

    def _in_child(self) -> None:
        """After a fork: polls do not go past the loop thread, which refuses them."""
        self._half._closed = True
        self._one = OneThread("consumer")

    async def _ask_program(self, told: Callable[..., Any], partitions: list[TopicPartition]) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls.put((told, partitions, over))
        await over

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`, and make the listener's calls that it asks for meanwhile."""
        if self._half._listener is None:
            return self._thread.run(work)
        # A queue for each: one that was cut short by Ctrl-C leaves its end in its own.
        calls = self._calls = queue.SimpleQueue()
        future: concurrent.futures.Future[T] = self._thread.submit(work)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                told, partitions, over = call
                error: BaseException | None = None
                try:
                    told(partitions)
                except BaseException as raised:
                    error = raised
                self._thread.loop.call_soon_threadsafe(_end, over, error)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    # ---- what to read

    def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics, or those whose names match a compiled pattern, as a member of `group.id`."""

        async def work() -> None:
            self._half.subscribe(topics, listener=listener)

        self._thread.run(work())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's help."""

        async def work() -> None:
            self._half.assign(partitions)

        self._thread.run(work())

    def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        self._run(self._half.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return self._half.assignment()

    def subscription(self) -> set[str]:
        """The topics subscribed to."""
        return self._half.subscription()

    # ---- records

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """The next records, at most max.poll.records; an empty list if there are none within `timeout` seconds.

        See `AsyncConsumer.poll`. Records are decoded in the caller's thread. OttlaError while another thread polls.
        """
        with self._one:
            return self._poll(timeout, max_records)

    def _poll(self, timeout: float, max_records: int | None) -> list[ConsumerRecord[K, V]]:
        half = self._half
        deadline_ms: int | None = None
        waits_ms = wait_ms(timeout)
        count = half.records_max(max_records)
        while True:
            raw: list[ConsumerRecord[K, V]] = []
            if half.calm:
                half._in_hand = []
                raw = half.take(count)
                if raw:
                    half.polled()
            if not raw:
                if deadline_ms is None:
                    deadline_ms = now_ms() + waits_ms
                if not self._run(half._next(max(0, deadline_ms - now_ms()), half.waiting, 1)):
                    return []
                raw = half.take(count)
            records, bad = half.read(raw)
            if bad:
                with half.given_back(raw):
                    failure = self._run(half._bury(starts_of(raw), bad))
                if failure is not None:
                    return half.before(records, bad, failure)
            if records:
                half.handed_out(records)
                return records

    def poll_table(
        self,
        timeout: float = 1.0,
        *,
        max_records: int = 1_000_000,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> pyarrow.Table:
        """The next records as a pyarrow Table, about `max_records` at most; an empty one if none come in `timeout` s.

        See `AsyncConsumer.poll_table`. Records are decoded in the caller's thread.
        OttlaError while another thread polls.
        """
        needs_arrow("poll_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        with self._one:
            return self._poll_table(timeout, max_records, key_serde, value_serde)

    def _poll_table(
        self, timeout: float, max_records: int, key_serde: Serde | None, value_serde: Serde | None
    ) -> pyarrow.Table:
        half = self._half
        deadline_ms: int | None = None
        waits_ms = wait_ms(timeout)
        count = half.records_max(max_records)
        while True:
            taken: list[Taken] = []
            if half.calm:
                half._in_hand = []
                taken = half.take_bytes(count)
                if taken:
                    half.polled()
            if not taken:
                if deadline_ms is None:
                    deadline_ms = now_ms() + waits_ms
                if not self._run(half._next(max(0, deadline_ms - now_ms()), half.waiting, 1)):
                    return half.table([], key_serde, value_serde)[0]
                taken = half.take_bytes(count)
            table, bad = half.table(taken, key_serde, value_serde)
            if bad:
                starts = {one.partition: one.offset for one in taken}
                try:
                    failure = self._run(half._bury(starts, bad))
                except BaseException:
                    half._give_back((partition, offset, None) for partition, offset in starts.items())
                    raise
                if failure is not None:
                    return half.table_before(taken, key_serde, value_serde, failure)
            if table.num_rows:
                return table

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        half = self._half
        while not half._closed:
            records = self.poll(1.0)
            records.reverse()
            half._in_hand = records
            while half._in_hand:
                yield half._in_hand.pop()

    # ---- positions and offsets

    def seek(self, partition: TopicPartition, offset: int | CommittedOffset) -> None:
        """Go on from `offset` with the next poll, or the next record of an iteration.

        Of a `CommittedOffset` with a leader epoch the leader is asked first whether its log was cut below it.
        """
        self._thread.run(self._half.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on from the first record of these partitions, or of all that are assigned."""
        self._thread.run(self._half.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on with what is written from now on."""
        self._thread.run(self._half.seek_to_end(partitions))

    def seek_to_committed(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on from what the group has committed: after an aborted transaction, where its records begin."""
        self._thread.run(self._half.seek_to_committed(partitions))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program gets."""
        return self._thread.run(self._half.position(partition))

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records are still to read, as of the last fetch; None before the first."""
        return self._thread.run(self._half.lag(partition))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Polls give nothing of these until `resume`; they stay assigned."""
        self._thread.run(self._half.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Polls give records of these again."""
        self._thread.run(self._half.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._half.paused()

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        """By partition the (offset, timestamp) of its first record at or after this time (ms); None if there is
        none.
        """
        return self._thread.run(self._half.offsets_for_times(times))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """By partition the offset of its first record."""
        return self._thread.run(self._half.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """By partition the offset after its last record."""
        return self._thread.run(self._half.end_offsets(partitions))

    def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        return self._thread.run(self._half.partitions_for(topic))

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit positions, or these offsets (of the next record to read), or all of a record's partition up to it."""
        self._thread.run(self._half.commit(offsets))

    def commit_async(self, offsets: Offsets | None = None, told: Callable[[Failure], Any] | None = None) -> None:
        """The same without waiting. `told(error)` is called on the client's loop when it is over, with None if it went
        well; without it a failure is only logged.
        """
        self._thread.submit(self._half.commit_and_tell(offsets, told))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """By partition what the group has committed, or None."""
        return self._thread.run(self._half.committed(partitions))

    def group_metadata(self) -> GroupMetadata:
        """This member of its group, for a producer's `send_offsets`."""
        return self._half.group_metadata()

    def positions(self) -> dict[TopicPartition, int]:
        """By partition the offset of the next record that the program gets, where that is known."""
        return self._half.positions()

    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """What `commit()` commits: the positions, with the leader epoch of the record before each."""
        return self._half.next_offsets()

    def metrics(self) -> ConsumerMetrics:
        """What the consumer has measured of itself, by Kafka's names."""
        return self._half.metrics()

    def close(self) -> None:
        """Commit what was consumed (with auto-commit), leave the group, close the connections."""
        self._run(self._half.close())

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(over: asyncio.Future[None], error: BaseException | None) -> None:
    if over.done():
        return
    if error is None:
        over.set_result(None)
    else:
        over.set_exception(error)
