"""Every operation of column expressions at its edges, batch functions that return something else, malformed changes."""

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from ottla.flow.column.batch import batch
from ottla.flow.column.expression import Expression, col, key, left, lit, right, struct, timestamp, value
from ottla.flow.column.fold import FOLDS
from ottla.flow.column.function import FoldFunction, PairFunction, without_time
from ottla.flow.column.kind import joined_type, type_of
from ottla.flow.column.row import row
from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.error import SerdeError, TopologyError
from ottla.flow.operator.table_aggregate import ChangeSerde
from ottla.flow.record import Change
from ottla.flow.serde import BYTES, DOUBLE, LONG, STRING
from ottla.flow.vector.change import decode_changes, encode_changes
from ottla.flow.vector.encode import arrow_type, decode, encode
from ottla.flow.vector.evaluate import Changes, Frame, evaluate

MAX, MIN = (1 << 63) - 1, -(1 << 63)
FIELDS = {"a": "long", "b": "long", "x": "double", "y": "double", "s": "string", "t": "string", "p": "boolean"}
KIND = (*FIELDS.items(), ("q", "boolean"), ("r", "bytes"))
a, b, x, y, s, t, p, q, r = (value[name] for name, _ in KIND)


def both_ways(expression: Expression, **fields: Any) -> Any:
    """What a single record gives, after columns gave the same; or the error, after columns had one too."""
    given = {name: fields.get(name) for name, _ in KIND}
    frame = Frame(pa.array(["key"]), pa.array([given], arrow_type(KIND)), np.array([7]), np.zeros(1, dtype=int))
    try:
        one = row(expression)("key", given, 7)
    except (ArithmeticError, ValueError, TypeError) as error:
        with pytest.raises((ArithmeticError, ValueError, TypeError)):
            evaluate(expression, frame)
        return type(error)
    (found,) = evaluate(expression, frame).to_pylist()
    assert repr(found) == repr(one)
    return one


