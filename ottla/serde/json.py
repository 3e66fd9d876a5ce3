"""JSON to typed columns with Arrow's reader, and columns to JSON with Arrow's string kernels.

Rules:
- Objects of one layout, as one serializer writes them, are read without parsing (`json_layout`).
- Other values are read in one call, each on its own line: unchanged if all are objects, otherwise wrapped as
  `{"v": value}` (decision 0210). So each line begins with `{` and ends with `}`, and after an object only another one
  can begin: a broken value never runs into the next, and an equal number of rows means one value per row.
- Columns are written compactly, in UTF-8, with nulls as `null`: as `json.dumps` with the shortest separators writes
  them, except for floats (Arrow writes 1.0 as 1; NaN and infinities, which JSON lacks, become null).
- Times are ISO 8601 text in both directions.

RFC 8259.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columns.encode_columns import offsets_of
from ottla.kernel.error import OttlaError
from ottla.serde.json_layout import ROWS_MIN, columns_of, plain_types
from ottla.serde.serde import Errors, Serde, arrow_type, spread

_OPEN, _CLOSE, _NONE, _END = (pa.scalar(text, pa.binary()) for text in (b'{"v":', b"}\n", b"", b"\n"))
#: Arrow reads blocks, which end at the end of a line, on several threads. Smaller blocks cost more than they save.
_BLOCK_BYTES = 1 << 18
#: After values without one layout, this many arrays go to Arrow's reader at once: the search may end at the last value,
#: and costs a third of what the reader does.
_WITHOUT_LAYOUT = 32
_BRACES, _NEWLINE = b"{}", ord("\n")
#: A comma and a name, as between the fields of an object. A JSON list of strings has no colon after them.
_GOES_ON = r'(?s),\s*"(?:[^"\\]|\\.)*"\s*:'
#: Characters that must be escaped in a JSON string.
_TO_ESCAPE = '["\\\\\\x00-\\x1f]'
_SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class Json(Serde):
    """JSON; reading needs a `schema`."""

    #: Arrow's reader splits its input into blocks and reads them on several threads: more input is faster.
    together = True

    def __init__(self, schema: Any, errors: Errors) -> None:
        self.errors = errors
        self.type = None if schema is None else arrow_type(schema)
        if schema is not None:
            self._read_as = _readable(self.type)
            fields = list(self._read_as) if pa.types.is_struct(self._read_as) else []
            self._wrapped = pa.schema([("v", self._read_as)])
            #: None: the values are not objects, or no field of them is read.
            self._bare = pa.schema(fields) if fields else None
            #: None: objects of one layout are left to Arrow's reader, too.
            self._kinds = plain_types(fields)
            #: The number of arrays for which no layout is looked for; threads that share a serde may bring it below 0.
            self._without_layout = 0

    def decode(self, values: Any) -> Any:
        if self.type is None:
            raise OttlaError("serde.json() needs a schema to read: serde.json({'id': pa.int64()})")
        present = values.drop_null() if values.null_count else values
        if not len(present):
            return pa.nulls(len(values), self.type)
        array = self._of_objects(present) if self._bare is not None else None
        if array is None:
            _check_single(present)
            lines = pc.binary_join_element_wise(_OPEN, present, _CLOSE, _NONE)
            array = _read(lines, self._wrapped, _short_lines(present)).combine_chunks().column(0).chunk(0)
        if self._read_as != self.type:
            array = array.cast(self.type)
        return array if len(present) == len(values) else spread(array, values)

    def _of_objects(self, values: Any) -> Any:
        """The values as structs; None if one of them is not an object."""
        columns = self._of_one_layout(values) if self._kinds else None
        if columns is None:
            if not _objects(values):
                return None
            lines = pc.binary_join_element_wise(values, _NONE, _END)
            table = _read(lines, self._bare, _short_lines(values)).combine_chunks()
            columns = [column.chunk(0) for column in table.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self._read_as))

    def _of_one_layout(self, values: Any) -> Any:
        """The columns of objects of one layout; None if they are left to Arrow's reader."""
        assert self._kinds is not None
        if len(values) < ROWS_MIN:
            return None
        if self._without_layout > 0:
            self._without_layout -= 1
            return None
        columns = columns_of(values, self._kinds)
        if columns is None:
            self._without_layout = _WITHOUT_LAYOUT
        return columns

    def encode(self, column: Any) -> Any:
        written = to_json(column).view(pa.binary())
        return pc.if_else(column.is_null(), pa.scalar(None, pa.binary()), written) if column.null_count else written


