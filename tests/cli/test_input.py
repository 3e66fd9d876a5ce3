"""Input that would be written other than it was meant: refused with its place, before its record is written."""

import io
import json
from collections.abc import Iterator
from datetime import time
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet
import pytest

from ottla.cli.ottla.produce import _records
from ottla.cli.records.input import BadRecord, Shape, from_json, from_json_line, lines_of, records, unescaped
from ottla.cli.records.table_input import from_csv, from_parquet
from ottla.kernel.error import OttlaError
from ottla.operations.writing import InputRecord

MARK = b"\xef\xbb\xbf"


def json_records(*lines: bytes) -> list[InputRecord]:
    return list(records(lines, from_json(Shape())))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"value":NaN}', "JSON has no NaN"),
        (b'{"value":[-Infinity]}', "JSON has no -Infinity"),
        (b'{"value":1e400}', "a double does not hold 1e400"),
        (b'{"value":1e99999999999999999999}', "a double does not hold 1e9"),
        (b'{"value":-1e-400}', "a double does not hold -1e-400"),
        (b'{"value":{"n":12345678901234567890.125}}', 'give the JSON as text, in "value_text"'),
        (b'{"value":1,"headers":[["\\ud800","x"]]}', "half of a surrogate pair"),
        (b'{"value":1,"value_text":"\\ud800"}', "half of a surrogate pair"),
        ('{"value":"é"}'.encode("latin-1"), "is not JSON"),
        ('{"value":1}'.encode("utf-16-le"), "is not JSON"),
    ],
)
def test_a_record_in_json_that_would_change_is_refused(line: bytes, sentence: str) -> None:
    with pytest.raises(BadRecord, match="line 2") as refused:
        json_records(b'{"value":1}', line)
    assert sentence in str(refused.value)


def test_numbers_that_a_double_holds_are_written() -> None:
    texts = (b"0.1", b"1.50", b"0.10000000000000001", b"-0.0", b"1e308", b"5e-324", b"0.0", b"123456789012345678901234")
    exactly_a_tenth = b"0.1000000000000000055511151231257827021181583404541015625"
    for text in (*texts, exactly_a_tenth):
        (record,) = json_records(b'{"value":%s}' % text)
        assert record.value is not None
        assert (float(record.value), str(record.value)[2]) == (float(text), str(text)[2])


def test_json_lines_begin_without_the_byte_order_mark() -> None:
    def parsed(*lines: bytes) -> list[bytes | None]:
        return [record.value for record in records(lines, from_json_line(Shape()))]

    assert parsed(MARK + b'{"a":1.50}\n', b'{"a":2}\n') == [b'{"a":1.50}', b'{"a":2}']
    assert json_records(MARK + b'{"value":"x"}')[0].value == b"x"
    for line in (MARK + b'{"a":1}', b'{"a":NaN}', '{"a":1}'.encode("utf-16-le")):
        with pytest.raises(BadRecord, match="line 2 is not JSON"):
            parsed(b"{}", line)


def test_json_lines_have_a_tombstone_where_the_text_for_null_stands() -> None:
    lines = [b"null\n", b'"null"\n', b" null \n", b'{"a":null}\n']
    for null, first in ((b"null", None), (None, b"null")):
        found = [record.value for record in records(lines, from_json_line(Shape(null=null)))]
        assert found == [first, b'"null"', first, b'{"a":null}']


@pytest.mark.parametrize(
    ("null", "values"),
    [
        (b"NULL", [None, b"", b"x"]),
        (b"", [b"NULL", None, b"x"]),
        (None, [b"NULL", b"", b"x"]),
    ],
)
def test_a_column_with_the_text_for_null_makes_a_tombstone(null: bytes | None, values: list[bytes | None]) -> None:
    shape = Shape(null=null, value_column="v", key_column="k")
    rows = list(from_csv(io.BytesIO(b"k,v\nNULL,NULL\nb,\nc,x\n"), shape, {}))
    lines = [b'{"k":"NULL","v":"NULL"}', b'{"k":"b","v":""}', b'{"k":"c","v":"x"}']
    for found in (rows, list(records(lines, from_json_line(shape)))):
        assert [record.value for record in found] == values
        assert [record.key for record in found] == [b"NULL", b"b", b"c"]


