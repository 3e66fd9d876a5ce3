"""Records to bytes and back: in columns, in a loop, in NumPy, all the same."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.producer.delivery import ProducerBatch
from ottla.columns.column import Decoded, gather
from ottla.columns.encode_columns import encode_columns
from ottla.columns.encode_records import encode_records
from ottla.columns.field import Fields, record_starts
from ottla.columns.record import ConsumerRecord, Unread, batches, decode_records_in_turn
from ottla.kernel.error import KafkaError
from ottla.wire.batch import HEADER_BYTES, build, header_at
from ottla.wire.codec import Codec

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Header = tuple[str, bytes | None]
Row = tuple[int, bytes | None, bytes | None, list[Header]]

maybe = st.none() | st.binary(max_size=200)
headers: st.SearchStrategy[list[Header]] = st.just([]) | st.lists(st.tuples(st.text(max_size=5), maybe), max_size=3)
row = st.tuples(st.integers(0, 3), maybe, maybe, headers)
rows = st.lists(row, min_size=1, max_size=40)
#: Long enough for two-byte offset deltas, of one size or nearly so.
uniform: st.SearchStrategy[list[Row]] = st.tuples(st.integers(65, 300), st.integers(0, 130), st.booleans()).map(
    lambda it: [(n // 70, (b"k%03d" % n if it[2] else None), b"v" * it[1], []) for n in range(it[0])]
)


def built(records: Sequence[Row]) -> tuple[bytes, list[int]]:
    times = np.cumsum([step for step, *_ in records]) + 1_700_000_000_000
    batch = build((int(time), key, value, own) for time, (_, key, value, own) in zip(times, records, strict=True))
    return batch, [int(time) for time in times]


def runs_of(times: list[int]) -> list[tuple[int, int]]:
    return [(n, time) for n, time in enumerate(times) if n == 0 or times[n - 1] != time]


@given(rows | uniform)
@settings(max_examples=60, deadline=None)
def test_records_are_encoded_as_the_wire_builds_them(records: list[Row]) -> None:
    batch, times = built(records)
    keys = [key for _, key, _, _ in records]
    own = [some for *_, some in records]
    body = encode_records(
        [value for _, _, value, _ in records],
        keys if any(key is not None for key in keys) else None,
        own if any(own) else None,
        runs_of(times),
    )
    assert body == batch[HEADER_BYTES:]


@given(rows | uniform)
@settings(max_examples=60, deadline=None)
def test_columns_are_encoded_as_the_wire_builds_them(records: list[Row]) -> None:
    batch, times = built(records)
    # Sliced, so that no offset is zero by luck.
    values = pa.array([b"before", *(value for _, _, value, _ in records)], pa.binary())[1:]
    keys = pa.array([b"before", *(key for _, key, _, _ in records)], pa.binary())[1:]
    pairs = [None if not own else [{"key": name, "value": content} for name, content in own] for *_, own in records]
    own = pa.array([[{"key": "before", "value": None}], *pairs], HEADERS)[1:]
    stamps = np.array(times, dtype=np.int64)
    body = encode_columns(
        values,
        keys if keys.null_count < len(keys) else None,
        own if own.null_count < len(own) else None,
        stamps,
    )
    assert bytes(body) == batch[HEADER_BYTES:]
    roomy = encode_columns(values, keys, own, stamps, room=7)
    assert bytes(roomy) == bytes(7) + batch[HEADER_BYTES:]


@given(rows | uniform)
@settings(max_examples=60, deadline=None)
def test_what_was_encoded_comes_back_in_a_loop_and_in_columns(records: list[Row]) -> None:
    batch, times = built(records)
    header = header_at(batch)
    body = batch[HEADER_BYTES:]
    looped = decode_records_in_turn(body, header, "t", 3, -1)
    decoded = Decoded(body, header, "t", 3, -1)
    fast = decoded.part(0, len(records))
    parts = decoded.part(0, len(records) // 2) + decoded.part(len(records) // 2, len(records))
    assert parts == fast
    expected = [
        ("t", 3, n, time, key, value, own)
        for n, (time, (_, key, value, own)) in enumerate(zip(times, records, strict=True))
    ]
    for found in (looped, fast):
        assert [(*one[:6], list(one.headers)) for one in found] == expected


@given(rows | uniform, st.data())
@settings(max_examples=150, deadline=None)
def test_broken_records_are_refused_and_never_read_out_of_bounds(records: list[Row], data: st.DataObject) -> None:
    batch, _ = built(records)
    body = bytearray(batch[HEADER_BYTES:])
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    header = header_at(batch)

    def looped() -> list[ConsumerRecord]:
        return decode_records_in_turn(bytes(body), header, "t", 0, -1)

    def fast() -> list[ConsumerRecord]:
        return Decoded(bytes(body), header, "t", 0, -1).part(0, header.count)

    for read in (looped, fast):
        try:
            found = read()
        except KafkaError:
            continue
        assert len(found) == header.count


def test_pieces_are_gathered_with_nulls_and_without_a_copy_of_the_gaps() -> None:
    values = [b"", None, b"abc", b"d" * 300, None]
    batch = build((0, None, value, ()) for value in values)
    body = batch[HEADER_BYTES:]
    data = np.frombuffer(body, dtype=np.uint8)
    fields = Fields(data, record_starts(data, body, 0, len(body), 5))
    assert gather(data, pa.py_buffer(body), fields.value_at, fields.value_size).to_pylist() == values


def test_batches_before_the_offset_and_control_batches_are_left_out() -> None:
    first = build([(0, None, b"a", ()), (0, None, b"b", ())])
    control = build([(0, b"\x00\x00\x00\x01", b"", ())], base_offset=2, producer_id=9, transactional=True, control=True)
    last = build([(0, None, b"c", ())], base_offset=3)
    data = first + control + last
    assert [header.base_offset for _, header in batches(data, 0, aborted=None, check_crcs=True)] == [0, 3]
    assert [header.base_offset for _, header in batches(data, 2, aborted=None, check_crcs=True)] == [3]
    unread = Unread(data, 0, header_at(data), "t", 0, 1)
    assert (unread.next_offset, unread.end_offset) == (1, 2)
    (found,) = unread.take(5)
    assert (found.offset, found.value) == (1, b"b")
    assert not unread
    assert unread.next_offset == 2


def test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    aborted = build(
        [(0, None, b"no", ())], base_offset=0, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    other = build(
        [(0, None, b"yes", ())], base_offset=1, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True
    )
    marker = build([(0, b"\x00\x00\x00\x00", b"", ())], base_offset=2, producer_id=9, transactional=True, control=True)
    again = build(
        [(0, None, b"new", ())], base_offset=3, producer_id=9, producer_epoch=0, base_sequence=1, transactional=True
    )
    data = aborted + other + marker + again
    shown = batches(data, 0, aborted=[(9, 0)], check_crcs=True)
    assert [header.base_offset for _, header in shown] == [1, 3]


def test_a_batch_with_a_wrong_crc_is_refused() -> None:
    batch = bytearray(build([(0, None, b"a", ())]))
    batch[-2] ^= 1
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        list(batches(bytes(batch), 0, aborted=None, check_crcs=True))


def test_records_are_laid_out_behind_room_for_the_header_and_sent_from_there() -> None:
    made = ProducerBatch("t", 0, 0, 0)
    for _ in range(300):
        made.add(b"v" * 100, None, None, None, 1_700_000_000_000)
    made.seal()
    wanted = build([(1_700_000_000_000, None, b"v" * 100, ())] * 300)
    sent = made.encode(Codec.NONE, None)
    assert sent is made.uncompressed, "there is a copy"
    assert bytes(sent) == wanted
    # Sent again under a number of its own, what is still on its way stays as it was.
    made.attempts = 1
    made.sequence((7, 0), 0)
    assert header_at(made.encode(Codec.NONE, None)).producer_id == 7
    assert bytes(sent) == wanted
