"""Columns and values to Avro and Protobuf, read back by fastavro and Google's library."""

import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ottla
from ottla.client import (
    Admin,
    Consumer,
    OttlaError,
    Producer,
    TopicPartition,
    avro_deserializer,
    avro_serializer,
    protobuf_deserializer,
    protobuf_serializer,
    serde,
)
from tests.serde.test_serde import AVRO, Order, avro, orders, protobuf_rows


def _column(writing: Any, rows: list[Any]) -> Any:
    """Sliced, so that no offset is zero by luck."""
    return pa.array([None, *rows], writing.type)[1:]


@given(st.lists(st.none() | orders, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_columns_become_the_avro_that_fastavro_writes(rows: list[Any]) -> None:
    parsed = fastavro.parse_schema(AVRO)
    writing = serde.avro(AVRO)
    written = writing.encode(_column(writing, rows))
    written.validate(full=True)
    assert written.to_pylist() == [None if row is None else avro(parsed, row) for row in rows]


def _decimals(unscaled: list[int], scale: int) -> list[Decimal]:
    return [Decimal(number).scaleb(-scale) for number in unscaled]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=8), st.sampled_from([0, 3]))
@settings(max_examples=60, deadline=None)
def test_decimals_take_as_few_bytes_as_javas(unscaled: list[int], scale: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    fixed = {"type": "fixed", "name": "F", "size": 17, "logicalType": "decimal", "precision": 38, "scale": scale}
    import decimal

    with decimal.localcontext(prec=60):
        values = _decimals(unscaled, scale)
        for one in (schema, fixed):
            writing = serde.avro(one)
            written = writing.encode(pa.array(values, writing.type)).to_pylist()
            for number, content in zip(unscaled, written, strict=True):
                body = content
                if one is schema:
                    size, body = content[0] // 2, content[1:]
                    # As java.math.BigInteger.toByteArray has it.
                    assert size == len(body) == (number if number >= 0 else -number - 1).bit_length() // 8 + 1
                assert int.from_bytes(body, "big", signed=True) == number


def test_logical_types_become_avros() -> None:
    schema = {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    rows = [
        {"day": date(1969, 12, 31), "at": None, "clock": time(1, 2, 3, 4000), "cost": Decimal("-1.25")},
        {"day": date(2024, 2, 29), "at": datetime(2024, 1, 2, tzinfo=UTC), "clock": time(), "cost": Decimal("0.00")},
    ]
    parsed = fastavro.parse_schema(schema)
    for column in (pa.array(rows, serde.avro(schema).type), pa.array(rows)):
        # The second as Arrow guesses it: it is cast.
        written = serde.avro(schema).encode(column).to_pylist()
        assert [fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in written] == rows


def test_columns_of_other_types_are_cast_and_missing_ones_have_their_default() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "unit", "type": "string", "default": "kg"},
            {"name": "raw", "type": "bytes", "default": "\u00ff"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "sizes", "type": {"type": "array", "items": "int"}, "default": []},
        ],
    }
    ids = pa.array([1, 2], pa.int8())
    units = pa.array(["g", "t"]).dictionary_encode()
    written = serde.avro(schema).encode(pa.StructArray.from_arrays([units, ids], ["unit", "id"])).to_pylist()
    parsed = fastavro.parse_schema(schema)
    assert [fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in written] == [
        {"id": 1, "unit": "g", "raw": b"\xff", "note": None, "sizes": []},
        {"id": 2, "unit": "t", "raw": b"\xff", "note": None, "sizes": []},
    ]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([{"id": 2**40, "kind": "A"}]), "field id has type int64, which does not fit the Avro schema's int32"),
        (pa.array([{"id": "x", "kind": "A"}]), "field id has type string"),
        (pa.array([{"id": None, "kind": "A"}], pa.struct({"id": pa.int32(), "kind": pa.string()})), "field id is null"),
        (pa.array([{"id": 1, "kind": "C"}]), "field kind is 'C' [(]expected a symbol of the Avro enum: A, B[)]"),
        (pa.array([{"id": 1}]), "no column kind, and the Avro schema no default"),
        (pa.array([{"id": 1, "kind": "A", "more": 1}]), "has no field more"),
        (pa.array([1]), "the value has type int64 [(]the Avro schema expects a record[)]"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(column: Any, why: str) -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    fields = [{"name": "id", "type": "int"}, {"name": "kind", "type": kind}]
    with pytest.raises(OttlaError, match=why):
        serde.avro({"type": "record", "name": "R", "fields": fields}).encode(column)


def test_confluents_wire_format_is_written_under_the_schemas_id() -> None:
    registry = {7: AVRO}
    writing = serde.avro('"long"', schema_id=7)
    assert writing.encode(pa.array([1, None, -1])).to_pylist() == [b"\0\0\0\0\x07\x02", None, b"\0\0\0\0\x07\x01"]
    with pytest.raises(OttlaError, match="schema_id"):
        serde.avro(AVRO, registry=registry.__getitem__).encode(pa.array([], serde.avro(AVRO).type))
    with pytest.raises(OttlaError, match="a registry's schema id"):
        serde.avro('"long"', schema_id=-1)
    with pytest.raises(OttlaError, match="schema_id"):
        serde.protobuf(Order, confluent=True).encode(pa.array([]))


@given(st.lists(orders, min_size=1, max_size=3), st.sampled_from([None, 7]))
@settings(max_examples=30, deadline=None)
def test_one_record_at_a_time_avro_is_what_the_columns_are(rows: list[Any], schema_id: int | None) -> None:
    write = avro_serializer(json.dumps(AVRO), schema_id=schema_id)
    columns = serde.avro(AVRO, schema_id=schema_id)
    values = [write(row) for row in rows]
    assert columns.encode(_column(columns, rows)).to_pylist() == values
    read = avro_deserializer(AVRO) if schema_id is None else avro_deserializer(registry={7: AVRO}.__getitem__)
    assert [read(value) for value in values] == rows


def test_one_record_at_a_time_is_resolved_to_the_readers_schema() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "unit", "type": "string", "default": "kg"}]
    read = avro_deserializer(
        {"type": "record", "name": "R", "fields": fields}, registry={3: json.dumps(old)}.__getitem__
    )
    assert read(avro_serializer(old, schema_id=3)({"id": 5})) == {"id": 5, "unit": "kg"}
    for broken in (b"", b"\0\0\0\0", b"\x01\0\0\0\x03\x02"):
        with pytest.raises(OttlaError, match="wire format"):
            read(broken)
    with pytest.raises(OttlaError, match="a schema, or a registry"):
        avro_deserializer()