def _read(lines: Any, schema: Any, short: bool) -> Any:
    """A table with one row per line; ValueError if the lines cannot be read."""
    import pyarrow.json

    edges = offsets_of(lines)
    text = lines.buffers()[2].slice(int(edges[0]), int(edges[-1] - edges[0]))
    block = _BLOCK_BYTES if short else text.size + 1
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        read_options=pyarrow.json.ReadOptions(block_size=block, use_threads=text.size > block),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(lines):
        raise ValueError(f"{len(lines)} rows contain {table.num_rows} JSON values (expected one value per row)")
    return table


def _check_single(values: Any) -> None:
    """Check that no value ends early and goes on with a name, as in `1,"x":2`, which fits between `{"v":` and `}`."""
    for value in values.filter(pc.match_substring_regex(values, _GOES_ON)).to_pylist():
        json.loads(value)


def _objects(values: Any) -> bool:
    """True if every value begins and ends like an object."""
    edges = offsets_of(values)
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)
    starts, ends = edges[:-1], edges[1:]
    return bool((starts < ends).all() and (data[starts] == _BRACES[0]).all() and (data[ends - 1] == _BRACES[1]).all())


def _short_lines(values: Any) -> bool:
    """True if the lines may be split into blocks: each value is on one line, and a block holds at least one."""
    edges = offsets_of(values)
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)[edges[0] : edges[-1]]
    return int(np.diff(edges).max()) < _BLOCK_BYTES // 2 and not (data == _NEWLINE).any()


def _readable(kind: Any) -> Any:
    """The type with which Arrow's reader reads values of this type."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_readable(kind.value_type))
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    plain = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_timestamp,
        pa.types.is_decimal,
        pa.types.is_null,
    )
    if any(is_kind(kind) for is_kind in plain):
        return kind
    raise OttlaError(f"serde.json() cannot read the type {kind}")


# ---- writing


def to_json(column: Any) -> Any:
    """The JSON text of each row; nulls are `null`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return to_json(column.cast(kind.value_type))
    if pa.types.is_struct(kind):
        text = _object(column)
    elif pa.types.is_map(kind):
        text = _map(column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        text = _list(column)
    elif pa.types.is_floating(kind):
        finite = pc.is_finite(column)
        text = pc.if_else(finite, column.cast(pa.string()), pa.scalar(None, pa.string()))
    elif pa.types.is_null(kind):
        return pa.repeat("null", len(column))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        text = column.cast(pa.string())
    elif pa.types.is_timestamp(kind):
        text = _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1))
    elif pa.types.is_date(kind) or pa.types.is_time(kind):
        text = _quoted(column.cast(pa.string()))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        text = _quoted(_escaped(column.cast(pa.string())))
    else:
        raise OttlaError(f"a column of type {kind} has no form in JSON: cast it first")
    return text.fill_null("null")


def _object(column: Any) -> Any:
    # `flatten` passes a struct's null on to its fields; the whole row becomes null below.
    pieces: list[Any] = []
    for number, (field, values) in enumerate(zip(column.type, column.flatten(), strict=True)):
        name = _escaped(pa.array([field.name]))[0].as_py()
        pieces += [f'{"," if number else "{"}"{name}":', to_json(values)]
    if not pieces:
        text = pa.repeat("{}", len(column))
    else:
        text = pc.binary_join_element_wise(*pieces, "}", "")
    return pc.if_else(column.is_null(), pa.scalar(None, pa.string()), text) if column.null_count else text


def _list(column: Any) -> Any:
    sizes = pc.list_value_length(column)
    parts = to_json(pc.list_flatten(column))
    return pc.binary_join_element_wise("[", _by_row(sizes, parts), "]", "")


def _map(column: Any) -> Any:
    rows = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    entries = pc.list_flatten(rows)
    keys, items = entries.field(0), entries.field(1)
    if not pa.types.is_string(keys.type):
        raise OttlaError(f"a map with keys of type {keys.type} has no form in JSON (expected string keys)")
    parts = pc.binary_join_element_wise(to_json(keys), ":", to_json(items), "")
    return pc.binary_join_element_wise("{", _by_row(pc.list_value_length(rows), parts), "}", "")


def _by_row(sizes: Any, parts: Any) -> Any:
    """Join the texts of each row with commas; null where the size is null."""
    ends = pc.cumulative_sum(sizes.fill_null(0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ",")
    return pc.if_else(sizes.is_null(), pa.scalar(None, pa.string()), joined) if sizes.null_count else joined


def _quoted(text: Any) -> Any:
    return pc.binary_join_element_wise('"', text, '"', "")


@cache
def _controls() -> dict[str, str]:
    return _SHORT | {chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in _SHORT}


def _escaped(text: Any) -> Any:
    if not pc.any(pc.match_substring_regex(text, _TO_ESCAPE)).as_py():
        return text
    for character, escape in _controls().items():
        text = pc.replace_substring(text, character, escape)
    return text
