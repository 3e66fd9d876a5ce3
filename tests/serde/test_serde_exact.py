"""Values that a serde would change: read and written exactly, or refused."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ottla.client import OttlaError, avro_deserializer, avro_serializer, serde

BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "x", "type": "int", "default": 7},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
DATE = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}


def schema(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]}


def read_with_default(kind: Any, default: Any) -> Any:
    """The field that the writer's schema, an empty record, lacks."""
    reading = serde.avro(
        schema(kind, default=default), registry=lambda _: {"type": "record", "name": "R", "fields": []}
    )
    return reading.decode(pa.array([b"\0\0\0\0\1"]))[0].as_py()["a"]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (INNER, {}, {"x": 7, "raw": b"\xff", "note": None}),
        (INNER, {"x": 1, "raw": "\u0080"}, {"x": 1, "raw": b"\x80", "note": None}),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        (BYTES, "\u0001", Decimal("0.01")),
        (BYTES, "\u00ff", Decimal("-0.01")),
        (FIXED, "\u0001\u0000", Decimal("2.56")),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        ("double", 1, 1.0),
    ],
)
def test_a_default_of_avro_is_what_the_schema_says(kind: Any, default: Any, value: Any) -> None:
    assert read_with_default(kind, default) == value


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", None),
        ("int", 1.5),
        ("int", "x"),
        ("int", 1 << 40),
        ("boolean", 1),
        ("string", 5),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {}),
        (BYTES, "\u0001\u0001\u0001\u0001\u0001\u0001"),
    ],
)
def test_a_default_that_its_type_does_not_have_is_refused(kind: Any, default: Any) -> None:
    with pytest.raises(OttlaError, match="the Avro field a has an invalid default"):
        read_with_default(kind, default)


@pytest.mark.parametrize(
    ("written", "read", "number", "promoted"),
    [
        ("long", "double", 2**53 + 1, 2.0**53),
        ("int", "float", 2**24 + 1, 2.0**24),
        ("long", "float", -(2**63), -(2.0**63)),
        ("int", MOMENT, 5, datetime(1970, 1, 1, microsecond=5_000, tzinfo=UTC)),
        ("int", DATE, 5, date(1970, 1, 6)),
        (DATE, "long", 5, 5),
    ],
)
def test_a_number_of_avro_is_promoted_as_java_does(written: Any, read: Any, number: int, promoted: Any) -> None:
    value = b"\0\0\0\0\1" + avro_serializer(schema(written))({"a": number})
    found = serde.avro(schema(read), registry=lambda _: schema(written)).decode(pa.array([value]))
    assert found[0].as_py()["a"] == promoted


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("float", pa.array([1.0, 1e300])),
        ("boolean", pa.array([1, 5])),
        (DATE, pa.array([86_400_001], pa.timestamp("ms"))),
        ({"type": "int", "logicalType": "time-millis"}, pa.array([86_400_001], pa.timestamp("ms"))),
    ],
)
def test_a_number_that_avro_would_change_is_refused(kind: Any, column: Any) -> None:
    with pytest.raises(OttlaError, match="field a has type"):
        serde.avro(schema(kind)).encode(pa.StructArray.from_arrays([column], names=["a"]))


def test_numbers_that_fit_are_written_to_avro() -> None:
    for kind, column, values in (
        ("float", pa.array([0.1, float("inf")]), [pa.scalar(0.1, pa.float32()).as_py(), float("inf")]),
        ("boolean", pa.array([1, 0]), [True, False]),
    ):
        avro = serde.avro(schema(kind))
        written = avro.encode(pa.StructArray.from_arrays([column], names=["a"]))
        assert [row["a"] for row in avro.decode(written).to_pylist()] == values


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(OttlaError, match="two columns of one name: a, a"):
        serde.avro(schema("int")).encode(twice)
    with pytest.raises(OttlaError, match="two columns of one name: a, a"):
        serde.protobuf(_choice()).encode(twice)


def _choice() -> Any:
    """A message whose fields all have presence: oneof choice { string a; Choice more }."""
    file = descriptor_pb2.FileDescriptorProto(name="choice.proto", package="exact", syntax="proto3")
    message = file.message_type.add(name="Choice")
    message.oneof_decl.add(name="choice")
    message.field.add(name="a", number=1, type=9, label=1, oneof_index=0)
    inner = message.nested_type.add(name="Inner")
    inner.oneof_decl.add(name="choice")
    inner.field.add(name="n", number=1, type=5, label=1, oneof_index=0)
    message.field.add(name="inner", number=2, type=11, label=1, type_name=".exact.Choice.Inner", oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("exact.Choice"))


