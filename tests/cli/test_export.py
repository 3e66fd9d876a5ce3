"""What `ottla export` writes of records that a format, a codec or Arrow cannot hold as they are."""

import io
import json
from pathlib import Path

import click
import pyarrow.parquet
import pytest

from ottla.cli.ottla import export
from ottla.cli.records.field import getter, parsed
from ottla.cli.records.show import json_line
from ottla.cli.records.template import template
from ottla.columns.record import ConsumerRecord
from ottla.kernel.error import OttlaError


def record(value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("t", 0, 0, 0, None, value, (), 0)


def lines(kind: str, columns: tuple[str, ...], *values: bytes | None) -> list[str]:
    out = io.BytesIO()
    export._write_text(map(record, values), out, kind, export._fields(columns))
    return out.getvalue().decode().splitlines()


def test_json_lines_have_each_value_exactly_or_as_base64() -> None:
    wide = '{"ü":1}'.encode("utf-16-le")
    values = b'{\n "price": 1.50,\n "price": 12345678901234567890.125\n}', b'"\xed\xa0\x80"', wide, b"\xff", b"plain"
    assert lines("jsonl", (), *values) == [
        '{  "price": 1.50,  "price": 12345678901234567890.125 }',
        '{"base64":"Iu2ggCI="}',
        '{"base64":"ewAiAPwAIgA6ADEAfQA="}',
        '{"base64":"/w=="}',
        '"plain"',
    ]


def test_json_lines_have_null_for_a_null_and_for_the_null_of_json_and_text_for_other_words() -> None:
    values = None, b"null", b" null\n", b'"null"', b"\x0bnull", b"nulls", b""
    assert lines("jsonl", (), *values) == ["null", "null", " null ", '"null"', '"\\u000bnull"', '"nulls"', '""']
    assert lines("jsonl", ("value",), None, b"null", b'"null"') == [
        '{"value":null}',
        '{"value":"null"}',
        '{"value":"\\"null\\""}',
    ]
    assert lines("jsonl", ("value.a",), b'{"a":null}', b'{"a":"null"}') == ['{"a":null}', '{"a":"null"}']
    whole = [json.loads(line)["value"] for line in lines("json", (), None, b"null", b'"null"')]
    assert whole == [None, "null", '"null"']


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path: Path) -> None:
    value = b'{"name":"a\\ud800","low":"\\udc80","tags":["\\udfff"]}'
    columns = ("value.name", "value.low", "value.tags")
    assert lines("jsonl", columns, value) == [value.decode()]
    assert lines("csv", columns, value)[1] == r'a\ud800,\udc80,"[""\udfff""]"'
    assert template("{value.name} {value.tags}", null="")(record(value)) == r'a\ud800 ["\udfff"]'
    path = tmp_path / "out.parquet"
    with path.open("wb") as file:
        export._write_parquet(iter([record(value)]), file, export._fields(columns))
    assert pyarrow.parquet.read_table(path).to_pylist() == [
        {"name": r"a\ud800", "low": r"\udc80", "tags": r'["\udfff"]'}
    ]


def test_a_number_beyond_a_double_is_never_shown_as_infinity() -> None:
    assert parsed(b'{"a":1e400}') is None
    assert json.loads(json_line(record(b'{"a":1e400}')), parse_constant=pytest.fail)["value"] == '{"a":1e400}'


def test_an_integer_of_more_than_64_bits_in_a_column_of_parquet_is_a_sentence(tmp_path: Path) -> None:
    with (tmp_path / "out.parquet").open("wb") as file, pytest.raises(OttlaError, match="more than 64 bits"):
        export._write_parquet(iter([record(b'{"a":%d}' % 2**70)]), file, [("a", getter("value.a"))])


def test_two_columns_never_have_one_name() -> None:
    value = b'{"a":{"price":1},"b":{"price":2},"who":3}'
    columns = ("value.a.price", "value.b.price", "value.who")
    assert lines("jsonl", columns, value) == ['{"value.a.price":1,"value.b.price":2,"who":3}']
    assert lines("csv", columns, value)[0] == "value.a.price,value.b.price,who"
    assert lines("jsonl", ("key", "value.key"), b'{"key":1}') == ['{"key":null,"value.key":1}']
    with pytest.raises(click.UsageError, match="--columns has key twice"):
        export._fields(("key", "key"))
