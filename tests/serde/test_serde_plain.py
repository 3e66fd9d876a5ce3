"""Values without a format of their own: bytes, text and headers of one record, columns of bytes, maps in JSON."""

import json
from typing import Any

import pyarrow as pa
import pytest

from ottla.client import OttlaError, serde
from ottla.serde.serde import Serde
from ottla.serde.serializer import deserializer, headers_of, serialized, serializer


def test_a_serializer_is_known_by_its_name() -> None:
    to_bytes, to_text, to_json = serializer("bytes"), serializer("str"), serializer("json")
    assert to_bytes is not None
    assert to_text is not None
    assert to_json is not None
    assert [to_bytes(value) for value in (b"a", bytearray(b"b"), memoryview(b"c"))] == [b"a", b"b", b"c"]
    assert to_text("ä") == "ä".encode()
    assert to_json({"a": ["ä", 1]}) == '{"a":["ä",1]}'.encode()
    assert [type(to_bytes(value)) for value in (b"a", bytearray(b"b"), memoryview(b"c"))] == [bytes] * 3
    of_bytes, of_text, of_json = deserializer("bytes"), deserializer("str"), deserializer("json")
    assert of_bytes is not None
    assert of_text is not None
    assert of_json is not None
    assert (of_bytes(b"\xff"), of_text("ä".encode()), of_json(b'{"a":1}')) == (b"\xff", "ä", {"a": 1})
    assert (serializer(None), deserializer(None)) == (None, None)
    own: object = serializer(len)
    assert own is len


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("bytes", "text", "the serializer bytes takes bytes, not str: 'text'"),
        ("str", b"raw", "the serializer str takes str, not bytes: b'raw'"),
    ],
)
def test_a_value_of_another_class_is_not_serialized(name: str, value: Any, why: str) -> None:
    serialize = serializer(name)
    assert serialize is not None
    with pytest.raises(TypeError, match=why):
        serialize(value)


@pytest.mark.parametrize("name", ["text", 5, ""])
def test_an_unknown_serializer_is_told_the_known_ones(name: object) -> None:
    with pytest.raises(ValueError, match="a function, or one of bytes, str, json"):
        serializer(name)


def test_a_serializer_of_the_program_gives_bytes_or_none() -> None:
    given: list[Any] = [None, b"a", bytearray(b"b"), memoryview(b"c")]
    found = [serialized(raw, "key") for raw in given]
    assert found == [None, b"a", b"b", b"c"]
    assert [type(each) for each in found[1:]] == [bytes] * 3
    with pytest.raises(TypeError, match=r"key\.serializer gives bytes or None, not str: 'text'"):
        serialized("text", "key")


@pytest.mark.parametrize("headers", [[("a", b"1"), ["b", "2"]], {"a": b"1", "b": "2"}, iter([("a", b"1"), ("b", "2")])])
def test_headers_are_pairs_or_a_mapping(headers: object) -> None:
    assert headers_of(headers) == [("a", b"1"), ("b", b"2")]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ("ab", "headers are a list of .name, value. pairs or a mapping, not 'ab'"),
        (b"ab", "headers are a list of .name, value. pairs or a mapping, not b'ab'"),
        (5, "headers are a list of .name, value. pairs or a mapping, not 5"),
        (["ab"], "a header is a .name, value. pair, not 'ab'"),
        ([("a", b"1", 2)], "a header is a .name, value. pair, not "),
        ([("a",)], "a header is a .name, value. pair, not "),
    ],
)
def test_what_is_no_header_is_named(headers: object, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        headers_of(headers)


def test_a_headers_name_is_text_that_can_be_sent() -> None:
    assert headers_of({"ä": None}) == [("ä", None)]
    with pytest.raises(UnicodeEncodeError):
        headers_of({"\ud800": b"1"})


RAW = [b"a", None, b"bc"]
TEXT = ["a", None, "bc"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(RAW, pa.binary()),
        pa.array(RAW, pa.large_binary()),
        pa.array(RAW, pa.binary_view()),
        pa.array(TEXT, pa.string()),
        pa.array(TEXT, pa.large_string()),
        pa.array(TEXT, pa.string_view()),
        pa.array(TEXT, pa.string()).dictionary_encode(),
        pa.array(RAW, pa.binary()).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_of_bytes_or_text_of_any_kind_is_sent(column: Any) -> None:
    for written in (serde.binary().encode(column), serde.text().encode(column)):
        assert written.type == pa.binary()
        assert written.to_pylist() == RAW


def test_bytes_of_one_size_nothing_and_what_text_can_say_are_sent() -> None:
    assert serde.binary().encode(pa.array([b"ab", None], pa.binary(2))).to_pylist() == [b"ab", None]
    nothing = serde.binary().encode(pa.nulls(2))
    assert (nothing.type, nothing.to_pylist()) == (pa.binary(), [None, None])
    assert serde.text().encode(pa.array([1, None])).to_pylist() == [b"1", None]
    assert serde.text().encode(pa.array([True])).to_pylist() == [b"true"]
    with pytest.raises(OttlaError, match=r"a column of type int64 has no form in bytes: give a serde"):
        serde.binary().encode(pa.array([1]))
    with pytest.raises(OttlaError, match=r"a column of type list<item: string> has no form in bytes"):
        serde.text().encode(pa.array([["a"]]))


def test_a_serde_that_only_reads_or_only_writes_says_so() -> None:
    class Own(Serde):
        type = pa.binary()

    with pytest.raises(OttlaError, match="Own cannot read: it has no decode"):
        Own().decode(pa.array([b"a"]))
    with pytest.raises(OttlaError, match="Own cannot write: encode the column first"):
        Own().encode(pa.array([b"a"]))


@pytest.mark.parametrize("schema", [5, "int64", [("a", pa.int64())]])
def test_what_is_no_schema_of_json_is_refused(schema: object) -> None:
    with pytest.raises(OttlaError, match=r"invalid schema: .*expected a pyarrow type or schema, or a mapping"):
        serde.json(schema)


def test_maps_and_empty_objects_are_written_in_json() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.int64()))
    rows: list[Any] = [[("a", [1, 2]), ('q"', None)], [], None, [("b", [])]]
    # The slice's first offset is not zero.
    written = serde.json().encode(pa.array([[("before", [0])], *rows], kind)[1:])
    found = [None if text is None else json.loads(text) for text in written.to_pylist()]
    assert found == [{"a": [1, 2], 'q"': None}, {}, None, {"b": []}]
    assert serde.json().encode(pa.array([{}, None], pa.struct([]))).to_pylist() == [b"{}", None]
    with pytest.raises(OttlaError, match=r"a map with keys of type int64 has no form in JSON \(expected string keys\)"):
        serde.json().encode(pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())))


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (pa.array(["a", "b", "a"]).dictionary_encode(), ['"a"', '"b"', '"a"']),
        (pa.nulls(2), ["null", "null"]),
        (pa.array([[1], None, []], pa.list_(pa.int64())), ["[1]", "null", "[]"]),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), ["[1,2]"]),
        (pa.array([0], pa.timestamp("ms")), ['"1970-01-01T00:00:00.000"']),
        (pa.array([86_399_000], pa.time32("ms")), ['"23:59:59.000"']),
        (pa.array([1], pa.date32()), ['"1970-01-02"']),
        (pa.array(["x\n"], pa.large_string()), ['"x\\n"']),
    ],
)
def test_each_kind_of_column_has_its_json(column: Any, written: list[str]) -> None:
    found = serde.json().encode(pa.StructArray.from_arrays([column], names=["x"]))
    assert found.to_pylist() == [f'{{"x":{text}}}'.encode() for text in written]
