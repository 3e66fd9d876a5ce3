"""Corners of Avro and Protobuf: a schema's other forms, types that a column may have, values cut anywhere, libraries
that are not there.
"""

import builtins
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ottla.client import (
    OttlaError,
    avro_deserializer,
    avro_serializer,
    json_schema_serializer,
    protobuf_deserializer,
    protobuf_serializer,
    serde,
)
from ottla.serde.confluent import prefix, split_prefix
from ottla.serde.serde import arrow_type, as_binary
from tests.serde.test_serde import Order, binary
from tests.serde.test_serde_write import nested

LONG = b'"long"'
ARRAY = {"type": "array", "items": "int"}
NULLS = {"type": "array", "items": "null"}
MAP = {"type": "map", "values": ["int", "null"]}
TINY = {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 6, "scale": 1}


def test_a_schema_of_avro_may_be_bytes_text_a_name_or_a_union_of_one() -> None:
    for schema in (LONG, '"long"', ' {"type": "long"}', "long", ["long"], b'["long"]', {"type": ["long"]}):
        both = serde.avro(schema)
        assert both.encode(pa.array([1, -1])).to_pylist() == [b"\x02", b"\x01"], schema
        assert both.decode(binary([b"\x02", None])).to_pylist() == [1, None], schema
    plain: Any
    for plain in (LONG, '"long"', "long", {"type": "long"}):
        assert avro_serializer(plain)(3) == b"\x06"
        assert avro_deserializer(plain)(b"\x06") == 3


@pytest.mark.parametrize(("precision", "fits"), [(38, True), (39, False)])
def test_a_decimal_of_avro_has_at_most_the_digits_of_arrows(precision: int, fits: bool) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision}
    if fits:
        assert serde.avro(schema).type == pa.decimal128(38, 0)
        return
    with pytest.raises(OttlaError, match=r"an Avro decimal of 39 digits is too large \(Arrow's decimal128 has 38\)"):
        serde.avro(schema)


@pytest.mark.parametrize(
    ("number", "content"),
    [
        ("0.0", b"\0\0"),
        ("-0.1", b"\xff\xff"),
        ("3276.7", b"\x7f\xff"),
        ("-3276.8", b"\x80\0"),
        ("3276.8", None),
        ("-3276.9", None),
        ("12.7", b"\0\x7f"),
        ("12.8", b"\0\x80"),
        ("-12.8", b"\xff\x80"),
    ],
)
def test_a_fixed_decimal_is_written_in_its_bytes_or_refused(number: str, content: bytes | None) -> None:
    both = serde.avro(TINY)
    column = pa.array([Decimal(number)], both.type)
    if content is None:
        with pytest.raises(OttlaError, match="the value has a number that does not fit in 2 bytes"):
            both.encode(column)
        return
    assert both.encode(column).to_pylist() == [content]
    assert both.decode(binary([content])).to_pylist() == [Decimal(number)]


@pytest.mark.parametrize(
    ("schema", "column", "written"),
    [
        (ARRAY, pa.array([[1, 2], []], pa.large_list(pa.int32())), [b"\x04\x02\x04\0", b"\0"]),
        (ARRAY, pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)), [b"\x04\x02\x04\0", b"\x04\x06\x08\0"]),
        (ARRAY, pa.array([[], [5] * 64, [6]]), [b"\0", b"\x80\x01" + b"\x0a" * 64 + b"\0", b"\x02\x0c\0"]),
        (ARRAY, pa.array([[], []], pa.list_(pa.int32())), [b"\0", b"\0"]),
        (NULLS, pa.array([[None, None], []], pa.list_(pa.null())), [b"\x04\0", b"\0"]),
        (MAP, pa.array([[("a", 1), ("b", None)], []], pa.map_(pa.string(), pa.int32())), None),
        ("null", pa.nulls(2), [None, None]),
    ],
    ids=["large list", "fixed list", "list", "empty lists", "nulls", "map", "null"],
)
def test_a_column_of_items_is_one_block_of_avro(schema: Any, column: Any, written: list[bytes | None] | None) -> None:
    wanted = written or [b"\x04\x02a\0\x02\x02b\x02\0", b"\0"]
    both = serde.avro(schema)
    assert both.encode(column).to_pylist() == wanted
    rows = [column[0].as_py(), *column.to_pylist()]
    sliced = pa.concat_arrays([column[:1], column])[1:]
    assert both.encode(sliced).to_pylist() == wanted
    found = both.decode(binary([wanted[0], *wanted]))
    assert (found.type, found.to_pylist()) == (both.type, rows)


