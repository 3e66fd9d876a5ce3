"""Columns of fetched batches beside a loop over their records: of one layout, nearly of one, and of none."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client import KafkaError, serde
from ottla.client.consumer.table import Taken, tables_of
from ottla.columns.field import Fields, fields_of, record_starts
from ottla.columns.record import ConsumerRecord, decode_records_in_turn
from ottla.columns.uniform_layout import length_at, run_of, runs_of
from ottla.kernel.ids import TopicPartition
from ottla.wire.batch import CHECKED, HEADER_BYTES, LOG_APPEND_TIME, Header, assemble, headers
from ottla.wire.codec import Codec, compress, decompress
from ottla.wire.varint import encode_varint

WHERE = TopicPartition("t", 3)
TIME = 1_700_000_000_000


class Shape(NamedTuple):
    """A batch to be: how many records, and what each of them is like."""

    records: int
    value_size: int | None
    key_size: int | None
    #: Every so many records something is different.
    odd_every: int
    odd: str
    #: Between the timestamps of two records, and the offsets.
    stamp_step: int
    offset_step: int
    codec: Codec
    append_time: bool


shapes = st.builds(
    Shape,
    st.sampled_from((1, 2, 31, 40, 64, 65, 66, 128, 150, 300)),
    st.sampled_from((None, 0, 1, 4, 11, 12, 13, 40, 55, 56, 57, 58, 63, 64, 100, 130)),
    st.sampled_from((None, None, 0, 1, 2, 7, 20, 70)),
    st.sampled_from((1, 3, 64, 65, 149, 1_000)),
    st.sampled_from(("", "", "", "value", "key", "null", "header", "zeros")),
    st.sampled_from((0, 0, 1, 3, -1, 9_000)),
    st.sampled_from((1, 1, 1, 2, 5, 63)),
    st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP)),
    st.booleans(),
)
#: Several of one shape together, and others behind them.
many = st.lists(st.tuples(shapes, st.integers(1, 4)), min_size=1, max_size=4)


def batch(shape: Shape, base_offset: int) -> bytes:
    parts = []
    for index in range(shape.records):
        odd = shape.odd if index % shape.odd_every == shape.odd_every - 1 else ""
        value: bytes | None = None
        if shape.value_size is not None:
            value = (b"%d," % (base_offset + index) * 70)[: shape.value_size + 2 * (odd == "value")]
            value = bytes(len(value)) if odd == "zeros" else value
        key = None if shape.key_size is None else (b"k%d" % index * 40)[: shape.key_size + (odd == "key")]
        own: list[Header] = [("h", b"x")] if odd == "header" else []
        value = None if odd == "null" else value
        body = b"\x00" + encode_varint(index * shape.stamp_step) + encode_varint(index * shape.offset_step)
        for piece in (key, value):
            body += encode_varint(-1) if piece is None else encode_varint(len(piece)) + piece
        body += encode_varint(len(own)) + b"".join(
            encode_varint(len(name)) + name.encode() + encode_varint(len(content or b"")) + (content or b"")
            for name, content in own
        )
        parts += [encode_varint(len(body)), body]
    records = b"".join(parts)
    attributes = shape.codec | (LOG_APPEND_TIME if shape.append_time else 0)
    last = (shape.records - 1) * shape.offset_step
    checked = CHECKED.pack(attributes, last, TIME + base_offset, TIME + 77, -1, -1, -1, shape.records)
    return assemble(base_offset, 0, checked, compress(shape.codec, records) if shape.codec else records)


def laid(many: list[tuple[Shape, int]]) -> bytes:
    found, offset = [], 0
    for shape, times in many:
        for _ in range(times):
            found.append(batch(shape, offset))
            offset += shape.records * shape.offset_step
    return b"".join(found)


def looped(data: bytes, offset: int = 0) -> list[ConsumerRecord]:
    """The referee: a record at a time."""
    found = []
    for position, header in headers(data):
        body = decompress(header.codec, memoryview(data)[position + HEADER_BYTES : position + header.size])
        fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        found += decode_records_in_turn(bytes(body), header, WHERE.topic, WHERE.partition, fixed)
    return [record for record in found if record.offset >= offset]


def taken(data: bytes, offset: int = 0) -> Taken:
    found = [(position, header) for position, header in headers(data) if header.last_offset >= offset]
    return Taken(WHERE, offset, [(data, *one) for one in found], sum(header.count for _, header in found))


def columns(data: bytes, offset: int = 0, **serdes: Any) -> Any:
    made, bad, _ = tables_of([taken(data, offset)], serdes.get("key"), serdes.get("value"))
    assert not bad, bad
    for one in made:
        one.validate(full=True)
    return pa.Table.from_batches(made)


def as_rows(table: Any) -> list[tuple[Any, ...]]:
    stamps = table["timestamp"].cast(pa.int64()).to_pylist()
    own = [[(one["key"], one["value"]) for one in some] for some in table["headers"].to_pylist()]
    return list(
        zip(
            table["offset"].to_pylist(),
            stamps,
            table["key"].cast(pa.binary()).to_pylist(),
            table["value"].cast(pa.binary()).to_pylist(),
            own,
            strict=True,
        )
    )


def wanted_rows(records: list[ConsumerRecord]) -> list[tuple[Any, ...]]:
    return [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in records]


@given(many, st.booleans(), st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_columns_hold_what_a_loop_over_the_records_finds(
    shapes: list[tuple[Shape, int]], view: bool, offset: int
) -> None:
    data = laid(shapes)
    records = looped(data, offset)
    if records:
        reading = serde.binary(view=True) if view else None
        assert as_rows(columns(data, offset, key=reading, value=reading)) == wanted_rows(records)


@given(shapes)
@settings(max_examples=100, deadline=None)
def test_every_way_to_the_fields_finds_the_same(shape: Shape) -> None:
    body = batch(shape._replace(codec=Codec.NONE), 0)[HEADER_BYTES:]
    data = np.frombuffer(body, dtype=np.uint8)
    short = fields_of(data, body, 0, len(body), shape.records)
    walked = Fields(data, record_starts(data, body, 0, len(body), shape.records))
    for name in Fields.__slots__:
        ours, theirs = getattr(short, name), getattr(walked, name)
        if name in ("key_at", "value_at"):
            # Where nothing is does not matter.
            some = (walked.key_size if name == "key_at" else walked.value_size) > 0
            ours, theirs = ours[some], theirs[some]
        assert ours.tolist() == theirs.tolist(), name


@given(many, st.data())
@settings(max_examples=40, deadline=None)
def test_broken_batches_are_refused_or_read_as_the_loop_reads_them(
    shapes: list[tuple[Shape, int]], drawn: st.DataObject
) -> None:
    plain = [(shape._replace(codec=Codec.NONE), times) for shape, times in shapes]
    data = bytearray(laid(plain))
    inside = [at for position, header in headers(data) for at in range(position + HEADER_BYTES, position + header.size)]
    data[drawn.draw(st.sampled_from(inside))] ^= drawn.draw(st.integers(1, 255))
    try:
        records = looped(bytes(data))
    except KafkaError:
        records = []
    made, bad, _ = tables_of([taken(bytes(data))])
    if not bad:
        found = as_rows(pa.Table.from_batches(made))
        assert len(found) == taken(bytes(data)).records
        assert not records or found == wanted_rows(records)


def test_batches_of_one_layout_are_one_run() -> None:
    shape = Shape(150, 100, None, 1_000, "", 0, 1, Codec.NONE, append_time=False)
    data = laid([(shape, 5)])
    places = [(position + HEADER_BYTES, position + header.size, header.count) for position, header in headers(data)]
    (run,) = runs_of(np.frombuffer(data, dtype=np.uint8), data, places) or []
    assert (run.batches, run.records, [one.records for one in run.spans]) == (5, 150, [64, 86])
    assert [(one.timestamp_delta, one.offset_delta) for one in run.spans] == [(0, 0), (0, 64)]


def test_records_of_one_layout_may_differ_in_their_times() -> None:
    shape = Shape(150, 100, None, 1_000, "", 1, 1, Codec.NONE, append_time=False)
    body = batch(shape, 0)[HEADER_BYTES:]
    run = run_of(np.frombuffer(body, dtype=np.uint8), body, 0, len(body), 150)
    assert run is not None
    assert [np.ravel(one.timestamp_delta).tolist() for one in run.spans] == [[*range(64)], [*range(64, 150)]]


def test_batches_of_one_size_and_two_layouts_are_two_runs() -> None:
    data = b"".join(
        batch(Shape(40, value_size, 12 - value_size, 1_000, "", 0, 1, Codec.NONE, append_time=False), 0)
        for value_size in (10, 12)
    )
    places = [(at + HEADER_BYTES, at + header.size, header.count) for at, header in headers(data)]
    assert len({end - start for start, end, _ in places}) == 1
    runs = runs_of(np.frombuffer(data, dtype=np.uint8), data, places) or []
    assert [(run.batches, run.records) for run in runs] == [(1, 40), (1, 40)]


def test_a_record_that_is_not_like_the_first_ends_the_short_way() -> None:
    shape = Shape(150, 100, None, 1_000, "", 0, 1, Codec.NONE, append_time=False)
    body = batch(shape, 0)[HEADER_BYTES:]
    assert run_of(np.frombuffer(body, dtype=np.uint8), body, 0, len(body), 150) is not None
    size = (len(body) - 64 * 109) // 86
    for place in (0, 1, 2, 3, 4, 5, 6, 7, 8, size - 1):
        broken = bytearray(body)
        broken[64 * 109 + 40 * size + place] ^= 0x80
        assert run_of(np.frombuffer(broken, dtype=np.uint8), broken, 0, len(body), 150) is None, place


def test_offset_deltas_that_are_written_longer_than_they_need_be_are_read_all_the_same() -> None:
    # Two bytes for 0 to 63: allowed, and what a careless writer may do.
    record = [
        b"\x00\x00" + bytes((2 * n | 0x80, 0)) + b"\x01" + encode_varint(50) + b"v" * 50 + b"\x00" for n in range(50)
    ]
    body = b"".join(encode_varint(len(one)) + one for one in record)
    checked = CHECKED.pack(0, 49, TIME, TIME, -1, -1, -1, 50)
    data = assemble(7, 0, checked, body)
    assert columns(data)["offset"].to_pylist() == list(range(7, 57))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "is cut off"),
        (b"\x80", "is cut off"),
        (b"\x80\x80", "is cut off"),
        (b"\x80" * 5 + b"\x00", "has more than five bytes"),
        (b"\x01", "is negative"),
    ],
)
def test_a_length_that_is_none_is_corrupt(raw: bytes, why: str) -> None:
    with pytest.raises(KafkaError, match=f"CORRUPT_MESSAGE: a record's length {why}"):
        length_at(raw, 0)
    assert length_at(encode_varint(300), 0) == (300, 2)
