"""Writing records to a topic, with a count of those that are acknowledged."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.client import Delivery, Producer

Headers = list[tuple[str, bytes | None]]


class InputRecord(NamedTuple):
    """A record to write."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp: int | None
    #: Bytes of input that the record took, for the progress bar.
    size: int


class Writer:
    """Sends records and counts those acknowledged, from the first on without a gap."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._pending: deque[Delivery] = deque()
        self.written = 0
        self.sent = 0

    def send(self, record: InputRecord) -> Delivery:
        """Hand a record to the producer."""
        delivery = self._producer.send(
            self._topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=record.headers or None,
            timestamp=record.timestamp,
        )
        self.sent += 1
        self._pending.append(delivery)
        return delivery

    def look(self) -> None:
        """Count the records acknowledged so far. Raises the error of the first record that failed."""
        while self._pending and self._pending[0].done:
            self._pending[0].result()
            self._pending.popleft()
            self.written += 1

    def finish(self) -> None:
        """Wait until all records are acknowledged. Raises the error of the first record that failed."""
        while self._pending:
            self._pending[0].result()
            self._pending.popleft()
            self.written += 1

    def settle(self) -> None:
        """Like `finish`, but stop at the first record that failed instead of raising its error."""
        try:
            self.finish()
        except (KafkaError, OttlaError):
            return
