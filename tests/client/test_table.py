"""Tables in and out of topics: what `send_table` writes and `poll_table` reads, on a server."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ottla.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerRecord,
    OttlaError,
    Producer,
    TopicPartition,
    serde,
)
from tests.client.conftest import eventually


def partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(3)]


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap) as client:
        yield client


@pytest.fixture
def consumer(bootstrap: str, topic: str) -> Iterator[Consumer]:
    with Consumer(bootstrap, auto_offset_reset="earliest") as client:
        client.assign(partitions(topic))
        yield client


def read(consumer: Consumer, rows: int, **serdes: Any) -> Any:
    """So many rows, as one table."""
    tables: list[Any] = []

    def enough() -> bool:
        tables.append(consumer.poll_table(0.5, **serdes))
        return bool(sum(table.num_rows for table in tables) >= rows)

    eventually(enough, 30)
    return pa.concat_tables(tables)


def objects(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """So many records, as objects."""
    found: list[ConsumerRecord] = []

    def enough() -> bool:
        found.extend(consumer.poll(0.5))
        return len(found) >= count

    eventually(enough, 30)
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_table_goes_in_and_comes_out_as_columns(bootstrap: str, topic: str, codec: str) -> None:
    count = 20_000
    table = pa.table(
        {
            "id": pa.array([f"key-{n % 97}" for n in range(count)]),
            "text": pa.array([None if n % 11 == 0 else b"v" * (n % 50) for n in range(count)], pa.binary()),
            "at": pa.array([1_700_000_000_000 + n // 7 for n in range(count)]),
        }
    )
    with Producer(bootstrap, compression_type=codec) as producer:
        producer.send_table(topic, table, key="id", value="text", timestamp="at").result(30)
        # The same keys one at a time go to the same partitions.
        same = {n: producer.send(topic, b"x", f"key-{n}").result(30).partition for n in range(97)}
    with Consumer(bootstrap) as consumer:
        consumer.assign(partitions(topic))
        consumer.seek_to_beginning()
        got = read(consumer, count + 97)
        assert sum(consumer.position(one) for one in partitions(topic)) == count + 97
    for number in range(3):
        rows = got.filter(pc.equal(got["partition"], number)).sort_by("offset")
        assert rows["offset"].to_pylist() == list(range(rows.num_rows))
        wanted = [n for n in range(count) if same[n % 97] == number]
        taken = table.take(pa.array(wanted, pa.int64()))
        assert rows["value"].to_pylist()[: len(wanted)] == taken["text"].to_pylist()
        assert rows["key"].to_pylist()[: len(wanted)] == [one.encode() for one in taken["id"].to_pylist()]
        assert rows["timestamp"].cast(pa.int64()).to_pylist()[: len(wanted)] == taken["at"].to_pylist()


def test_null_keys_and_values_headers_partitions_and_timestamps_make_the_way(
    producer: Producer, consumer: Consumer, topic: str
) -> None:
    table = pa.table(
        {
            "k": pa.array([b"a", None, b"", b"d"], pa.binary()),
            "v": pa.array(["one", "", None, "four"]),
            "p": pa.array([2, 2, 2, 2], pa.int8()),
            "t": pa.array([1_700_000_000_000, 1, None, 4], pa.timestamp("ms")),
            "h": pa.array([[("x", b"1"), ("x", None)], None, [], [("y", b"")]], pa.map_(pa.string(), pa.binary())),
        }
    )
    producer.send_table(topic, table, key="k", value="v", partition="p", timestamp="t", headers="h").result(30)
    got = read(consumer, 4)
    assert got["partition"].to_pylist() == [2] * 4
    assert got["key"].to_pylist() == [b"a", None, b"", b"d"]
    assert got["value"].to_pylist() == [b"one", b"", None, b"four"]
    assert got["headers"].to_pylist() == [
        [{"key": "x", "value": b"1"}, {"key": "x", "value": None}],
        [],
        [],
        [{"key": "y", "value": b""}],
    ]
    stamps = got["timestamp"].cast(pa.int64()).to_pylist()
    assert (stamps[0], stamps[1], stamps[3]) == (1_700_000_000_000, 1, 4)
    assert stamps[2] > 1_700_000_000_000
    # What was read can be sent as it is.
    producer.send_table(topic, got, key="key", partition="partition", timestamp="timestamp", headers="headers").result(
        30
    )
    again = read(consumer, 4)
    assert again.drop_columns(["offset"]) == got.drop_columns(["offset"])
    # And the same records one at a time are the same records.
    consumer.seek_to_beginning()
    for record, row in zip(objects(consumer, 8), got.to_pylist() + again.to_pylist(), strict=True):
        assert (record.key, record.value, record.offset) == (row["key"], row["value"], row["offset"])
        assert [*record.headers] == [(one["key"], one["value"]) for one in row["headers"]]


class Capsules:
    """A data frame of nobody's, that gives Arrow's stream capsule."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "capsules", "pandas", "chunks"])
