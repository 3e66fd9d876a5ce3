"""What the cleaner makes of one batch, and which records it refuses to read."""

from __future__ import annotations

import re

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.cleaning.batch import BatchRetention, clean_batch, empty_batch, raw_records
from ottla.log.cleaning.offset_map import OffsetMap
from ottla.wire.batch import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Batch,
    NewRecord,
    Record,
    build,
    check,
    header_at,
    rewrite,
)
from ottla.wire.codec import Codec
from ottla.wire.varint import encode_varint

_NOW_MS = 1_000_000
_KEPT_MS = 5000


def _record(key: bytes | None, value: bytes | None, *, delta: int = 0, timestamp: int = 0, headers: int = 0) -> bytes:
    body = b"\0" + encode_varint(timestamp) + encode_varint(delta)
    for part in (key, value):
        body += encode_varint(-1) if part is None else encode_varint(len(part)) + part
    body += encode_varint(headers)
    return encode_varint(len(body)) + body


def test_the_records_of_a_body_are_told_apart() -> None:
    parts = [_record(b"k", b"value", timestamp=-3), _record(None, None, delta=1), _record(b"", b"", delta=700)]
    found = list(raw_records(b"".join(parts), 3))
    assert [(each.timestamp_delta, each.offset_delta, each.key, each.has_value) for each in found] == [
        (-3, 0, b"k", True),
        (0, 1, None, False),
        (0, 700, b"", True),
    ]
    body = b"".join(parts)
    assert [body[each.start : each.end] for each in found] == parts
    # The bytes behind the timestamp: a copy of the record with another timestamp has the rest from here.
    assert [body[each.rest :][:1] for each in found] == [encode_varint(0), encode_varint(1), encode_varint(700)[:1]]
    assert list(raw_records(b"", 0)) == []


_ONE = _record(b"key", b"value")


@pytest.mark.parametrize(
    ("body", "count", "why"),
    [
        pytest.param(_ONE, 2, "a record is cut off or malformed", id="fewer records than the header says"),
        pytest.param(_ONE + _ONE, 1, f"{len(_ONE)} bytes after the last of 1 records", id="more records"),
        pytest.param(_ONE + b"\0", 1, "1 bytes after the last of 1 records", id="a byte more"),
        pytest.param(b"\0", 0, "1 bytes after the last of 0 records", id="bytes of no record"),
        pytest.param(_ONE[:-1], 1, f"a record of {len(_ONE) - 1} bytes with {len(_ONE) - 2} left", id="a byte less"),
        pytest.param(encode_varint(-1) + _ONE[1:], 1, "a record of -1 bytes", id="a length below 0"),
        pytest.param(
            encode_varint(len(_ONE) - 3) + _ONE[1:-2], 1, "a record's fields do not fit", id="a value that is too long"
        ),
        pytest.param(
            encode_varint(5) + b"\0\0\0" + encode_varint(60) + b"k", 1, "cut off or malformed", id="a key too long"
        ),
        pytest.param(b"\xff" * 12, 1, "cut off or malformed", id="a number that does not end"),
    ],
)  # fmt: skip
def test_records_that_do_not_fill_their_batch_are_refused(body: bytes, count: int, why: str) -> None:
    with pytest.raises(KafkaError, match=re.escape(why)) as refused:
        list(raw_records(body, count))
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("value", "spare", "fits"), [(b"value", 0, True), (b"value", -1, False), (None, 0, True), (b"", 0, True)]
)
def test_a_value_may_end_with_its_record(value: bytes | None, spare: int, fits: bool) -> None:
    """The cleaner does not read the headers, so it asks only that the value fits."""
    inner = _record(b"k", value)[1:-1]
    body = encode_varint(len(inner) + spare) + inner[: len(inner) + spare]
    if fits:
        assert [each.has_value for each in raw_records(body, 1)] == [value is not None]
    else:
        with pytest.raises(KafkaError, match="do not fit into its length"):
            list(raw_records(body, 1))


def _batch(*records: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE, base: int = 10) -> bytes:
    made: list[NewRecord] = [(_NOW_MS + 7 * n, key, value, [("h", b"x")]) for n, (key, value) in enumerate(records)]
    return build(made, base_offset=base, leader_epoch=4, codec=codec)


def _map(end: int, **latest: int) -> OffsetMap:
    found = OffsetMap(100)
    for key, offset in latest.items():
        found.put(key.encode(), offset)
    found.latest_offset = end
    return found


_PLAIN = BatchRetention(discards=False, keeps_empty=False)


def _cleaned(
    data: bytes, latest: OffsetMap, retention: BatchRetention = _PLAIN, *, now_ms: int = _NOW_MS
) -> Batch | None:
    """The cleaned batch, whose checksum is right."""
    found = clean_batch(header_at(data), data, latest, retention, now_ms, _KEPT_MS)
    return None if found is None else Batch(check(found), memoryview(found))


def _keys(batch: Batch | None) -> list[tuple[int, bytes | None]]:
    return [] if batch is None else [(each.offset, each.key) for each in batch.records()]