_TABLE: list[tuple[Expression, dict[str, Any], Any]] = [
    (a + b, {"a": MAX, "b": 0}, MAX),
    (a + b, {"a": MAX, "b": 1}, OverflowError),
    (a + b, {"a": MAX}, None),
    (a + x, {"a": 1, "x": 0.5}, 1.5),
    (s + t, {"s": "a", "t": "b"}, "ab"),
    (s + t, {"s": "a"}, None),
    (a - b, {"a": MIN, "b": 0}, MIN),
    (a - b, {"a": MIN, "b": 1}, OverflowError),
    (5 - a, {"a": 7}, -2),
    (-a, {"a": 7}, -7),
    (-a, {"a": MIN}, OverflowError),
    (a * b, {"a": 1 << 62, "b": 2}, OverflowError),
    (a * b, {"a": 1 << 61, "b": 2}, 1 << 62),
    (a * b, {"a": MIN, "b": -1}, OverflowError),
    (a * x, {"a": 3, "x": 0.5}, 1.5),
    (a / b, {"a": 7, "b": 2}, 3.5),
    (a / b, {"a": 7, "b": 0}, ZeroDivisionError),
    (7 / a, {"a": 2}, 3.5),
    (a // b, {"a": -7, "b": 2}, -4),
    (a // b, {"a": 7, "b": -2}, -4),
    (a // b, {"a": 7, "b": 0}, ZeroDivisionError),
    (a // b, {"a": MIN, "b": -1}, OverflowError),
    (a // b, {"a": MIN + 1, "b": -1}, MAX),
    (a // b, {"a": 7}, None),
    (a // b, {"b": 0}, None),
    (7 // a, {"a": 2}, 3),
    (a % b, {"a": -7, "b": 2}, 1),
    (a % b, {"a": 7, "b": -2}, -1),
    (a % b, {"a": 7, "b": 0}, ZeroDivisionError),
    (7 % a, {"a": 4}, 3),
    (a < b, {"a": 1, "b": 1}, False),
    (a <= b, {"a": 1, "b": 1}, True),
    (a > b, {"a": 1, "b": 1}, False),
    (a >= b, {"a": 1, "b": 1}, True),
    (a < b, {"a": 1, "b": 2}, True),
    (a <= b, {"a": 2, "b": 1}, False),
    (a > b, {"a": 2, "b": 1}, True),
    (a >= b, {"a": 1, "b": 2}, False),
    (a == x, {"a": 1, "x": 1.0}, True),
    (a != x, {"a": 1, "x": 1.5}, True),
    (s == t, {"s": "a", "t": "a"}, True),
    (s < t, {"s": "a", "t": "b"}, True),
    (r == lit(b"x"), {"r": b"x"}, True),
    (r < lit(b"x"), {"r": b"xa"}, False),
    (p == q, {"p": True, "q": True}, True),
    (p != q, {"p": True, "q": True}, False),
    (a == b, {"a": 1}, None),
    *((p & q, {"p": one, "q": other}, both) for one, other, both in (
        (True, True, True), (True, False, False), (False, None, False), (None, False, False), (True, None, None),
        (None, True, None), (None, None, None))),
    *((p | q, {"p": one, "q": other}, both) for one, other, both in (
        (False, False, False), (True, False, True), (True, None, True), (None, True, True), (False, None, None),
        (None, False, None), (None, None, None))),
    (~p, {"p": True}, False),
    (~p, {"p": False}, True),
    (~p, {}, None),
    (p.is_null(), {}, True),
    (p.is_null(), {"p": False}, False),
    (a.otherwise(5), {}, 5),
    (a.otherwise(b), {"a": 0, "b": 5}, 0),
    (a.is_in(1), {"a": 1}, True),
    (a.is_in(1, 2, 3), {"a": 3}, True),
    (a.is_in(1, 2), {"a": 3}, False),
    (a.is_in(1, 2), {}, None),
    (s.is_in("a", "b"), {"s": "b"}, True),
    (x.is_in(0.5), {"x": 0.5}, True),
    (p.is_in(True), {"p": False}, False),
    (s.lower(), {"s": "ABÉ"}, "abé"),
    (s.upper(), {"s": "ab"}, "AB"),
    (s.upper(), {"s": "ß"}, "SS"),
    (s.length(), {"s": "é\U0001f600"}, 2),
    (s.starts_with("a"), {"s": "ab"}, True),
    (s.starts_with("b"), {"s": "ab"}, False),
    (s.ends_with("b"), {"s": "ab"}, True),
    (s.ends_with("a"), {"s": "ab"}, False),
    (s.contains("b"), {"s": "abc"}, True),
    (s.contains("."), {"s": "abc"}, False),
    (s.contains(""), {"s": ""}, True),
    (s.replace("a", "xx"), {"s": "aba"}, "xxbxx"),
    (s.replace(".", "x"), {"s": "a.b"}, "axb"),
    (s.substring(1, 2), {"s": "abcd"}, "bc"),
    (s.substring(0, 0), {"s": "abcd"}, ""),
    (s.substring(3, 5), {"s": "abcd"}, "d"),
    (s.substring(9, 1), {"s": "abcd"}, ""),
    (x.cast("long"), {"x": -1.9}, -1),
    (x.cast("long"), {"x": 1e19}, OverflowError),
    (x.cast("string"), {"x": 1e22}, "1e+22"),
    (a.cast("double"), {"a": (1 << 53) + 1}, float(1 << 53)),
    (a.cast("string"), {"a": MIN}, str(MIN)),
    (a.cast("long"), {"a": 5}, 5),
    (s.cast("long"), {"s": "-12"}, -12),
    (s.cast("long"), {"s": "+12"}, 12),
    (s.cast("long"), {"s": str(MAX)}, MAX),
    (s.cast("long"), {"s": str(MAX + 1)}, OverflowError),
    (s.cast("long"), {"s": "1.0"}, ValueError),
    (s.cast("long"), {"s": " 1"}, ValueError),
    (s.cast("long"), {"s": ""}, ValueError),
    (s.cast("double"), {"s": "1.5"}, 1.5),
    (s.cast("double"), {"s": "x"}, ValueError),
    (timestamp + 1, {}, 8),
    (key + "!", {}, "key!"),
    (struct(n=a, k=key), {"a": 5}, {"n": 5, "k": "key"}),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "fields", "expected"), _TABLE, ids=lambda each: str(each)[:40])
def test_an_operation_gives_at_its_edges(expression: Expression, fields: dict[str, Any], expected: Any) -> None:
    assert repr(both_ways(expression, **fields)) == repr(expected)


_OPERATIONS: list[tuple[Expression, Any]] = [
    (a + b, "long"), (a + x, "double"), (s + t, "string"), (a - x, "double"), (a * b, "long"), (a / b, "double"),
    (a // b, "long"), (a % b, "long"), (a < x, "boolean"), (s >= t, "boolean"), (p == q, "boolean"),
    (r != lit(b""), "boolean"),
    (p & q, "boolean"), (~p, "boolean"), (p.is_null(), "boolean"), (s.otherwise(t), "string"), (a.is_in(1), "boolean"),
    (s.lower(), "string"), (s.length(), "long"), (s.contains("a"), "boolean"), (s.substring(0, 1), "string"),
    (a.cast("string"), "string"), (s.cast("double"), "double"), (x.cast("long"), "long"), (timestamp, "long"),
    (key, "string"), (lit(b"x"), "bytes"), (lit(True), "boolean"), (struct(n=a), (("n", "long"),)), (value, KIND),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "kind"), _OPERATIONS, ids=str)
def test_the_type_of_an_operation_is_known_before_it_runs(expression: Expression, kind: Any) -> None:
    assert type_of(expression, "string", KIND) == kind


_UNTYPED: list[tuple[Expression, Any]] = [
    (value["z"] + 1, None), (value["z"] < 1, "boolean"), (value["z"].lower(), "string"), (value["z"].length(), "long"),
    (value["z"] // 2, "long"), (value["z"] / 2, "double"), (struct(n=value["z"]), None), (value["z"]["y"], None),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "kind"), _UNTYPED, ids=str)
def test_the_type_of_what_is_not_known_is_that_of_the_operation(expression: Expression, kind: Any) -> None:
    assert type_of(expression, None, None) == kind


_WRONG: list[tuple[Expression, str]] = [
    (a + s, "long and string .expected number or string"),
    (s - t, "string and string .expected number"),
    (p < q, "boolean and boolean .expected number or string or bytes"),
    (p == a, "boolean and long"),
    (x // a, "double and long .expected long"),
    (a & p, "long and boolean .expected boolean"),
    (~s, "string .expected boolean"),
    (a.lower(), "long .expected string"),
    (a.otherwise(x), "long and double .expected two of one type"),
    (a.is_in(0.5), "long .expected a double"),
    (p.cast("long"), "boolean .expected a long, a double or a string"),
    (value + value, "object and object"),
    (struct(n=value), "object .expected fields of simple types"),
    (value["z"], "value has no field z .its fields: a, b, x, y, s, t, p, q, r"),
    (s["z"], "value.s is a string, so it has no field z"),
]


@pytest.mark.parametrize(("expression", "told"), _WRONG, ids=str)
def test_operands_that_do_not_fit_are_refused_with_their_line(expression: Expression, told: str) -> None:
    with pytest.raises(TopologyError, match=rf"{told}.*\(.*test_corners\.py:\d+\)"):
        type_of(expression, "string", KIND)


def test_a_joiners_columns_are_both_sides() -> None:
    assert joined_type(left["n"] + right, "string", (("n", "long"),), "double") == "double"
    with pytest.raises(TopologyError, match="long and string"):
        joined_type(left + right, "string", "long", "string")


_REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "is_in of nothing": (lambda: a.is_in(), r"invalid values for is_in: \(\)"),
    "is_in of two classes": (lambda: a.is_in(1, 1.5), r"invalid values for is_in: \(1, 1.5\)"),
    "is_in of lists": (lambda: a.is_in([1]), "invalid values for is_in"),
    "a text of bytes": (lambda: s.starts_with(b"a"), "invalid text for starts_with: b'a' .expected a str"),  # type: ignore[arg-type]
    "an ending of a number": (lambda: s.ends_with(1), "invalid text for ends_with: 1"),  # type: ignore[arg-type]
    "nothing contained": (lambda: s.contains(None), "invalid text for contains: None"),  # type: ignore[arg-type]
    "nothing replaced": (lambda: s.replace("", "a"), "invalid text for replace: ''"),
    "a replacement of no text": (lambda: s.replace("a", 1), "invalid text for replace: 1"),  # type: ignore[arg-type]
    "a negative start": (lambda: s.substring(-1, 1), "invalid substring: -1, 1 .expected two ints, 0 or more"),
    "a negative length": (lambda: s.substring(1, -1), "invalid substring: 1, -1"),
    "a start that is true": (lambda: s.substring(True, 1), "invalid substring: True, 1"),
    "another type": (lambda: a.cast("int"), "unknown type: 'int' .expected long, double or string"),
    "a constant of 65 bits": (lambda: lit(MAX + 1), f"invalid constant: {MAX + 1}"),
    "a constant below": (lambda: lit(MIN - 1), f"invalid constant: {MIN - 1}"),
    "no constant": (lambda: lit(None), "invalid constant: None"),
    "no column": (lambda: col(""), "invalid column: '' .expected a name such as value.amount"),
    "a column of a number": (lambda: col(1), "invalid column: 1"),  # type: ignore[arg-type]
    "no fields": (lambda: struct(), r"struct\(\) has no fields; pass at least one as a keyword"),
    "a truth value": (lambda: bool(a > 1), "has no truth value; use & for and"),
    "no function for a batch": (lambda: batch(5), "invalid function for batch: 5 .expected a callable"),  # type: ignore[arg-type]
    "another form": (lambda: batch(len, form="numpy"), "invalid form: 'numpy' .expected arrow, pandas or polars"),  # type: ignore[arg-type]
    "another result": (lambda: batch(len, returns="int"), "unknown type: 'int' .expected one of long, double, string"),
    "another field": (lambda: batch(len, returns={"n": "long", "m": "int"}), "unknown type: 'int'"),
    "another key": (lambda: batch(len, key="object"), "unknown type: 'object'"),
    "a joiner's value": (
        lambda: FoldFunction(value + left),
        "reads value .the expression of an adder or subtractor re",
    ),
    "a table's timestamp": (lambda: without_time(timestamp + 1), "reads the timestamp, which is not available"),
    "a field in a timestamp": (lambda: PairFunction(key, struct(n=a + timestamp)), "reads the timestamp"),
    "columns without types": (lambda: ColumnsSerde({}), "invalid columns: no fields"),
    "columns of bytes": (lambda: ColumnsSerde({"n": "long", "r": "bytes"}), "invalid columns: field r is 'bytes'"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_a_wrong_argument_of_an_expression_is_refused_at_its_line(name: str) -> None:
    make, told = _REFUSED[name]
    with pytest.raises(TopologyError, match=rf"{told}.*\(.*test_corners\.py:\d+\)"):
        make()


@pytest.mark.parametrize("name", ["sum", "min", "max"])
def test_a_built_in_reducer_ends_where_a_long_does(name: str) -> None:
    fold = FOLDS[name]
    for first, second in ((MAX, 0), (MIN, 0), (MAX, MIN), (0, MIN), (3, 3), (0.5, 0.25)):
        expected = {"sum": first + second, "min": min(first, second), "max": max(first, second)}[name]
        assert fold(first, second) == expected
    if name == "sum":
        for first, second in ((MAX, 1), (MIN, -1)):
            with pytest.raises(OverflowError, match=rf"the sum {first + second} does not fit in a long"):
                fold(first, second)
        assert fold(1e308, 1e308) == inf


def test_an_adder_says_what_it_adds() -> None:
    for expression, operation, part in (
        (left + right["n"], "add", right["n"]),
        (left - right["n"], "subtract", right["n"]),
        (left + right["n"], "subtract", None),
        (right["n"] + left, "add", None),
        (left + left, "add", None),
        (left["n"] + right["n"], "add", None),
    ):
        assert repr(FoldFunction(expression).change(operation)) == repr(part)


# ---- batch functions


def frame(*values: Any, kind: Any = "long") -> Frame:
    count = len(values)
    return Frame(
        pa.array([f"k{n}" for n in range(count)]),
        pa.array(values, arrow_type(kind)),
        np.arange(count) + 100,
        np.arange(count) * 10,
    )


def called(function: Any, returns: Any, *values: Any, **options: Any) -> Any:
    made = batch(function, returns=returns, **options)
    made.inputs = ("string", "long")
    return made.compute(frame(*values))


@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: [1, None, 3],
        lambda rows: pa.array([1, None, 3]),
        lambda rows: pa.array([1, None, 3], pa.int8()),
        lambda rows: pa.chunked_array([[1], [None, 3]]),
        lambda rows: np.array([1, None, 3], dtype=object),
        lambda rows: pd.Series([1, None, 3]),
        lambda rows: polars.Series([1, None, 3]),
        lambda rows: rows["value"],
    ],
)
def test_a_batch_function_returns_any_kind_of_column(answer: Any) -> None:
    found = called(answer, "long", 1, None, 3)
    assert (found.type, found.to_pylist()) == (pa.int64(), [1, None, 3])


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars"])
def test_a_batch_function_gets_its_kind_of_table(form: Any) -> None:
    seen: list[Any] = []

    def look(rows: Any) -> Any:
        seen.append(rows)
        return rows["value"]

    assert called(look, "long", 5, 6, form=form).to_pylist() == [5, 6]
    assert type(seen[0]) is {"arrow": pa.Table, "pandas": pd.DataFrame, "polars": polars.DataFrame}[form]
    plain = seen[0] if form == "arrow" else pa.table(seen[0])
    assert plain.to_pydict() == {"key": ["k0", "k1"], "timestamp": [100, 101], "value": [5, 6]}


def test_a_batch_function_that_returns_too_few_values_or_others_is_refused() -> None:
    with pytest.raises(ValueError, match="the batch function returned 1 values for 2 records"):
        called(lambda rows: [1], "long", 1, 2)
    with pytest.raises(ValueError, match="the batch function returned 3 values for 2 records"):
        called(lambda rows: [1, 2, 3], "long", 1, 2)
    with pytest.raises((ValueError, TypeError)):
        called(lambda rows: ["x", "y"], "long", 1, 2)
    assert called(lambda rows: pytest.fail("called for nothing"), "long").to_pylist() == []


@pytest.mark.parametrize("wrap", [pa.table, lambda columns: pa.table(columns).to_batches()[0], dict, pd.DataFrame,
                                  polars.DataFrame])  # fmt: skip
def test_a_batch_function_returns_fields_or_rows_of_its_own_in_any_kind_of_table(wrap: Any) -> None:
    fields = {"n": "long", "t": "string"}
    found = called(lambda rows: wrap({"t": ["a", "b"], "n": [1, 2], "more": [0, 0]}), fields, 1, 2)
    assert found.to_pylist() == [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}]
    flat = batch(lambda rows: wrap({"row": [0, 0, 2], "key": ["a", "b", "c"], "value": [7, 8, 9]}), returns="long",
                 key="string")  # fmt: skip
    rows = flat.flat(frame(1, 2, 3))
    assert (rows.keys.to_pylist(), rows.values.to_pylist()) == (["a", "b", "c"], [7, 8, 9])
    assert (rows.timestamps.tolist(), rows.rows.tolist()) == ([100, 100, 102], [0, 0, 20])
    objects = batch(lambda rows: wrap({"row": [1], "key": ["a"], "n": [7], "t": ["x"]}), returns=fields, key="string")
    assert objects.flat(frame(1, 2)).values.to_pylist() == [{"n": 7, "t": "x"}]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": ["a"], "value": [1]}, r"the batch function returned no column row \(it has: key, value\)"),
        ({"row": [0], "value": [1]}, r"the batch function returned no column key \(it has: row, value\)"),
        ({"row": [-1], "key": ["a"], "value": [1]}, "invalid column row of a batch function .expected ascending"),
        ({"row": [2], "key": ["a"], "value": [1]}, "invalid column row of a batch function"),
        ({"row": [1, 0], "key": ["a", "b"], "value": [1, 2]}, "invalid column row of a batch function"),
    ],
)
def test_rows_that_belong_to_no_record_are_refused(columns: Any, told: str) -> None:
    flat = batch(lambda rows: columns, returns="long", key="string")
    with pytest.raises(ValueError, match=told):
        flat.flat(frame(1, 2))


# ---- bytes of columns


@pytest.mark.parametrize("serde", [LONG, DOUBLE])
@pytest.mark.parametrize("data", [b"", b"1234567", b"123456789"])
def test_a_number_in_a_column_has_eight_bytes(serde: Any, data: bytes) -> None:
    with pytest.raises(ValueError, match="a value does not have 8 bytes"):
        decode(serde, pa.array([bytes(8), data, None], pa.binary()))
    assert decode(serde, pa.array([None, bytes(8)], pa.binary())).to_pylist() == [None, 0]


def test_a_column_of_another_type_is_not_written() -> None:
    for serde, array in ((LONG, pa.array([1.5])), (STRING, pa.array([1])), (BYTES, pa.array(["a"]))):
        with pytest.raises(ValueError, match=f"the {serde.name} serde cannot write a column of"):
            encode(serde, array)
    doubles = ColumnsSerde({"x": "double"})
    for number in (inf, -inf, float("nan")):
        with pytest.raises(ValueError, match="JSON cannot represent a double that is not finite"):
            encode(doubles, pa.array([{"x": number}]))
        with pytest.raises(SerdeError, match="which JSON cannot represent"):
            doubles.serialize("t", {"x": number})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([1], r"cannot write \[1\] .expected a dict"),
        ({"n": "1"}, "field n is '1' .expected a long"),
        ({"n": True}, "field n is True .expected a long"),
        ({"n": MAX + 1}, "which does not fit in a long of 64 bits"),
        ({"n": MIN - 1}, "which does not fit in a long of 64 bits"),
        ({"t": "\ud800"}, "cannot write .*surrogates"),
        ({"n": 1, "z": 1, "y": 1}, "has no field y"),
    ],
)
def test_an_object_that_the_columns_do_not_hold_is_not_written(given: Any, told: str) -> None:
    with pytest.raises(SerdeError, match=told):
        ColumnsSerde({"n": "long", "t": "string"}).serialize("t", given)
    edges = ColumnsSerde({"n": "long"})
    assert [edges.serialize("t", {"n": n}) for n in (MAX, MIN)] == [b'{"n":%d}' % n for n in (MAX, MIN)]


_CHANGES = [Change("new", None), Change(None, "old"), Change("new", "old"), Change("", "x" * 200), Change("n" * 70, "")]


def test_changes_in_a_column_have_the_bytes_of_single_ones() -> None:
    serde = ChangeSerde(STRING)
    written = [serde.serialize("t", change) for change in _CHANGES]
    assert [serde.writer("t")(change) for change in _CHANGES] == written
    columns = [pa.array([getattr(change, side) for change in _CHANGES]) for side in ("new", "old")]
    assert encode_changes(STRING, Changes(*columns)).to_pylist() == written
    for read in (serde.deserialize, lambda topic, data: serde.reader(topic)(data)):
        assert [(each.new, each.old) for each in (read("t", data) for data in written)] == [
            (change.new, change.old) for change in _CHANGES
        ]
    found = decode_changes(STRING, pa.array([b"before", *written], pa.binary())[1:])
    assert (found.new.to_pylist(), found.old.to_pylist()) == tuple(column.to_pylist() for column in columns)


def test_a_change_without_values_has_no_bytes() -> None:
    with pytest.raises(SerdeError, match="cannot serialize a change with neither an old nor a new value"):
        ChangeSerde(STRING).serialize("t", Change(None, None))
    with pytest.raises(SerdeError, match="cannot serialize a change with neither an old nor a new value"):
        encode_changes(STRING, Changes(pa.array(["a", None]), pa.array([None, None], pa.string())))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "a change is null"),
        (b"", "a change is empty"),
        (b"abc\x03", "a change has an invalid flag"),
        (b"\x02", "the length of a new value is not valid"),
        (b"\x80\x02", "the length of a new value is not valid"),
        (b"\x06ab\x02", "the length of a new value is not valid"),
        (b"\x80\x80\x80\x80\x80\x00\x02", "the length of a new value is not valid"),
    ],
)
def test_a_malformed_change_in_a_column_is_refused(data: bytes | None, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        decode_changes(STRING, pa.array([b"\x04ab" + b"c\x02", data], pa.binary()))
    if data == b"abc\x03":
        with pytest.raises(SerdeError, match=r"invalid flag at the end of a change: 3 \(expected 0, 1 or 2\)"):
            ChangeSerde(STRING).deserialize("t", data)