def test_a_line_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.records.input._LINE_MAX", 1 << 20)
    longest = b"x" * ((1 << 20) - 1) + b"\n"
    endless = BufferedReader(Endless([longest, b"\n"]))
    lines = lines_of(endless)
    assert [next(lines), next(lines)] == [longest, b"\n"]
    with pytest.raises(BadRecord, match=r"^line 3 has more than 1 MiB$"):
        next(lines)


class Endless(io.RawIOBase):
    """These lines, then the letter x forever."""

    def __init__(self, lines: list[bytes]) -> None:
        self._first = b"".join(lines)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        taken = self._first[: len(buffer)] or b"x" * len(buffer)
        self._first = self._first[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


def test_a_number_of_a_csv_has_no_underscores() -> None:
    for kind in ("int", "float"):
        with pytest.raises(BadRecord, match=f"line 2 has an invalid {kind} in column a: '1_000'"):
            list(from_csv(io.BytesIO(b"a\n1_000\n"), Shape(), {"a": kind}))


@pytest.mark.parametrize("mark", ['"', "\\n", "\\r"])
def test_a_delimiter_that_is_a_quote_or_a_line_break_is_refused(mark: str) -> None:
    with pytest.raises(click.UsageError, match="no quote or line break"):
        _records(io.BytesIO(b'a"b\n1"2\n'), None, "csv", Shape(), {}, mark)


def parquet(path: Path, table: pa.Table) -> Iterator[InputRecord]:
    pyarrow.parquet.write_table(table, path)
    return from_parquet(str(path), Shape())


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(OttlaError, match="names a column twice: a, a"):
        list(parquet(tmp_path / "twice.parquet", twice))


def test_a_time_that_python_does_not_have_is_refused(tmp_path: Path) -> None:
    for kind, number in ((pa.timestamp("us"), 1 << 60), (pa.time64("ns"), 1_001)):
        table = pa.table({"at": pa.array([number], kind)})
        with pytest.raises(BadRecord, match=r"a row of .*parquet after row 0 cannot be read"):
            list(parquet(tmp_path / "far.parquet", table))
    whole = pa.table({"at": pa.array([5_000], pa.time64("ns"))})
    (record,) = parquet(tmp_path / "whole.parquet", whole)
    assert json.loads(record.value or b"") == {"at": time(microsecond=5).isoformat()}


def test_damaged_parquet_names_the_last_row_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    table = pa.table({"text": [f"{number * 7919}" for number in range(30_000)]})
    pyarrow.parquet.write_table(table, path, row_group_size=10_000, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2_000] = b"\xff" * 2_000
    path.write_bytes(content)
    rows = from_parquet(str(path), Shape())
    assert len(list(islice(rows, 10_000))) == 10_000
    with pytest.raises(BadRecord, match="after row 10000 cannot be read"):
        next(rows)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("", ""),
        (":", ":"),
        (r"\t", "\t"),
        (r"a\n\r\0b", "a\n\r\0b"),
        (r"\\t", r"\t"),
        (r"\x41\x0az", "A\nz"),
        # What is no escape is itself.
        (r"\q", r"\q"),
        ("a\\", "a\\"),
        (r"\x4", "\x04"),
    ],
)
def test_a_separator_has_the_escapes_that_people_write(text: str, separator: str) -> None:
    assert unescaped(text) == separator


@pytest.mark.parametrize("text", [r"\x", r"\xg1", r"a\x:"])
def test_an_escape_without_its_digits_is_named(text: str) -> None:
    with pytest.raises(OttlaError) as raised:
        unescaped(text)
    assert str(raised.value) == f"{text}: expected two hexadecimal digits after \\x"
