"""How polls return fetched data: as records or tables, partition after partition in turn.

Rules:
- A partition's error is raised when nothing was taken before it in this poll; the next poll goes on.
- The position stays before a record that cannot be decoded until the program seeks past it.
- Records that an iteration has polled and not yielded go back at the next poll, which returns them first.
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
    """The part of `AsyncConsumer` that returns polled data. Runs in whichever thread polls."""

    settings: ConsumerSettings
    meter: ConsumerMeter
    _positions: dict[TopicPartition, PartitionPosition]
    _lock: threading.Lock
    _fetcher: Fetcher
    #: Index of the partition with which the next poll begins.
    _first_index: int
    #: Created at the first dead letter.
    _dead_letters: DeadLetters | None
    #: While dead letters are written: the offset at which this poll began, by partition.
    _held: Mapping[TopicPartition, int]
    #: Polled records that an iteration has not yielded yet, the next one last.
    _in_hand: list[ConsumerRecord]

    def waiting(self, records_max: int) -> list[bool]:
        """[True] if `take` would return something or raise, else an empty list."""
        with self._lock:
            return [True for state in self._positions.values() if state.has_records or state.error is not None][:1]

    def take(self, records_max: int, starts: dict[TopicPartition, int] | None = None) -> list[ConsumerRecord]:
        """Buffered records, still undecoded. Does not wait, and does none of a poll's other duties.

        `starts` gets the positions before, to go back to if the caller is interrupted (`interrupted`).
        """
        records: list[ConsumerRecord] = []

        def take_from(state: PartitionPosition, left: int) -> int:
            nonlocal records
            batch = state.take(left)
            records = records + batch if records else batch
            return len(batch)

        self._take_in_turn(records_max, take_from, starts)
        return records

    def read(self, raw: list[ConsumerRecord]) -> tuple[list[ConsumerRecord], list[RecordDeserializationError]]:
        """Deserialize records; returns the good ones, and the errors to write as dead letters.

        With on.decode.error=raise a partition's records end before an unreadable one, whose error is raised if no
        record is left.
        """
        if self.settings.key_deserializer is None and self.settings.value_deserializer is None:
            return raw, []
        from ottla.client.decode import decode, skipped

        with self.given_back(raw):
            records, bad = decode(raw, self.settings)
        if bad and self.settings.on_decode_error == "raise":
            return self.records_before(records, bad), []
        if bad and self.settings.on_decode_error == "skip":
            skipped(bad)
            return records, []
        return records, bad

    def records_before(
        self, records: list[ConsumerRecord], bad: list[RecordDeserializationError], why: Exception | None = None
    ) -> list[ConsumerRecord]:
        """Keep the records before the first unreadable one of each partition, and move the position back to it.

        The next poll raises its error (or `why`); this poll raises it if no record is left.
        """
        first: dict[TopicPartition, RecordDeserializationError] = {}
        for error in bad:
            first.setdefault(error.topic_partition, error)
        kept = [
            record
            for record in records
            if (stop := first.get(TopicPartition(record.topic, record.partition))) is None
            or record.offset < stop.offset
        ]
        stops = ((partition, error.offset, why or error) for partition, error in first.items())
        self._give_back((partition, offset, error if kept else None) for partition, offset, error in stops)
        if not kept:
            raise why or bad[0]
        return kept

    async def write_dead_letters(
        self, starts: Mapping[TopicPartition, int], bad: list[RecordDeserializationError]
    ) -> None:
        """Write dead letters. Until they are acknowledged, commits stay at `starts`, where the poll began."""
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
        """Context manager that gives `raw` back if Ctrl-C or a cancellation interrupts it."""
        try:
            yield
        except BaseException:
            self._give_back((partition, offset, None) for partition, offset in starts_of(raw).items())
            raise

    def interrupted(self, starts: Mapping[TopicPartition, int]) -> None:
        """Go back to where a poll began that ends with an exception, such as that of Ctrl-C: it returned nothing."""
        if starts:
            self._give_back((partition, offset, None) for partition, offset in starts.items())

    def _take_in_turn(
        self,
        records_max: int,
        take_from: Callable[[PartitionPosition, int], int],
        starts: dict[TopicPartition, int] | None,
    ) -> None:
        """Call `take_from(partition, limit)` for each partition with records, starting where the last poll ended.

        `take_from` returns how many records it took. A partition's error is raised if nothing was taken before it. The
        fetcher is woken only if buffer space was freed: waking the loop at each poll costs a quarter of a poll's time.
        """
        if starts is not None:
            starts.clear()
        left = records_max
        full_bytes = self.settings.partition_full_bytes
        has_room = False
        now = now_ms()
        try:
            with self._lock:
                states = list(self._positions.values())
                for step in range(len(states)):
                    index = (self._first_index + step) % len(states)
                    state = states[index]
                    if state.error is not None:
                        if left < records_max:
                            # The next poll begins with this partition, however much the others have.
                            self._first_index = index
                            break
                        self._first_index = (index + 1) % len(states)
                        state.raise_error()
                    if state.has_records:
                        before_bytes = state.buffered
                        if starts is not None and state.position is not None:
                            starts[state.partition] = state.position
                        taken = take_from(state, left)
                        has_room = has_room or state.buffered < min(before_bytes, full_bytes)
                        self.meter.topic(state.partition.topic, now).records.record(taken, now)
                        left -= taken
                        if left == records_max:
                            state.raise_error()
                        if left <= 0:
                            self._first_index = (index + 1) % len(states)
                            break
        finally:
            if has_room:
                # The next fetch runs while the program, or `tables_of`, processes these records.
                self._fetcher.signal()
        if left < records_max:
            self.meter.consumed(records_max - left, now)

    def take_bytes(self, records_max: int, starts: dict[TopicPartition, int] | None = None) -> list[Taken]:
        """Buffered batches as bytes, in the way that `take` returns records."""
        from ottla.client.consumer.table import take

        fetches: list[Taken] = []

        def take_from(state: PartitionPosition, left: int) -> int:
            taken = take(state, left)
            if taken is None:
                return 0
            fetches.append(taken)
            return taken.records

        self._take_in_turn(records_max, take_from, starts)
        return fetches

    def table(
        self, taken: list[Taken], key: Serde | None, value: Serde | None
    ) -> tuple[Any, list[RecordDeserializationError]]:
        """Decode batches into a table; returns it, and the errors to write as dead letters.

        With on.decode.error=raise a partition's rows end before an unreadable value, whose error is raised if no row is
        left.
        """
        tolerant = self.settings.on_decode_error != "raise"
        tables, stops, bad = self._tables(taken, key, value, tolerant=tolerant)
        if bad and self.settings.on_decode_error == "skip":
            from ottla.client.decode import skipped

            skipped(bad)
            bad = []
        return self._joined(tables, stops, key, value), bad

    def table_before(self, taken: list[Taken], key: Serde | None, value: Serde | None, why: Exception) -> Any:
        """The table up to the first unreadable value of each partition; a poll raises `why` there."""
        tables, stops, _ = self._tables(taken, key, value, tolerant=False)
        stops = [
            stop._replace(error=why) if isinstance(stop.error, RecordDeserializationError) else stop for stop in stops
        ]
        return self._joined(tables, stops, key, value)

    def _tables(
        self, taken: list[Taken], key: Serde | None, value: Serde | None, *, tolerant: bool
    ) -> tuple[list[Any], list[Unreadable], list[RecordDeserializationError]]:
        from ottla.client.consumer.table import tables_of

        try:
            return tables_of(taken, key, value, tolerant=tolerant)
        except BaseException:
            # The serde itself failed, or Ctrl-C: return none of these rows.
            self._give_back((fetch.partition, fetch.offset, None) for fetch in taken)
            raise

    def _joined(self, tables: list[Any], stops: list[Unreadable], key: Serde | None, value: Serde | None) -> Any:
        import pyarrow as pa

        from ottla.client.consumer.table import schema

        if stops:
            self._give_back((stop.partition, stop.offset, stop.error if tables else None) for stop in stops)
            if not tables:
                raise stops[0].error
        return pa.Table.from_batches(tables, schema(key, value))

    def return_in_hand(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Move positions back to the records that an iteration has left, as by `break` (default: of all partitions)."""
        if not self._in_hand:
            return
        # A commit by another thread finds the records in hand, or the positions moved back.
        with self._lock:
            starts = starts_of(reversed(self.take_in_hand(partitions)))
            for partition, offset in starts.items():
                state = self._positions.get(partition)
                # Not of a partition that was taken away and has come back since.
                if state is not None and state.position is not None:
                    state.stop(offset, None)
        if starts:
            self._fetcher.signal()

    def take_in_hand(self, partitions: Iterable[TopicPartition] | None = None) -> list[ConsumerRecord]:
        """Take out the records that an iteration has not yielded yet, the next one last (default: all partitions)."""
        # In place, and without a call between reading and deleting: another thread may iterate, and takes from the end.
        in_hand = self._in_hand
        runs = [slice(None)]
        if partitions is not None:
            wanted = {TopicPartition(*partition) for partition in partitions}
            runs.clear()
            for at, record in enumerate(in_hand[:]):
                if TopicPartition(record.topic, record.partition) in wanted:
                    begin = runs.pop().start if runs and runs[-1].stop == at else at
                    runs.append(slice(begin, at + 1))
        taken: list[ConsumerRecord] = []
        for run in reversed(runs):
            records = in_hand[run]
            del in_hand[run]
            taken = records + taken
        return taken

    def _give_back(self, stops: Iterable[tuple[TopicPartition, int, Exception | None]]) -> None:
        """Move positions back to these offsets; a later poll raises the error, if there is one."""
        with self._lock:
            for partition, offset, error in stops:
                state = self._positions.get(partition)
                if state is not None:
                    state.stop(offset, error)
        self._fetcher.signal()


def consumer_tracing(settings: ConsumerSettings) -> ConsumerTracing | None:
    """The maker of a consumer's spans; None without tracing.enable. OttlaError without opentelemetry-api."""
    if not settings.tracing_enable:
        return None
    from ottla.client.tracing import ConsumerTracing

    return ConsumerTracing(settings.client_id, settings.group_id)


def starts_of(raw: Iterable[ConsumerRecord]) -> dict[TopicPartition, int]:
    """The offset of the first of these records, by partition."""
    starts: dict[TopicPartition, int] = {}
    for record in raw:
        starts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return starts
