"""Compaction against a model: for each key its last value, and what may be missing in between."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.clean import Source, cleanable, group, is_due
from ottla.log.clean_job import Cleaning, Job, plan
from ottla.log.clean_swap import discard, swap
from ottla.log.log import Log, LogSettings, Origin
from ottla.log.producer import NO_EPOCH
from ottla.sim.disk import SimDisk
from ottla.wire.batch import NO_TIMESTAMP, Batch, NewRecord, Record, build, check, read
from ottla.wire.codec import Codec

_SETTINGS = LogSettings(
    segment_bytes=1000,
    segment_index_bytes=12 * 100,
    index_interval_bytes=150,
    max_message_bytes=800,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.01,
)
_NOW_MS = 1_000_000


def _log(disk: SimDisk | None = None, settings: LogSettings = _SETTINGS) -> Log:
    return Log.open(disk or SimDisk(random.Random(1)), "/t-0", settings, now_ms=_NOW_MS)


def _put(log: Log, *pairs: tuple[str, str | None], now_ms: int = _NOW_MS, codec: Codec = Codec.NONE) -> None:
    log.append(_batch(pairs, now_ms, codec), leader_epoch=1, now_ms=now_ms)


def _batch(pairs: tuple[tuple[str, str | None], ...], now_ms: int = _NOW_MS, codec: Codec = Codec.NONE) -> bytes:
    return build([(now_ms, k.encode(), None if v is None else v.encode(), []) for k, v in pairs], codec=codec)


def _transaction(log: Log, producer_id: int, *pairs: tuple[str, str | None], sequence: int = 0) -> None:
    """The data of a transaction; `_end` decides it."""
    records: list[NewRecord] = [(_NOW_MS, k.encode(), None if v is None else v.encode(), []) for k, v in pairs]
    data = build(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append(data, leader_epoch=1, now_ms=_NOW_MS)


def _end(log: Log, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    marker: NewRecord = (_NOW_MS, bytes([0, 0, 0, int(commit)]), bytes(6), [])
    data = build([marker], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)
    log.append(data, leader_epoch=1, now_ms=_NOW_MS, origin=Origin.COORDINATOR)


def _compact(log: Log, now_ms: int = _NOW_MS, *, keys_max: int = 1000, buffer_bytes: int = 400) -> Job:
    """Clean all that can be, as the node does."""
    found = cleanable(log, now_ms)
    assert found is not None
    job = plan(log, found.first_dirty_offset, found.end_offset, now_ms, keys_max=keys_max, buffer_bytes=buffer_bytes)
    cleaning = Cleaning(log.disk, job, lambda _: None)
    for bases in cleaning.run():
        assert swap(log, job, bases, now_ms)
    log.cleaner_offset = cleaning.end_offset
    return job


def _batches(log: Log) -> Iterator[Batch]:
    offset = log.start_offset
    while offset < log.end_offset:
        batch = next(read(log.read(offset, 1, end_offset=log.end_offset).bytes()), None)
        if batch is None:
            return
        check(batch.data)
        yield batch
        offset = batch.header.last_offset + 1


def _records(log: Log) -> list[Record]:
    return [record for batch in _batches(log) if not batch.header.is_control for record in batch.records()]


def _pairs(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (each.offset, (each.key or b"").decode(), None if each.value is None else each.value.decode())
        for each in _records(log)
    ]


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = _log()
    _put(log, ("a", "1"), ("b", "2"))
    _put(log, ("a", "3"))
    _put(log, ("c", "4"), ("b", "5"))
    log.roll(_NOW_MS)
    _compact(log)
    assert _pairs(log) == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5")]
    assert log.end_offset == 5


def test_the_active_segment_is_not_cleaned_and_does_not_clean() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _put(log, ("a", "2"))
    log.roll(_NOW_MS)
    _put(log, ("a", "3"))
    _put(log, ("a", "4"))
    _compact(log)
    assert _pairs(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_bounds_its_codec_and_its_headers(codec: Codec) -> None:
    log = _log()
    records = [(_NOW_MS + index, b"k%d" % index, b"v", [("h", b"x"), ("n", None)]) for index in range(3)]
    log.append(build(records, codec=codec), leader_epoch=7, now_ms=_NOW_MS)
    _put(log, ("k0", "w"), ("k2", "w"))
    log.roll(_NOW_MS)
    _compact(log)
    batch = next(_batches(log))
    header = batch.header
    assert (header.base_offset, header.last_offset, header.count, header.codec) == (0, 2, 1, codec)
    assert header.partition_leader_epoch == 7
    assert header.max_timestamp == _NOW_MS + 1
    assert batch.records() == [Record(1, _NOW_MS + 1, b"k1", b"v", [("h", b"x"), ("n", None)])]


def test_a_batch_of_which_all_stays_is_copied_byte_by_byte() -> None:
    log = _log()
    # Bytes that our own encoder would not make: the attributes of a record are 1.
    data = bytearray(_batch((("a", "1"), ("b", "2"))))
    log.append(data, leader_epoch=1, now_ms=_NOW_MS)
    _put(log, ("c", "1"))
    _put(log, ("c", "2"))
    log.roll(_NOW_MS)
    _compact(log)
    assert bytes(next(_batches(log)).data) == bytes(data)


def test_a_tombstone_gets_a_horizon_when_first_cleaned_and_goes_when_it_is_over() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _put(log, ("a", None), ("b", "2"), codec=Codec.LZ4)
    log.roll(_NOW_MS)
    _put(log, ("x", "1"))
    _compact(log, _NOW_MS)
    batch = next(_batches(log))
    assert batch.header.has_delete_horizon
    assert batch.header.base_timestamp == _NOW_MS + 1000
    assert [each.timestamp for each in batch.records()] == [_NOW_MS, _NOW_MS]
    assert _pairs(log)[:2] == [(1, "a", None), (2, "b", "2")]
    log.roll(_NOW_MS)
    _put(log, ("x", "2"))
    _compact(log, _NOW_MS + 999)
    assert _pairs(log)[:2] == [(1, "a", None), (2, "b", "2")]
    assert next(_batches(log)).header.base_timestamp == _NOW_MS + 1000
    log.roll(_NOW_MS)
    _put(log, ("x", "3"))
    _compact(log, _NOW_MS + 1000)
    assert [pair[1] for pair in _pairs(log)] == ["b", "x", "x"]


def test_records_of_aborted_transactions_go_and_do_not_clean() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _transaction(log, 7, ("a", "2"), ("b", "3"))
    _end(log, 7, commit=False)
    log.roll(_NOW_MS)
    _compact(log)
    assert _pairs(log) == [(0, "a", "1")]


def test_an_abort_that_lies_in_the_active_segment_is_known() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _transaction(log, 7, ("a", "2"))
    log.roll(_NOW_MS)
    _end(log, 7, commit=False)
    _compact(log)
    assert _pairs(log) == [(0, "a", "1")]


def test_what_an_undecided_transaction_wrote_is_not_touched() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _put(log, ("a", "2"))
    log.roll(_NOW_MS)
    _transaction(log, 7, ("a", "3"))
    _put(log, ("a", "4"))
    log.roll(_NOW_MS)
    _compact(log)
    assert _pairs(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]
    assert log.cleaner_offset == 2


def test_a_marker_stays_until_nothing_of_its_transaction_is_left_and_its_horizon_is_over() -> None:
    log = _log()
    _transaction(log, 7, ("a", "1"))
    _end(log, 7, commit=True)
    # Another producer's later batch, and a later one of 7: neither's last batch is in the way.
    _transaction(log, 7, ("z", "1"), sequence=1)
    _end(log, 7, commit=True)
    log.roll(_NOW_MS)
    _put(log, ("a", "2"))

    def markers() -> list[int]:
        return [batch.header.base_offset for batch in _batches(log) if batch.header.is_control]

    _compact(log, _NOW_MS)
    assert markers() == [1, 3]
    log.roll(_NOW_MS)
    _put(log, ("x", "1"))
    _compact(log, _NOW_MS + 10_000)  # The record of a goes; its marker was met with it.
    assert [pair[0] for pair in _pairs(log)] == [2, 4, 5]
    assert markers() == [1, 3]
    log.roll(_NOW_MS)
    _put(log, ("x", "2"))
    _compact(log, _NOW_MS + 20_000)  # Nothing is left: from here on the horizon counts.
    assert markers() == [1, 3]
    log.roll(_NOW_MS)
    _put(log, ("x", "3"))
    _compact(log, _NOW_MS + 20_999)
    assert markers() == [1, 3]
    log.roll(_NOW_MS)
    _put(log, ("x", "4"))
    _compact(log, _NOW_MS + 21_000)
    assert markers() == [3]


def test_the_transaction_index_keeps_what_still_has_a_marker_and_records_to_hide() -> None:
    log = _log()
    _transaction(log, 7, ("a", "1"))
    _end(log, 7, commit=False)
    log.roll(_NOW_MS)
    _compact(log)
    assert [(each.first_offset, each.last_offset) for each in log.aborted(0, 2)] == [(0, 1)]


def test_a_live_producers_last_batch_stays_though_it_is_empty() -> None:
    log = _log()
    data = build([(_NOW_MS, b"a", b"1", [])] * 2, producer_id=7, producer_epoch=3, base_sequence=5)
    log.append(data, leader_epoch=1, now_ms=_NOW_MS)
    _put(log, ("a", "2"))
    log.roll(_NOW_MS)
    _compact(log)
    first = next(_batches(log)).header
    assert (first.base_offset, first.last_offset, first.count) == (0, 1, 0)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.base_timestamp) == (
        7,
        3,
        5,
        NO_TIMESTAMP,
    )
    for name in log.disk.list("/t-0"):
        if name.endswith(".snapshot"):
            log.disk.remove(f"/t-0/{name}")
    again = Log.open(log.disk, "/t-0", _SETTINGS, now_ms=_NOW_MS)
    assert again.append(data, leader_epoch=1, now_ms=_NOW_MS).duplicate
    again.producers.expire(_NOW_MS + (1 << 40), 1)
    again.roll(_NOW_MS)
    _put(again, ("a", "3"))
    _compact(again)
    assert [batch.header.base_offset for batch in _batches(again)] == [2, 3]


def test_a_producer_of_which_a_marker_is_all_that_is_known_keeps_its_epoch() -> None:
    log = _log()
    _transaction(log, 7, ("a", "1"))
    _end(log, 7, commit=False, epoch=1)
    _put(log, ("b", "1"))
    log.roll(_NOW_MS)
    _put(log, ("c", "1"))
    for later_ms in (0, 1_000, 10_000, 20_000):
        _compact(log, _NOW_MS + later_ms)
        log.roll(_NOW_MS)
        _put(log, ("c", "1"))
    marker = next(_batches(log)).header
    assert (marker.is_control, marker.base_offset, marker.producer_epoch) == (True, 1, 1)


def test_the_last_batch_of_a_round_stays_though_it_is_empty() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _transaction(log, 7, ("a", "2"))
    log.roll(_NOW_MS)
    _end(log, 7, commit=False, epoch=1)
    _compact(log)
    assert [(batch.header.last_offset, batch.header.count) for batch in _batches(log)] == [(0, 1), (1, 0), (2, 1)]


def test_records_without_a_key_go_when_a_topic_becomes_compacted() -> None:
    log = _log(settings=LogSettings())
    log.append(build([(_NOW_MS, None, b"1", []), (_NOW_MS, b"a", b"2", [])]), leader_epoch=1, now_ms=_NOW_MS)
    log.settings = _SETTINGS
    log.roll(_NOW_MS)
    _compact(log)
    assert _pairs(log) == [(1, "a", "2")]


def test_a_map_that_is_too_small_cleans_in_several_passes() -> None:
    log = _log()
    for number in range(40):
        _put(log, (f"key-of-more-than-16-bytes-{number % 20}", f"{number}"))
    log.roll(_NOW_MS)
    ends = []
    while (found := cleanable(log, _NOW_MS)) is not None and found.first_dirty_offset < found.end_offset:
        _compact(log, keys_max=6)
        assert log.cleaner_offset is not None
        ends.append(log.cleaner_offset)
    assert ends == [6, 12, 18, 24, 30, 36, 40]
    assert [pair[0] for pair in _pairs(log)] == list(range(20, 40))


def test_what_the_map_does_not_reach_stays_whole() -> None:
    log = _log(settings=LogSettings())
    log.append(build([(_NOW_MS, b"a", b"1", [])]), leader_epoch=1, now_ms=_NOW_MS)
    log.append(build([(_NOW_MS, None, b"2", [])]), leader_epoch=1, now_ms=_NOW_MS)
    log.settings = _SETTINGS
    log.roll(_NOW_MS)
    _compact(log, keys_max=1)
    assert [each.offset for each in _records(log)] == [0, 1]
    _compact(log, keys_max=1)
    assert [each.offset for each in _records(log)] == [0]


def test_the_lag_keeps_young_segments_and_its_maximum_makes_a_log_due() -> None:
    slow = LogSettings(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=1.0,
        min_compaction_lag_ms=100,
        max_compaction_lag_ms=500,
    )
    log = _log(settings=slow)
    _put(log, ("a", "1"), now_ms=_NOW_MS)
    log.roll(_NOW_MS)
    _put(log, ("a", "2"), now_ms=_NOW_MS + 50)
    log.roll(_NOW_MS)
    _put(log, ("a", "3"), now_ms=_NOW_MS + 60)
    assert cleanable(log, _NOW_MS + 99) is None
    found = cleanable(log, _NOW_MS + 100)
    assert found is not None
    assert found.end_offset == 1
    assert not is_due(found, log)
    found = cleanable(log, _NOW_MS + 501)
    assert found is not None
    assert found.end_offset == 2
    assert is_due(found, log)


def test_the_ratio_is_that_of_the_dirty_bytes() -> None:
    log = _log()
    for key in "ab":
        _put(log, (key, "1"))
        log.roll(_NOW_MS)
    _compact(log)
    _put(log, ("c", "1"))
    log.roll(_NOW_MS)
    found = cleanable(log, _NOW_MS)
    assert found is not None
    assert (found.first_dirty_offset, found.end_offset) == (2, 3)
    assert found.ratio == pytest.approx(1 / 3)


def test_a_checkpoint_outside_of_the_log_is_not_believed() -> None:
    log = _log()
    _put(log, ("a", "1"))
    log.roll(_NOW_MS)
    log.cleaner_offset = 99
    found = cleanable(log, _NOW_MS)
    assert found is not None
    assert found.first_dirty_offset == 0


def test_a_truncation_takes_the_cleaners_offset_back() -> None:
    log = _log()
    for number in range(4):
        _put(log, ("a", f"{number}"))
        log.roll(_NOW_MS)
    _compact(log)
    assert log.cleaner_offset == 4
    log.truncate(2, _NOW_MS)
    assert log.cleaner_offset == 2


def test_a_slice_of_an_old_segment_is_not_disturbed() -> None:
    log = _log()
    _put(log, ("a", "1"))
    _put(log, ("a", "2"))
    log.roll(_NOW_MS)
    held = log.read(0, 1000, end_offset=2)
    before = held.bytes()
    _compact(log)
    log.remove_deleted(_NOW_MS + (1 << 40))
    assert held.bytes() == before
    assert len(list(read(before))) == 2


def test_segments_are_joined_up_to_the_size_the_indexes_and_the_range_of_one() -> None:
    def bases(sources: list[Source]) -> list[list[int]]:
        found = group(sources, 1 << 40, segment_bytes=100, segment_index_bytes=50)
        return [[each.base_offset for each in sources] for sources in found]

    assert bases([Source(0, 50, 8, 12), Source(10, 50, 8, 12), Source(20, 1, 8, 12)]) == [[0, 10], [20]]
    assert bases([Source(0, 5, 48, 12), Source(10, 5, 8, 12)]) == [[0], [10]]
    assert bases([Source(0, 5, 8, 48), Source(10, 5, 8, 12)]) == [[0], [10]]
    far = 1 << 31
    assert bases([Source(0, 5, 8, 12), Source(10, 5, 8, 12), Source(far, 5, 8, 12)]) == [[0, 10], [far]]
    assert bases([Source(0, 5, 8, 12), Source(10, 5, 8, 12), Source(far + 1, 5, 8, 12)]) == [[0], [10], [far + 1]]


def test_a_batch_larger_than_the_buffer_is_read_whole() -> None:
    log = _log()
    _put(log, ("a", "x" * 500))
    _put(log, ("b", "y"))
    log.roll(_NOW_MS)
    _compact(log, buffer_bytes=100)
    assert [pair[0] for pair in _pairs(log)] == [0, 1]


def test_a_batch_with_a_wrong_crc_is_never_cleaned() -> None:
    log = _log()
    _put(log, ("a", "1"), ("a", "2"))
    log.roll(_NOW_MS)
    log.segments[0].file.write(b"\xff", log.segments[0].size - 2)
    job = plan(log, 0, 2, _NOW_MS, keys_max=10, buffer_bytes=400)
    with pytest.raises(KafkaError) as raised:
        list(Cleaning(log.disk, job, lambda _: None).run())
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    discard(log.disk, "/t-0")
    assert not [name for name in log.disk.list("/t-0") if name.endswith(".cleaned")]


def test_what_was_truncated_meanwhile_is_not_swapped_in() -> None:
    log = _log()
    for number in range(3):
        _put(log, ("a", f"{number}"))
        log.roll(_NOW_MS)
    job = plan(log, 0, 3, _NOW_MS, keys_max=10, buffer_bytes=400)
    cleaning = Cleaning(log.disk, job, lambda _: None).run()
    assert next(cleaning) == [0, 1, 2]
    log.truncate(1, _NOW_MS)
    log.roll(_NOW_MS)
    assert not swap(log, job, [0, 1, 2], _NOW_MS)
    assert _pairs(log) == [(0, "a", "0")]


# ---- the model

_KEYS = st.sampled_from(["a", "b", "c", "a-key-that-is-hashed"])
_VALUES = st.one_of(st.none(), st.text("xyz", max_size=40))
_BATCHES = st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=4)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _BATCHES, st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD])),
        st.tuples(st.just("commit"), _BATCHES, st.none()),
        st.tuples(st.just("abort"), _BATCHES, st.none()),
        st.tuples(st.just("compact"), st.integers(1, 6), st.integers(0, 1500)),
        st.tuples(st.just("roll"), st.none(), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=_STEPS)
def test_whoever_reads_a_cleaned_log_ends_up_with_the_latest_values(steps: list[tuple[str, Any, Any]]) -> None:
    log = _log()
    written: dict[int, tuple[str, str | None]] = {}
    latest: dict[str, str | None] = {}
    sequence, now_ms = 0, _NOW_MS
    for what, first, second in steps:
        before = log.end_offset
        if what == "put":
            _put(log, *first, codec=second)
        elif what in ("commit", "abort"):
            _transaction(log, 7, *first, sequence=sequence)
            sequence += len(first)
            _end(log, 7, commit=what == "commit")
        elif what == "roll":
            log.roll(_NOW_MS)
        elif cleanable(log, now_ms) is not None:
            now_ms += second
            _compact(log, now_ms, keys_max=first)
        if what in ("put", "commit"):
            for index, (key, value) in enumerate(first):
                written[before + index] = (key, value)
                latest[key] = value
        assert log.producers.by_id.get(7) is None or log.producers.by_id[7].epoch != NO_EPOCH
        _must_hold(log, written, latest, sequence)
    reopened = Log.open(log.disk, "/t-0", _SETTINGS, now_ms=_NOW_MS)
    assert reopened.end_offset == log.end_offset
    _must_hold(reopened, written, latest, sequence)


def _must_hold(
    log: Log, written: dict[int, tuple[str, str | None]], latest: dict[str, str | None], sequence: int
) -> None:
    hidden = [(each.first_offset, each.last_offset) for each in log.aborted(0, log.end_offset)]
    committed = [pair for pair in _pairs(log) if not any(first <= pair[0] < last for first, last in hidden)]
    for offset, key, value in committed:
        assert written[offset] == (key, value)
    offsets = [offset for offset, _, _ in committed]
    assert offsets == sorted(set(offsets))
    found = {key: value for _, key, value in committed}
    # A deleted key may be gone without a trace.
    assert {k: v for k, v in found.items() if v is not None} == {k: v for k, v in latest.items() if v is not None}
    if sequence:
        assert log.producers.by_id[7].last_sequence == sequence - 1
    for segment in log.segments:
        headers = dict(segment.headers())
        assert all(headers[at].last_offset == offset for offset, at in segment.offset_index.entries())
        assert segment.max_timestamp == max((each.max_timestamp for each in headers.values()), default=-1)
