"""Columns of fetched bytes without a server: what is shared with the fetch and what is copied, and how much memory."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.client import KafkaError, OttlaError, serde
from ottla.client.consumer.position import Chunk, PartitionPosition
from ottla.client.consumer.table import Taken, tables_of, take
from ottla.client.producer.delivery import ProducerBatch
from ottla.client.producer.outgoing import ColumnMapping, Cut, cuts, fill
from ottla.columns.column import Decoded
from ottla.kernel.ids import TopicPartition
from ottla.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, build, header_at, headers, rewrite
from ottla.wire.codec import Codec

WHERE = TopicPartition("t", 3)
TIME = 1_700_000_000_000


def address(data: Any) -> int:
    return int(np.frombuffer(data, dtype=np.uint8).ctypes.data)


def taken(data: Any, offset: int = 0) -> Taken:
    """All batches in these bytes, as a poll would take them."""
    batches = [(data, position, header) for position, header in headers(data)]
    return Taken(WHERE, offset, batches, sum(header.count for *_, header in batches))


def table(data: Any, offset: int = 0, **serdes: Any) -> Any:
    made, bad, _ = tables_of([taken(data, offset)], serdes.get("key"), serdes.get("value"))
    assert not bad
    return pa.Table.from_batches(made)


def values(count: int, size: int = 40) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


def batch(records: list[bytes], base_offset: int = 0) -> bytes:
    return build([(TIME, None, value, ()) for value in records], base_offset=base_offset)


def test_views_lie_in_the_bytes_that_were_fetched() -> None:
    data = batch(values(300)) + batch(values(300, 90), base_offset=300)
    start, end = address(data), address(data) + len(data)
    for reading in (serde.binary(view=True), serde.text(view=True)):
        (made,), _, _ = tables_of([taken(data)], None, reading)
        column = made.column("value")
        # Validity, the views, and the buffer of the fetch.
        _, views, shared = column.buffers()
        assert (shared.address, shared.size) == (start, end - start)
        assert views.size == 16 * 600
        wanted = values(300) + values(300, 90)
        assert column.cast(pa.binary()).to_pylist() == wanted


def test_views_hold_short_values_and_nulls() -> None:
    records = [b"", None, b"a" * 12, b"b" * 13, b"abc", None, b"\xff" * 4]
    data = build([(TIME, None, value, ()) for value in records])
    (made,), _, _ = tables_of([taken(data)], None, serde.binary(view=True))
    column = made.column("value")
    column.validate(full=True)
    assert column.to_pylist() == records


def test_text_shares_the_bytes_of_its_column() -> None:
    raw = pa.array(values(100), pa.binary())
    assert serde.text().decode(raw).buffers()[2].address == raw.buffers()[2].address


def test_rows_are_encoded_once_into_the_bytes_that_are_sent() -> None:
    (cut,) = cuts(pa.table({"value": values(500)}), ColumnMapping(), lambda: 1, 1 << 20, lambda: TIME)
    assert isinstance(cut, Cut)
    made = ProducerBatch("t", 0, 0, 0)
    fill(made, cut, Codec.NONE, None)
    sent = made.encode(Codec.NONE, None)
    assert sent is made.uncompressed
    assert bytes(sent) == batch(values(500))
    # Sent again under a number of its own, what is still on its way stays as it was.
    before = bytes(sent)
    made.attempts = 1
    made.sequence((7, 0), 0)
    again = made.encode(Codec.NONE, None)
    assert again is not sent
    assert bytes(sent) == before
    assert header_at(again).producer_id == 7


def test_a_fetch_that_begins_within_a_batch_gives_the_rest_of_it() -> None:
    got = table(batch(values(100), base_offset=50), offset=110)
    assert got["offset"].to_pylist() == list(range(110, 150))
    assert got["value"].to_pylist() == values(100)[60:]
    assert got["partition"].unique().to_pylist() == [3]
    assert got["topic"].unique().to_pylist() == ["t"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_batches_of_any_codec_come_in_their_order(codec: Codec) -> None:
    batches = [batch(values(70, 30 + number), base_offset=70 * number) for number in range(5)]
    data = b"".join(
        rewrite(
            one,
            header_at(one),
            attributes=codec if number % 2 else 0,
            max_timestamp=TIME,
            codec=Codec(codec if number % 2 else 0),
        )
        for number, one in enumerate(batches)
    )
    got = table(data)
    assert got["offset"].to_pylist() == list(range(350))
    assert got["value"].to_pylist() == [value for number in range(5) for value in values(70, 30 + number)]


def test_log_append_time_is_its_batchs() -> None:
    first, second = batch(values(3)), batch(values(3), base_offset=3)
    stamped = rewrite(second, header_at(second), attributes=LOG_APPEND_TIME, max_timestamp=TIME + 9)
    got = table(first + stamped)
    assert got["timestamp"].cast(pa.int64()).to_pylist() == [TIME] * 3 + [TIME + 9] * 3


def test_headers_are_a_column_whatever_their_number() -> None:
    own: list[list[tuple[str, bytes | None]]] = [
        [],
        [("a", b"1")],
        [("b", None), ("\u00e9", b""), ("b", b"2" * 200)],
        [],
    ] * 30
    data = build([(TIME, b"k", b"v", pairs) for pairs in own])
    got = table(data)
    got.validate(full=True)
    assert [[(one["key"], one["value"]) for one in row] for row in got["headers"].to_pylist()] == own


def broken(count: int) -> Iterator[bytes]:
    """Batches with a byte that is wrong, each at another place."""
    whole = build([(TIME, b"k%d" % n, b"v" * (n % 7), [("h", b"x")] if n % 3 else []) for n in range(count)])
    for place in range(HEADER_BYTES, len(whole)):
        data = bytearray(whole)
        data[place] ^= 0x55
        yield bytes(data)


def test_broken_bytes_are_an_error_with_their_place_or_records_of_the_same_number() -> None:
    wrong = 0
    for data in broken(40):
        made, bad, _ = tables_of([taken(data)])
        if bad:
            (one,) = bad
            assert made == []
            assert (one.partition, one.offset) == (WHERE, 0)
            assert isinstance(one.error, KafkaError)
            assert "t-3 from offset 0" in str(one.error)
            wrong += 1
        else:
            assert [part.num_rows for part in made] == [40]
    assert wrong > 100


def test_a_batch_that_cannot_be_read_is_met_again_until_the_program_seeks() -> None:
    data = bytearray(batch(values(5)) + batch(values(5), base_offset=5))
    data[-1] ^= 1
    for poll in ("records", "table"):
        state = PartitionPosition(WHERE)
        state.seek(0)
        some: Any = None
        for _ in range(2):
            state.fetched(Chunk(bytes(data), state.position or 0, None, check_crcs=True), state.position or 0)
            some = state.take(100) if poll == "records" else take(state, 100)
            assert state.position == 5
            assert isinstance(state.error, KafkaError)
            with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
                state.raise_error()
            assert not state.chunks
        assert not some


def test_batches_without_records_are_passed() -> None:
    empty = bytearray(batch(values(1), base_offset=5)[:HEADER_BYTES])
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    data = batch(values(5)) + bytes(empty) + batch(values(2), base_offset=6)
    for wanted, passed in ((7, 0), (0, 5)):
        state = PartitionPosition(WHERE)
        state.seek(passed)
        chunk = Chunk(data if not passed else bytes(empty), passed, None, check_crcs=False)
        assert state.fetched(chunk, passed)
        some = take(state, 100)
        assert (some.records if some else 0) == wanted
        assert state.position == (8 if wanted else 6)


def test_the_first_bad_value_of_key_and_value_ends_the_table() -> None:
    keys = [b"\xff" if n == 7 else b"k" for n in range(10)]
    vals = [b"x" if n == 5 else b"%d" % n for n in range(10)]
    data = build([(TIME, key, value, ()) for key, value in zip(keys, vals, strict=True)], base_offset=100)
    made, bad, _ = tables_of([taken(data, 100)], serde.text(), serde.json(pa.int64()))
    assert [part.num_rows for part in made] == [5]
    assert bad[0].offset == 105
    assert isinstance(bad[0].error, OttlaError)
    assert "t-3 at offset 105: the value cannot be read" in str(bad[0].error)
    lenient = serde.text(errors="null"), serde.json(pa.int64(), errors="null")
    ((rows,), bad, _) = tables_of([taken(data, 100)], *lenient)
    assert not bad
    assert rows.column("key").to_pylist() == [None if n == 7 else "k" for n in range(10)]
    assert rows.column("value").to_pylist() == [None if n == 5 else n for n in range(10)]
    assert [n for n, why in enumerate(rows.column("key_error").to_pylist()) if why] == [7]
    assert [n for n, why in enumerate(rows.column("value_error").to_pylist()) if why] == [5]


def test_records_are_made_a_few_at_a_time() -> None:
    """A batch in hand costs its bytes and its fields, not an object a record."""
    body = batch(values(20_000, 100))[HEADER_BYTES:]
    header = header_at(batch(values(20_000, 100)))
    Decoded(body, header, "t", 0, -1).part(0, 10)
    tracemalloc.start()
    try:
        decoded = Decoded(body, header, "t", 0, -1)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for start in range(0, 20_000, 500):
            decoded.part(start, start + 500)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - held < 1_000_000
    assert len(body) > 2_000_000


def test_a_reader_of_any_length_is_sent_in_little_memory() -> None:
    rows = pa.record_batch({"value": values(2_000, 500)})

    def endless() -> Iterator[Any]:
        for _ in range(60):
            yield rows

    tracemalloc.start()
    try:
        sent = 0
        for cut in cuts(
            pa.RecordBatchReader.from_batches(rows.schema, endless()), ColumnMapping(), lambda: 1, 1 << 18, lambda: TIME
        ):
            assert isinstance(cut, Cut)
            made = ProducerBatch("t", 0, 0, 0)
            fill(made, cut, Codec.NONE, None)
            sent += len(made.encode(Codec.NONE, None))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent > 60_000_000
    assert peak < 8_000_000


@pytest.mark.parametrize(("unit", "stamp"), [("s", 2), ("ms", 2_345), ("us", 2_345_678), ("ns", 2_345_678_901)])
def test_a_timestamp_of_any_unit_is_sent_in_milliseconds_without_the_rest(unit: str, stamp: int) -> None:
    table = pa.table({"value": [b"v"] * 2, "time": pa.array([stamp, None], pa.timestamp(unit))})
    (cut,) = cuts(table, ColumnMapping(timestamp="time"), lambda: 1, 1 << 20, lambda: TIME)
    assert isinstance(cut, Cut)
    assert list(cut.timestamps) == [2_000 if unit == "s" else 2_345, TIME]
