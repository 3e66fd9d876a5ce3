"""Batches that are malformed in one place, and headers at the edge of what they may hold, function by function."""

import mmap
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire import codec as codecs
from ottla.wire.batch import (
    CHECKED,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    attributes_of,
    build,
    check,
    decode_records,
    header_at,
    headers,
    is_transactional,
    read,
    seal,
)
from ottla.wire.codec import Codec, compress, decompress_beside, decompress_some
from ottla.wire.varint import decode_varint, encode_varint
from ottla.wire.walk import record_end, walk

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ONE = build([(1, b"k", b"v", [])])
#: Attributes, timestamp delta 0, offset delta 0, no key, no value.
HEAD = b"\x00\x00\x00\x01\x01"


def code_of(look: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        look()
    return ErrorCode(caught.value.code)


def record(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


def _walked(header: BatchHeader, data: bytes) -> list[Any]:
    return list(walk(header, data, whole_records=True))


def with_length(length: int, data: bytes = ONE) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">i", changed, 8, length)
    return bytes(changed)


# ---- headers


def test_a_header_needs_all_of_its_bytes() -> None:
    assert header_at(ONE[:HEADER_BYTES]).count == 1
    assert header_at(b"x" * 5 + ONE, 5) == header_at(ONE)
    for data, position in ((ONE[: HEADER_BYTES - 1], 0), (b"", 0), (ONE, len(ONE) - HEADER_BYTES + 1)):
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: the input ends within a batch's header"):
            header_at(data, position)
        assert code_of(partial(check, data, position)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, len(ONE) - 11, 1 << 30])
def test_a_batch_whose_length_is_not_that_of_its_bytes_fails_its_check(length: int) -> None:
    with pytest.raises(KafkaError, match=rf"CORRUPT_MESSAGE: a batch of {length + 12} bytes with {len(ONE)} left"):
        check(with_length(length))


def test_a_check_is_of_the_batch_at_its_position_alone() -> None:
    other = build([(2, None, b"other", [])], base_offset=1)
    assert check(ONE + other).base_offset == 0
    assert check(ONE + other, len(ONE)).base_offset == 1
    for broken, position in ((ONE + other[:-1], len(ONE)), (other[:-1] + b"\xff" + ONE, 0)):
        assert code_of(partial(check, broken, position)) is ErrorCode.CORRUPT_MESSAGE
    assert check(other[:-1] + b"\xff" + ONE, len(other)).base_offset == 0


def test_batches_are_found_up_to_one_that_is_cut_off_or_cannot_be() -> None:
    empty = with_length(HEADER_BYTES - 12)[:HEADER_BYTES]
    assert [(at, one.size) for at, one in headers(empty + ONE)] == [(0, HEADER_BYTES), (HEADER_BYTES, len(ONE))]
    assert [len(batch.data) for batch in read(empty + ONE)] == [HEADER_BYTES, len(ONE)]
    assert list(headers(ONE[: HEADER_BYTES - 1])) == []
    assert list(headers(with_length(len(ONE) - 11))) == []
    found = headers(ONE + with_length(HEADER_BYTES - 13))
    assert next(found)[0] == 0
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a batch's length is 48"):
        next(found)


@pytest.mark.parametrize(
    ("bits", "true"),
    [
        (0, ()),
        (LOG_APPEND_TIME, ("is_log_append_time",)),
        (TRANSACTIONAL, ("is_transactional",)),
        (CONTROL, ("is_control",)),
        (DELETE_HORIZON, ("has_delete_horizon",)),
        (0x08 | 0x10 | 0x20 | 0x40 | 3, ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")),
    ],
)
def test_each_attribute_is_a_bit_of_its_own(bits: int, true: tuple[str, ...]) -> None:
    data = assemble(0, 0, CHECKED.pack(bits, 0, 0, 0, -1, -1, -1, 1), b"")
    header = header_at(data)
    names = ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")
    assert tuple(name for name in names if getattr(header, name)) == true
    assert header.codec == bits & 7
    assert attributes_of(data) == bits
    assert is_transactional(data) is ("is_transactional" in true)
    assert attributes_of(data[: HEADER_BYTES - 1]) == 0
    assert is_transactional(data[: HEADER_BYTES - 1]) is False


def test_nothing_is_no_transaction() -> None:
    assert is_transactional(None) is False
    assert is_transactional(b"") is False


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (NO_SEQUENCE, 5, NO_SEQUENCE),
        (0, 0, 0),
        (7, 5, 12),
        ((1 << 31) - 1, 0, (1 << 31) - 1),
        ((1 << 31) - 1, 1, 0),
        ((1 << 31) - 3, 5, 2),
    ],
)
def test_the_last_sequence_goes_on_from_zero(base: int, delta: int, last: int) -> None:
    data = assemble(100, 0, CHECKED.pack(0, delta, 0, 0, 9, 0, base, delta + 1), b"")
    assert header_at(data).last_sequence == last
    assert header_at(data).last_offset == 100 + delta


