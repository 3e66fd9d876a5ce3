"""Columns to bytes and back: JSON, Avro, Protobuf, text, beside the libraries that do it one value at a time."""

import io
import json
import math
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client import OttlaError, serde
from ottla.client.consumer.table import BadRow, decoded
from ottla.serde.serializer import serializer


def binary(values: list[bytes | None]) -> Any:
    """Sliced, so that no offset is zero by luck."""
    return pa.array([b"before", *values], pa.binary())[1:]


# ---- JSON

texts = st.text(max_size=8)
json_rows = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "name": st.none() | texts,
            "ok": st.none() | st.booleans(),
            "tags": st.none() | st.lists(st.none() | texts, max_size=3),
            "inner": st.none() | st.fixed_dictionaries({"x\n": st.none() | st.integers(-9, 9)}),
        }
    ),
    min_size=1,
    max_size=12,
)
JSON_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x\n", pa.int64())])),
    ]
)


@given(json_rows)
@settings(max_examples=40, deadline=None)
def test_columns_become_the_json_that_the_serializer_of_one_record_makes(rows: list[Any]) -> None:
    one_by_one = serializer("json")
    assert one_by_one is not None
    column = pa.array([{}, *rows], JSON_TYPE)[1:]
    written = serde.json().encode(column)
    in_order = [row and {one.name: row[one.name] for one in JSON_TYPE} for row in rows]
    assert written.to_pylist() == [None if row is None else one_by_one(row) for row in in_order]
    assert serde.json(JSON_TYPE).decode(written).to_pylist() == rows


@given(st.lists(st.none() | st.floats(), min_size=1))
@settings(max_examples=40, deadline=None)
def test_floats_come_back_as_they_were_but_for_those_that_json_cannot_say(numbers: list[float | None]) -> None:
    written = serde.json().encode(pa.array([{"x": number} for number in numbers], pa.struct([("x", pa.float64())])))
    found = [json.loads(value)["x"] for value in written.to_pylist()]
    assert found == [None if number is None or not math.isfinite(number) else number for number in numbers]


def test_json_reads_times_dates_decimals_maps_of_none_and_several_lines() -> None:
    reading = serde.json(
        {
            "at": pa.timestamp("ms"),
            "day": pa.date32(),
            "cost": pa.decimal128(9, 2),
            "kind": pa.dictionary(pa.int32(), pa.string()),
        }
    )
    values = binary(
        [
            b'{"at": "2024-01-02T03:04:05.678Z", "day": "2024-01-02", "cost": "1.25", "kind": "a"}',
            None,
            b'{\n "kind": "b",\n "unknown": [1, {"deep": null}]\n}\n',
        ]
    )
    found = reading.decode(values)
    assert found.type == reading.type
    first, second, third = found.to_pylist()
    assert (first["at"].isoformat(), first["day"].isoformat(), str(first["cost"])) == (
        "2024-01-02T03:04:05.678000",
        "2024-01-02",
        "1.25",
    )
    assert second is None
    assert third == {"at": None, "day": None, "cost": None, "kind": "b"}


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b'{"id":1}{"id":2}',
        b'{"id":1}\n{"id":2}',
        b'{"id":"x"}',
        b'{"id":1.5}',
        b"[1]",
        b'{"id":\xff}',
        b'{"id":1',
        b'"',
        b'{"id":9223372036854775808}',
    ],
)
def test_a_broken_json_value_is_found_among_good_ones(bad: bytes) -> None:
    reading = serde.json({"id": pa.int64()})
    values: list[bytes | None] = [b'{"id":%d}' % number for number in range(40)]
    values[29] = bad
    with pytest.raises(BadRow) as raised:
        decoded(reading, binary(values), None)
    assert raised.value.row == 29
    errors: list[tuple[int, str]] = []
    found = decoded(reading, binary([*values, bad]), errors)
    assert [row for row, _ in errors] == [29, 40]
    assert found.to_pylist() == [None if row in (29, 40) else {"id": row} for row in range(41)]