@pytest.mark.parametrize(
    ("schema", "column", "why"),
    [
        (ARRAY, pa.array([1]), r"the value has type int64 \(the Avro schema expects: array\)"),
        (ARRAY, pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), "the Avro schema expects: array"),
        (MAP, pa.array([[1]]), "the Avro schema expects: map"),
        (MAP, pa.array([{"a": 1}]), "the Avro schema expects: map"),
        (ARRAY, pa.array([[1, None]]), "the value's items is null, which the Avro schema does not allow"),
        (ARRAY, pa.array([["x"]]), "the value's items has type string"),
        (MAP, pa.array([[("a", "x")]], pa.map_(pa.string(), pa.string())), "the value's values has type string"),
        ("int", pa.array([1 << 31]), "which does not fit the Avro schema's int32"),
        ("string", pa.array([["x"]]), "which does not fit the Avro schema's string"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"abc"]), "does not fit the Avro schema's fixed_size"),
    ],
)
def test_a_column_that_is_not_of_the_avro_type_is_refused(schema: Any, column: Any, why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        serde.avro(schema).encode(column)


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("int", b"\x80\x80\x80\x80\x10", "an Avro int with more than 32 bits"),
        ("int", b"\x80", "cut off or broken"),
        ("double", b"\0" * 7, "cut off or broken"),
        ("float", b"\0" * 5, "more or fewer bytes"),
        ("string", b"\x04a", "negative or too large size"),
        ("bytes", b"\x01", "negative or too large size"),
        ("string", b"\x02\xff", "UTF8|UTF-8"),
        (["null", "int"], b"\x04\x02", "unknown branch"),
        (["null", "int"], b"\x01\x02", "unknown branch"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", "unknown symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "unknown symbol"),
        (ARRAY, b"\x80\x01\x02", "more items than bytes"),
        (ARRAY, b"\x02\x02", "cut off or broken"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\0", "an Avro decimal without bytes"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\x22" + b"\0" * 17, "more than 16"),
        (TINY, b"\0", "cut off or broken"),
        ("long", b"\x02\x00", "more or fewer bytes"),
    ],
)
def test_a_value_that_is_not_avro_of_its_schema_is_refused(schema: Any, value: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        serde.avro(schema).decode(binary([value]))


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ("int", b"\xff\xff\xff\xff\x0f", -(1 << 31)),
        ("int", b"\xfe\xff\xff\xff\x0f", (1 << 31) - 1),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x02", "B"),
        # Two blocks, the second with its size in bytes.
        (ARRAY, b"\x02\x02\x03\x04\x04\x06\0", [1, 2, 3]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x20" + b"\xff" * 16, Decimal(-1)),
        (["int", "null"], b"\x02", None),
        (["int", "null"], b"\0\x06", 3),
        ({"type": "record", "name": "R", "fields": []}, b"", {}),
    ],
)
def test_a_value_at_the_edge_of_its_avro_type_is_read(schema: Any, value: bytes, found: Any) -> None:
    assert serde.avro(schema).decode(binary([value, None, value])).to_pylist() == [found, None, found]


# ---- Confluent's wire format


@pytest.mark.parametrize("schema_id", [0, 1, 0x01020304, (1 << 31) - 1])
def test_a_schema_id_is_four_bytes(schema_id: int) -> None:
    assert prefix(schema_id) == b"\0" + struct.pack(">i", schema_id)
    assert split_prefix(prefix(schema_id, b"\0") + b"value") == (schema_id, b"\0value")
    assert split_prefix(prefix(schema_id)) == (schema_id, b"")


