"""The swap of cleaned segments on a disk that crashes before any effect, in the cleaning and in the recovery after it.

What is promised: what was synced is there once, in the version of before the cleaning or of after it, segment by
segment; a latest value never goes; what was deleted never comes back.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.checkpoint import CLEANER_OFFSETS, META_PROPERTIES, read_offsets, write_properties
from ottla.log.cleaning.job import Cleaning, plan
from ottla.log.cleaning.plan import cleanable
from ottla.log.cleaning.swap import discard, swap
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.batch import NewRecord, build, check, read

_TP = TopicPartition("t", 0)
_NOW_MS = 1_000_000
_HORIZON_MS = 1000
_SETTINGS = LogSettings(
    segment_bytes=400,
    segment_index_bytes=12 * 20,
    index_interval_bytes=100,
    max_message_bytes=300,
    file_delete_delay_ms=10,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=_HORIZON_MS,
    min_cleanable_dirty_ratio=0.0,
)


class World:
    """One node's log, its disk, and what was written."""

    def __init__(self, seed: int, settings: LogSettings = _SETTINGS) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.settings = settings
        self.now_ms = _NOW_MS
        self.disk.make_directory("/d")
        write_properties(self.disk, f"/d/{META_PROPERTIES}", {"version": "1", "node.id": "1", "cluster.id": "c"})
        self.disk.sync_directory("/")
        #: offset -> (key, value) of what may be read.
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.sequence = 0
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.disk, ["/d"], node_id=1, now_ms=self.now_ms, settings_of=lambda _: self.settings)
        self.log: Log = self.store.get(_TP) or self.store.create("t", Uuid(bytes(15) + b"\7"), 0)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.written[self.log.end_offset] = (key, value)
        self.log.append(build([(_NOW_MS, key, value, [])]), leader_epoch=1, now_ms=_NOW_MS)

    def abort(self, key: bytes) -> None:
        data = build(
            [(_NOW_MS, key, b"aborted", [])],
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        self.log.append(data, leader_epoch=1, now_ms=_NOW_MS)
        marker: NewRecord = (_NOW_MS, bytes(4), bytes(6), [])
        data = build([marker], producer_id=7, producer_epoch=0, transactional=True, control=True)
        self.log.append(data, leader_epoch=1, now_ms=_NOW_MS, origin=Origin.COORDINATOR)

    def fill(self, rng: random.Random, count: int) -> None:
        for number in range(count):
            key = b"k%d" % rng.randrange(5)
            if rng.random() < 0.15:
                self.abort(key)
            else:
                self.put(key, None if rng.random() < 0.3 else b"%d" % number * rng.randrange(1, 20))
        self.log.roll(_NOW_MS)
        self.log.flush()
        self.store.checkpoint(self.now_ms)

    def clean(self) -> None:
        """What the node's cleaner does, in its order."""
        log = self.log
        found = cleanable(log, self.now_ms)
        if found is None:
            return
        self.store.recovery_task(_TP)()
        job = plan(log, found.first_dirty_offset, found.end_offset, self.now_ms, keys_max=1000, buffer_bytes=200)
        cleaning = Cleaning(self.disk, job, lambda _: None)
        for bases in cleaning.run():
            assert swap(log, job, bases, self.now_ms)
            self.disk.sync_directory(log.path)
        log.cleaner_offset = cleaning.end_offset
        self.store.cleaner_task(_TP)()

    def crash(self) -> None:
        """Lose power, and start again; the start may be cut short as well."""
        self.disk.crash()
        self.open()

    # ---- what must hold

    def read(self) -> list[tuple[int, bytes, bytes | None]]:
        found = []
        offset = 0
        while offset < self.log.end_offset:
            batches = list(read(self.log.read(offset, 200, end_offset=self.log.end_offset).bytes()))
            if not batches:
                break
            for batch in batches:
                check(batch.data)
                assert batch.header.last_offset >= offset, "nothing comes twice"
                offset = batch.header.last_offset + 1
                if not batch.header.is_control:
                    found += [(each.offset, each.key or b"", each.value) for each in batch.records()]
        hidden = self.log.aborted(0, self.log.end_offset)
        return [each for each in found if not any(one.first_offset <= each[0] < one.last_offset for one in hidden)]

    def must_hold(self) -> None:
        found = self.read()
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        for offset, key, value in found:
            assert self.written[offset] == (key, value)
        seen: dict[bytes, bytes | None] = {key: value for _, key, value in found}
        latest = dict(self.written[offset] for offset in sorted(self.written))
        for key, value in latest.items():
            # A deleted key is gone, or its tombstone is there; an old value without it never is.
            assert seen.get(key) == value
        for segment in self.log.segments:
            headers = dict(segment.headers())
            assert all(headers[at].last_offset == offset for offset, at in segment.offset_index.entries())
            assert segment.max_timestamp == max((each.max_timestamp for each in headers.values()), default=-1)
        if self.sequence:
            assert self.log.producers.by_id[7].last_sequence == self.sequence - 1
        if not self.log.being_cleaned:
            assert not [name for name in self.disk.list("/d/t-0") if name.endswith((".cleaned", ".swap"))]


def _world(seed: int) -> World:
    world = World(seed)
    world.fill(random.Random(seed), 25)
    return world


def _effects_of_a_cleaning() -> int:
    world = _world(3)
    before = world.disk.effects
    world.clean()
    return world.disk.effects - before


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_before_every_effect_of_a_cleaning_loses_nothing_and_doubles_nothing(seed: int) -> None:
    effects = _effects_of_a_cleaning()
    assert effects > 50
    for after in range(0, effects, 1 + seed):
        world = _world(3)
        world.disk.rng = random.Random(seed * 1000 + after)
        world.disk.crash_at = world.disk.effects + after
        with pytest.raises(Crashed):
            world.clean()
        world.crash()
        world.must_hold()
        world.clean()
        world.must_hold()
        world.now_ms += _HORIZON_MS + 1
        world.put(b"k0", b"new")
        world.log.roll(_NOW_MS)
        world.log.flush()
        world.clean()
        world.must_hold()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    rounds=st.lists(
        st.tuples(st.integers(1, 15), st.integers(0, 250), st.lists(st.integers(0, 40), max_size=3)),
        min_size=1,
        max_size=4,
    ),
)
def test_what_is_cleaned_over_and_over_survives_crashes_in_cleaning_and_recovery(
    seed: int, rounds: list[tuple[int, int, list[int]]]
) -> None:
    world = World(seed)
    rng = random.Random(seed)
    for count, after, recoveries in rounds:
        world.fill(rng, count)
        world.now_ms += 600
        world.disk.crash_at = world.disk.effects + after
        try:
            world.clean()
        except Crashed:
            for effects in recoveries:
                world.disk.crash()
                world.disk.crash_at = world.disk.effects + effects
                try:
                    world.open()
                except Crashed:
                    continue
                break
            world.crash()
        world.disk.crash_at = None
        world.must_hold()
        world.store.checkpoint(world.now_ms + 100)
        world.must_hold()


