"""Records that are malformed, each in one field, as the loop, the columns and the columns of headers meet them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.columns.column import Decoded, headers_of
from ottla.columns.field import Fields, fields_of, record_starts, varints
from ottla.columns.header_column import HEADERS, header_column, no_headers
from ottla.columns.record import ConsumerRecord, Unread, decode_records_in_turn
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.batch import CHECKED, BatchHeader, Header, assemble, build, header_at
from ottla.wire.varint import encode_varint

#: Attributes, timestamp delta 0, offset delta 0, no key, no value.
HEAD = b"\x00\x00\x00\x01\x01"


def body_of(*records: bytes) -> bytes:
    return b"".join(encode_varint(len(record)) + record for record in records)


def header_of(count: int) -> BatchHeader:
    checked = CHECKED.pack(0, count - 1, 0, 0, -1, -1, -1, count)
    return header_at(assemble(0, 0, checked, b""))


def looped(body: bytes, count: int) -> list[ConsumerRecord]:
    return decode_records_in_turn(body, header_of(count), "t", 0, -1)


def decoded(body: bytes, count: int) -> list[ConsumerRecord]:
    return Decoded(body, header_of(count), "t", 0, -1).part(0, count)


def tabled(body: bytes, count: int) -> Any:
    data = np.frombuffer(body, dtype=np.uint8)
    return header_column(data, pa.py_buffer(body), fields_of(data, body, 0, len(body), count)).to_pylist()


WAYS: list[Callable[[bytes, int], Any]] = [looped, decoded, tabled]


@pytest.mark.parametrize("read", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        body_of(HEAD + b"\x00")[:-1],
        encode_varint(7) + HEAD + b"\x00",
        body_of(HEAD),
        body_of(HEAD + b"\x00\x00"),
        body_of(b"\x00\x00\x00\x02"),
        body_of(HEAD + b"\x02\x02a\x02"),
        body_of(HEAD + b"\x02\x01\x01"),
        body_of(HEAD + b"\x02\x01"),
        body_of(HEAD + b"\x02\x02a\x01\x00"),
        body_of(HEAD + b"\x04\x02a\x01"),
        body_of(HEAD + b"\x01"),
        body_of(HEAD + b"\x03"),
        body_of(b"\x00" + b"\x80" * 10 + b"\x00\x00\x01\x01\x00"),
    ],
    ids=[
        "nothing",
        "cut off",
        "length too large",
        "no header count",
        "a byte too many",
        "key beyond the batch",
        "header value beyond the batch",
        "header without a key",
        "header without a key nor a value",
        "a byte after the headers",
        "fewer headers than counted",
        "minus one headers",
        "minus two headers",
        "varint without an end",
    ],
)
def test_a_record_that_is_malformed_is_corrupt_whichever_way_it_is_read(
    read: Callable[[bytes, int], Any], body: bytes
) -> None:
    with pytest.raises(KafkaError) as raised:
        read(body, 1)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("read", [decoded, tabled], ids=lambda way: way.__name__)
def test_bytes_after_the_last_record_are_corrupt(read: Callable[[bytes, int], Any]) -> None:
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: the records do not fill their batch"):
        read(body_of(HEAD + b"\x00") + b"\x00", 1)


@pytest.mark.parametrize("sizes", [[0, 5, 300, 9_000], [9_000, 0, 300, 5]])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_walk_that_runs_out_of_bytes_is_corrupt(sizes: list[int], cut: int) -> None:
    """Lengths of one, two and three bytes, walked one after the other."""
    body = body_of(*(HEAD[:4] + encode_varint(size) + b"v" * size + b"\x00" for size in sizes))
    data = np.frombuffer(body, dtype=np.uint8)
    starts = record_starts(data, body, 0, len(body), 4)
    assert Fields(data, starts).value_size.tolist() == sizes
    short = np.frombuffer(body[:-cut], dtype=np.uint8)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: the records do not fill their batch"):
        fields_of(short, body[:-cut], 0, len(short), 4)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a record is longer than its batch"):
        fields_of(data, body, 0, len(body), 5)


def test_a_record_that_reaches_beyond_its_batch_is_longer_than_it() -> None:
    body = body_of(HEAD[:4] + encode_varint(5) + b"v" * 5 + b"\x00") * 2
    data = np.frombuffer(body, dtype=np.uint8)
    assert record_starts(data, body, 0, len(body), 2).tolist() == [0, len(body) // 2]
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a record is longer than its batch"):
        record_starts(data, body, 0, len(body) // 2 - 1, 1)


def test_a_varint_in_a_column_has_ten_bytes_at_most() -> None:
    longest = encode_varint(-(1 << 63))
    assert len(longest) == 10
    (value,), (end,) = varints(np.frombuffer(longest + b"\x00", dtype=np.uint8), np.array([0]))
    assert (int(value), int(end)) == (-(1 << 63), 10)
    endless = np.frombuffer(b"\x80" * 10 + b"\x01", dtype=np.uint8)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a varint has more than ten bytes"):
        varints(endless, np.array([0]))


def test_the_name_of_a_header_that_is_not_utf_8_is_refused_in_a_column_and_replaced_in_an_object() -> None:
    body = body_of(HEAD + b"\x02\x02\xff\x01")
    for read in (looped, decoded):
        assert read(body, 1)[0].headers == (("\ufffd", None),)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a header's key is not UTF-8"):
        tabled(body, 1)


@pytest.mark.parametrize("count", [1, 63, 64, 200, 8_191, 8_192])
def test_headers_of_any_number_are_read_back(count: int) -> None:
    own: list[Header] = [(f"{number % 7}", None if number % 3 else b"%d" % number) for number in range(count)]
    body = build([(0, None, b"v", ()), (0, b"k", None, own)])[61:]
    assert [record.headers for record in looped(body, 2)] == [(), tuple(own)]
    assert [tuple(record.headers) for record in decoded(body, 2)] == [(), tuple(own)]
    if count <= 200:  # a column takes a step for each
        assert tabled(body, 2) == [[], [{"key": name, "value": content} for name, content in own]]


def test_a_header_may_be_two_bytes() -> None:
    for count in (1, 3):
        own: list[Header] = [("", None)] * count
        body = build([(0, None, None, own)])[61:]
        assert looped(body, 1)[0].headers == tuple(decoded(body, 1)[0].headers) == tuple(own)
        assert tabled(body, 1) == [[{"key": "", "value": None}] * count]


def test_headers_that_cannot_be_read_say_so() -> None:
    body = body_of(HEAD + b"\x02\x02a\x80")
    data = np.frombuffer(body, dtype=np.uint8)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a record's headers cannot be read: "):
        headers_of(body, Fields(data, np.array([0])))


def test_columns_of_no_headers_have_a_row_for_each_record() -> None:
    assert no_headers(3).to_pylist() == [[], [], []]
    assert no_headers(3).type == HEADERS
    data = np.frombuffer(body_of(*[HEAD + b"\x00"] * 2), dtype=np.uint8)
    assert header_column(data, pa.py_buffer(data), Fields(data, np.array([0, 7]))).to_pylist() == [[], []]


@pytest.mark.parametrize("count", [63, 64])
def test_a_batch_that_cannot_be_read_is_named_with_its_partition_and_offset(count: int) -> None:
    body = body_of(*[HEAD + b"\x00"] * (count - 1), HEAD)
    data = assemble(70, 5, CHECKED.pack(0, count - 1, 0, 0, -1, -1, -1, count), body)
    with pytest.raises(KafkaError, match=r"CORRUPT_MESSAGE: t-4: the batch at offset 70 cannot be read: "):
        Unread(data, 0, header_at(data), "t", 4, 0)


@pytest.mark.parametrize("count", [63, 64])
def test_a_batch_is_taken_from_an_offset_on_in_pieces(count: int) -> None:
    data = build([(number, None, b"%d" % number, ()) for number in range(count)], base_offset=70, leader_epoch=5)
    for offset, first in ((0, 0), (70, 0), (71, 1), (70 + count - 1, count - 1)):
        unread = Unread(data, 0, header_at(data), "t", 4, offset)
        assert (len(unread), unread.next_offset, unread.end_offset) == (count - first, 70 + first, 70 + count)
        taken = []
        while unread:
            taken.append(unread.take(40))
        assert [len(some) for some in taken] == [40] * ((count - first) // 40) + [(count - first) % 40] * (
            (count - first) % 40 > 0
        )
        assert [tuple(record) for some in taken for record in some] == [
            ("t", 4, 70 + number, number, None, b"%d" % number, (), 5) for number in range(first, count)
        ]
        assert unread.next_offset == 70 + count


def test_values_that_all_have_one_size_but_none_are_read_back() -> None:
    """The ways in which a batch hands out its keys: all null, all empty, all of one size, of several."""
    keys: list[list[bytes | None]] = [[None] * 70, [b""] * 70, [b"ab"] * 70, [b"a", b"bcd"] * 35, [None, b"x"] * 35]
    for column in keys:
        data = build([(0, key, b"v", ()) for key in column])
        unread = Unread(data, 0, header_at(data), "t", 0, 0)
        assert [record.key for record in unread.take(33) + unread.take(99)] == column


def test_timestamps_and_offsets_are_negative_where_the_batch_says_so() -> None:
    """A timestamp may go back; LogAppendTime is one for all, also when it is 0."""
    for count in (10, 70):
        data = build([(1_000 - number, None, b"v", ()) for number in range(count)], base_offset=5)
        header = header_at(data)
        for fixed, expected in ((-1, [1_000 - number for number in range(count)]), (0, [0] * count)):
            body = data[61:]
            for found in (
                decode_records_in_turn(body, header, "t", 0, fixed),
                Decoded(body, header, "t", 0, fixed).part(0, count),
            ):
                assert [record.timestamp for record in found] == expected
                assert [record.offset for record in found] == list(range(5, 5 + count))