@pytest.mark.parametrize("schema_id", [-1, 1 << 31])
def test_a_schema_id_that_is_none_is_refused(schema_id: int) -> None:
    with pytest.raises(OttlaError, match=rf"invalid schema_id: {schema_id} \(expected .*, 0 to 2147483647\)"):
        prefix(schema_id)


def test_data_of_several_schemas_comes_back_in_its_order() -> None:
    reading = serde.avro("long", registry={1: "int", 2: "long", 3: "long"}.__getitem__)
    values = [prefix(number % 3 + 1) + bytes([2 * number]) for number in range(9)]
    assert reading.decode(binary([None, *values])).to_pylist() == [None, *range(9)]
    for broken in (b"\0\0\0\0", b"\1" + values[0][1:], b""):
        with pytest.raises(ValueError, match="not in Confluent's wire format: expected a zero byte"):
            reading.decode(binary([values[0], broken]))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "expected a zero byte, four of schema id, the index path"),
        (b"\0\0\0\0\1", "expected a zero byte, four of schema id, the index path"),
        (b"\1\0\0\0\1\0", "expected a zero byte, four of schema id, the index path"),
        (b"\0\0\0\0\1\x80", "index path is cut off"),
        (b"\0\0\0\0\1\x02", "index path is cut off"),
        (b"\0\0\0\0\1\x04\x02", "index path is cut off"),
        (b"\0\0\0\0\1\x01", "index path is cut off or too long"),
        (b"\0\0\0\0\1\x80\x01", "index path is cut off or too long"),
    ],
)
def test_a_message_without_its_whole_index_path_is_refused(value: bytes, why: str) -> None:
    good = protobuf_serializer(1)(Order(id=5))
    reading = serde.protobuf(Order, confluent=True)
    for column in ([value], [good, value], [value, good]):
        with pytest.raises(ValueError, match=why):
            reading.decode(binary([*column]))
    with pytest.raises((OttlaError, IndexError)):
        protobuf_deserializer(Order, confluent=True)(value)


def test_messages_with_index_paths_of_any_length_are_read_together() -> None:
    """The path says which message it is; a reader of one message passes over it."""
    deep = nested()
    content = deep(id=7).SerializeToString()
    values = [b"\0\0\0\0\1" + path + content for path in (b"\0", b"\x02\x02", b"\x04\x02\x04", b"\x04\x80\x01\x04")]
    assert serde.protobuf(deep, confluent=True).decode(binary([*values, None])).to_pylist() == [{"id": 7}] * 4 + [None]
    assert [protobuf_deserializer(deep, confluent=True)(value).id for value in values] == [7] * 4
    longest = b"\0\0\0\0\1" + b"\x7e" + b"\x02" * 63 + content
    assert serde.protobuf(deep, confluent=True).decode(binary([longest])).to_pylist() == [{"id": 7}]


# ---- Protobuf