def test_how_far_the_cleaner_was_is_read_at_the_start_and_dropped_with_the_log() -> None:
    world = _world(1)
    world.clean()
    offset = world.log.cleaner_offset
    assert offset == world.log.end_offset
    world.store.close()
    world.open()
    assert world.log.cleaner_offset == offset
    assert cleanable(world.log, _NOW_MS) is None
    world.log.truncate(3, _NOW_MS)
    assert read_offsets(world.disk, f"/d/{CLEANER_OFFSETS}") == {_TP: 3}
    world.store.delete(_TP, _NOW_MS)
    world.store.checkpoint(_NOW_MS)
    assert read_offsets(world.disk, f"/d/{CLEANER_OFFSETS}") == {}


def test_a_crash_leaves_cleaned_logs_whole_though_nobody_knows_yet_that_they_are_compacted() -> None:
    # A node opens its logs before it has read the topics' settings.
    world = World(5)
    for number in range(20):
        world.put(b"k%d" % (number % 2), b"x" * 90)
    world.log.roll(_NOW_MS)
    world.log.flush()
    world.clean()
    world.put(b"k9", b"last")
    world.log.flush()
    world.settings = LogSettings(segment_bytes=400)
    world.disk.remove("/d/recovery-point-offset-checkpoint")
    world.disk.sync_directory("/d")
    world.crash()
    world.must_hold()
    assert world.log.end_offset == 21


def test_what_a_cleaning_left_that_came_to_nothing_is_taken_away() -> None:
    world = _world(2)
    found = cleanable(world.log, _NOW_MS)
    assert found is not None
    job = plan(world.log, 0, found.end_offset, _NOW_MS, keys_max=10, buffer_bytes=200)
    before = world.disk.list("/d/t-0")
    next(Cleaning(world.disk, job, lambda _: None).run())
    assert world.disk.list("/d/t-0") != before
    discard(world.disk, "/d/t-0")
    assert world.disk.list("/d/t-0") == before


def test_retention_waits_for_the_cleaner() -> None:
    world = World(4, LogSettings(segment_bytes=400, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1))
    for number in range(12):
        world.put(b"k%d" % number, b"x" * 90)
    world.log.being_cleaned = True
    assert world.log.delete_old_segments(_NOW_MS + 10_000) == 0
    world.log.being_cleaned = False
    assert world.log.delete_old_segments(_NOW_MS + 10_000) > 0
