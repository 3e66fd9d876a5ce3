"""The consumer for asyncio. `consumer_sync.Consumer` is the same for code that does not await.

Rules:
- `position` is the next record that the program gets.
- Partitions come and go only within polls; the listener is called there.

KIPs: 62, 345, 429, 848 (groups), 392 (nearest replica), 98 (read_committed).
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.clock import now_ms
from ottla.client.cluster import Cluster
from ottla.client.consumer_commit import CommitCalls
from ottla.client.consumer_metric import ConsumerMeter, ConsumerMetrics
from ottla.client.consumer_position import PositionCalls
from ottla.client.consumer_setting import ConsumerSettings
from ottla.client.error import ClientClosed
from ottla.client.fetcher import Fetcher
from ottla.client.group import Group
from ottla.client.group_classic import ClassicGroup
from ottla.client.group_consumer import ConsumerGroup
from ottla.client.listener import RebalanceListener
from ottla.client.position import PartitionPosition
from ottla.client.record import ConsumerRecord
from ottla.client.setting import Given
from ottla.kernel.error import OttlaError
from ottla.kernel.name import INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from ottla.client.serde import Serde
    from ottla.client.table import Taken

T = TypeVar("T")


class AsyncConsumer(CommitCalls, PositionCalls):
    """A consumer for asyncio. Made on a running loop; `async with` or `close` ends it.

    >>> async with AsyncConsumer("127.0.0.1:9092", group_id="g") as consumer:
    ...     consumer.subscribe(["flights"])
    ...     async for record in consumer:
    ...         print(record.value)
    """

    def __init__(self, settings: Given = None, /, **keywords: object) -> None:
        self.settings = ConsumerSettings.read(settings, keywords)
        self._lock = threading.Lock()
        self._cluster = Cluster(self.settings)
        self._positions: dict[TopicPartition, PartitionPosition] = {}
        self.meter = ConsumerMeter(now_ms())
        self._fetcher = Fetcher(self._cluster, self.settings, self._positions, self._lock, self.meter)
        self._fetcher.on_data.append(self.something_to_do)
        self._group: Group | None = None
        self._names: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | str | None = None
        self._listener: RebalanceListener | None = None
        self._known_topics: frozenset[str] = frozenset()
        self._waiting: asyncio.Future[None] | None = None
        self._closed = False
        self._committing: asyncio.Task[None] | None = None
        self._committed_at_ms = now_ms()
        self._turn = 0
        #: Records that an iteration has in hand, the next one last.
        self._in_hand: list[ConsumerRecord] = []
        #: How a listener's method is called; the synchronous consumer calls it in the program's thread.
        self._call: Callable[[Callable[..., Any], list[TopicPartition]], Awaitable[None]] = _call_here
        self._cluster.on_update.append(self._metadata_came)

    # ---- what to read

    def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics, or those whose names match a compiled pattern, as a member of `group.id`.

        It replaces the last subscription. With group.protocol=consumer, `"^..."` is a pattern that the broker resolves.
        """
        if self.settings.group_id is None:
            raise OttlaError("subscribe needs group.id; without a group, assign partitions")
        if self._positions and self._group is None:
            raise OttlaError("this consumer has assigned partitions: unsubscribe first")
        self._listener = listener
        if isinstance(topics, re.Pattern) or (isinstance(topics, str) and topics.startswith("^")):
            self._pattern, self._names = topics, frozenset()
            self._cluster.metadata.all_topics = True
        else:
            self._pattern, self._names = None, frozenset([topics] if isinstance(topics, str) else topics)
            self._cluster.metadata.all_topics = False
        if self._group is None:
            kind = ConsumerGroup if self.settings.group_protocol == "consumer" else ClassicGroup
            self._group = kind(self._cluster, self.settings, self)
        else:
            self._group.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's help; commits still go to group.id if there is one."""
        if self._group is not None and self._names | frozenset([self._pattern] if self._pattern else []):
            raise OttlaError("this consumer has subscribed: unsubscribe first")
        wanted = [TopicPartition(*one) for one in partitions]
        with self._lock:
            for gone in set(self._positions) - set(wanted):
                del self._positions[gone]
            for one in wanted:
                self._positions.setdefault(one, PartitionPosition(one))
        self._cluster.metadata.want({one.topic for one in wanted}, now_ms())
        if self.settings.group_id is not None and self._group is None:
            self._group = ClassicGroup(self._cluster, self.settings, self)
        self.something_to_do()

    async def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        if self._group is not None:
            if self._subscribed_at_all():
                await self.before_revoke()
                await self.revoke(set(self._positions))
                await self._group.leave("the consumer unsubscribed")
            await self._group.close()
            self._group = None
        with self._lock:
            self._positions.clear()
        self._names, self._pattern, self._listener = frozenset(), None, None
        self._cluster.metadata.all_topics = False

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._positions)

    def subscription(self) -> set[str]:
        """The topics subscribed to, a pattern resolved as far as the metadata is known."""
        return self._matching() if self._pattern is not None else set(self._names)

    # ---- records

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most max.poll.records; an empty list if there are none within `timeout` seconds."""
        return await self._next(timeout, self.take, max_records or self.settings.max_poll_records)

    async def _next(self, timeout: float, take: Callable[[int], list[T]], records_max: int) -> list[T]:
        """What `take` finds, as soon as it finds something; with all of a poll's duties."""
        self._in_hand = []
        deadline_ms = self.polled() + int(timeout * 1000)
        while True:
            joining = await self._maintain(deadline_ms)
            found = take(records_max)
            if found:
                self._fetcher.wake()
                return found
            left_ms = deadline_ms - now_ms()
            if left_ms <= 0:
                return []
            await self._wait(left_ms, joining)

    def polled(self) -> int:
        """The program has asked for records: it lives. Gives the time."""
        now = now_ms()
        self.meter.polled(now)
        if self._group is not None:
            self._group.polled_at_ms = now
        return now

    def metrics(self) -> ConsumerMetrics:
        """What the consumer has measured of itself, by Kafka's names."""
        nodes = self._cluster.node_metrics()
        with self._lock:
            return self.meter.snapshot(self._positions, nodes, stable=self.settings.read_committed, now_ms=now_ms())

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Records that are here already. It does not wait, and does none of a poll's other duties."""
        found: list[ConsumerRecord] = []

        def some(state: PartitionPosition, left: int) -> int:
            nonlocal found
            records = state.take(left)
            found = found + records if found else records
            return len(records)

        self._take_in_turn(records_max, some)
        if found and (self.settings.key_deserializer or self.settings.value_deserializer):
            return [self._decoded(record) for record in found]
        return found

    def _take_in_turn(self, records_max: int, some: Callable[[PartitionPosition, int], int]) -> None:
        """Call `some(partition, at most)` for each that has records; the next poll begins where this one ended.

        It returns how many it took. A partition's error is raised when nothing was taken before it.
        """
        left = records_max
        now = now_ms()
        with self._lock:
            states = list(self._positions.values())
            for step in range(len(states)):
                place = (self._turn + step) % len(states)
                state = states[place]
                if state.error is not None:
                    if left < records_max:
                        break
                    state.raise_error()
                if state.has_records:
                    taken = some(state, left)
                    self.meter.topic(state.partition.topic, now).records.record(taken, now)
                    left -= taken
                    if left == records_max:
                        state.raise_error()
                    if left <= 0:
                        self._turn = (place + 1) % len(states)
                        break
        if left < records_max:
            self.meter.consumed(records_max - left, now)

    def _decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        key, value = record.key, record.value
        try:
            if key is not None and self.settings.key_deserializer is not None:
                key = self.settings.key_deserializer(key)
            if value is not None and self.settings.value_deserializer is not None:
                value = self.settings.value_deserializer(value)
        except Exception as error:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            with self._lock:
                state = self._positions.get(TopicPartition(record.topic, record.partition))
                if state is not None:
                    state.seek(record.offset)
            raise OttlaError(f"{where} cannot be decoded ({error}): seek past it to go on") from error
        return record._replace(key=key, value=value)

    async def poll_table(
        self,
        timeout: float = 1.0,
        *,
        max_records: int = 1_000_000,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> Any:
        """The next records as a pyarrow Table, about `max_records` at most; an empty one if none come within `timeout`
        s.

        Columns: topic, partition, offset, timestamp, key, value, headers. It moves the positions and commits as `poll`
        does. Keys and values are binary, or what their serde reads (`ottla.client.serde`); the deserializers of the
        settings are for records. A value that cannot be read ends the table before it; the next poll raises, until the
        program seeks past it. Needs the extra ottla[arrow].
        """
        return self.table(await self._next(timeout, self.take_bytes, max_records), key_serde, value_serde)

    def take_bytes(self, records_max: int) -> list[Taken]:
        """The bytes of what is here already, as `take` gives records."""
        from ottla.client.table import take

        found: list[Taken] = []

        def some(state: PartitionPosition, left: int) -> int:
            taken = take(state, left)
            if taken is None:
                return 0
            found.append(taken)
            return taken.records

        self._take_in_turn(records_max, some)
        # The next fetch runs while these are decoded.
        self._fetcher.signal()
        return found

    def table(self, taken: list[Taken], key: Serde | None, value: Serde | None) -> Any:
        """One table of these bytes. What cannot be read is given back: the position stays before it."""
        import pyarrow as pa

        from ottla.client.table import schema, tables_of

        try:
            tables, unreadable = tables_of(taken, key, value)
        except BaseException:
            # A serde failed as a whole, or Ctrl-C: nothing of this was given.
            self._give_back((one.partition, one.offset, None) for one in taken)
            raise
        if unreadable:
            self._give_back((one.partition, one.offset, one.error if tables else None) for one in unreadable)
            if not tables:
                raise unreadable[0].error
        return pa.Table.from_batches(tables, schema(key, value))

    def _give_back(self, stops: Iterable[tuple[TopicPartition, int, Exception | None]]) -> None:
        """Go on at these offsets, after a poll that raises the error, if there is one."""
        with self._lock:
            for partition, offset, error in stops:
                state = self._positions.get(partition)
                if state is not None:
                    state.stop(offset, error)
        self._fetcher.signal()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ConsumerRecord]:
        while not self._closed:
            records = await self.poll(1.0)
            records.reverse()
            self._in_hand = records
            while self._in_hand:
                yield self._in_hand.pop()

    # ---- a poll's duties

    async def _maintain(self, deadline_ms: int) -> asyncio.Future[None] | None:
        """Membership, commits, positions. Returns what is worth waiting for beside data."""
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._fetcher.refusal is not None:
            refusal, self._fetcher.refusal = self._fetcher.refusal, None
            raise refusal
        joining = None
        self._auto_commit()
        if self._group is not None and self._subscribed_at_all():
            if self._group.busy:
                joining = await self._group.poll()
        elif not self._positions:
            raise OttlaError("this consumer reads nothing: subscribe or assign first")
        if any(state.position is None and state.reset is not None for state in self._positions.values()):
            await self._find_positions(deadline_ms)
        self._fetcher.wake()
        return joining

    @property
    def calm(self) -> bool:
        """Would a poll have nothing to do but to take records?"""
        return (
            not self._closed
            and (self._group is None or not self._subscribed_at_all() or not self._group.busy)
            and not (
                self.settings.enable_auto_commit
                and now_ms() - self._committed_at_ms >= self.settings.auto_commit_interval_ms
            )
        )

    async def _wait(self, left_ms: int, joining: asyncio.Future[None] | None) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        waits: set[asyncio.Future[Any]] = {self._waiting}
        if joining is not None:
            waits.add(joining)
        # Positions that could not be found yet are looked for again.
        pause_ms = left_ms
        if any(state.position is None for state in self._positions.values()):
            pause_ms = min(left_ms, self.settings.retry_backoff_ms)
        await asyncio.wait(waits, timeout=pause_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        self._waiting = None

    # ---- what the group asks of us

    def something_to_do(self) -> None:
        """A poll that waits should look again. On the loop only."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def subscribed(self) -> set[str]:
        """The topics of the subscription; a pattern is matched with all topics of the cluster."""
        if self._pattern is not None:
            if not self._cluster.metadata.version or self._cluster.metadata.update_due_ms() <= now_ms():
                await self._cluster.update()
            found = self._matching()
            self._known_topics = frozenset(found)
            return found
        self._cluster.metadata.want(self._names, now_ms())
        return set(self._names)

    def _matching(self) -> set[str]:
        pattern = self._pattern
        assert pattern is not None
        return {
            name
            for name in self._cluster.metadata.topics
            if re.fullmatch(pattern, name) and not (self.settings.exclude_internal_topics and name in INTERNAL_TOPICS)
        }

    def pattern_text(self) -> str | None:
        """The pattern that the broker resolves, with group.protocol=consumer."""
        return self._pattern if isinstance(self._pattern, str) else None

    def owned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._positions)

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        """They go; the listener hears of it first."""
        if not partitions:
            return
        if self._listener is not None:
            told = self._listener.lost if lost else self._listener.revoked
            await self._call(told, sorted(partitions))
        with self._lock:
            for one in partitions:
                self._positions.pop(one, None)

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        """They come; the listener hears of it when they are ours."""
        self.meter.rebalanced()
        await self._cluster.known({one.topic for one in partitions}, self.settings.default_api_timeout_ms)
        with self._lock:
            for one in sorted(partitions):
                self._positions[one] = PartitionPosition(one)
        if self._listener is not None:
            await self._call(self._listener.assigned, sorted(partitions))

    def _subscribed_at_all(self) -> bool:
        return bool(self._names) or self._pattern is not None

    def _metadata_came(self) -> None:
        if self._group is None or not self._subscribed_at_all():
            return
        changed = isinstance(self._group, ClassicGroup) and self._group.topics_changed()
        if isinstance(self._pattern, re.Pattern) and self._known_topics and self._matching() != self._known_topics:
            changed = True
        if changed:
            self._group.subscription_changed()
            self.something_to_do()

    # ---- the end

    async def close(self) -> None:
        """Commit what was consumed (with auto-commit), leave the group, close the connections."""
        if self._closed:
            return
        try:
            if self._committing is not None:
                await asyncio.gather(self._committing, return_exceptions=True)
            if self._group is not None:
                await self.before_revoke()
                if self._subscribed_at_all():
                    await self.revoke(set(self._positions))
                    await self._group.leave("the consumer was closed")
                await self._group.close()
        finally:
            self._closed = True
            self._fetcher.close()
            self.something_to_do()
            await self._cluster.close()

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _call_here(told: Callable[..., Any], partitions: list[TopicPartition]) -> None:
    result = told(partitions)
    if inspect.isawaitable(result):
        await result
