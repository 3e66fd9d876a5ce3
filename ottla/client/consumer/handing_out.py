"""What a consumer hands out of what it has fetched: records or tables, partition after partition in turn.

Rules:
- A partition's error is raised when nothing was taken before it; the poll after it goes on.
- What cannot be decoded stays: the position is before it until the program seeks past it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.client.connection.clock import now_ms
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import PartitionPosition
from ottla.client.settings.consumer import ConsumerSettings
from ottla.columns.record import ConsumerRecord
from ottla.kernel.client_error import RecordDeserializationError
from ottla.kernel.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.consumer.table import Taken, Unreadable
    from ottla.client.decode import DeadLetters
    from ottla.client.tracing import ConsumerTracing
    from ottla.serde.serde import Serde


class RecordCalls:
    """The part of `AsyncConsumer` about what polls give. It runs in whichever thread polls."""

    settings: ConsumerSettings
    meter: ConsumerMeter
    _positions: dict[TopicPartition, PartitionPosition]
    _lock: threading.Lock
    _fetcher: Fetcher
    #: Where the next poll begins among the partitions.
    _turn: int
    #: Made when there is a first dead letter.
    _dead_letters: DeadLetters | None
    #: While dead letters are written: by partition where the poll began that met them.
    _held: Mapping[TopicPartition, int]

    def waiting(self, records_max: int) -> list[bool]:
        """[True] if `take` has something to give, or to raise."""
        with self._lock:
            return [True for state in self._positions.values() if state.has_records or state.error is not None][:1]

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Records that are here already, still bytes. It does not wait, and does none of a poll's other duties."""
        found: list[ConsumerRecord] = []

        def some(state: PartitionPosition, left: int) -> int:
            nonlocal found
            records = state.take(left)
            found = found + records if found else records
            return len(records)

        self._take_in_turn(records_max, some)
        return found

    def read(self, raw: list[ConsumerRecord]) -> tuple[list[ConsumerRecord], list[RecordDeserializationError]]:
        """What was taken, through the deserializers, and what is to become a dead letter of it.

        With on.decode.error=raise an unreadable record ends its partition's part, and is raised where nothing is left.
        """
        if self.settings.key_deserializer is None and self.settings.value_deserializer is None:
            return raw, []
        from ottla.client.decode import decode, skipped

        with self.given_back(raw):
            records, bad = decode(raw, self.settings)
        if bad and self.settings.on_decode_error == "raise":
            return self.before(records, bad), []
        if bad and self.settings.on_decode_error == "skip":
            skipped(bad)
            return records, []
        return records, bad

    def before(
        self, records: list[ConsumerRecord], bad: list[RecordDeserializationError], why: Exception | None = None
    ) -> list[ConsumerRecord]:
        """The records before the first unreadable one of each partition; the position goes back there.

        The next poll raises its error (or `why`); this one does if no record is left.
        """
        first: dict[TopicPartition, RecordDeserializationError] = {}
        for error in bad:
            first.setdefault(error.topic_partition, error)
        kept = [
            one
            for one in records
            if (stop := first.get(TopicPartition(one.topic, one.partition))) is None or one.offset < stop.offset
        ]
        stops = ((partition, error.offset, why or error) for partition, error in first.items())
        self._give_back((partition, offset, error if kept else None) for partition, offset, error in stops)
        if not kept:
            raise why or bad[0]
        return kept

    async def bury(self, starts: Mapping[TopicPartition, int], bad: list[RecordDeserializationError]) -> None:
        """Write dead letters. Until these are acknowledged, a commit is of where the poll began (`starts`)."""
        from ottla.client.decode import DeadLetters

        if self._dead_letters is None:
            self._dead_letters = DeadLetters(self.settings)
        self._held = starts
        try:
            await self._dead_letters.write(bad)
        finally:
            self._held = {}

    @contextlib.contextmanager
    def given_back(self, raw: Iterable[ConsumerRecord]) -> Iterator[None]:
        """Ctrl-C or a cancellation in here: nothing of `raw` was given."""
        try:
            yield
        except BaseException:
            self._give_back((partition, offset, None) for partition, offset in starts_of(raw).items())
            raise

    def _take_in_turn(self, records_max: int, some: Callable[[PartitionPosition, int], int]) -> None:
        """Call `some(partition, at most)` for each that has records; the next poll begins where this one ended.

        It returns how many it took. A partition's error is raised when nothing was taken before it. Only where room was
        made does the fetcher hear of it: a loop that is woken by each poll takes a quarter of the time of all polls.
        """
        left = records_max
        full_bytes = self.settings.max_partition_fetch_bytes
        has_room = False
        now = now_ms()
        try:
            with self._lock:
                states = list(self._positions.values())
                for step in range(len(states)):
                    place = (self._turn + step) % len(states)
                    state = states[place]
                    if state.error is not None:
                        if left < records_max:
                            # The next poll begins with it, however much the others have.
                            self._turn = place
                            break
                        self._turn = (place + 1) % len(states)
                        state.raise_error()
                    if state.has_records:
                        before_bytes = state.buffered
                        taken = some(state, left)
                        has_room = has_room or state.buffered < min(before_bytes, full_bytes)
                        self.meter.topic(state.partition.topic, now).records.record(taken, now)
                        left -= taken
                        if left == records_max:
                            state.raise_error()
                        if left <= 0:
                            self._turn = (place + 1) % len(states)
                            break
        finally:
            if has_room:
                # The next fetch runs while the program, or `tables_of`, works on this.
                self._fetcher.signal()
        if left < records_max:
            self.meter.consumed(records_max - left, now)

    def take_bytes(self, records_max: int) -> list[Taken]:
        """The bytes of what is here already, as `take` gives records."""
        from ottla.client.consumer.table import take

        found: list[Taken] = []

        def some(state: PartitionPosition, left: int) -> int:
            taken = take(state, left)
            if taken is None:
                return 0
            found.append(taken)
            return taken.records

        self._take_in_turn(records_max, some)
        return found

    def table(
        self, taken: list[Taken], key: Serde | None, value: Serde | None
    ) -> tuple[Any, list[RecordDeserializationError]]:
        """A table of these bytes, and what is to become a dead letter of them.

        With on.decode.error=raise an unreadable value ends its partition's part, and is raised where no row is left.
        """
        tolerant = self.settings.on_decode_error != "raise"
        tables, stops, bad = self._tables(taken, key, value, tolerant=tolerant)
        if bad and self.settings.on_decode_error == "skip":
            from ottla.client.decode import skipped

            skipped(bad)
            bad = []
        return self._joined(tables, stops, key, value), bad

    def table_before(self, taken: list[Taken], key: Serde | None, value: Serde | None, why: Exception) -> Any:
        """The table before the first unreadable value of each partition; a poll raises `why` there."""
        tables, stops, _ = self._tables(taken, key, value, tolerant=False)
        stops = [one._replace(error=why) if isinstance(one.error, RecordDeserializationError) else one for one in stops]
        return self._joined(tables, stops, key, value)

    def _tables(
        self, taken: list[Taken], key: Serde | None, value: Serde | None, *, tolerant: bool
    ) -> tuple[list[Any], list[Unreadable], list[RecordDeserializationError]]:
        from ottla.client.consumer.table import tables_of

        try:
            return tables_of(taken, key, value, tolerant=tolerant)
        except BaseException:
            # A serde failed as a whole, or Ctrl-C: nothing of this was given.
            self._give_back((one.partition, one.offset, None) for one in taken)
            raise

    def _joined(self, tables: list[Any], stops: list[Unreadable], key: Serde | None, value: Serde | None) -> Any:
        import pyarrow as pa

        from ottla.client.consumer.table import schema

        if stops:
            self._give_back((one.partition, one.offset, one.error if tables else None) for one in stops)
            if not tables:
                raise stops[0].error
        return pa.Table.from_batches(tables, schema(key, value))

    def _give_back(self, stops: Iterable[tuple[TopicPartition, int, Exception | None]]) -> None:
        """Go on at these offsets, after a poll that raises the error, if there is one."""
        with self._lock:
            for partition, offset, error in stops:
                state = self._positions.get(partition)
                if state is not None:
                    state.stop(offset, error)
        self._fetcher.signal()


def consumer_tracing(settings: ConsumerSettings) -> ConsumerTracing | None:
    """What makes a consumer's spans, with tracing.enable; OttlaError without opentelemetry-api."""
    if not settings.tracing_enable:
        return None
    from ottla.client.tracing import ConsumerTracing

    return ConsumerTracing(settings.client_id, settings.group_id)


def starts_of(raw: Iterable[ConsumerRecord]) -> dict[TopicPartition, int]:
    """By partition the offset of the first of these records."""
    found: dict[TopicPartition, int] = {}
    for record in raw:
        found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return found