def test_a_batch_that_is_sealed_in_place_is_the_one_that_is_assembled() -> None:
    body = ONE[HEADER_BYTES:]
    checked = ONE[21:HEADER_BYTES]
    place = memoryview(bytearray(b"\xff" * HEADER_BYTES + body))
    assert seal(place, 5, 3, checked) is place
    assert bytes(place) == assemble(5, 3, checked, body)
    assert check(place).partition_leader_epoch == 3


def test_the_newest_timestamp_of_a_batch_is_that_of_any_record() -> None:
    for stamps in ([5, 9, 7], [9, 5, 7], [5, 7, 9], [0], [-1, -1]):
        header = header_at(build([(stamp, None, b"v", []) for stamp in stamps]))
        assert (header.base_timestamp, header.max_timestamp, header.last_offset_delta, header.count) == (
            stamps[0],
            max(stamps),
            len(stamps) - 1,
            len(stamps),
        )


# ---- records

MALFORMED = {
    "nothing": b"",
    "cut off": record(HEAD + b"\x00")[:-1],
    "a negative length": b"\x01" + HEAD + b"\x00",
    "a length too large": encode_varint(7) + HEAD + b"\x00",
    "no header count": record(HEAD),
    "a byte too many": record(HEAD + b"\x00\x00"),
    "a key beyond the record": record(b"\x00\x00\x00\x08a\x01\x00"),
    "a value beyond the record": record(b"\x00\x00\x00\x01\x08a\x00"),
    "minus one headers": record(HEAD + b"\x01"),
    "more headers than bytes": record(HEAD + b"\x06\x02a\x01"),
    "a header without a key": record(HEAD + b"\x02\x01\x01"),
    "a header's key beyond the record": record(HEAD + b"\x02\x04a\x01"),
    "a header's value beyond the record": record(HEAD + b"\x02\x02a\x04a"),
    "a byte after the headers": record(HEAD + b"\x02\x02a\x01\x00"),
    "a timestamp without an end": record(b"\x00" + b"\x80" * 10 + b"\x00\x00\x01\x01\x00"),
    "a byte after the record": record(HEAD + b"\x00") + b"\x00",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_record_is_refused_by_a_reader_and_by_a_walk(name: str) -> None:
    body = MALFORMED[name]
    assert code_of(lambda: decode_records(body, 1, 0, 0)) is ErrorCode.INVALID_RECORD
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY):
        packed = compress(codec, body)
        data = assemble(0, 0, CHECKED.pack(codec, 0, 0, 0, -1, -1, -1, 1), packed)
        header = header_at(data)
        assert code_of(partial(_walked, header, data)) is ErrorCode.INVALID_RECORD
    if name != "a byte after the record":
        with pytest.raises((IndexError, ValueError)):
            record_end(body, 0)


@pytest.mark.parametrize(
    ("content", "has_key"),
    [
        (HEAD + b"\x00", False),
        (b"\x00\x00\x00\x00\x00\x00", True),
        (b"\x00\x00\x00\x02k\x02v\x00", True),
        (b"\x00\x00\x00\x01" + encode_varint(70) + b"v" * 70 + b"\x00", False),
        (b"\x00\x00\x00" + encode_varint(70) + b"k" * 70 + b"\x01\x00", True),
        (HEAD + b"\x02\x00\x01", False),
        (HEAD + b"\x04\x02a\x02b\x02c\x01", False),
        (HEAD + b"\x02" + encode_varint(70) + b"h" * 70 + encode_varint(70) + b"v" * 70, False),
    ],
)
def test_the_end_of_a_record_is_found_whatever_it_holds(content: bytes, has_key: bool) -> None:
    body = record(content)
    assert record_end(b"xxx" + body + b"yyy", 3) == 3 + len(body)
    data = assemble(0, 0, CHECKED.pack(0, 0, 0, 0, -1, -1, -1, 1), body)
    for whole in (False, True):
        assert list(walk(header_at(data), data, whole_records=whole)) == [(0, 0, has_key)]
    (found,) = decode_records(body, 1, 0, 0)
    assert (found.key is not None) is has_key


@pytest.mark.parametrize("offsets", [[0, 2], [1], [0, 0], [0, 1, 1], [-1]])
def test_a_walk_over_whole_records_wants_offsets_that_count_up(offsets: list[int]) -> None:
    body = b"".join(record(b"\x00\x00" + encode_varint(offset) + b"\x01\x01\x00") for offset in offsets)
    data = assemble(0, 0, CHECKED.pack(0, len(offsets) - 1, 0, 0, -1, -1, -1, len(offsets)), body)
    assert [step[0] for step in walk(header_at(data), data)] == offsets
    with pytest.raises(KafkaError, match=r"INVALID_RECORD: a record is malformed: record \d has the offset delta"):
        list(walk(header_at(data), data, whole_records=True))


