"""A consumer of a share group (KIP-932): many members read the same partitions, each record goes to one of them at a
time, and each is acknowledged on its own. `share_consumer_sync.ShareConsumer` is the same for code that does not await.

Rules:
- A poll gives records that are locked for this member (`lock_timeout_ms`); what is not acknowledged in time goes to
  another, as often as the group's settings allow.
- Implicit mode: the next poll or commit accepts what the last poll gave. Explicit mode (`share.acknowledgement.mode`):
  the program says what becomes of each record before the next poll.
- An iteration has one record in hand at a time; those that it does not reach are released.
- A record that a deserializer cannot read is released and its error raised, or (on.decode.error) rejected: left out, or
  written to a dead letter topic first.
- What is not acknowledged when the consumer is closed is released.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast

from ottla.client.acknowledgement import Acknowledge, Acknowledgements, ShareRecord
from ottla.client.checked import checked
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.loop_thread import needs_loop
from ottla.client.connection.telemetry import TelemetryPush, connection_points
from ottla.client.consumer.handing_out import consumer_tracing
from ottla.client.settings.share import ShareConsumerSettings
from ottla.client.share.fetcher import ShareFetcher
from ottla.client.share.group import ShareGroupMember
from ottla.kernel.argument import topic_names, wait_ms
from ottla.kernel.client_error import ClientClosed, RecordDeserializationError, RequestTimedOut
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.typevar import K, V
from ottla.settings.client.schema import Given

if TYPE_CHECKING:
    from ottla.client.decode import DeadLetters
    from ottla.client.settings.option import ShareConsumerOptions

_log = logging.getLogger("ottla.client")
#: Called with a partition, its offsets, and why they were not acknowledged (None: they were).
Acknowledged = Callable[[TopicPartition, list[int], KafkaError | None], Any]


class AsyncShareConsumer(Generic[K, V]):
    """A share consumer for asyncio. Made on a running loop; `async with` or `close` ends it.

    >>> async with AsyncShareConsumer("127.0.0.1:9092", group_id="workers") as consumer:
    ...     consumer.subscribe(["jobs"])
    ...     async for record in consumer:
    ...         print(record.value, record.delivery_count)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ShareConsumerOptions]) -> None:
        """`settings`: host:port, several of these, or a mapping by Kafka's names; keywords: settings in snake_case.

        docs/reference/client-settings.md has them all. OttlaError for an unknown name or a value that does not fit.
        """
        needs_loop("AsyncShareConsumer")
        self.settings = ShareConsumerSettings.read(settings, cast(Mapping[str, object], keywords))
        self.explicit = self.settings.share_acknowledgement_mode == "explicit"
        #: Called on the loop for what was sent and answered; a failure is also in what `commit` returns.
        #: The next poll raises what it raises.
        self.on_acknowledged: Acknowledged | None = None
        self.lock = threading.Lock()
        self.acknowledgements = Acknowledgements(explicit=self.explicit)
        self._cluster = Cluster(self.settings)
        self._fetcher = ShareFetcher(self._cluster, self.settings, self.acknowledgements, self.lock, self._told)
        self._fetcher.on_data.append(self.something_to_do)
        self._group: ShareGroupMember | None = None
        self._names: frozenset[str] = frozenset()
        self._waiting: asyncio.Future[None] | None = None
        self._outcomes: dict[TopicPartition, KafkaError | None] = {}
        self._closed = False
        self._dead_letters: DeadLetters | None = None
        self._tracing = consumer_tracing(self.settings)
        self._telemetry = TelemetryPush(
            self._cluster,
            lambda: connection_points("consumer", self._cluster, self._cluster.node_metrics()),
            lambda: {"client_rack": self.settings.client_rack, "group_id": self.settings.group_id or ""},
            enabled=self.settings.enable_metrics_push,
        )

    # ---- what to read

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics with the other members of `group.id`. It replaces the last subscription."""
        self._names = frozenset(topic_names(topics))
        if self._group is None:
            self._group = ShareGroupMember(self._cluster, self.settings, self)
            self._fetcher.member_id = self._group.membership.member_id
        else:
            self._group.subscription_changed()

    async def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        if self._group is not None:
            await self._settle(self.settings.default_api_timeout_ms)
            await self.revoke(set(self._fetcher.assigned))
            await self._group.leave("the consumer unsubscribed")
            await self._group.close()
            self._group = None
        self._names = frozenset()

    def subscription(self) -> set[str]:
        """The topics subscribed to."""
        return set(self._names)

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record stays locked for this member; None before the first was given."""
        return self._fetcher.lock_timeout_ms

    # ---- records

    async def poll(self, timeout: float = 1.0) -> list[ShareRecord[K, V]]:
        """The next records, about max.poll.records at most; an empty list if none come within `timeout` seconds."""
        deadline_ms = now_ms() + wait_ms(timeout)
        with self.lock:
            self.acknowledgements.settle(for_poll=True)
        self._fetcher.hungry = True
        try:
            while True:
                joining = await self._maintain()
                if found := await self._take():
                    if self._tracing is not None:
                        self._tracing.received(found)
                    return found
                left_ms = deadline_ms - now_ms()
                if left_ms <= 0:
                    return []
                await self._wait(left_ms, joining)
        finally:
            self._fetcher.hungry = False
            self._fetcher.wake()

    async def _take(self) -> list[ShareRecord[K, V]]:
        fetcher = self._fetcher
        while True:
            if fetcher.error is not None and not fetcher.records:
                error, fetcher.error = fetcher.error, None
                raise error
            with self.lock:
                raw = fetcher.records[: self.settings.max_poll_records]
                del fetcher.records[: len(raw)]
            given = await self._read(raw)
            with self.lock:
                self.acknowledgements.give(given)
            if given or not raw:
                return given

    async def _read(self, raw: list[ShareRecord[K, V]]) -> list[ShareRecord[K, V]]:
        """The records through the deserializers; `on.decode.error` says what becomes of the others."""
        if self.settings.key_deserializer is None and self.settings.value_deserializer is None:
            return raw
        from ottla.client.decode import DeadLetters, decode, skipped

        good: list[ShareRecord[K, V]] = []
        bad: list[RecordDeserializationError] = []
        try:
            good, bad = decode(raw, self.settings)
            if not bad:
                return good
            if self.settings.on_decode_error == "raise":
                return self._before(raw, good, bad[0])
            if self.settings.on_decode_error == "skip":
                skipped(bad)
            else:
                if self._dead_letters is None:
                    self._dead_letters = DeadLetters(self.settings)
                await self._dead_letters.write(bad)
        except OttlaError as error:
            if bad and error is bad[0]:
                raise
            self._say(bad, Acknowledge.RELEASE)
            if not good:
                raise
            self._fetcher.error = error
            return good
        except BaseException:
            with self.lock:
                self._fetcher.records[:0] = raw
            raise
        self._say(bad, Acknowledge.REJECT)
        return good

    def _before(
        self, raw: list[ShareRecord[K, V]], good: list[ShareRecord[K, V]], error: RecordDeserializationError
    ) -> list[ShareRecord[K, V]]:
        """The records before the first that cannot be read; that one is released when its error is raised."""
        place = next(at for at, one in enumerate(raw) if one[:3] == (error.topic, error.partition, error.offset))
        with self.lock:
            self._fetcher.records[:0] = raw[place if place else 1 :]
        if place:
            return good[:place]
        self._say([error], Acknowledge.RELEASE)
        error.args = (f"{error.summary}; it was released, to be delivered again as often as its group allows",)
        raise error

    def _say(self, bad: list[RecordDeserializationError], word: Acknowledge) -> None:
        with self.lock:
            for error in bad:
                self.acknowledgements.acknowledge_unseen(error.topic_partition, [error.offset], word)

    def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ShareRecord[K, V]]:
        while not self._closed:
            with closing(self.one_by_one(await self.poll(1.0))) as records:
                for record in records:
                    yield record

    def one_by_one(self, records: list[ShareRecord[K, V]]) -> Generator[ShareRecord[K, V], None, None]:
        """Give what a poll found one at a time: what an iteration does not reach is released, and never accepted."""
        left = records[::-1]
        with self.lock:
            self.acknowledgements.withdraw(left)
        try:
            while left and not self._closed:
                with self.lock:
                    self.acknowledgements.give(left[-1:])
                yield left.pop()
        finally:
            self._release(left)

    async def give_back(self, records: list[ShareRecord[K, V]]) -> None:
        """A poll ended with these, and its caller was interrupted: they are released."""
        self._release(records)
        self._fetcher.wake()

    def _release(self, records: list[ShareRecord[K, V]]) -> None:
        with self.lock:
            self.acknowledgements.withdraw(records)
            for one in records:
                self.acknowledgements.acknowledge_unseen(
                    TopicPartition(one.topic, one.partition), [one.offset], Acknowledge.RELEASE
                )

    # ---- acknowledgements

    @checked
    def acknowledge(self, record: ShareRecord, word: Acknowledge = Acknowledge.ACCEPT) -> None:
        """Say what becomes of a record. It is sent with the next poll or commit; until then the last word counts."""
        with self.lock:
            self.acknowledgements.acknowledge(TopicPartition(record.topic, record.partition), record.offset, word)

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged (in implicit mode: accept what the last poll gave), and wait for the answers.

        By partition the error of those that were not taken, None for the others.
        """
        return await self._settle(self.settings.default_api_timeout_ms)

    async def _settle(self, timeout_ms: int) -> dict[TopicPartition, KafkaError | None]:
        with self.lock:
            self.acknowledgements.settle(for_poll=False)
        self._outcomes = {}
        self._fetcher.wake()
        deadline_ms = now_ms() + timeout_ms
        while not self._fetcher.idle:
            left_ms = deadline_ms - now_ms()
            if left_ms <= 0:
                raise RequestTimedOut(f"acknowledgements were not answered within {timeout_ms} ms")
            await self._wait(left_ms, None)
        found, self._outcomes = self._outcomes, {}
        return found

    def _told(self, partition: TopicPartition, offsets: list[int], error: KafkaError | None) -> None:
        self._outcomes[partition] = self._outcomes.get(partition) or error
        if self.on_acknowledged is not None:
            try:
                self.on_acknowledged(partition, offsets, error)
            except Exception as failure:
                # What else the answer holds is still to be taken in. As in Java's client, the next poll raises it.
                self._fetcher.error = failure

    # ---- a poll's duties

    async def _maintain(self) -> asyncio.Future[None] | None:
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._group is None:
            raise OttlaError("this consumer reads nothing: subscribe first")
        joining = None
        self._group.polled_at_ms = now_ms()
        if self._group.busy:
            joining = await self._group.poll()
        self._fetcher.wake()
        return joining

    async def _wait(self, left_ms: int, joining: asyncio.Future[None] | None) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        waits: set[asyncio.Future[Any]] = {self._waiting}
        if joining is not None:
            waits.add(joining)
        await asyncio.wait(waits, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        self._waiting = None

    # ---- what the group asks of us

    def something_to_do(self) -> None:
        """A poll that waits should look again. On the loop only."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def subscribed(self) -> set[str]:
        """The topics of the subscription."""
        self._cluster.metadata.want(self._names, now_ms())
        return set(self._names)

    def pattern_text(self) -> str | None:
        """Share groups know no patterns."""
        return None

    def owned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._fetcher.assigned)

    async def before_revoke(self) -> None:
        """Nothing: records of a partition that goes can still be acknowledged."""

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        """They go. What was not given to the program is released."""
        with self.lock:
            left = [one for one in self._fetcher.records if TopicPartition(one.topic, one.partition) in partitions]
            self._fetcher.records = [one for one in self._fetcher.records if one not in left]
            self._fetcher.assigned -= partitions
            for one in left:
                self.acknowledgements.acknowledge_unseen(
                    TopicPartition(one.topic, one.partition), [one.offset], Acknowledge.RELEASE
                )
        self._fetcher.wake()

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        """They come. Topics that are gone since then are not waited for: that would stop the others."""
        with self.lock:
            self._fetcher.assigned |= partitions
        self._fetcher.wake()

    # ---- the end

    async def close(self) -> None:
        """Send what was acknowledged, release the rest, leave the group, close the connections."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._group is not None:
                try:
                    if self.explicit:
                        await self._settle(self.settings.request_timeout_ms)
                    await self._fetcher.finish()
                finally:
                    await self._group.leave("the consumer was closed")
                    await self._group.close()
        finally:
            self._fetcher.close()
            self.something_to_do()
            if self._fetcher.error is not None:
                _log.warning("closed before the next poll could raise: %s", self._fetcher.error)
            if self._dead_letters is not None:
                await self._dead_letters.close()
            await self._telemetry.close()
            await self._cluster.close()

    async def __aenter__(self) -> AsyncShareConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
