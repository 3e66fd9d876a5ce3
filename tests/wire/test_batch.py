"""Record batches: against themselves, kafka-python, kio, and bytes that are wrong."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kio.records.readers import read_batch as kio_read_batch

from ottla.columns.record import read_headers
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NewRecord,
    build,
    check,
    decode_records,
    headers,
    read,
    rewrite,
    stamp,
)
from ottla.wire.codec import Codec

_NULLABLE = st.none() | st.binary(max_size=40)
_HEADERS = st.lists(st.tuples(st.text(max_size=8), _NULLABLE), max_size=3)
_RECORDS = st.lists(st.tuples(st.integers(0, 1 << 45), _NULLABLE, _NULLABLE, _HEADERS), min_size=1, max_size=12)


def _code(caught: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return caught.value.code


@given(_RECORDS, st.sampled_from(Codec), st.integers(0, 1 << 60))
@settings(max_examples=60, deadline=None)
def test_what_is_built_is_read_back(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    data = build(records, base_offset=base_offset, codec=codec, leader_epoch=9)
    header = check(data)
    assert (header.base_offset, header.size, header.count) == (base_offset, len(data), len(records))
    assert header.partition_leader_epoch == 9
    assert header.codec is codec
    assert header.max_timestamp == max(record[0] for record in records)
    (batch,) = read(data)
    found = batch.records()
    assert [(each.timestamp, each.key, each.value, each.headers) for each in found] == records
    assert [each.offset for each in found] == list(range(base_offset, base_offset + len(records)))


#: Numbers around those where a varint gets another byte.
_EDGES = [0, 1, 62, 63, 64, 65, 127, 128, 129, 8191, 8192, 8193]


def test_every_length_of_a_varint_is_read_back() -> None:
    """Offsets, times, keys, values and headers whose varints end or go on with each byte."""
    records: list[NewRecord] = [(1_000_000, None, None, [])] * 200
    records += [(1_000_000 + sign * edge, b"k", b"v", []) for edge in _EDGES for sign in (1, -1)]
    records += [(1_000_000, bytes(edge), bytes(edge), [("h" * edge, bytes(edge))]) for edge in _EDGES]
    records += [(1_000_000, b"k", b"v", [("h", b"v")] * edge) for edge in _EDGES[:9]]
    (batch,) = read(build(records, base_offset=5))
    found = batch.records()
    assert [(each.timestamp, each.key, each.value, each.headers) for each in found] == records
    assert [each.offset for each in found] == list(range(5, 5 + len(records)))


@given(_RECORDS, st.sampled_from(Codec))
@settings(max_examples=30, deadline=None)
def test_kafka_python_reads_what_we_build(records: list[NewRecord], codec: Codec) -> None:
    if codec in (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        # Its codecs for these need packages of their own; Apache's tools read them in tests/log.
        codec = Codec.GZIP
    batch = MemoryRecords(build(records, base_offset=5, codec=codec)).next_batch()
    assert batch.validate_crc()
    found = [(each.timestamp, each.key, each.value, each.headers) for each in batch]
    assert found == [(timestamp, key, value, list(each)) for timestamp, key, value, each in records]


@pytest.mark.parametrize("compression", [0, 1])
def test_we_read_what_kafka_python_builds(compression: int) -> None:
    builder = MemoryRecordsBuilder(2, compression, 1 << 20, producer_id=77, producer_epoch=3, base_sequence=10)
    for number in range(50):
        builder.append(1_000 + number, b"k%d" % number, None if number % 3 else b"v" * number, [("h", b"x")])
    builder.close()
    (batch,) = read(bytes(builder.buffer()))
    check(batch.data)
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (77, 3, 10)
    assert batch.header.last_sequence == 59
    assert [(each.offset, each.timestamp, each.key, each.headers) for each in batch.records()] == [
        (number, 1_000 + number, b"k%d" % number, [("h", b"x")]) for number in range(50)
    ]


def test_kio_reads_what_we_build() -> None:
    data = build(
        [(1_000_000, b"a", b"1", [("h", None)]), (1_000_005, None, b"2", [])], base_offset=3, transactional=True
    )
    found, size = kio_read_batch(data, 0)
    assert size == len(data)
    assert [each.value for each in found.records] == [b"1", b"2"]
    assert [each.key for each in found.records] == [b"a", None]


def test_a_batch_of_java_is_read() -> None:
    # Captured from Apache Kafka 4.3.1: the first batch of a KRaft log, a control batch of three records.
    with open("tests/golden/log/__cluster_metadata-0/00000000000000000000.log", "rb") as file:
        data = file.read()
    found = list(read(data))
    for position, _ in headers(data):
        check(data, position)
    assert found[0].header.is_control
    assert struct.unpack(">hh", found[0].records()[0].key or b"") == (0, 2)
    assert sum(batch.header.count for batch in found) == found[-1].header.last_offset + 1


def test_stamping_leaves_the_crc_right() -> None:
    buffer = bytearray(build([(1, b"k", b"v", [])]))
    stamp(buffer, 0, 1 << 40, 7)
    header = check(buffer)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 7)
    assert next(read(buffer)).records()[0].offset == 1 << 40


def test_log_append_time_is_every_records_timestamp() -> None:
    data = build([(1, b"k", b"v", []), (2, b"k", b"v", [])])
    header = check(data)
    stamped = rewrite(data, header, attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=99)
    check(stamped)
    assert [each.timestamp for each in next(read(stamped)).records()] == [99, 99]


@pytest.mark.parametrize("target", list(Codec))
def test_recompression_changes_nothing_but_the_codec(target: Codec) -> None:
    records: list[NewRecord] = [(1_000 + number, b"%d" % number, b"v" * 50, [("a", b"b")]) for number in range(40)]
    for source in Codec:
        data = build(records, codec=source, producer_id=5, producer_epoch=1, base_sequence=0)
        header = check(data)
        again = rewrite(data, header, attributes=header.attributes, max_timestamp=header.max_timestamp, codec=target)
        found = check(again)
        assert found.codec is target
        assert found[7:] == header[7:] or found[6:] == header[6:]
        assert next(read(again)).records() == next(read(data)).records()


def test_headers_stop_at_a_batch_that_is_cut_off() -> None:
    one = build([(1, b"k", b"v", [])])
    data = one + build([(2, b"k", b"v", [])], base_offset=1)
    for end in range(len(one), len(data)):
        assert [header.base_offset for _, header in headers(data[:end])] == [0]
    assert [header.base_offset for _, header in headers(data)] == [0, 1]


def test_every_flipped_byte_behind_the_crc_is_found() -> None:
    data = build([(1, b"key", b"value", [])])
    for position in range(17, len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x40
        with pytest.raises(KafkaError) as caught:
            check(bad)
        assert _code(caught) is ErrorCode.CORRUPT_MESSAGE


def test_a_length_that_cannot_be_is_corrupt() -> None:
    for length in (-1, 0, 48):
        bad = bytearray(build([(1, b"k", b"v", [])]))
        struct.pack_into(">i", bad, 8, length)
        with pytest.raises(KafkaError) as caught:
            list(headers(bad))
        assert _code(caught) is ErrorCode.CORRUPT_MESSAGE


def test_old_magic_is_refused() -> None:
    for magic in (0, 1, 3):
        bad = bytearray(build([(1, b"k", b"v", [])]))
        bad[16] = magic
        for look in (check, lambda data: list(headers(data))):
            with pytest.raises(KafkaError) as caught:
                look(bad)
            assert _code(caught) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@given(st.binary(max_size=120), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_records_of_any_bytes_are_records_or_an_error(body: bytes, count: int) -> None:
    data = bytearray(build([(1, b"k", b"v", [])]))[:HEADER_BYTES] + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    (batch,) = read(data)
    try:
        found = batch.records()
    except KafkaError as error:
        code = error.code
    else:
        assert len(found) == count
        return
    assert code is ErrorCode.INVALID_RECORD


def test_a_batch_has_at_least_one_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build([])


def test_a_record_whose_fields_do_not_fill_its_length_is_refused() -> None:
    """Though the batch as a whole adds up: the first record says that it is one byte shorter, or longer."""
    body = bytearray(build([(1, b"k", b"value", []), (1, b"k", b"value", [])])[HEADER_BYTES:])
    assert len(decode_records(bytes(body), 2, 0, 0)) == 2
    for wrong in (body[0] - 2, body[0] + 2):  # zigzag
        body[0] = wrong
        with pytest.raises(KafkaError) as caught:
            decode_records(bytes(body), 2, 0, 0)
        assert _code(caught) is ErrorCode.INVALID_RECORD


def test_bytes_behind_the_last_record_are_refused() -> None:
    body = build([(1, b"k", b"value", [])] * 2)[HEADER_BYTES:]
    for count, data in ((2, body + b"\0"), (1, body)):
        with pytest.raises(KafkaError) as caught:
            decode_records(data, count, 0, 0)
        assert _code(caught) is ErrorCode.INVALID_RECORD


def test_a_headers_name_that_is_not_utf_8_is_read_as_by_javas_client() -> None:
    body = build([(1, None, b"v", [("name", b"\xff")])])[HEADER_BYTES:].replace(b"name", b"n\xffme")
    (record,) = decode_records(body, 1, 0, 1)
    assert record.headers == [("n\ufffdme", b"\xff")]
    at = body.index(b"n\xffme") - 2
    assert read_headers(body, at) == ((("n\ufffdme", b"\xff"),), len(body))