def _recursive() -> Any:
    """A message that contains itself, beside a oneof of one member and one of two."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", package="corner", syntax="proto3")
    leaf = file.message_type.add(name="Leaf")
    leaf.oneof_decl.add(name="only")
    leaf.field.add(name="a", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL, oneof_index=0)
    top = file.message_type.add(name="Top")
    top.field.add(name="leaf", number=1, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL, type_name=".corner.Leaf")
    top.oneof_decl.add(name="two")
    top.field.add(name="x", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL, oneof_index=0)
    top.field.add(name="y", number=3, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("corner.Top"))


def test_a_oneof_beside_messages_without_one_is_decided() -> None:
    top = _recursive()
    leaf = b"\x0a\x02\x08\x07"
    values = [leaf + b"\x10\x01\x18\x02", leaf + b"\x18\x02\x10\x01", leaf + b"\x10\x01", leaf, b""]
    rows = serde.protobuf(top).decode(binary([*values])).to_pylist()
    assert [(row["x"], row["y"]) for row in rows] == [(None, 2), (1, None), (1, None), (None, None), (None, None)]
    assert [row["leaf"] and row["leaf"]["a"] for row in rows] == [7, 7, 7, 7, None]


def test_a_column_of_another_shape_than_its_field_is_refused() -> None:
    from tests.serde.test_serde_exact import _nested_choices

    writing = serde.protobuf(_nested_choices())
    pick = {"a": "x", "b": None, "note": ""}
    for wrong in ({"mapped": 5}, {"mapped": [pick]}, {"many": pick}, {"many": 5}, {"one": [pick]}, {"plain": {"a": 1}}):
        with pytest.raises(OttlaError, match=r"do not fit the Protobuf message exact\.Picks|has no field"):
            writing.encode(pa.array([wrong]))
    items = pa.array(
        [[("k", {"a": "x", "z": 1})]], pa.map_(pa.string(), pa.struct([("a", pa.string()), ("z", pa.int64())]))
    )
    for name, column in (("mapped", items), ("many", pa.array([[{"a": "x", "z": 1}]]))):
        with pytest.raises(OttlaError, match=f"field {name}: the Protobuf message has no field z"):
            writing.encode(pa.StructArray.from_arrays([column], names=[name]))


def test_what_is_no_message_is_refused_when_the_serde_is_made() -> None:
    for given in (object(), "shop.Order", int):
        with pytest.raises(OttlaError, match=r"invalid Protobuf message: .*expected a message class or its descriptor"):
            serde.protobuf(given)
    assert serde.protobuf(Order.DESCRIPTOR).type == serde.protobuf(Order).type


# ---- what columns may be


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "binary", "large_binary", "string_view", "binary_view", "binary(1)"]
)
def test_a_column_of_any_kind_of_text_or_bytes_is_binary(kind: str) -> None:
    types = {"string_view": pa.string_view(), "binary_view": pa.binary_view(), "binary(1)": pa.binary(1)}
    wanted = types.get(kind) or pa.type_for_alias(kind)
    column = pa.array([b"a", None, b"b"], pa.binary()).cast(wanted)
    assert as_binary(column).to_pylist() == [b"a", None, b"b"]
    assert as_binary(column).type == pa.binary()


def test_a_column_of_a_dictionary_or_of_nulls_is_binary_and_one_of_numbers_is_not() -> None:
    assert as_binary(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist() == [b"a", None, b"a"]
    assert as_binary(pa.nulls(2)).to_pylist() == [None, None]
    with pytest.raises(OttlaError, match="a column of type int64 has no form in bytes"):
        as_binary(pa.array([1]))
    with pytest.raises(OttlaError, match="a column of type int64 has no form in bytes"):
        as_binary(pa.array([1]).dictionary_encode())
    for array in (pa.array([1, None, 2]), pa.array([True, None, False])):
        wanted = [None if value is None else str(value).lower().encode() for value in array.to_pylist()]
        assert serde.text().encode(array).to_pylist() == wanted


def test_a_type_to_read_is_a_type_a_schema_or_a_mapping() -> None:
    struct_type = pa.struct([("a", pa.int8())])
    assert arrow_type(struct_type) == arrow_type(pa.schema([("a", pa.int8())])) == arrow_type({"a": pa.int8()})
    with pytest.raises(OttlaError, match="invalid schema: list"):
        arrow_type(["a"])


# ---- libraries that are not installed


@pytest.mark.parametrize(
    ("library", "make", "told"),
    [
        ("fastavro", lambda: avro_serializer("long"), r"pip install 'ottla\[avro\]'"),
        ("fastavro", lambda: avro_deserializer("long"), r"pip install 'ottla\[avro\]'"),
        ("ptars", lambda: serde.protobuf(Order), r"pip install 'ottla\[protobuf\]'"),
        ("jsonschema_rs", lambda: json_schema_serializer({}), r"pip install 'ottla\[json-schema\]'"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    library: str, make: Callable[[], object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OttlaError, match=told):
        make()