def test_a_table_may_be_anything_that_speaks_arrow(
    producer: Producer, consumer: Consumer, topic: str, kind: str
) -> None:
    values = [b"%d" % number for number in range(300)]
    table = pa.table({"value": pa.array(values, pa.binary()), "to": [1] * 300})
    given: Any = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=70)),
        "capsules": Capsules(table),
        "pandas": pd.DataFrame({"value": values, "to": [1] * 300}),
        "chunks": pa.concat_tables([table.slice(start, 3) for start in range(0, 300, 3)]),
    }[kind]
    producer.send_table(topic, given, partition="to").result(30)
    assert read(consumer, 300)["value"].to_pylist() == values


def test_columns_are_sent_as_json_and_read_into_their_types(producer: Producer, consumer: Consumer, topic: str) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "price": pa.array([1.5, None, -2.25]),
            "name": pa.array(['a\n"b"', "\u00e9", None]),
            "to": [0, 0, 0],
        }
    )
    producer.send_table(
        topic, table, key="name", value=["id", "price", "name"], partition="to", value_serde=serde.json()
    ).result(30)
    assert [json.loads(record.value) for record in objects(consumer, 3)] == table.drop_columns(["to"]).to_pylist()
    consumer.seek_to_beginning()
    wanted = {"price": pa.float64(), "id": pa.int32(), "name": pa.string(), "more": pa.bool_()}
    got = read(consumer, 3, value_serde=serde.json(wanted), key_serde=serde.text())
    assert got["value"].type == pa.struct(list(wanted.items()))
    assert got["value"].to_pylist() == [
        {"price": row["price"], "id": row["id"], "name": row["name"], "more": None} for row in table.to_pylist()
    ]
    assert got["key"].to_pylist() == table["name"].to_pylist()


SENT: list[tuple[bytes | None, bytes | None, Any]] = [
    (b"k", b"v", []),
    (None, b"\x00" * 300, [("a", b"1"), ("a", None)]),
    (b"gone", None, []),
    (b"", b"", [("\u00e9", b"")]),
] * 40


def test_other_clients_read_what_a_table_wrote(bootstrap: str, producer: Producer, topic: str) -> None:
    table = pa.table(
        {
            "key": pa.array([key for key, _, _ in SENT], pa.binary()),
            "value": pa.array([value for _, value, _ in SENT], pa.binary()),
            "headers": pa.array([own for *_, own in SENT], pa.map_(pa.string(), pa.binary())),
            "to": [0] * len(SENT),
        }
    )
    producer.send_table(topic, table, key="key", partition="to", headers="headers").result(30)
    theirs = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True})
    theirs.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Any] = []

    def all_read() -> bool:
        found.extend(theirs.consume(500, 0.5))
        return len(found) >= len(SENT)

    try:
        eventually(all_read, 30)
    finally:
        theirs.close()
    assert [(one.key(), one.value(), one.headers() or []) for one in found] == SENT
    other = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True)
    try:
        other.assign([kafka.TopicPartition(topic, 0)])
        again: list[Any] = []

        def all_again() -> bool:
            for some in other.poll(500).values():
                again.extend(some)
            return len(again) >= len(SENT)

        eventually(all_again, 30)
    finally:
        other.close()
    assert [(one.key, one.value, [*one.headers]) for one in again] == SENT


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_table_holds_what_other_clients_wrote(bootstrap: str, consumer: Consumer, topic: str, codec: str) -> None:
    theirs = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for key, value, own in SENT:
        theirs.produce(topic, value, key, 1, headers=own)
    assert theirs.flush(30) == 0
    got = read(consumer, len(SENT))
    rows = got.sort_by("offset").to_pylist()
    assert [(row["key"], row["value"], [(one["key"], one["value"]) for one in row["headers"]]) for row in rows] == SENT


