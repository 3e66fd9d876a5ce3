"""The synchronous share consumer: runs an `AsyncShareConsumer` on the loop thread and waits for its calls.

One thread at a time uses a consumer; a second thread that polls meanwhile gets an OttlaError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Unpack

from ottla.client.acknowledgement import Acknowledge, ShareRecord
from ottla.client.connection.loop_thread import loop_thread
from ottla.client.connection.one_thread import OneThread
from ottla.client.share.consumer import Acknowledged, AsyncShareConsumer
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.typevar import K, V
from ottla.settings.client.schema import Given

if TYPE_CHECKING:
    from ottla.client.settings.option import ShareConsumerOptions


class ShareConsumer(Generic[K, V]):
    """A consumer of a share group (KIP-932). One thread at a time may use it; `with` or `close` ends it.

    >>> with ShareConsumer("127.0.0.1:9092", group_id="workers") as consumer:
    ...     consumer.subscribe(["jobs"])
    ...     for record in consumer:
    ...         print(record.value, record.delivery_count)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ShareConsumerOptions]) -> None:
        """`settings` is "host:port", a list of these, or a mapping with Kafka's setting names; keywords are settings in
        snake_case.

        docs/reference/client-settings.md lists all settings and their defaults. OttlaError for an unknown setting or an
        invalid value.
        """

        async def make() -> AsyncShareConsumer[K, V]:
            return AsyncShareConsumer(settings, **keywords)

        self._only_thread = OneThread("share consumer")
        self._thread = loop_thread()
        self._async = self._thread.run(make())
        self.settings = self._async.settings

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics with the other members of `group.id`, replacing the last subscription."""

        async def work() -> None:
            self._async.subscribe(topics)

        self._thread.run(work())

    def unsubscribe(self) -> None:
        """Acknowledge as `commit` does, stop reading and leave the group."""
        self._thread.run(self._async.unsubscribe())

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        return self._async.subscription()

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record stays locked for this member, in ms; None before the first answer of a broker."""
        return self._async.lock_timeout_ms

    def poll(self, timeout: float = 1.0) -> list[ShareRecord[K, V]]:
        """Return the next records, or an empty list if none arrive within `timeout` seconds.

        At most max.poll.records are returned, locked for this member for `lock_timeout_ms`. In implicit mode the call
        first accepts the records of the last poll. Raises OttlaError without a subscription, in explicit mode while
        records of the last poll are not acknowledged, and while another thread polls; RecordDeserializationError at a
        record that a deserializer cannot read (see on.decode.error); KafkaError for an error of the broker.
        """
        records: list[ShareRecord[K, V]] = []

        async def work() -> None:
            records.extend(await self._async.poll(timeout))

        try:
            with self._only_thread:
                self._thread.run(work())
                return records
        except BaseException:
            # Ctrl-C may come just after the poll: the next poll would accept records that the program never saw.
            self._thread.submit(self._async.give_back(records))
            raise

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        while not self._async._closed:
            left = self.poll(1.0)[::-1]
            try:
                yield from self._async.one_by_one(left)
            finally:
                self._async.release(left)

    def acknowledge(self, record: ShareRecord, word: Acknowledge = Acknowledge.ACCEPT) -> None:
        """Set a record's acknowledgement, to be sent with the next poll or commit; until then a later call replaces it.

        OttlaError in implicit mode, or if the record is not in hand.
        """
        self._async.acknowledge(record, word)

    def on_acknowledged(self, told: Acknowledged | None) -> None:
        """Call `told(partition, offsets, error)` on the client's loop for each answered acknowledgement.

        `error` is None on success. The next poll raises an exception from `told`.
        """
        self._async.on_acknowledged = told

    def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements and wait for the answers; in implicit mode, first accept the last poll's records.

        Returns the error of each partition whose acknowledgements were refused, and None for the others; those that
        other threads give after this call are not waited for. RequestTimedOut after default.api.timeout.ms.
        """
        return self._thread.run(self._async.commit())

    def close(self) -> None:
        """Send the given acknowledgements, release all other records, leave the group and close the connections."""
        self._thread.run(self._async.close())

    def __enter__(self) -> ShareConsumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
