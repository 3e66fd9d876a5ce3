"""What the cleaner keeps, and what goes: batch by batch, rule by rule."""

import dataclasses

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.cleaning.job import Cleaning, Job, plan
from ottla.log.cleaning.plan import CleaningSource, cleanable, group, is_due
from ottla.log.cleaning.swap import discard, swap
from ottla.log.log import Log, LogSettings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings
from ottla.wire.batch import NO_TIMESTAMP, NewRecord, Record, build, read
from ottla.wire.codec import Codec
from tests.log.compaction import (
    NOW_MS,
    SETTINGS,
    batches,
    compact,
    end,
    open_log,
    pairs,
    put,
    records_of,
    transaction,
)


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = open_log()
    put(log, ("a", "1"), ("b", "2"))
    put(log, ("a", "3"))
    put(log, ("c", "4"), ("b", "5"))
    log.roll(NOW_MS)
    compact(log)
    assert pairs(log) == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5")]
    assert log.end_offset == 5


def test_the_active_segment_is_not_cleaned_and_does_not_clean() -> None:
    log = open_log()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll(NOW_MS)
    put(log, ("a", "3"))
    put(log, ("a", "4"))
    compact(log)
    assert pairs(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_bounds_its_codec_and_its_headers(codec: Codec) -> None:
    log = open_log()
    records = [(NOW_MS + index, b"k%d" % index, b"v", [("h", b"x"), ("n", None)]) for index in range(3)]
    log.append(build(records, codec=codec), leader_epoch=7, now_ms=NOW_MS)
    put(log, ("k0", "w"), ("k2", "w"))
    log.roll(NOW_MS)
    compact(log)
    batch = next(batches(log))
    header = batch.header
    assert (header.base_offset, header.last_offset, header.count, header.codec) == (0, 2, 1, codec)
    assert header.partition_leader_epoch == 7
    assert header.max_timestamp == NOW_MS + 1
    assert batch.records() == [Record(1, NOW_MS + 1, b"k1", b"v", [("h", b"x"), ("n", None)])]


def test_a_batch_of_which_all_stays_is_copied_byte_by_byte() -> None:
    log = open_log()
    # Bytes that the node would not write: it compresses more.
    records: list[NewRecord] = [(NOW_MS, key, b"the same " * 99, []) for key in (b"a", b"b")]
    data = bytearray(build(records, codec=Codec.GZIP, level=1))
    assert len(data) != len(build(records, codec=Codec.GZIP))
    log.append(data, leader_epoch=1, now_ms=NOW_MS)
    put(log, ("c", "1"))
    put(log, ("c", "2"))
    log.roll(NOW_MS)
    compact(log)
    assert bytes(next(batches(log)).data) == bytes(data)


def test_a_tombstone_gets_a_horizon_when_first_cleaned_and_goes_when_it_is_over() -> None:
    log = open_log()
    put(log, ("a", "1"))
    put(log, ("a", None), ("b", "2"), codec=Codec.LZ4)
    log.roll(NOW_MS)
    put(log, ("x", "1"))
    compact(log, NOW_MS)
    batch = next(batches(log))
    assert batch.header.has_delete_horizon
    assert batch.header.base_timestamp == NOW_MS + 1000
    assert [each.timestamp for each in batch.records()] == [NOW_MS, NOW_MS]
    assert pairs(log)[:2] == [(1, "a", None), (2, "b", "2")]
    log.roll(NOW_MS)
    put(log, ("x", "2"))
    compact(log, NOW_MS + 999)
    assert pairs(log)[:2] == [(1, "a", None), (2, "b", "2")]
    assert next(batches(log)).header.base_timestamp == NOW_MS + 1000
    log.roll(NOW_MS)
    put(log, ("x", "3"))
    compact(log, NOW_MS + 1000)
    assert [pair[1] for pair in pairs(log)] == ["b", "x", "x"]


def test_a_tombstone_however_old_survives_the_first_cleaning_that_sees_it() -> None:
    """KIP-534: the retention of a delete counts from its first cleaning, so that a slow reader sees it."""
    log = open_log()
    put(log, ("a", "1"), now_ms=NOW_MS - 50_000)
    put(log, ("a", None), now_ms=NOW_MS - 40_000)
    log.roll(NOW_MS)
    put(log, ("x", "1"))
    compact(log, NOW_MS)
    assert pairs(log)[0] == (1, "a", None)
    assert next(batches(log)).header.base_timestamp == NOW_MS + 1000


def test_records_of_aborted_transactions_go_and_do_not_clean() -> None:
    log = open_log()
    put(log, ("a", "1"))
    transaction(log, 7, ("a", "2"), ("b", "3"))
    end(log, 7, commit=False)
    log.roll(NOW_MS)
    compact(log)
    assert pairs(log) == [(0, "a", "1")]


def test_an_abort_that_lies_in_the_active_segment_is_known() -> None:
    log = open_log()
    put(log, ("a", "1"))
    transaction(log, 7, ("a", "2"))
    log.roll(NOW_MS)
    end(log, 7, commit=False)
    compact(log)
    assert pairs(log) == [(0, "a", "1")]


def test_what_an_undecided_transaction_wrote_is_not_touched() -> None:
    log = open_log()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll(NOW_MS)
    transaction(log, 7, ("a", "3"))
    put(log, ("a", "4"))
    log.roll(NOW_MS)
    compact(log)
    assert pairs(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]
    assert log.cleaner_offset == 2


def test_a_marker_stays_until_nothing_of_its_transaction_is_left_and_its_horizon_is_over() -> None:
    log = open_log()
    transaction(log, 7, ("a", "1"))
    end(log, 7, commit=True)
    # Another producer's later batch, and a later one of 7: neither's last batch is in the way.
    transaction(log, 7, ("z", "1"), sequence=1)
    end(log, 7, commit=True)
    log.roll(NOW_MS)
    put(log, ("a", "2"))

    def markers() -> list[int]:
        return [batch.header.base_offset for batch in batches(log) if batch.header.is_control]

    compact(log, NOW_MS)
    assert markers() == [1, 3]
    log.roll(NOW_MS)
    put(log, ("x", "1"))
    compact(log, NOW_MS + 10_000)  # The record of a goes; its marker was met with it.
    assert [pair[0] for pair in pairs(log)] == [2, 4, 5]
    assert markers() == [1, 3]
    log.roll(NOW_MS)
    put(log, ("x", "2"))
    compact(log, NOW_MS + 20_000)  # Nothing is left: from here on the horizon counts.
    assert markers() == [1, 3]
    log.roll(NOW_MS)
    put(log, ("x", "3"))
    compact(log, NOW_MS + 20_999)
    assert markers() == [1, 3]
    log.roll(NOW_MS)
    put(log, ("x", "4"))
    compact(log, NOW_MS + 21_000)
    assert markers() == [3]


def test_the_transaction_index_keeps_what_still_has_a_marker_and_records_to_hide() -> None:
    log = open_log()
    transaction(log, 7, ("a", "1"))
    end(log, 7, commit=False)
    log.roll(NOW_MS)
    compact(log)
    assert [(each.first_offset, each.last_offset) for each in log.aborted(0, 2)] == [(0, 1)]


def test_a_live_producers_last_batch_stays_though_it_is_empty() -> None:
    log = open_log()
    data = build([(NOW_MS, b"a", b"1", [])] * 2, producer_id=7, producer_epoch=3, base_sequence=5)
    log.append(data, leader_epoch=1, now_ms=NOW_MS)
    put(log, ("a", "2"))
    log.roll(NOW_MS)
    compact(log)
    first = next(batches(log)).header
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
    again = Log.open(log.disk, "/t-0", SETTINGS, now_ms=NOW_MS)
    assert again.append(data, leader_epoch=1, now_ms=NOW_MS).duplicate
    again.producers.expire(NOW_MS + (1 << 40), 1)
    again.roll(NOW_MS)
    put(again, ("a", "3"))
    compact(again)
    assert [batch.header.base_offset for batch in batches(again)] == [2, 3]


def test_a_producer_of_which_a_marker_is_all_that_is_known_keeps_its_epoch() -> None:
    log = open_log()
    transaction(log, 7, ("a", "1"))
    end(log, 7, commit=False, epoch=1)
    put(log, ("b", "1"))
    log.roll(NOW_MS)
    put(log, ("c", "1"))
    for later_ms in (0, 1_000, 10_000, 20_000):
        compact(log, NOW_MS + later_ms)
        log.roll(NOW_MS)
        put(log, ("c", "1"))
    marker = next(batches(log)).header
    assert (marker.is_control, marker.base_offset, marker.producer_epoch) == (True, 1, 1)


def test_the_last_batch_of_a_round_stays_though_it_is_empty() -> None:
    log = open_log()
    put(log, ("a", "1"))
    transaction(log, 7, ("a", "2"))
    log.roll(NOW_MS)
    end(log, 7, commit=False, epoch=1)
    compact(log)
    assert [(batch.header.last_offset, batch.header.count) for batch in batches(log)] == [(0, 1), (1, 0), (2, 1)]


def test_records_without_a_key_go_when_a_topic_becomes_compacted() -> None:
    log = open_log(settings=LogSettings())
    log.append(build([(NOW_MS, None, b"1", []), (NOW_MS, b"a", b"2", [])]), leader_epoch=1, now_ms=NOW_MS)
    log.settings = SETTINGS
    log.roll(NOW_MS)
    compact(log)
    assert pairs(log) == [(1, "a", "2")]


def test_a_map_that_is_too_small_cleans_in_several_passes() -> None:
    log = open_log()
    for number in range(40):
        put(log, (f"key-of-more-than-16-bytes-{number % 20}", f"{number}"))
    log.roll(NOW_MS)
    ends = []
    while (found := cleanable(log, NOW_MS)) is not None and found.first_dirty_offset < found.end_offset:
        compact(log, keys_max=6)
        assert log.cleaner_offset is not None
        ends.append(log.cleaner_offset)
    assert ends == [6, 12, 18, 24, 30, 36, 40]
    assert [pair[0] for pair in pairs(log)] == list(range(20, 40))


def test_only_the_dirty_segments_are_read_for_the_map() -> None:
    log = open_log()
    for number in range(60):
        put(log, (f"k{number}", "x" * 100))
    compact(log)
    for number in range(60, 80):
        put(log, (f"k{number}", "x" * 100))
    found = cleanable(log, NOW_MS)
    assert found is not None
    job = plan(log, found.first_dirty_offset, found.end_offset, NOW_MS, keys_max=1000, buffer_bytes=4000)
    begins = [each.base_offset for each in job.sources]
    first = max(slot for slot, base in enumerate(begins) if base <= job.first_dirty_offset)
    assert first > 3
    cleaning = Cleaning(log.disk, job, lambda _: None)
    cleaning._read_keys()
    sizes = {each.base_offset: each.size for each in log.segments}
    assert cleaning.bytes_read == sum(sizes[base] for base in begins[first:])


def test_what_the_map_does_not_reach_stays_whole() -> None:
    log = open_log(settings=LogSettings())
    log.append(build([(NOW_MS, b"a", b"1", [])]), leader_epoch=1, now_ms=NOW_MS)
    log.append(build([(NOW_MS, None, b"2", [])]), leader_epoch=1, now_ms=NOW_MS)
    log.settings = SETTINGS
    log.roll(NOW_MS)
    compact(log, keys_max=1)
    assert [each.offset for each in records_of(log)] == [0, 1]
    compact(log, keys_max=1)
    assert [each.offset for each in records_of(log)] == [0]


def test_the_lag_keeps_young_segments_and_its_maximum_makes_a_log_due() -> None:
    slow = LogSettings(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=1.0,
        min_compaction_lag_ms=100,
        max_compaction_lag_ms=500,
    )
    log = open_log(settings=slow)
    put(log, ("a", "1"), now_ms=NOW_MS)
    log.roll(NOW_MS)
    put(log, ("a", "2"), now_ms=NOW_MS + 50)
    log.roll(NOW_MS)
    put(log, ("a", "3"), now_ms=NOW_MS + 60)
    assert cleanable(log, NOW_MS + 99) is None
    found = cleanable(log, NOW_MS + 100)
    assert found is not None
    assert found.end_offset == 1
    assert not is_due(found, log)
    found = cleanable(log, NOW_MS + 501)
    assert found is not None
    assert found.end_offset == 2
    assert is_due(found, log)


def test_a_compacted_topics_segments_are_never_open_for_longer_than_the_lag_allows() -> None:
    def segment_ms(**texts: str) -> int:
        overrides = {name.replace("_", "."): text for name, text in texts.items()}
        server = ServerSettings.parse(
            {
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "process.roles": "broker,controller",
                "controller.listener.names": "C",
                "listeners": "PLAINTEXT://:9092,C://:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,C:PLAINTEXT",
            }
        )
        return LogSettings.of(TopicSettings.resolve(overrides, server), 1000).segment_ms

    assert segment_ms(cleanup_policy="compact", segment_ms="5000", max_compaction_lag_ms="700") == 700
    assert segment_ms(cleanup_policy="compact,delete", segment_ms="500", max_compaction_lag_ms="700") == 500
    assert segment_ms(cleanup_policy="delete", segment_ms="5000", max_compaction_lag_ms="700") == 5000


def test_the_ratio_is_that_of_the_dirty_bytes() -> None:
    log = open_log()
    for key in "ab":
        put(log, (key, "1"))
        log.roll(NOW_MS)
    compact(log)
    put(log, ("c", "1"))
    log.roll(NOW_MS)
    found = cleanable(log, NOW_MS)
    assert found is not None
    assert (found.first_dirty_offset, found.end_offset) == (2, 3)
    assert found.ratio == pytest.approx(1 / 3)


def test_a_checkpoint_outside_of_the_log_is_not_believed() -> None:
    log = open_log()
    put(log, ("a", "1"))
    log.roll(NOW_MS)
    log.cleaner_offset = 99
    found = cleanable(log, NOW_MS)
    assert found is not None
    assert found.first_dirty_offset == 0


def test_a_truncation_takes_the_cleaners_offset_back() -> None:
    log = open_log()
    for number in range(4):
        put(log, ("a", f"{number}"))
        log.roll(NOW_MS)
    compact(log)
    assert log.cleaner_offset == 4
    log.truncate(2, NOW_MS)
    assert log.cleaner_offset == 2


def test_a_slice_of_an_old_segment_is_not_disturbed() -> None:
    log = open_log()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll(NOW_MS)
    held = log.read(0, 1000, end_offset=2)
    before = held.bytes()
    compact(log)
    log.remove_deleted(NOW_MS + (1 << 40))
    assert held.bytes() == before
    assert len(list(read(before))) == 2


def test_segments_are_joined_up_to_the_size_the_indexes_and_the_range_of_one() -> None:
    def bases(sources: list[CleaningSource]) -> list[list[int]]:
        found = group(sources, 1 << 40, segment_bytes=100, segment_index_bytes=50)
        return [[each.base_offset for each in sources] for sources in found]

    assert bases([CleaningSource(0, 50, 8, 12), CleaningSource(10, 50, 8, 12), CleaningSource(20, 1, 8, 12)]) == [
        [0, 10],
        [20],
    ]
    assert bases([CleaningSource(0, 5, 48, 12), CleaningSource(10, 5, 8, 12)]) == [[0], [10]]
    assert bases([CleaningSource(0, 5, 8, 48), CleaningSource(10, 5, 8, 12)]) == [[0], [10]]
    far = 1 << 31
    assert bases([CleaningSource(0, 5, 8, 12), CleaningSource(10, 5, 8, 12), CleaningSource(far, 5, 8, 12)]) == [
        [0, 10],
        [far],
    ]
    assert bases([CleaningSource(0, 5, 8, 12), CleaningSource(10, 5, 8, 12), CleaningSource(far + 1, 5, 8, 12)]) == [
        [0],
        [10],
        [far + 1],
    ]


def test_a_batch_larger_than_the_buffer_is_read_whole() -> None:
    log = open_log()
    put(log, ("a", "x" * 500))
    put(log, ("b", "y"))
    log.roll(NOW_MS)
    compact(log, buffer_bytes=100)
    assert [pair[0] for pair in pairs(log)] == [0, 1]


def test_a_batch_with_a_wrong_crc_is_never_cleaned() -> None:
    log = open_log()
    put(log, ("a", "1"), ("a", "2"))
    log.roll(NOW_MS)
    log.segments[0].file.write(b"\xff", log.segments[0].size - 2)
    job = plan(log, 0, 2, NOW_MS, keys_max=10, buffer_bytes=400)
    with pytest.raises(KafkaError) as raised:
        list(Cleaning(log.disk, job, lambda _: None).run())
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    discard(log.disk, "/t-0")
    assert not [name for name in log.disk.list("/t-0") if name.endswith(".cleaned")]


def cleaned() -> tuple[Log, Job]:
    """A log of three records of one key, and the job that has cleaned them; only the swap is left."""
    log = open_log()
    for number in range(3):
        put(log, ("a", f"{number}"))
        log.roll(NOW_MS)
    job = plan(log, 0, 3, NOW_MS, keys_max=10, buffer_bytes=400)
    cleaning = Cleaning(log.disk, job, lambda _: None).run()
    assert next(cleaning) == [0, 1, 2]
    return log, job


def test_what_was_truncated_meanwhile_is_not_swapped_in() -> None:
    log, job = cleaned()
    log.truncate(1, NOW_MS)
    log.roll(NOW_MS)
    assert not swap(log, job, [0, 1, 2], NOW_MS)
    assert pairs(log) == [(0, "a", "0")]


def test_a_topic_that_is_no_longer_compacted_keeps_what_it_has() -> None:
    log, job = cleaned()
    log.settings = dataclasses.replace(SETTINGS, cleanup_policy=frozenset({"delete"}))
    assert not swap(log, job, [0, 1, 2], NOW_MS)
    assert pairs(log) == [(0, "a", "0"), (1, "a", "1"), (2, "a", "2")]
    log.settings = SETTINGS
    assert swap(log, job, [0, 1, 2], NOW_MS)
    assert pairs(log) == [(2, "a", "2")]


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_damaged_index_of_a_cleaned_segment_is_rebuilt_from_its_batches(kind: str) -> None:
    log = open_log()
    for number in range(40):
        put(log, (f"k{number}", "v" * 50), now_ms=NOW_MS + number)
    compact(log, NOW_MS + 100)
    segment = log.segments[0]
    assert len(log.segments) > 1
    assert segment.size
    file = log.disk.open(segment.path(kind))
    file.truncate(file.size() - 1)
    file.close()
    assert log.offset_for_timestamp(NOW_MS + 3, log.end_offset) == (NOW_MS + 3, 3, 1)
    assert segment.max_timestamp >= NOW_MS + 3
    assert segment.offset_index.entries()
