"""Avro that was written with another schema: collections and enums resolve as fastavro resolves them."""

import io
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.client import OttlaError, serde


def collection(kind: str, items: Any) -> dict[str, Any]:
    return {"type": kind, ("items" if kind == "array" else "values"): items}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **more}


def in_record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def datum(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(written: Any, wanted: Any, values: list[Any]) -> list[Any]:
    """The field `a` of each value, a map as a dict."""
    reading = serde.avro(in_record(wanted), registry=lambda _: in_record(written))
    raw = [b"\0\0\0\0\1" + datum(in_record(written), {"a": value}) for value in values]
    # The slice's first offset is not zero.
    rows = reading.decode(pa.array([b"before", *raw], pa.binary())[1:]).to_pylist(maps_as_pydicts="strict")
    return [row["a"] for row in rows]


def as_fastavro_reads(written: Any, wanted: Any, values: list[Any]) -> list[Any]:
    writer, reader = (fastavro.parse_schema(in_record(kind)) for kind in (written, wanted))
    found: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(datum(writer, {"a": value})), writer, reader) for value in values
    ]
    return [row["a"] for row in found]


NESTED = collection("array", collection("map", "int"))
NESTED_WIDER = collection("array", collection("map", ["null", "double"]))


@pytest.mark.parametrize(
    ("written", "wanted", "values"),
    [
        (collection("array", "int"), collection("array", "long"), [[1, -2], [], [3]]),
        (["null", collection("array", "int")], ["null", collection("array", "double")], [[1], None, [], [2, 3]]),
        (collection("array", "string"), collection("array", "bytes"), [["a", "bc"], [""]]),
        (collection("map", "int"), collection("map", "long"), [{"x": 1, "y": 2}, {}, {"z": 3}]),
        (["null", collection("map", "long")], ["null", collection("map", "float")], [{"x": 1}, None, {}, {"y": 2}]),
        (NESTED, NESTED_WIDER, [[{"x": 1}, {}], [], [{"y": 2, "z": 3}]]),
        (enum("RED", "BLUE"), enum("BLUE", "RED", "GREEN"), ["RED", "BLUE", "RED"]),
        (enum("RED", "BLUE"), enum("NONE", "RED", default="NONE"), ["BLUE", "RED", "BLUE"]),
        (["null", enum("RED", "BLUE")], ["null", enum("NONE", "RED", default="NONE")], ["BLUE", None, "RED"]),
        ("null", ["null", "int"], [None, None]),
    ],
)
def test_a_value_of_another_schema_is_what_fastavro_reads(written: Any, wanted: Any, values: list[Any]) -> None:
    assert read(written, wanted, values) == as_fastavro_reads(written, wanted, values)


def test_a_symbol_that_the_readers_enum_lacks_is_refused_without_a_default() -> None:
    wanted = enum("RED")
    assert read(enum("RED", "BLUE"), wanted, ["RED"]) == ["RED"]
    with pytest.raises(ValueError, match="a symbol that the reader's Avro enum lacks"):
        read(enum("RED", "BLUE"), wanted, ["RED", "BLUE"])


@pytest.mark.parametrize(
    ("written", "wanted"), [("string", "int"), ("double", "long"), (collection("array", "int"), "int")]
)
def test_schemas_that_do_not_agree_are_refused(written: Any, wanted: Any) -> None:
    value: Any = {"string": "1", "double": 1.0}.get(written, [1]) if isinstance(written, str) else [1]
    with pytest.raises(OttlaError, match=r"Avro cannot resolve (string|double|array) to (int|long)"):
        read(written, wanted, [value])


def test_a_null_that_the_reader_does_not_take_is_refused() -> None:
    assert read(["null", "int"], "int", [1, 2]) == [1, 2]
    with pytest.raises(ValueError, match="null, which the reader's Avro schema does not allow"):
        read(["null", "int"], "int", [1, None])


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        ("boolean", b"\2", "neither 0 nor 1"),
        ("int", b"\x80\x80\x80\x80\x10", "more than 32 bits"),
        ("string", b"\1", "a negative or too large size"),
        ("bytes", b"\x08abc", "a negative or too large size"),
        (DECIMAL, b"\0", "without bytes, or with more than 16"),
        (DECIMAL, b"\x22" + bytes(17), "without bytes, or with more than 16"),
        (enum("RED"), b"\2", "an unknown symbol"),
        (enum("RED"), b"\1", "an unknown symbol"),
        (["null", "int"], b"\4\2", "an unknown branch"),
        (collection("array", "int"), b"\xfe\xff\xff\xff\x0f", "more items than bytes"),
        ("double", bytes(7), "cut off or broken"),
        ("long", b"\x80", "cut off or broken"),
        ("boolean", b"\1\1", "more or fewer bytes"),
    ],
)
def test_bytes_that_are_not_of_the_schema_are_refused(kind: Any, raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        serde.avro(in_record(kind)).decode(pa.array([raw], pa.binary()))


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("boolean", b"\1", True),
        ("int", b"\xff\xff\xff\xff\x0f", -(2**31)),
        ("int", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("string", b"\x06abc", "abc"),
        (DECIMAL, b"\x20" + bytes(15) + b"\7", 7),
        (DECIMAL, b"\4\xff\x80", -128),
        (enum("RED", "BLUE"), b"\2", "BLUE"),
        ("float", struct.pack("<f", 1.5), 1.5),
    ],
)
def test_the_bytes_that_a_schema_just_allows_are_read(kind: Any, raw: bytes, value: Any) -> None:
    found = serde.avro(in_record(kind)).decode(pa.array([raw], pa.binary()))
    assert found.to_pylist() == [{"a": value}]


def test_a_block_may_say_how_many_bytes_it_has() -> None:
    reading = serde.avro(in_record(collection("array", "int")))
    # Two blocks: -2 items in 2 bytes, and one item without a size. Beside it a value whose block has no size.
    sized = b"\3\4" + b"\2\4" + b"\2\6" + b"\0"
    found = reading.decode(pa.array([sized, b"\2\x0a\0", sized], pa.binary()))
    assert [row["a"] for row in found.to_pylist()] == [[1, 2, 3], [5], [1, 2, 3]]