def test_a_value_that_cannot_be_read_stops_the_table_and_nothing_is_lost(
    producer: Producer, consumer: Consumer, topic: str
) -> None:
    values = [b'{"id":%d}' % number for number in range(500)]
    values[317] = b"no json"
    table = pa.table({"value": pa.array(values, pa.binary()), "to": [1] * 500})
    producer.send_table(topic, table, partition="to").result(30)
    reading = serde.json({"id": pa.int64()})
    good = read(consumer, 317, value_serde=reading)
    assert good["value"].to_pylist() == [{"id": number} for number in range(317)]
    bad = TopicPartition(topic, 1)
    for _ in range(2):
        with pytest.raises(OttlaError, match=f"{topic}-1 at offset 317: the value cannot be read"):
            eventually(lambda: consumer.poll_table(0.5, value_serde=reading).num_rows > 0, 30)
        assert consumer.position(bad) == 317
    consumer.seek(bad, 318)
    assert read(consumer, 182, value_serde=reading)["offset"].to_pylist() == list(range(318, 500))
    consumer.seek(bad, 0)
    lenient = read(consumer, 500, value_serde=serde.json({"id": pa.int64()}, errors="null"))
    assert lenient["value"][317].as_py() is None
    assert "JSON" in lenient["value_error"][317].as_py()
    assert lenient["value_error"].null_count == 499


def test_a_table_and_records_may_be_polled_in_turn(producer: Producer, consumer: Consumer, topic: str) -> None:
    values = [b"%d" % number for number in range(2_000)]
    table = pa.table({"value": pa.array(values, pa.binary()), "to": [0] * 2_000})
    producer.send_table(topic, table, partition="to").result(30)
    found: list[bytes] = []

    def turn() -> bool:
        found.extend(record.value for record in consumer.poll(0.2, max_records=100))
        if len(found) >= 300:
            found.extend(consumer.poll_table(0.2)["value"].to_pylist())
        return len(found) >= 2_000

    eventually(turn, 30)
    assert found == values


def test_asyncio_sends_and_polls_tables(bootstrap: str, topic: str) -> None:
    async def work() -> list[Any]:
        table = pa.table({"value": ["a", "b"], "to": [2, 2]})
        async with AsyncProducer(bootstrap) as producer:
            (metadata,) = await (await producer.send_table(topic, table, partition="to"))
            assert (metadata.partition, metadata.offset) == (2, 0)
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions(topic))
            found: list[Any] = []
            for _ in range(60):
                found += (await consumer.poll_table(0.5, value_serde=serde.text()))["value"].to_pylist()
                if len(found) == 2:
                    break
        return found

    assert asyncio.run(work()) == ["a", "b"]


@pytest.mark.parametrize(
    ("table", "columns", "said"),
    [
        ({"a": [1]}, {}, "no column value [(]it has a[)]"),
        ({"value": [1]}, {}, "value_serde"),
        ({"a": [1], "b": [2]}, {"value": ["a", "b"]}, "value has 2 columns: give a value_serde"),
        ({"value": ["x"], "p": [-7]}, {"partition": "p"}, "invalid partition in the table: -7"),
        ({"value": ["x"], "p": ["0"]}, {"partition": "p"}, "expected integers: partition numbers"),
        ({"value": ["x"], "t": ["0"]}, {"timestamp": "t"}, "integers in ms"),
        ({"value": ["x"], "h": ["0"]}, {"headers": "h"}, "expected a map, or a list"),
        ([1], {}, "PyCapsule interface"),
    ],
)
def test_what_cannot_be_sent_is_said(
    producer: Producer, topic: str, table: Any, columns: dict[str, Any], said: str
) -> None:
    with pytest.raises(OttlaError, match=said):
        producer.send_table(topic, pa.table(table) if isinstance(table, dict) else table, **columns)
