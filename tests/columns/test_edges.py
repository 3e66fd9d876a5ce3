"""Records whose numbers stand where a varint becomes longer, a table ends or a width changes: encoded in every way."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.client.producer.partitioner import murmur2
from ottla.columns import field
from ottla.columns.encode_columns import Varints, encode_columns, murmur2_all, packed, size_of_all, sizes_of
from ottla.columns.encode_records import encode_records
from ottla.columns.field import Fields, fields_of, record_starts
from ottla.columns.uniform_layout import codes_of, counts_up
from ottla.wire.batch import HEADER_BYTES, build
from ottla.wire.varint import encode_varint

TIME = 1_700_000_000_000


def encoded_alike(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    times: Sequence[int] | None = None,
) -> bytes:
    """The bytes of these records, after all ways to encode them gave the same ones."""
    stamps = list(times) if times is not None else [TIME] * len(values)
    wanted = build(
        (stamp, None if keys is None else keys[number], value, ())
        for number, (stamp, value) in enumerate(zip(stamps, values, strict=True))
    )[HEADER_BYTES:]
    runs = [(n, stamp) for n, stamp in enumerate(stamps) if n == 0 or stamps[n - 1] != stamp]
    assert encode_records(values, keys, None, runs) == wanted
    assert encode_records(values, keys, None, runs, room=9) == bytes(9) + wanted
    arrays = [pa.array(column, pa.binary()) if column is not None else None for column in (values, keys)]
    assert bytes(encode_columns(arrays[0], arrays[1], None, np.array(stamps))) == wanted
    return wanted


def fields_alike(body: bytes, count: int) -> Fields:
    """The fields of these records, after both ways to find them gave the same ones."""
    data = np.frombuffer(body, dtype=np.uint8)
    found = fields_of(data, body, 0, len(body), count)
    walked = Fields(data, record_starts(data, body, 0, len(body), count))
    for name in ("timestamp_delta", "offset_delta", "key_size", "value_size", "header_count", "end_at"):
        assert getattr(found, name).tolist() == getattr(walked, name).tolist(), name
    for at, size in (("key_at", "key_size"), ("value_at", "value_size")):
        some = getattr(walked, size) > 0
        assert getattr(found, at)[some].tolist() == getattr(walked, at)[some].tolist(), at
    return found


@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 62, 63, 64, 65, 8_183, 8_184, 8_191, 8_192, 16_383, 16_384, 16_400])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_value_of_any_size_is_encoded_alike_alone_and_among_others(size: int, keyed: bool) -> None:
    value = b"v" * size
    for values in ([value], [value, value], [value, b"w" * (size + 1)], [b"", value, None], [value] * 40):
        body = encoded_alike(values, [b"k"] * len(values) if keyed else None)
        found = fields_alike(body, len(values))
        assert found.value_size.tolist() == [-1 if each is None else len(each) for each in values]
        assert found.key_size.tolist() == [1 if keyed else -1] * len(values)


@pytest.mark.parametrize("size", [10, 100])
@pytest.mark.parametrize("later", [64, 8_191, 8_192, 1_048_575, 1_048_576])
def test_times_of_any_distance_are_read_alike(later: int, size: int) -> None:
    """The first records' times are some milliseconds after the first one's, all others' at least `later`."""
    values = [b"v" * size, b"w" * (size + 1)] * 80
    times = [TIME + (number % 40 if number < 64 else later + number % 3) for number in range(160)]
    body = encoded_alike(values, times=times)
    assert (fields_alike(body, 160).timestamp_delta + TIME).tolist() == times


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_191, 8_192, 16_384])
def test_a_key_of_any_size_is_encoded_alike(size: int) -> None:
    key = b"k" * size
    for keys in ([key], [key] * 40, [key, b"l" * (size + 1)] * 20, [None, key] * 2):
        body = encoded_alike([b"value"] * len(keys), keys)
        assert fields_alike(body, len(keys)).key_size.tolist() == [-1 if each is None else len(each) for each in keys]