PIECES = [
    b'{"id":1}',
    b'{"id":2,"name":"x"}',
    b'{"id":2,"id":3}',
    b'{"name":"}',
    b'{"name":"}"}',
    b'{"id":1}{"id":2}',
    b'{"id":1} {"id":2} {}',
    b'{"id":{}',
    b'{"inner":[{}',
    b'{"inner":{"id":3}',
    b'{"inner":{"id":3}}',
    b'{"id":1}}',
    b'{"name":"\\"}',
    b'{"name":"\\""}',
    b"{}",
    b'{"id":null}',
    b'{"id":1,}',
    b'{"id":9.5}',
    b'{{"id":1}}',
    b'{\n"id":\n7}',
    b' {"id":1}',
    b'{"id":1} ',
    b"null",
    b"[1]",
    b"{",
    b"}",
    b"",
]


@given(st.lists(st.none() | st.sampled_from(PIECES[:17]), max_size=12), st.lists(st.sampled_from(PIECES), max_size=3))
@settings(max_examples=300, deadline=None)
def test_values_that_are_read_together_are_what_each_is_alone(whole: list[bytes | None], any_of: list[bytes]) -> None:
    reading = serde.json({"id": pa.int64(), "name": pa.string(), "inner": pa.struct([("id", pa.int64())])})
    values = [*whole, *any_of]
    errors: list[tuple[int, str]] = []
    found = decoded(reading, binary(values), errors)
    alone: list[Any] = []
    bad = []
    for row, value in enumerate(values):
        # In an object of its own and on a line of its own.
        why: list[tuple[int, str]] = []
        wrapped = serde.json(pa.struct([("v", reading.type)]))
        one = None if value is None else b'{"v":' + value + b"}"
        (read,) = decoded(wrapped, binary([one]), why).to_pylist()
        alone.append(None if read is None else read["v"])
        bad += [row] if why else []
    assert found.to_pylist() == alone
    assert [row for row, _ in errors] == bad


def test_two_halves_of_a_value_are_not_one() -> None:
    reading = serde.json(pa.int64())
    errors: list[tuple[int, str]] = []
    assert decoded(reading, binary([b"1}{", b"2", b'{"v":3}', b"4"]), errors).to_pylist() == [None, 2, None, 4]
    assert [row for row, _ in errors] == [0, 2]


def test_what_has_no_json_is_said_at_once() -> None:
    with pytest.raises(OttlaError, match="cannot read the type binary"):
        serde.json({"x": pa.binary()})
    with pytest.raises(OttlaError, match="needs a schema to read"):
        serde.json().decode(binary([b"1"]))
    with pytest.raises(OttlaError, match="no form in JSON"):
        serde.json().encode(pa.array([{"x": b"a"}]))
    with pytest.raises(OttlaError, match='"raise" or "null"'):
        serde.json({"x": pa.int8()}, errors="drop")  # type: ignore[arg-type]


# ---- Avro

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "weight", "type": "float"},
        {"name": "name", "type": ["string", "null"]},
        {"name": "raw", "type": "bytes"},
        {"name": "paid", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "lines", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "notes", "type": ["null", {"type": "map", "values": "string"}]},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "shop.Hash"}]}],
        },
    ],
}
int32 = st.integers(-(2**31), 2**31 - 1)
orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "count": int32,
        "price": st.none() | st.floats(allow_nan=False),
        "weight": st.floats(allow_nan=False, width=32),
        "name": st.none() | texts,
        "raw": st.binary(max_size=9),
        "paid": st.booleans(),
        "kind": st.sampled_from("ABC"),
        "other": st.none() | st.sampled_from("ABC"),
        "hash": st.binary(min_size=3, max_size=3),
        "lines": st.lists(st.none() | int32, max_size=4),
        "notes": st.none() | st.dictionaries(texts, texts, max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"x": st.binary(min_size=3, max_size=3)}),
    }
)


