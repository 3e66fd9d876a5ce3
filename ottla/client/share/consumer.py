"""The asyncio share consumer (KIP-932). `share.sync.ShareConsumer` is the synchronous form.

Many members of a share group read the same partitions. Each record is locked for one member at a time, and acknowledged
on its own.

Rules:
- A poll returns records that are locked for this member (`lock_timeout_ms`). A record that is not acknowledged in time
  goes to another member, as often as the group's settings allow.
- Implicit mode: the next poll or commit accepts the records of the last poll. Explicit mode
  (`share.acknowledgement.mode`): the program acknowledges each record before the next poll.
- An iteration has one record in hand at a time; records that it does not reach are released.
- A record that a deserializer cannot read is released and its error raised, or (on.decode.error) rejected: skipped, or
  first written to a dead letter topic.
- Records not acknowledged when the consumer is closed are released.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast

from ottla.client.acknowledgement import Acknowledge, Acknowledgements, ShareRecord
from ottla.client.checked import checked
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.loop_thread import needs_loop
from ottla.client.connection.telemetry import TelemetryPush, connection_points
from ottla.client.consumer.handing_out import consumer_tracing
from ottla.client.membership.group import end_timeout_ms
from ottla.client.settings.share import ShareConsumerSettings
from ottla.client.share.fetcher import Offsets, ShareFetcher
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
#: Callback for an answered acknowledgement: partition, offsets, and the error (None: acknowledged).
Acknowledged = Callable[[TopicPartition, list[int], KafkaError | None], Any]


class AsyncShareConsumer(Generic[K, V]):
    """A consumer of a share group for asyncio (KIP-932).

    Create it on a running loop; `async with` or `close` ends it.

    >>> async with AsyncShareConsumer("127.0.0.1:9092", group_id="workers") as consumer:
    ...     consumer.subscribe(["jobs"])
    ...     async for record in consumer:
    ...         print(record.value, record.delivery_count)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ShareConsumerOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """
        needs_loop("AsyncShareConsumer")
        self.settings = ShareConsumerSettings.read(settings, cast(Mapping[str, object], keywords))
        self.explicit = self.settings.share_acknowledgement_mode == "explicit"
        #: Called on the loop for each answered acknowledgement; `commit` also returns the failures.
        #: The next poll raises an exception from it.
        self.on_acknowledged: Acknowledged | None = None
        self.lock = threading.Lock()
        self.acknowledgements = Acknowledgements(explicit=self.explicit)
        self._cluster = Cluster(self.settings)
        self._fetcher = ShareFetcher(self._cluster, self.settings, self.acknowledgements, self.lock, self._on_answer)
        self._fetcher.on_data.append(self.something_to_do)
        self._cluster.on_update.append(self._on_metadata)
        self._group: ShareGroupMember | None = None
        self._names: frozenset[str] = frozenset()
        #: The futures of calls that wait: a poll, and commits of other tasks or threads beside it.
        self._waiting: set[asyncio.Future[None]] = set()
        #: The offsets that each commit in progress still waits for, and what it has been answered so far.
        self._commits: list[tuple[Offsets, dict[TopicPartition, KafkaError | None]]] = []
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
        """Read these topics with the other members of `group.id`, replacing the last subscription."""
        self._names = frozenset(topic_names(topics))
        if self._group is None:
            self._group = ShareGroupMember(self._cluster, self.settings, self)
            self._fetcher.member_id = self._group.membership.member_id
        else:
            self._group.subscription_changed()

    async def unsubscribe(self) -> None:
        """Acknowledge as `commit` does, stop reading and leave the group."""
        if self._group is not None:
            await self._settle(self.settings.default_api_timeout_ms)
            await self.revoke(set(self._fetcher.assigned))
            await self._group.end("the consumer unsubscribed", now_ms() + end_timeout_ms(self.settings))
            self._group = None
        self._names = frozenset()

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        return set(self._names)

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record stays locked for this member, in ms; None before the first answer of a broker."""
        return self._fetcher.lock_timeout_ms

    # ---- records

    async def poll(self, timeout: float = 1.0) -> list[ShareRecord[K, V]]:
        """Return the next records, or an empty list if none arrive within `timeout` seconds.

        At most max.poll.records are returned, locked for this member for `lock_timeout_ms`. In implicit mode the call
        first accepts the records of the last poll. Raises OttlaError without a subscription, or in explicit mode while
        records of the last poll are not acknowledged; RecordDeserializationError at a record that a deserializer cannot
        read (see on.decode.error); KafkaError for an error of the broker.
        """
        deadline_ms = now_ms() + wait_ms(timeout)
        with self.lock:
            self.acknowledgements.settle(for_poll=True)
        self._fetcher.poll_waits = True
        try:
            while True:
                joining = await self._maintain()
                if records := await self._take():
                    if self._tracing is not None:
                        self._tracing.received(records)
                    return records
                left_ms = deadline_ms - now_ms()
                if left_ms <= 0:
                    # The fetcher asks in this poll; a later one returns the records, if the program never waits.
                    await asyncio.sleep(0)
                    return []
                await self._wait(left_ms, joining)
        finally:
            self._fetcher.poll_waits = False
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
        """Deserialize records; `on.decode.error` determines what becomes of the bad ones."""
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
            self._acknowledge_bad(bad, Acknowledge.RELEASE)
            if not good:
                raise
            self._fetcher.error = error
            return good
        except BaseException:
            with self.lock:
                self._fetcher.records[:0] = raw
            raise
        self._acknowledge_bad(bad, Acknowledge.REJECT)
        return good

    def _before(
        self, raw: list[ShareRecord[K, V]], good: list[ShareRecord[K, V]], error: RecordDeserializationError
    ) -> list[ShareRecord[K, V]]:
        """Keep the records before the first unreadable one, which is released when its error is raised."""
        index = next(i for i, record in enumerate(raw) if record[:3] == (error.topic, error.partition, error.offset))
        with self.lock:
            self._fetcher.records[:0] = raw[index if index else 1 :]
        if index:
            return good[:index]
        self._acknowledge_bad([error], Acknowledge.RELEASE)
        error.args = (f"{error.summary}; it was released, and is redelivered as often as its group allows",)
        raise error

    def _acknowledge_bad(self, bad: list[RecordDeserializationError], kind: Acknowledge) -> None:
        with self.lock:
            for error in bad:
                self.acknowledgements.acknowledge_unseen(error.topic_partition, [error.offset], kind)

    def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ShareRecord[K, V]]:
        while not self._closed:
            left = (await self.poll(1.0))[::-1]
            try:
                for record in self.one_by_one(left):
                    yield record
            finally:
                self.release(left)

    def one_by_one(self, left: list[ShareRecord[K, V]]) -> Iterator[ShareRecord[K, V]]:
        """Yield polled records one by one, the last one first, and remove them from `left`.

        The caller releases those that the iteration does not reach: they are never accepted.
        """
        with self.lock:
            self.acknowledgements.withdraw(left)
        while left and not self._closed:
            with self.lock:
                self.acknowledgements.give(left[-1:])
            record = left[-1]
            # Ctrl-C may come behind a call, as of `pop`: the record would be accepted, and not yielded.
            del left[-1]
            yield record

    async def give_back(self, records: list[ShareRecord[K, V]]) -> None:
        """Release the records of a poll whose caller was interrupted."""
        self.release(records)
        self._fetcher.wake()

    def release(self, records: list[ShareRecord[K, V]]) -> None:
        """Release records that the program has not got."""
        with self.lock:
            self.acknowledgements.withdraw(records)
            for record in records:
                self.acknowledgements.acknowledge_unseen(
                    TopicPartition(record.topic, record.partition), [record.offset], Acknowledge.RELEASE
                )

    # ---- acknowledgements

    @checked
    def acknowledge(self, record: ShareRecord, word: Acknowledge = Acknowledge.ACCEPT) -> None:
        """Set a record's acknowledgement, to be sent with the next poll or commit; until then a later call replaces it.

        OttlaError in implicit mode, or if the record is not in hand.
        """
        with self.lock:
            self.acknowledgements.acknowledge(TopicPartition(record.topic, record.partition), record.offset, word)

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements and wait for the answers; in implicit mode, first accept the last poll's records.

        Returns the error of each partition whose acknowledgements were refused, and None for the others; those that
        other tasks or threads give after this call are not waited for. RequestTimedOut after default.api.timeout.ms.
        """
        if self._closed:
            raise ClientClosed("this consumer is closed")
        return await self._settle(self.settings.default_api_timeout_ms)

    async def _settle(self, timeout_ms: int) -> dict[TopicPartition, KafkaError | None]:
        with self.lock:
            self.acknowledgements.settle(for_poll=False)
        offsets = self._fetcher.unanswered()
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        self._commits.append((offsets, outcomes))
        self._fetcher.wake()
        deadline_ms = now_ms() + timeout_ms
        try:
            # Not for later ones: other threads could hold up this call for as long as they acknowledge.
            while offsets:
                left_ms = deadline_ms - now_ms()
                if left_ms <= 0:
                    raise RequestTimedOut(f"acknowledgements were not answered within {timeout_ms} ms")
                await self._wait(left_ms)
        finally:
            self._commits = [commit for commit in self._commits if commit[1] is not outcomes]
        return outcomes

    def _on_answer(self, partition: TopicPartition, offsets: list[int], error: KafkaError | None) -> None:
        # What follows a renewal of the same record has an answer of its own.
        ready = self.acknowledgements.ready.get(partition, {})
        for waited_for, outcomes in self._commits:
            if answered := waited_for.intersection((partition, offset) for offset in offsets):
                waited_for -= {each for each in answered if each[1] not in ready}
                outcomes[partition] = outcomes.get(partition) or error
        if self.on_acknowledged is not None:
            try:
                self.on_acknowledged(partition, offsets, error)
            except Exception as failure:
                # Go on: the rest of the answer must be taken in. As in Java's client, the next poll raises this.
                self._fetcher.error = failure

    # ---- a poll's duties

    async def _maintain(self) -> asyncio.Future[None] | None:
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._fetcher.refusal is not None:
            refusal, self._fetcher.refusal = self._fetcher.refusal, None
            raise refusal
        if self._group is None:
            raise OttlaError("this consumer has no topics to read: subscribe first")
        self._cluster.raise_refused(self._names)
        joining = None
        self._group.polled_at_ms = now_ms()
        if self._group.busy:
            joining = await self._group.poll()
        self._fetcher.wake()
        return joining

    async def _wait(self, left_ms: int, joining: asyncio.Future[None] | None = None) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        waits: set[asyncio.Future[Any]] = {waiting}
        if joining is not None:
            waits.add(joining)
        try:
            with nullcontext() if self._group is None else self._group.poll_waits():
                await asyncio.wait(waits, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(waiting)

    # ---- called by the group

    def something_to_do(self) -> None:
        """Wake the calls that wait. On the loop only."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _on_metadata(self) -> None:
        if self._cluster.metadata.untold:
            self.something_to_do()

    async def subscribed(self) -> set[str]:
        """The topics of the subscription."""
        self._cluster.metadata.want(self._names, now_ms())
        return set(self._names)

    def pattern_text(self) -> str | None:
        """None: share groups have no patterns."""
        return None

    def owned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._fetcher.assigned)

    async def before_revoke(self) -> None:
        """Do nothing: records of a revoked partition can still be acknowledged."""

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        """Remove partitions and release their records that the program has not got yet."""
        with self.lock:
            left = [
                record
                for record in self._fetcher.records
                if TopicPartition(record.topic, record.partition) in partitions
            ]
            self._fetcher.records = [record for record in self._fetcher.records if record not in left]
            self._fetcher.assigned -= partitions
            for record in left:
                self.acknowledgements.acknowledge_unseen(
                    TopicPartition(record.topic, record.partition), [record.offset], Acknowledge.RELEASE
                )
        self._fetcher.wake()

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        """Add partitions. A topic deleted in the meantime is not waited for: that would stop the others."""
        with self.lock:
            self._fetcher.assigned |= partitions
        self._fetcher.wake()

    # ---- the end

    async def close(self) -> None:
        """Send the given acknowledgements, release all other records, leave the group and close the connections.

        Brokers that do not answer hold it up for request.timeout.ms, but at most for 30 seconds.
        """
        if self._closed:
            return
        self._closed = True
        try:
            deadline_ms = now_ms() + end_timeout_ms(self.settings)
            try:
                if self.explicit:
                    with self.lock:
                        self.acknowledgements.settle(for_poll=False)
                # Also without a group: what it got before it unsubscribed can still be acknowledged.
                await self._fetcher.finish(end_timeout_ms(self.settings))
            finally:
                if self._group is not None:
                    await self._group.end("the consumer was closed", deadline_ms)
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