# ---- Protobuf


def nested() -> Any:
    """The second message of its file, and in it the third."""
    file = descriptor_pb2.FileDescriptorProto(name="deep.proto", package="deep", syntax="proto3")
    file.message_type.add(name="First")
    second = file.message_type.add(name="Second")
    for name in ("A", "B", "C"):
        inner = second.nested_type.add(name=name)
        kinds = descriptor_pb2.FieldDescriptorProto
        inner.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("deep.Second.C"))


def zeros() -> Any:
    """A message with floats in every place that one can have."""
    file = descriptor_pb2.FileDescriptorProto(name="zero.proto", package="zero", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    kinds = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Zeros")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=kinds.TYPE_FLOAT, label=kinds.LABEL_OPTIONAL)
    message.oneof_decl.add(name="one")
    message.field.add(name="d", number=1, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="f", number=2, type=kinds.TYPE_FLOAT, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="ds", number=3, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_REPEATED)
    message.field.add(name="o", number=4, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL, oneof_index=0)
    for number, name, type_name, label in (
        (5, "m", ".zero.Inner", kinds.LABEL_OPTIONAL),
        (6, "ms", ".zero.Inner", kinds.LABEL_REPEATED),
        (7, "w", ".google.protobuf.DoubleValue", kinds.LABEL_OPTIONAL),
        (8, "ws", ".google.protobuf.FloatValue", kinds.LABEL_REPEATED),
        (9, "k", ".zero.Zeros.KEntry", kinds.LABEL_REPEATED),
        (10, "km", ".zero.Zeros.KmEntry", kinds.LABEL_REPEATED),
    ):
        message.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, label=label, type_name=type_name)
    for name, kind, held in (
        ("KEntry", kinds.TYPE_DOUBLE, None),
        ("KmEntry", kinds.TYPE_MESSAGE, ".zero.Inner"),
    ):
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=kind, label=kinds.LABEL_OPTIONAL, type_name=held)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("zero.Zeros"))


@pytest.mark.parametrize(
    "fields",
    [
        {"d": -0.0},
        {"f": -0.0},
        {"ds": [-0.0, 0.0]},
        {"o": -0.0},
        {"m": {"x": -0.0}},
        {"ms": [{"x": 0.0}, {"x": -0.0}, {}]},
        {"w": {"value": -0.0}},
        {"ws": [{"value": -0.0}]},
        {"k": {"a": 0.0, "b": -0.0}},
        {"km": {"a": {"x": -0.0}, "b": {}}},
    ],
    ids=lambda fields: "".join(fields),
)
def test_a_negative_zero_is_written_and_a_zero_is_not(fields: dict[str, Any]) -> None:
    kind = zeros()
    messages = [kind(d=1.0), kind(**fields), kind(), kind(**fields, d=5.0) if "d" not in fields else kind(f=2.0)]
    both = serde.protobuf(kind)
    written = both.encode(both.decode(pa.array([each.SerializeToString() for each in messages])))
    assert [kind.FromString(value) for value in written.to_pylist()] == messages
    assert [math.copysign(1, value["d"]) for value in both.decode(written).to_pylist()] == [
        math.copysign(1, each.d) for each in messages
    ]
    sliced = both.encode(both.decode(pa.array([each.SerializeToString() for each in messages])).slice(1, 2))
    assert [kind.FromString(value) for value in sliced.to_pylist()] == messages[1:3]