def test_a_column_that_the_protobuf_message_lacks_is_refused() -> None:
    message = _choice()
    writing = serde.protobuf(message)
    assert message.FromString(writing.encode(pa.array([{"a": "x", "inner": None}], writing.type))[0].as_py()).a == "x"
    for row, place in (({"a": "x", "b": 1}, "the value: .* no field b"), ({"inner": {"m": 1}}, "field inner: .* m")):
        with pytest.raises(OttlaError, match=place):
            writing.encode(pa.array([row]))
    with pytest.raises(OttlaError, match=r"do not fit the Protobuf message exact\.Choice"):
        writing.encode(pa.array([{"inner": {"n": 1 << 40}}]))


def _nested_choices() -> Any:
    """A message with a oneof in it, once, in a list and in a map; and a field that is no choice."""
    file = descriptor_pb2.FileDescriptorProto(name="choices.proto", package="exact", syntax="proto3")
    choice = file.message_type.add(name="Pick")
    choice.oneof_decl.add(name="choice")
    choice.field.add(name="a", number=1, type=9, label=1, oneof_index=0)
    choice.field.add(name="b", number=2, type=5, label=1, oneof_index=0)
    choice.field.add(name="note", number=3, type=9, label=1)
    outer = file.message_type.add(name="Picks")
    entry = outer.nested_type.add(name="MappedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".exact.Pick")
    outer.field.add(name="one", number=1, type=11, label=1, type_name=".exact.Pick")
    outer.field.add(name="many", number=2, type=11, label=3, type_name=".exact.Pick")
    outer.field.add(name="mapped", number=3, type=11, label=3, type_name=".exact.Picks.MappedEntry")
    outer.field.add(name="plain", number=4, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("exact.Picks"))


@pytest.mark.parametrize("confluent", [False, True])
def test_the_last_member_of_a_oneof_on_the_wire_counts(confluent: bool) -> None:
    both = b"\x0a\x01x" + b"\x10\x05" + b"\x1a\x01n"  # a="x", b=5, note="n"
    turned = b"\x10\x05" + b"\x0a\x01x"
    picks = [both, turned, b"\x0a\x01x", b""]
    plain = b"\x20\x07"
    one = [b"\x0a" + bytes([len(each)]) + each + plain for each in picks]
    many = [b"".join(b"\x12" + bytes([len(each)]) + each for each in chosen) for chosen in (picks, picks[2:], [])]
    mapped = [
        b"\x1a" + bytes([len(each) + 5]) + b"\x0a\x01k\x12" + bytes([len(each)]) + each for each in (both, picks[2])
    ]
    message, messages = _nested_choices(), [*one, *many, *mapped]
    prefixed = [b"\0\0\0\0\1\2\x02" + each if confluent else each for each in messages]
    reading = serde.protobuf(message, confluent=confluent)
    rows = reading.decode(pa.array([None, *prefixed], pa.binary())).to_pylist()

    def pick(value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) if value.HasField(name) else None for name in "ab"} | {"note": value.note}

    wanted = [message.FromString(each) for each in messages]
    assert rows[0] is None
    assert [row["one"] for row in rows[1:]] == [pick(each.one) if each.HasField("one") else None for each in wanted]
    assert [row["many"] for row in rows[1:]] == [[pick(one) for one in each.many] for each in wanted]
    assert [row["mapped"] for row in rows[1:]] == [
        [(key, pick(value)) for key, value in each.mapped.items()] for each in wanted
    ]
    assert [row["plain"] for row in rows[1:]] == [each.plain for each in wanted]


def test_bytes_after_a_datum_of_avro_are_refused() -> None:
    value = avro_serializer(schema("int"))({"a": 5})
    assert avro_deserializer(schema("int"))(value) == {"a": 5}
    with pytest.raises(ValueError, match="more bytes"):
        avro_deserializer(schema("int"))(value + b"\0")
    with pytest.raises(ValueError, match="more bytes"):
        avro_deserializer(registry=lambda _: schema("int"))(b"\0\0\0\0\1" + value + b"\0")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), b'1,"x":3'),
        (pa.list_(pa.int64()), b'[1],"x":[3]'),
        (pa.struct({"a": pa.int64()}), b'null,"x":3'),
        (pa.list_(pa.struct({"a": pa.int64()})), b'[{"a":1}] , "x\\"":[3]'),
    ],
)
def test_a_value_that_is_json_only_within_an_object_is_refused(kind: Any, value: bytes) -> None:
    with pytest.raises(ValueError, match="Extra data"):
        serde.json(kind).decode(pa.array([value]))


def test_json_that_has_commas_and_names_is_read() -> None:
    rows = [[{"a": 1, "b": '","x":'}], [], [{"a": 2, "b": "\n"}]]
    kind = pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()}))
    values = pa.array([json.dumps(row, indent=1).encode() for row in rows])
    assert serde.json(kind).decode(values).to_pylist() == rows