@pytest.mark.parametrize(
    ("latest", "kept"),
    [
        pytest.param(_map(13, a=12, b=11), [(11, b"b"), (12, b"a")], id="the last of each key"),
        pytest.param(_map(20, a=20, b=20), [], id="all of them replaced later"),
        pytest.param(_map(13, a=10, b=11), [(10, b"a"), (11, b"b"), (12, b"a")], id="those behind the map's"),
        pytest.param(_map(9, a=9, b=9), [(10, b"a"), (11, b"b"), (12, b"a"), (13, None)], id="not read yet"),
        pytest.param(_map(12, a=12, b=12), [(12, b"a"), (13, None)], id="the map ends within the batch"),
        pytest.param(_map(13, a=12), [(11, b"b"), (12, b"a")], id="a key that the map does not have, and none"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_record_stays_unless_a_later_one_has_its_key(
    latest: OffsetMap, kept: list[tuple[int, bytes | None]], codec: Codec
) -> None:
    data = _batch((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (None, b"4"), codec=codec)
    found = _cleaned(data, latest)
    assert _keys(found) == kept
    if found is not None:
        header = found.header
        assert (header.base_offset, header.last_offset, header.count) == (10, 13, len(kept))
        assert (header.codec, header.partition_leader_epoch, header.base_timestamp) == (codec, 4, _NOW_MS)
        last = max(offset for offset, _ in kept) - 10
        assert header.max_timestamp == _NOW_MS + 7 * last
        assert all(each.headers == [("h", b"x")] for each in found.records())


def test_a_batch_of_which_nothing_goes_is_passed_on_as_it_is() -> None:
    data = _batch((b"a", b"1"), (b"b", b"2"))
    assert clean_batch(header_at(data), data, _map(11, a=10, b=11), _PLAIN, _NOW_MS, _KEPT_MS) is data


def test_the_times_of_appends_stay_though_the_last_record_goes() -> None:
    sent = _batch((b"a", b"1"), (b"b", b"2"))
    data = bytes(rewrite(sent, header_at(sent), attributes=LOG_APPEND_TIME, max_timestamp=_NOW_MS + 500))
    found = _cleaned(data, _map(20, a=10, b=20))
    assert found is not None and _keys(found) == [(10, b"a")]
    assert (found.header.is_log_append_time, found.header.max_timestamp) == (True, _NOW_MS + 500)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_tombstone_is_given_a_time_and_goes_when_that_is_over(codec: Codec) -> None:
    data, latest = _batch((b"a", b"1"), (b"b", None), codec=codec), _map(11, a=10, b=11)
    marked = _cleaned(data, latest)
    assert marked is not None
    header = marked.header
    assert (header.has_delete_horizon, header.base_timestamp) == (True, _NOW_MS + _KEPT_MS)
    assert (header.count, header.last_offset, header.codec) == (2, 11, codec)
    assert header.max_timestamp == _NOW_MS + 7
    assert marked.records() == [
        Record(10, _NOW_MS, b"a", b"1", [("h", b"x")]),
        Record(11, _NOW_MS + 7, b"b", None, [("h", b"x")]),
    ]
    # Until then nothing changes: a second cleaning does not put the time off.
    for now_ms in (_NOW_MS + 1, _NOW_MS + _KEPT_MS - 1):
        same = clean_batch(header, marked.data, latest, _PLAIN, now_ms, _KEPT_MS)
        assert same is marked.data
    over = _cleaned(bytes(marked.data), latest, now_ms=_NOW_MS + _KEPT_MS)
    assert over is not None and _keys(over) == [(10, b"a")]
    assert over.records()[0].timestamp == _NOW_MS
    assert (over.header.has_delete_horizon, over.header.base_timestamp) == (True, _NOW_MS + _KEPT_MS)


def test_a_batch_of_values_is_given_no_time() -> None:
    found = _cleaned(_batch((b"a", b"1"), (b"b", b"2")), _map(20, a=10, b=20))
    assert found is not None and not found.header.has_delete_horizon


@pytest.mark.parametrize("discards", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_batch_without_records_stays_for_its_producer_only(discards: bool, keeps: bool) -> None:
    data = build(
        [(_NOW_MS, b"a", b"1", []), (_NOW_MS + 3, b"a", None, [])],
        base_offset=10, leader_epoch=4, codec=Codec.GZIP,
        producer_id=7, producer_epoch=2, base_sequence=5, transactional=True,
    )  # fmt: skip
    latest = _map(11, a=11) if discards else _map(20, a=20)
    found = _cleaned(data, latest, BatchRetention(discards, keeps))
    assert (found is not None) is keeps
    if found is None:
        return
    header = found.header
    assert (header.count, header.codec, len(found.data)) == (0, Codec.NONE, header.size)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (10, 11, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 5, 6)
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True, False, False)
    assert (header.base_timestamp, header.max_timestamp) == (NO_TIMESTAMP, _NOW_MS + 3)
    assert empty_batch(header, found.data) is found.data
    assert _cleaned(bytes(found.data), latest, _PLAIN) is None
    same = clean_batch(header, found.data, latest, BatchRetention(discards, keeps_empty=True), _NOW_MS, _KEPT_MS)
    assert same is found.data


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_marker_is_given_a_time_once_its_transaction_has_no_records(is_empty: bool) -> None:
    marker: NewRecord = (_NOW_MS - 9, b"\0\0\0\1", bytes(6), [])
    data = build([marker], base_offset=10, producer_id=7, producer_epoch=2, transactional=True, control=True)
    # A record of a client may have the marker's key.
    latest = _map(50)
    latest.put(b"\0\0\0\1", 50)
    found = _cleaned(data, latest, BatchRetention(discards=False, keeps_empty=False, is_empty_marker=is_empty))
    assert found is not None and found.header.is_control and found.header.count == 1
    assert found.header.has_delete_horizon is is_empty
    assert found.header.base_timestamp == (_NOW_MS + _KEPT_MS if is_empty else _NOW_MS - 9)
    assert found.records()[0][:4] == (10, _NOW_MS - 9, b"\0\0\0\1", bytes(6))
