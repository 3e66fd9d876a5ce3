"""A log against a model, on a disk that crashes before any effect.

What is promised: nothing that was synced is lost, nothing torn is served, what comes back is a prefix of what was
appended, and indexes, epochs and producers agree with the batches.
"""

import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.log.producer.producer import Producers
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.batch import Batch, build, check, read
from ottla.wire.codec import Codec

_TP = TopicPartition("t", 0)
_SETTINGS = LogSettings(
    segment_bytes=900,
    segment_index_bytes=12 * 10,
    index_interval_bytes=150,
    max_message_bytes=800,
    retention_ms=-1,
    retention_bytes=2000,
    file_delete_delay_ms=10,
)


class Appendage(NamedTuple):
    """One batch as the model remembers it."""

    base_offset: int
    last_offset: int
    epoch: int
    values: tuple[bytes | None, ...]
    timestamps: tuple[int, ...]
    producer_id: int
    sequence: int


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.epoch = 1
        self.number = 0
        self.batches: list[Appendage] = []
        #: Everything below survives any crash.
        self.synced = 0
        self.start_offset_max = 0
        self.sequences: dict[int, int] = {}
        self.store: Store
        self.log: Log

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.disk.make_directory("/d")
        write_properties(self.disk, f"/d/{META_PROPERTIES}", {"version": "1", "node.id": "1", "cluster.id": "c"})
        self.disk.sync_directory("/")
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.disk, ["/d"], node_id=1, now_ms=self.now_ms, settings_of=lambda _: _SETTINGS)
        self.log = self.store.get(_TP) or self.store.create("t", Uuid(bytes(15) + b"\7"), 0)

    # ---- what may happen

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 120),
        codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
        producer=st.sampled_from([-1, -1, 7, 8]),
        late_ms=st.integers(-50, 50),
        writable=st.booleans(),
    )
    def append(self, count: int, size: int, codec: Codec, producer: int, late_ms: int, writable: bool) -> None:
        self.now_ms += 10
        self.number += 1
        values = tuple(b"%d." % self.number + bytes([self.number % 251]) * size for _ in range(count))
        timestamps = tuple(self.now_ms + late_ms + index for index in range(count))
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        data = build(
            [(timestamp, b"k", value, []) for timestamp, value in zip(timestamps, values, strict=True)],
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        base = self.log.end_offset
        batch = Appendage(base, base + count - 1, self.epoch, values, timestamps, producer, sequence)
        # It may be there after a crash in the middle of the append.
        self.batches.append(batch)
        appended = self.log.append(bytearray(data) if writable else data, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert (appended.base_offset, appended.last_offset) == (base, base + count - 1)
        if producer >= 0:
            self.sequences[producer] = sequence + count
            again = self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)
            assert again.duplicate
            assert again.base_offset == base

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush(self.now_ms)
        self.synced = self.log.end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint(self.now_ms)

    @rule()
    def retain(self) -> None:
        self.now_ms += 7
        self.log.delete_old_segments(self.now_ms)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        start = self.log.start_offset
        self.log.advance_start_offset(start + int(part * (self.log.end_offset - start)))

    @precondition(lambda self: self.batches and self.batches[-1].last_offset >= self.log.start_offset)
    @rule(back=st.integers(1, 6))
    def truncate(self, back: int) -> None:
        slot = max(0, len(self.batches) - back)
        while self.batches[slot].base_offset < self.log.start_offset and slot < len(self.batches) - 1:
            slot += 1
        target = max(self.batches[slot].base_offset, self.log.start_offset)
        if target != self.batches[slot].base_offset:
            return
        self.synced = min(self.synced, target)
        self.log.truncate(target, self.now_ms)
        del self.batches[slot:]
        self.note_sequences()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.synced = self.log.end_offset
        self.open()
        assert self.log.end_offset == self.synced

    @rule()
    def stop_and_lose_power(self) -> None:
        self.store.close()
        self.synced = self.log.end_offset
        self.disk.crash()
        self.open()
        assert self.log.end_offset == self.synced

    @rule(after=st.integers(0, 12), what=st.sampled_from(["append", "flush", "roll", "truncate", "retain", "restart"]))
    def crash(self, after: int, what: str) -> None:
        self.disk.crash_at = self.disk.effects + after
        try:
            for _ in range(3):
                self.carry_out(what)
        except Crashed:
            pass
        self.recover()
        # The recovery itself may be cut short as well, any number of effects in.
        self.disk.crash_at = None

    @rule(afters=st.lists(st.integers(0, 25), min_size=1, max_size=3))
    def crash_in_recovery(self, afters: list[int]) -> None:
        for after in afters:
            self.disk.crash()
            self.disk.crash_at = self.disk.effects + after
            try:
                self.open()
            except Crashed:
                continue
            break
        self.recover()

    def carry_out(self, what: str) -> None:
        if what == "append":
            self.append(count=2, size=60, codec=Codec.NONE, producer=7, late_ms=0, writable=True)
        elif what == "truncate":
            if self.batches and self.batches[-1].last_offset >= self.start_offset_max:
                self.truncate(back=2)
        else:
            getattr(self, what)()

    def recover(self) -> None:
        self.disk.crash()
        self.open()
        end = self.log.end_offset
        assert end >= self.synced, "nothing that was synced is lost"
        self.batches = [batch for batch in self.batches if batch.last_offset < end]
        assert not self.batches or end in (self.batches[-1].last_offset + 1, self.log.start_offset)
        # What was read back may be lost in the next crash all the same, unless it was synced before.
        self.note_sequences()

    def note_sequences(self) -> None:
        self.sequences = {}
        for batch in self.batches:
            if batch.producer_id >= 0:
                self.sequences[batch.producer_id] = batch.sequence + len(batch.values)

    # ---- what must hold

    def stored(self) -> list[Batch]:
        found: list[Batch] = []
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            got = self.log.read(offset, 300, end_offset=self.log.end_offset)
            assert len(got)
            batches = list(read(got.bytes()))
            assert batches
            for batch in batches:
                check(batch.data)
                found.append(batch)
                offset = batch.header.last_offset + 1
        return found

    @invariant()
    def what_is_served_is_what_was_appended(self) -> None:
        start = self.log.start_offset
        expected = [batch for batch in self.batches if batch.last_offset >= start]
        stored = self.stored()
        assert [batch.header.base_offset for batch in stored] == [batch.base_offset for batch in expected]
        for batch, model in zip(stored, expected, strict=True):
            assert batch.header.partition_leader_epoch == model.epoch
            records = batch.records()
            assert tuple(record.value for record in records) == model.values
            assert tuple(record.timestamp for record in records) == model.timestamps

    @invariant()
    def indexes_agree_with_the_batches(self) -> None:
        for segment in self.log.segments:
            found = dict(segment.headers())
            for offset, position in segment.offset_index.entries():
                assert found[position].last_offset == offset
            latest = -1
            for timestamp, offset in segment.time_index.entries():
                assert timestamp > latest
                latest = timestamp
                assert max(each.max_timestamp for each in found.values() if each.last_offset <= offset) == timestamp
            assert segment.max_timestamp == max((each.max_timestamp for each in found.values()), default=-1)
        for inactive in self.log.segments[:-1]:
            assert self.size_of(inactive.offset_index.path) == 8 * len(inactive.offset_index)
            assert self.size_of(inactive.time_index.path) == 12 * len(inactive.time_index)

    def size_of(self, path: str) -> int:
        return self.disk.open(path).size()

    @invariant()
    def timestamps_lead_to_the_first_record_that_late(self) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        records = [
            (batch.base_offset + index, timestamp)
            for batch in self.batches
            for index, timestamp in enumerate(batch.timestamps)
            if batch.base_offset + index >= start
        ]
        for _, wanted in records[:: max(1, len(records) // 3)]:
            offset, timestamp = next(each for each in records if each[1] >= wanted)
            found = self.log.offset_for_timestamp(wanted, end)
            assert found is not None
            assert found[:2] == (timestamp, offset)

    @invariant()
    def epochs_begin_where_their_first_batch_is(self) -> None:
        self.start_offset_max = max(self.start_offset_max, self.log.start_offset)
        first: dict[int, int] = {}
        for batch in self.batches:
            first.setdefault(batch.epoch, batch.base_offset)
        for epoch, start in self.log.epochs.entries():
            if epoch in first:
                # DeleteRecords moves it up, and a crash may forget DeleteRecords.
                assert first[epoch] <= start <= max(first[epoch], self.start_offset_max)
        if self.batches and self.batches[-1].last_offset >= self.start_offset_max:
            assert self.log.epochs.latest == self.batches[-1].epoch

    @invariant()
    def producers_are_what_the_batches_say(self) -> None:
        producers: Producers = self.log.producers
        producers.validate()
        last: dict[int, tuple[int, int]] = {}
        for batch in self.batches:
            if batch.producer_id >= 0 and batch.last_offset >= self.log.start_offset:
                last[batch.producer_id] = (batch.sequence + len(batch.values) - 1, batch.last_offset)
        for producer_id, (sequence, offset) in last.items():
            sent = producers.by_id[producer_id].sent[-1]
            assert (sent.last_sequence, sent.last_offset) == (sequence, offset)
        written = {
            (batch.producer_id, batch.sequence + len(batch.values) - 1, batch.last_offset) for batch in self.batches
        }
        for producer_id, producer in producers.by_id.items():
            for sent in producer.sent:
                assert (producer_id, sent.last_sequence, sent.last_offset) in written, "of a batch that is gone"


def test_a_log_survives_crashes_before_any_effect() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=100, stateful_step_count=30, deadline=None))