def avro(schema: Any, value: Any, prefix: bytes = b"") -> bytes:
    out = io.BytesIO()
    out.write(prefix)
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def plain(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row and {**row, "notes": None if row["notes"] is None else sorted(row["notes"].items())}


@given(st.lists(st.none() | orders, min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_avro_is_read_as_fastavro_wrote_it(rows: list[Any]) -> None:
    parsed = fastavro.parse_schema(AVRO)
    values = binary([None if row is None else avro(parsed, row) for row in rows])
    found = serde.avro(json.dumps(AVRO)).decode(values)
    found.validate(full=True)
    got = [
        row and {**row, "notes": None if row["notes"] is None else sorted(row["notes"])} for row in found.to_pylist()
    ]
    assert got == [plain(row) for row in rows]


@given(st.lists(orders, min_size=1, max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_broken_avro_is_refused_and_never_read_out_of_bounds(rows: list[Any], data: st.DataObject) -> None:
    parsed = fastavro.parse_schema(AVRO)
    written = [avro(parsed, row) for row in rows]
    which = data.draw(st.integers(0, len(rows) - 1))
    broken = bytearray(written[which])
    broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(1, 255))
    written[which] = bytes(broken)
    errors: list[tuple[int, str]] = []
    found = decoded(serde.avro(AVRO), binary([*written]), errors)
    assert len(found) == len(rows)
    assert [row for row, _ in errors] in ([], [which])


def test_avro_logical_types_are_arrows() -> None:
    schema = {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {
                "name": "exact",
                "type": {"type": "fixed", "size": 5, "name": "F", "logicalType": "decimal", "precision": 9},
            },
        ],
    }
    parsed = fastavro.parse_schema(schema)
    from datetime import UTC, date, datetime, time
    from decimal import Decimal

    rows = [
        {
            "day": date(1969, 12, 31),
            "at": datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
            "clock": time(1, 2, 3, 4000),
            "cost": Decimal(cost),
            "exact": Decimal(exact),
        }
        for cost, exact in (("-1.25", 3), ("0.00", -70000), ("1234567.89", 999999999))
    ]
    found = serde.avro(schema).decode(binary([avro(parsed, row) for row in rows]))
    assert found.to_pylist() == rows


def test_confluents_wire_format_asks_the_registry_once_and_resolves_to_the_readers_schema() -> None:
    def record(*fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": list(fields)}

    written = {
        7: record({"name": "id", "type": "int"}, {"name": "gone", "type": "string"}),
        8: record({"name": "amount", "type": "double"}, {"name": "number", "type": ["null", "long"]}),
    }
    reader = record(
        {"name": "id", "type": "long", "aliases": ["number"]},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "unit", "type": "string", "default": "kg"},
    )
    asked: list[int] = []

    def registry(schema_id: int) -> Any:
        asked.append(schema_id)
        return json.dumps(written[schema_id])

    reading = serde.avro(reader, registry=registry)
    values = [
        avro(written[number], value, struct.pack(">bi", 0, number))
        for number, value in (
            (8, {"amount": 1.5, "number": 2}),
            (7, {"id": 1, "gone": "x"}),
            (8, {"amount": 2.5, "number": 3}),
        )
    ]
    found = reading.decode(binary([values[0], None, *values[1:]]))
    assert found.to_pylist() == [
        {"id": 2, "amount": 1.5, "unit": "kg"},
        None,
        {"id": 1, "amount": None, "unit": "kg"},
        {"id": 3, "amount": 2.5, "unit": "kg"},
    ]
    reading.decode(binary([values[0]]))
    assert sorted(asked) == [7, 8]
    errors: list[tuple[int, str]] = []
    bad = avro(written[8], {"amount": 0.0, "number": None}, struct.pack(">bi", 0, 8))
    decoded(reading, binary([values[0], b"\x01....", bad, b"\x00"]), errors)
    assert [row for row, _ in errors] == [1, 2, 3]


def test_an_avro_type_may_stand_in_a_type() -> None:
    nested = {"type": {"type": {"type": "array", "items": {"type": "string"}}}}
    reading = serde.avro({"type": "record", "name": "Tags", "fields": [{"name": "tags", "type": nested}]})
    assert reading.decode(binary([b"\x04\x02a\x02b\x00", b"\x00"])).to_pylist() == [{"tags": ["a", "b"]}, {"tags": []}]


def test_avro_that_arrow_has_no_type_for_is_refused() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
    for schema, said in (
        (["null", "int", "string"], "no single Arrow type"),
        (tree, "^the Avro type Tree contains itself: Arrow has no such type$"),
        ({**tree, "namespace": "wood"}, r"^the Avro type wood\.Tree contains itself: Arrow has no such type$"),
        ("Nobody", "before it defines it"),
        ({"type": "enum"}, "invalid Avro schema"),
    ):
        with pytest.raises(OttlaError, match=said):
            serde.avro(schema)


# ---- Protobuf


def message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, label) in enumerate(
        (
            ("id", kinds.TYPE_INT64, kinds.LABEL_OPTIONAL),
            ("name", kinds.TYPE_STRING, kinds.LABEL_OPTIONAL),
            ("tags", kinds.TYPE_STRING, kinds.LABEL_REPEATED),
            ("price", kinds.TYPE_DOUBLE, kinds.LABEL_OPTIONAL),
        ),
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order = message_class()
protobuf_rows = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "name": texts,
            "tags": st.lists(texts, max_size=3),
            "price": st.floats(allow_nan=False),
        }
    ),
    min_size=1,
    max_size=8,
)


