"""The share consumer for code that does not await: `AsyncShareConsumer` on the loop thread, waited for.

One thread at a time uses it: a second one that polls meanwhile is refused.
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
    """A share consumer for threads. `with` or `close` ends it.

    >>> with ShareConsumer("127.0.0.1:9092", group_id="workers") as consumer:
    ...     consumer.subscribe(["jobs"])
    ...     for record in consumer:
    ...         print(record.value, record.delivery_count)
    """

    def __init__(self, settings: Given = None, /, **keywords: Unpack[ShareConsumerOptions]) -> None:
        """`settings`: host:port, several of these, or a mapping by Kafka's names; keywords: settings in snake_case.

        docs/reference/client-settings.md has them all. OttlaError for an unknown name or a value that does not fit.
        """

        async def make() -> AsyncShareConsumer[K, V]:
            return AsyncShareConsumer(settings, **keywords)

        self._one = OneThread("share consumer")
        self._thread = loop_thread()
        self._async = self._thread.run(make())
        self.settings = self._async.settings

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics with the other members of `group.id`."""

        async def work() -> None:
            self._async.subscribe(topics)

        self._thread.run(work())

    def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        self._thread.run(self._async.unsubscribe())

    def subscription(self) -> set[str]:
        """The topics subscribed to."""
        return self._async.subscription()

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record stays locked for this member; None before the first was given."""
        return self._async.lock_timeout_ms

    def poll(self, timeout: float = 1.0) -> list[ShareRecord[K, V]]:
        """The next records, about max.poll.records at most; an empty list if none come within `timeout` seconds.

        OttlaError while another thread polls.
        """
        with self._one:
            return self._poll(timeout)

    def _poll(self, timeout: float) -> list[ShareRecord[K, V]]:
        found: list[ShareRecord[K, V]] = []

        async def work() -> None:
            found.extend(await self._async.poll(timeout))

        try:
            self._thread.run(work())
        except BaseException:
            # Ctrl-C may come when the poll is just over: the next one would accept what the program never saw.
            self._thread.submit(self._async.give_back(found))
            raise
        return found

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        while not self._async._closed:
            yield from self._async.one_by_one(self.poll(1.0))

    def acknowledge(self, record: ShareRecord, word: Acknowledge = Acknowledge.ACCEPT) -> None:
        """Say what becomes of a record. It is sent with the next poll or commit; until then the last word counts."""
        self._async.acknowledge(record, word)

    def on_acknowledged(self, told: Acknowledged | None) -> None:
        """Call `told(partition, offsets, error)` on the client's loop for what was sent and answered."""
        self._async.on_acknowledged = told

    def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged (in implicit mode: accept what the last poll gave), and wait for the answers.

        By partition the error of those that were not taken, None for the others.
        """
        return self._thread.run(self._async.commit())

    def close(self) -> None:
        """Send what was acknowledged, release the rest, leave the group, close the connections."""
        self._thread.run(self._async.close())

    def __enter__(self) -> ShareConsumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