def test_a_key_is_not_taken_for_the_size_of_a_value() -> None:
    """The first byte of each key, read as the size of a value, leads to the end of its record."""
    # "d" is the varint of 50: the ten other bytes of the key, the size of the value, and the value. "f" is that of 51.
    keys = [(b"d%010d" if number % 3 else b"f%010d") % number for number in range(100)]
    values = [b"v" * (39 if number % 3 else 40) for number in range(100)]
    found = fields_alike(encoded_alike(values, keys), 100)
    assert found.key_size.tolist() == [11] * 100
    assert found.value_size.tolist() == [len(value) for value in values]


@pytest.mark.parametrize("count", [63, 64, 65, 4_097, 8_193, 16_385, 65_537])
def test_offsets_of_any_number_of_records_count_up(count: int) -> None:
    """Values of one size, of two, and one that is null; keys of one size, and of two."""
    for values, keys in (
        ([b"v"] * count, None),
        ([b"v", b"vw"] * (count // 2) + [b"x"] * (count % 2), None),
        ([b"v"] * count, [b"k"] * count),
        ([b""] * (count - 1) + [None], None),
    ):
        if count > 5_000 and (keys is not None or values[-1] is None):  # an object for each record takes time
            continue
        body = encoded_alike(values, keys)
        assert fields_alike(body, count).offset_delta.tolist() == list(range(count))


def test_lengths_from_tables_and_beyond_them_are_alike_in_many_records() -> None:
    for sizes in ([1, 2] * 2_100, [16_370, 1] * 20, [16_384, 16_383] * 2, [100_000, 2_000_000]):
        encoded_alike([b"v" * size for size in sizes])
        encoded_alike([b"v"] * len(sizes), [b"k" * size for size in sizes])


@pytest.mark.parametrize(
    "steps",
    [[0], [1], [-1], [63], [64], [-64], [-65], [8_191, 1], [8_192], [-8_193], [0, 0, 1], [1 << 40], [-(1 << 40)]],
)
def test_timestamps_of_any_distance_are_encoded_alike(steps: list[int]) -> None:
    times = [TIME]
    for number in range(99):
        times.append(times[-1] + steps[number % len(steps)])
    body = encoded_alike([b"value"] * 100, None, times)
    assert (fields_alike(body, 100).timestamp_delta + TIME).tolist() == times
    encoded_alike([b"v" * (number % 3) for number in range(100)], [b"k"] * 100, times)


def test_many_changes_of_a_width_are_laid_out_alike() -> None:
    """More spans than a table is worth: timestamps that go to and fro."""
    for count in (40, 400):
        times = [TIME + 100 * (number % 2) for number in range(count)]
        encoded_alike([b"value"] * count, None, times)
        encoded_alike([b"value"] * count, [b"key"] * count, times)


#: From Kafka's UtilsTest.
_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_hash_of_every_key_in_a_column_is_kafkas() -> None:
    known = pa.array([None, *_HASHES, b"", None], pa.binary())[1:]
    assert murmur2_all(known)[:-2].view(np.int32).tolist() == list(_HASHES.values())
    keys = [bytes(range(255 - size, 255)) * 1 for size in range(70)] + [b"\xff" * size for size in range(9)]
    assert murmur2_all(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]
    assert murmur2_all(pa.array([None, None], pa.binary())).tolist() == [0, 0]


def test_varints_of_a_column_have_the_bytes_and_the_widths_of_single_ones() -> None:
    numbers = [0, -1, 1, 63, 64, -64, -65, 8_191, 8_192, -8_193, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 62) - 1]
    for some in ([0, 1, -1], numbers, [64] * 3):
        column = Varints(np.array(some))
        assert packed([column]).to_pylist() == [encode_varint(number) for number in some]
        assert np.broadcast_to(column.widths(), len(some)).tolist() == [len(encode_varint(n)) for n in some]
        assert [column.width_at(row) for row in range(len(some))] == [len(encode_varint(n)) for n in some]
    pair = packed([Varints(np.array([1, 64])), Varints(np.array([300, 2]))])
    assert pair.to_pylist() == [encode_varint(1) + encode_varint(300), encode_varint(64) + encode_varint(2)]


def test_the_words_of_offsets_are_their_varints_and_end_where_a_width_does() -> None:
    for first, count in ((0, 64), (63, 2), (65_534, 2), (65_535, 2), (1 << 20, 1), ((1 << 31) - 1, 1)):
        words = codes_of(first, count).tolist()
        assert words == [int.from_bytes(encode_varint(number), "little") for number in range(first, first + count)]
    for first, count, up in (
        *((0, 64, True), (0, 65, False), (63, 2, False), (64, 8_128, True), (64, 8_129, False), (-1, 1, False)),
        *((1 << 20, 5, True), ((1 << 31) - 1, 1, True), ((1 << 31) - 1, 2, False)),
    ):
        assert counts_up(first, count, encode_varint(first)) is up, (first, count)
    assert not counts_up(5, 3, encode_varint(6))


@pytest.mark.parametrize(
    ("column", "size", "sizes"),
    [
        ([b"ab", b"cd"], 2, [2, 2]),
        ([b"", b""], 0, [0, 0]),
        ([b"ab", b"c", b"def"], None, [2, 1, 3]),
        ([b"a", b"bcd", b"ef"], None, [1, 3, 2]),
        ([b"ab", None], None, [2, -1]),
        ([None], None, [-1]),
    ],
)
def test_one_size_of_a_column_is_that_of_all(column: list[Any], size: int | None, sizes: list[int]) -> None:
    for array in (pa.array(column, pa.binary()), pa.array([b"before", *column, b"behind"], pa.binary())[1:-1]):
        assert size_of_all(array) == size
        assert sizes_of(array).tolist() == sizes


@pytest.mark.parametrize("step", [1, 7, 64, 1_000])
def test_records_are_found_alike_however_their_zeros_are_searched(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The search for zeros goes in steps; a record's end may lie on both sides of two."""
    monkeypatch.setattr(field, "_SEARCH_BYTES", step)
    between_zeros = field._between_zeros
    located = []

    def watched(*args: Any) -> Any:
        located.append(between_zeros(*args))
        return located[-1]

    monkeypatch.setattr(field, "_between_zeros", watched)
    # Values with a zero within, which are candidates, too; lengths of one byte, of two, and of both.
    for size, zeros in ((20, 0), (90, 0), (90, 1), (57, 0)):
        values = [b"v" * (size + n % 5) + bytes(zeros) + b"\x80\x01" * zeros * (n % 3) + b"w" for n in range(200)]
        body = encoded_alike(values, times=[TIME + n // 3 for n in range(200)])
        found = fields_alike(body, len(values))
        assert found.value_size.tolist() == [len(each) for each in values]
    assert [each is not None for each in located] == [True] * 4


@pytest.mark.parametrize(("size", "step"), [(10, 1), (10, 8_192), (100, 1)])
def test_heads_of_records_without_keys_are_read_in_one_step(
    monkeypatch: pytest.MonkeyPatch, size: int, step: int
) -> None:
    """Heads of at most eight bytes: two for the offset, three for the time and one for the size make eight."""
    uniform_heads = field._uniform_heads
    found = []

    def watched(*args: Any) -> Any:
        found.append(uniform_heads(*args))
        return found[-1]

    monkeypatch.setattr(field, "_uniform_heads", watched)
    values = [b"v" * (size + number % 5) for number in range(200)]
    body = encoded_alike(values, times=[TIME + (number >= 64) * step + number % 7 for number in range(200)])
    fields = fields_alike(body, 200)
    assert found == [fields]


@pytest.mark.parametrize("first", [-64, -1, 5, 60])
def test_offsets_that_begin_anywhere_are_read_alike(first: int) -> None:
    """Records of two sizes whose offset deltas count up, but from another number than 0."""
    records = []
    for number in range(100):
        value = b"v" * (20 + number % 2)
        records.append(b"\0\0" + encode_varint(first + number) + b"\1" + encode_varint(len(value)) + value + b"\0")
    found = fields_alike(b"".join(encode_varint(len(record)) + record for record in records), 100)
    assert found.offset_delta.tolist() == list(range(first, first + 100))