@given(protobuf_rows, st.sampled_from([b"", b"\x00\x00\x00\x00\x09\x00", b"\x00\x00\x00\x00\x09\x04\x02\x06"]))
@settings(max_examples=30, deadline=None)
def test_protobuf_is_read_as_its_own_library_wrote_it(rows: list[Any], prefix: bytes) -> None:
    written = [None if row is None else prefix + Order(**row).SerializeToString() for row in rows]
    both = serde.protobuf(Order, confluent=bool(prefix))
    found = both.decode(binary(written))
    assert found.to_pylist() == rows
    if not prefix:
        again = both.encode(found).to_pylist()
        assert [value if value is None else Order.FromString(value) for value in again] == [
            row if row is None else Order(**row) for row in rows
        ]


def test_broken_protobuf_is_found_among_good_ones() -> None:
    good = Order(id=1, name="a").SerializeToString()
    for reading, bad in ((serde.protobuf(Order), b"\xff"), (serde.protobuf(Order, confluent=True), b"\x00\x00")):
        prefix = b"" if bad == b"\xff" else b"\x00\x00\x00\x00\x01\x00"
        errors: list[tuple[int, str]] = []
        found = decoded(reading, binary([prefix + good, bad, prefix + good]), errors)
        assert [row for row, _ in errors] == [1]
        assert [row and row["id"] for row in found.to_pylist()] == [1, None, 1]
    with pytest.raises(OttlaError, match="message class or its descriptor"):
        serde.protobuf(int)


# ---- text


def test_text_that_is_not_utf8_is_found() -> None:
    errors: list[tuple[int, str]] = []
    for reading in (serde.text(), serde.text(view=True)):
        errors.clear()
        found = decoded(
            reading, binary([b"a", b"\xff", None]).cast(pa.binary_view() if reading.view else pa.binary()), errors
        )
        assert found.to_pylist() == ["a", None, None]
        assert [row for row, _ in errors] == [1]
    assert serde.text().encode(pa.array(["a", None])).to_pylist() == [b"a", None]
    assert serde.text().encode(pa.array([12, None, -3])).to_pylist() == [b"12", None, b"-3"]
