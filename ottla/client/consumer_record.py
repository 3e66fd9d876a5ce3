"""What a consumer hands out of what it has fetched: records or tables, partition after partition in turn.

Rules:
- A partition's error is raised when nothing was taken before it; the poll after it goes on.
- What cannot be decoded stays: the position is before it until the program seeks past it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.client.clock import now_ms
from ottla.client.consumer_metric import ConsumerMeter
from ottla.client.consumer_setting import ConsumerSettings
from ottla.client.fetcher import Fetcher
from ottla.client.position import PartitionPosition
from ottla.client.record import ConsumerRecord
from ottla.kernel.error import OttlaError
from ottla.kernel.name import TopicPartition

if TYPE_CHECKING:
    from ottla.client.serde import Serde
    from ottla.client.table import Taken


class RecordCalls:
    """The part of `AsyncConsumer` about what polls give. It runs in whichever thread polls."""

    settings: ConsumerSettings
    meter: ConsumerMeter
    _positions: dict[TopicPartition, PartitionPosition]
    _lock: threading.Lock
    _fetcher: Fetcher
    #: Where the next poll begins among the partitions.
    _turn: int

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
                            break
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