def test_negative_zeros_pass_through_json_and_avro() -> None:
    column = pa.array([{"x": -0.0, "y": [-0.0, 0.0]}, {"x": 0.0, "y": []}])
    assert repr(_through(serde.json(column.type), column)) == repr(column.to_pylist())
    fields = [{"name": "x", "type": "double"}, {"name": "y", "type": {"type": "array", "items": "float"}}]
    avro = serde.avro({"type": "record", "name": "R", "fields": fields})
    assert repr(_through(avro, column.cast(avro.type))) == repr(column.to_pylist())
    old = serde.avro({"type": "record", "name": "R", "fields": []}, schema_id=1)
    fields = [{"name": "x", "type": "double", "default": -0.0}, {"name": "y", "type": "float", "default": -0.0}]
    new = serde.avro(
        {"type": "record", "name": "R", "fields": fields},
        registry={1: {"type": "record", "name": "R", "fields": []}}.__getitem__,
    )
    assert repr(new.decode(old.encode(pa.array([{}], pa.struct([])))).to_pylist()) == repr([{"x": -0.0, "y": -0.0}])


def _through(both: serde.Serde, column: Any) -> list[Any]:
    rows: list[Any] = both.decode(both.encode(column)).to_pylist()
    return rows


@given(protobuf_rows)
@settings(max_examples=20, deadline=None)
@example([{"id": 0, "name": "", "tags": [], "price": -0.0}])
def test_protobuf_is_written_in_confluents_wire_format(rows: list[Any]) -> None:
    both = serde.protobuf(Order, schema_id=9)
    written = both.encode(_column(both, rows)).to_pylist()
    assert [value if value is None else value[:6] for value in written] == [
        None if row is None else b"\0\0\0\0\x09\0" for row in rows
    ]
    assert both.decode(pa.array(written, pa.binary())).to_pylist() == rows
    read = protobuf_deserializer(Order, confluent=True)
    messages = [None if row is None else Order(**row) for row in rows]
    assert [None if value is None else read(value) for value in written] == messages
    one_by_one = protobuf_serializer(9)
    assert [read(one_by_one(message)) for message in messages if message] == [one for one in messages if one]


def test_a_nested_messages_place_stands_before_it() -> None:
    deep = nested()
    value = protobuf_serializer(1)(deep(id=5))
    # Two numbers follow: message 1 of the file, and in it message 2; zigzag.
    assert value == b"\0\0\0\0\x01\x04\x02\x04" + deep(id=5).SerializeToString()
    assert protobuf_deserializer(deep, confluent=True)(value).id == 5
    assert serde.protobuf(deep, schema_id=1).encode(pa.array([{"id": 5}])).to_pylist() == [value]
    assert protobuf_deserializer(deep)(protobuf_serializer()(deep(id=6))).id == 6
    with pytest.raises(OttlaError, match="index path"):
        protobuf_deserializer(deep, confluent=True)(b"\0\0\0\0\x01\x01")


# ---- through a broker


def test_tables_and_records_of_avro_meet_in_one_topic() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "string"}],
    }
    registry = {7: schema}.__getitem__
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        with Producer(node.bootstrap_servers, value_serializer=avro_serializer(schema, schema_id=7)) as producer:
            producer.send("t", {"id": 1, "to": "ann"})
            producer.flush()
            table = pa.table({"id": [2, 3], "to": ["bob", "cid"]})
            producer.send_table("t", table, value=["id", "to"], value_serde=serde.avro(schema, schema_id=7)).result()
        rows = [{"id": 1, "to": "ann"}, {"id": 2, "to": "bob"}, {"id": 3, "to": "cid"}]
        earliest = {"auto.offset.reset": "earliest", "bootstrap.servers": node.bootstrap_servers}
        with Consumer(earliest, value_deserializer=avro_deserializer(registry=registry)) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in consumer.poll(10)] == rows
        with Consumer(earliest) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            found = consumer.poll_table(10, value_serde=serde.avro(schema, registry=registry))
            assert found["value"].to_pylist() == rows
