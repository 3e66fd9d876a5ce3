"""The asyncio consumer. `consumer.sync.Consumer` is the synchronous form.

Rules:
- `position` is the next record that a poll returns to the program.
- Partitions are assigned and revoked only within polls, which also call the listener.

KIPs: 62, 345, 429, 848 (groups), 392 (nearest replica), 98 (read_committed).
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.loop_thread import needs_loop
from ottla.client.connection.telemetry import TelemetryPush
from ottla.client.consumer.commit import CommitCalls
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.handing_out import RecordCalls, consumer_tracing, starts_of
from ottla.client.consumer.listener import RebalanceListener
from ottla.client.consumer.metric import ConsumerMeter, ConsumerMetrics, consumer_points
from ottla.client.consumer.position import PartitionPosition
from ottla.client.consumer.positioning import PositionCalls
from ottla.client.consumer.subscription import SubscriptionCalls, call_here
from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.group import Group, end_timeout_ms
from ottla.client.settings.consumer import ConsumerSettings
from ottla.columns.record import ConsumerRecord
from ottla.kernel.argument import needs_arrow, serde_of, wait_ms, whole
from ottla.kernel.client_error import ClientClosed, RecordDeserializationError
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.typevar import K, V
from ottla.settings.client.schema import Given

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.decode import DeadLetters
    from ottla.client.settings.option import ConsumerOptions
    from ottla.serde.serde import Serde

T = TypeVar("T")


class AsyncConsumer(RecordCalls, CommitCalls, PositionCalls, SubscriptionCalls, Generic[K, V]):
    """A Kafka consumer for asyncio.

    Create it on a running loop; `async with` or `close` ends it.

    >>> async with AsyncConsumer("127.0.0.1:9092", group_id="g") as consumer:
    ...     consumer.subscribe(["flights"])
    ...     async for record in consumer:
    ...         print(record.value)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ConsumerOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """
        needs_loop("AsyncConsumer")
        self.settings = ConsumerSettings.read(settings, cast(Mapping[str, object], keywords))
        self._lock = threading.Lock()
        self._cluster = Cluster(self.settings)
        self._positions: dict[TopicPartition, PartitionPosition] = {}
        self.meter = ConsumerMeter(now_ms())
        self._fetcher = Fetcher(self._cluster, self.settings, self._positions, self._lock, self.meter)
        self._fetcher.on_data.append(self.something_to_do)
        self._fetcher.topics_in_use = self.topics_in_use
        self._group: Group | None = None
        self._names: frozenset[str] = frozenset()
        self._existence_checked: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | str | None = None
        self._listener: RebalanceListener | None = None
        self._known_topics: frozenset[str] | None = None
        self._waiting: asyncio.Future[None] | None = None
        #: The lookup of positions in progress, and the partitions that lacked one when it began.
        self._lookup: asyncio.Task[None] | None = None
        self._looked_up: set[TopicPartition] = set()
        #: Partitions whose position was not found at the last lookup, and when to look again.
        self._lookup_failed: set[TopicPartition] = set()
        self._next_lookup_ms = 0
        self._closed = False
        self._committing: asyncio.Task[None] | None = None
        self._commits: set[asyncio.Task[Any]] = set()
        self._committed_at_ms = now_ms()
        self._first_index = 0
        #: Polled records that an iteration has not yielded yet, the next one last.
        self._in_hand: list[ConsumerRecord[K, V]] = []
        self._dead_letters: DeadLetters | None = None
        self._held: Mapping[TopicPartition, int] = {}
        #: Calls a listener's method; the synchronous consumer replaces it to call in the program's thread.
        self._call: Callable[[Callable[..., Any], list[TopicPartition]], Awaitable[None]] = call_here
        self._cluster.on_update.append(self._on_metadata)
        self._tracing = consumer_tracing(self.settings)
        self._telemetry = TelemetryPush(
            self._cluster,
            lambda: consumer_points(self.metrics(), self._cluster),
            self._labels,
            enabled=self.settings.enable_metrics_push,
        )

    # ---- records

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Return the next records, or an empty list if none arrive within `timeout` seconds.

        At most `max_records` records are returned (default: max.poll.records). Raises RecordDeserializationError at a
        record that a deserializer cannot read, once all records before it were returned (see on.decode.error);
        KafkaError for an error of the broker; OttlaError without a subscription or assignment.
        """
        deadline_ms = now_ms() + wait_ms(timeout)
        count = self.records_max(max_records)
        while True:
            raw = await self._next(max(0, deadline_ms - now_ms()), self.take, count)
            records, bad = self.read(raw)
            if bad:
                with self.given_back(raw):
                    failure = await self._try_dead_letters(starts_of(raw), bad)
                if failure is not None:
                    return self.records_before(records, bad, failure)
            if records or not raw:
                self.polled_records(records)
                return records

    def polled_records(self, records: list[ConsumerRecord[K, V]]) -> None:
        """Note that a poll returns these records to the program."""
        if self._tracing is not None:
            self._tracing.received(records)

    def records_max(self, max_records: int | None) -> int:
        """The most records that a poll returns."""
        return self.settings.max_poll_records if max_records is None else whole(max_records, "max_records", 1)

    async def _try_dead_letters(
        self, starts: Mapping[TopicPartition, int], bad: list[RecordDeserializationError]
    ) -> OttlaError | None:
        try:
            await self.write_dead_letters(starts, bad)
        except OttlaError as error:
            return error
        return None

    async def poll_table(
        self,
        timeout: float = 1.0,
        *,
        max_records: int = 1_000_000,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> pyarrow.Table:
        """Return the next records as a pyarrow Table, or an empty one if none arrive within `timeout` seconds.

        The table has about `max_records` rows at most, and the columns topic, partition, offset, timestamp, key, value
        and headers. Positions and commits advance as with `poll`. Keys and values are binary, or of the type that
        `key_serde` and `value_serde` read (see `ottla.client.serde`); the deserializers of the settings do not apply.
        The table ends before a value that cannot be read, and the next poll raises RecordDeserializationError until the
        program seeks past it, unless on.decode.error says otherwise. Needs the extra ottla[arrow].
        """
        needs_arrow("poll_table")
        serde_of(key_serde, "key_serde")
        serde_of(value_serde, "value_serde")
        deadline_ms = now_ms() + wait_ms(timeout)
        count = self.records_max(max_records)
        while True:
            taken = await self._next(max(0, deadline_ms - now_ms()), self.take_bytes, count)
            table, bad = self.table(taken, key_serde, value_serde)
            if bad:
                starts = {fetch.partition: fetch.offset for fetch in taken}
                try:
                    failure = await self._try_dead_letters(starts, bad)
                except BaseException:
                    self._give_back((partition, offset, None) for partition, offset in starts.items())
                    raise
                if failure is not None:
                    return self.table_before(taken, key_serde, value_serde, failure)
            if table.num_rows or not taken:
                return table

    async def _next(self, timeout_ms: int, take: Callable[[int], list[T]], records_max: int) -> list[T]:
        """Maintain the consumer and return what `take` returns, waiting up to `timeout_ms` for something."""
        self.return_in_hand()
        deadline_ms = self.polled() + timeout_ms
        while True:
            futures = await self._maintain()
            taken = take(records_max)
            if taken:
                return taken
            left_ms = deadline_ms - now_ms()
            if left_ms <= 0:
                # A program that never waits must let the loop work.
                await asyncio.sleep(0)
                return []
            await self._wait(left_ms, *futures)

    def polled(self) -> int:
        """Note that the program polls, which proves it alive to the group. Returns the time."""
        now = now_ms()
        self.meter.polled(now)
        if self._group is not None:
            self._group.polled_at_ms = now
        return now

    def metrics(self) -> ConsumerMetrics:
        """A snapshot of the consumer's metrics, under Kafka's names."""
        nodes = self._cluster.node_metrics()
        with self._lock:
            return self.meter.snapshot(self._positions, nodes, stable=self.settings.read_committed, now_ms=now_ms())

    def _labels(self) -> dict[str, str]:
        """The labels of this client's pushed metrics."""
        settings = self.settings
        return {
            "client_rack": settings.client_rack,
            "group_id": settings.group_id or "",
            "group_instance_id": settings.group_instance_id or "",
            "group_member_id": "" if self._group is None else self._group.identity()[0],
        }

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        while not self._closed:
            records = await self.poll(1.0)
            records.reverse()
            self._in_hand = records
            while self._in_hand:
                yield self._in_hand.pop()

    # ---- a poll's duties

    async def _maintain(self) -> list[asyncio.Future[None]]:
        """Handle errors, commits, membership and positions. Returns the futures to wait for beside data."""
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._fetcher.refusal is not None:
            refusal, self._fetcher.refusal = self._fetcher.refusal, None
            raise refusal
        if self._cluster.metadata.untold:
            self._cluster.raise_refused(self._names.union(partition.topic for partition in self._positions))
        joining = None
        self._auto_commit()
        if self._group is not None and self._has_subscription():
            if self._group.busy:
                joining = await self._group.poll()
        elif not self._positions:
            raise OttlaError("this consumer has no topics to read: subscribe or assign first")
        lookup = self._look_up()
        self._fetcher.all_positioned = not self._without_position()
        self._fetcher.wake()
        return [future for future in (joining, lookup) if future is not None]

    def _look_up(self) -> asyncio.Task[None] | None:
        """Look up missing positions; returns the lookup in progress, if any, or raises the error of the last one.

        A lookup goes on after its poll: polls that are shorter than an answer takes find what it has found.
        """
        missing = self._without_position()
        if self._lookup is not None and not (missing and missing <= self._looked_up):
            self.cancel_lookup()
        if self._lookup is None:
            if not missing or (now_ms() < self._next_lookup_ms and missing <= self._lookup_failed):
                return None
            self._looked_up = missing
            self._lookup = asyncio.get_running_loop().create_task(self._find_missing())
        if not self._lookup.done():
            return self._lookup
        lookup, self._lookup = self._lookup, None
        lookup.result()
        return None

    async def _find_missing(self) -> None:
        await self.warn_of_missing({partition.topic for partition in self._positions})
        await self._find_positions(now_ms() + self.settings.default_api_timeout_ms, as_available=True)
        self._lookup_failed = self._without_position()
        self._next_lookup_ms = now_ms() + self.settings.retry_backoff_ms

    def cancel_lookup(self) -> None:
        """Drop the lookup of positions, and its error."""
        lookup, self._lookup = self._lookup, None
        if lookup is not None and not lookup.cancel() and not lookup.cancelled():
            lookup.exception()

    def _without_position(self) -> set[TopicPartition]:
        """The partitions that need a position."""
        return {
            partition
            for partition, state in self._positions.items()
            if state.position is None and state.reset is not None
        }

    @property
    def needs_no_upkeep(self) -> bool:
        """Would a poll only take buffered records, with no membership, position or commit work?"""
        return (
            not self._closed
            and self._fetcher.all_positioned
            and not self._cluster.metadata.untold
            and (self._group is None or not self._has_subscription() or not self._group.busy)
            and not (
                self.settings.enable_auto_commit
                and now_ms() - self._committed_at_ms >= self.settings.auto_commit_interval_ms
            )
        )

    async def _wait(self, left_ms: int, *futures: asyncio.Future[None]) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        waits: set[asyncio.Future[Any]] = {self._waiting, *futures}
        # Wake up to retry the lookup of missing positions.
        pause_ms = left_ms
        if any(state.position is None for state in self._positions.values()):
            pause_ms = min(left_ms, self.settings.retry_backoff_ms)
        with nullcontext() if self._group is None else self._group.poll_waits():
            await asyncio.wait(waits, timeout=pause_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        self._waiting = None

    def something_to_do(self) -> None:
        """Wake a waiting poll. On the loop only."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _outsider(self) -> Group:
        return ClassicGroupMember(self._cluster, self.settings, self)

    # ---- the end

    async def close(self) -> None:
        """Commit the consumed offsets (with auto-commit), leave the group and close the connections.

        It first waits for asynchronous commits. Brokers that do not answer hold it up for request.timeout.ms, but at
        most for 30 seconds.
        """
        if self._closed:
            return
        timeout_ms = end_timeout_ms(self.settings)
        deadline_ms = now_ms() + timeout_ms
        try:
            commits = self._commits.union(() if self._committing is None else [self._committing])
            if commits:
                await asyncio.wait(commits, timeout=timeout_ms / 1000)
            if self._committing is not None:
                self._committing.cancel()
            if self._group is not None:
                await self._leave(self._group, "the consumer was closed", deadline_ms)
        finally:
            self._closed = True
            self.return_in_hand()
            self.cancel_lookup()
            self._fetcher.close()
            self.something_to_do()
            try:
                await self._fetcher.end_sessions(deadline_ms - now_ms())
            finally:
                if self._dead_letters is not None:
                    await self._dead_letters.close()
                await self._telemetry.close()
                await self._cluster.close()

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