def test_a_walk_without_whole_records_takes_the_bytes_of_a_key_as_they_are() -> None:
    body = record(b"\x00" + encode_varint(-70) + encode_varint(300) + b"\x08a\x01\x00")
    data = assemble(0, 0, CHECKED.pack(0, 0, 0, 0, -1, -1, -1, 1), body)
    assert list(walk(header_at(data), data)) == [(300, -70, True)]


def test_records_that_are_plain_already_are_walked_without_their_codec() -> None:
    data = build([(5, b"k", b"v", []), (7, None, b"w", [])], codec=Codec.ZSTD)
    plain = build([(5, b"k", b"v", []), (7, None, b"w", [])])[HEADER_BYTES:]
    assert list(walk(header_at(data), data[:HEADER_BYTES], plain=plain)) == [(0, 0, True), (1, 2, False)]


# ---- codecs


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 200_000])
def test_what_a_thread_decompresses_is_what_was_compressed(codec: Codec, size: int) -> None:
    plain = (b"%d," % size * size)[:size]
    data = compress(codec, plain)
    assert bytes(decompress_beside(codec, data, max(1, size))) == plain
    assert bytes(decompress_beside(codec, memoryview(data), 1 << 20)) == plain
    if size > 1:
        assert code_of(lambda: decompress_beside(codec, data, size - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    for room in (1, max(1, size - 1), size, size + 1, 1 << 20):
        some, whole = decompress_some(codec, data, room)
        assert plain.startswith(bytes(some))
        if codec is not Codec.SNAPPY:
            assert len(some) == min(room, size) and whole is (room >= size)
        else:  # block by block
            assert len(some) >= min(room, size) and whole is (len(some) == size)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_of_no_codec_are_corrupt_however_they_are_decompressed(codec: Codec) -> None:
    good = compress(codec, b"hello" * 1000)
    for bad in (b"\xff" * 50, good[: len(good) // 2], b"\x82SNAPPY\x00" + bytes(8) + b"\xff" * 9):
        assert code_of(partial(decompress_beside, codec, bad, 1 << 20)) is ErrorCode.CORRUPT_MESSAGE
        assert code_of(partial(decompress_some, codec, bad, 1 << 20)) is ErrorCode.CORRUPT_MESSAGE


def test_a_node_without_memory_for_a_batch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> mmap.mmap:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", none_left)
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR: no memory for a batch's 4096 bytes"):
        decompress_beside(Codec.GZIP, b"", 4096)


def test_plain_bytes_are_all_there_at_once() -> None:
    assert decompress_some(Codec.NONE, b"plain", 2) == (b"plain", True)


@pytest.mark.parametrize("size", [-1, 0, 5, 1 << 30])
def test_a_block_of_snappy_that_its_stream_does_not_hold_is_corrupt(size: int) -> None:
    stream = compress(Codec.SNAPPY, b"x" * 100)
    lying = stream[:16] + struct.pack(">i", size) + stream[20:]
    assert code_of(lambda: codecs.decompress(Codec.SNAPPY, lying)) is ErrorCode.CORRUPT_MESSAGE


def test_gzips_own_default_level_is_asked_for_by_minus_one() -> None:
    data = b"".join(b"%d %d|" % (number, number * number % 1009) for number in range(2_000))
    assert compress(Codec.GZIP, data, -1) == compress(Codec.GZIP, data, 6) != compress(Codec.GZIP, data, 0)


# ---- varints


@pytest.mark.parametrize(
    ("value", "size"),
    [(0, 1), (-1, 1), (63, 1), (-64, 1), (64, 2), (-65, 2), (8_191, 2), (8_192, 3), ((1 << 62) - 1, 9), (1 << 62, 10)],
)
def test_a_varint_has_seven_bits_in_each_byte(value: int, size: int) -> None:
    data = encode_varint(value)
    assert len(data) == size
    assert encode_varint(value) == data  # from the cache
    assert decode_varint(b"xx" + data + b"yy", 2) == (value, 2 + size)
    with pytest.raises(IndexError):
        decode_varint(data[:-1], 0)


def test_a_varint_ends_within_ten_bytes() -> None:
    assert decode_varint(b"\x80" * 9 + b"\x01", 0) == (1 << 62, 10)
    with pytest.raises(ValueError, match="a varint at byte 3 does not end within 10 bytes"):
        decode_varint(b"xxx" + b"\x80" * 10 + b"\x01", 3)
