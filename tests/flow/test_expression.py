"""Column expressions give the same for one record and for columns; types are checked where they are written."""

import json
import pickle
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.flow.column.expression import Expression, col, key, lit, struct, timestamp, value
from ottla.flow.column.function import ColumnFunction
from ottla.flow.column.kind import type_of
from ottla.flow.column.row import row
from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.error import SerdeError, TopologyError
from ottla.flow.serde import BYTES, DOUBLE, LONG, STRING
from ottla.flow.vector.encode import arrow_type, decode, encode
from ottla.flow.vector.evaluate import Frame, evaluate

FIELDS = {"a": "long", "b": "long", "x": "double", "y": "double", "s": "string", "t": "string", "p": "boolean"}
VALUE = tuple(FIELDS.items())
EDGES = [0, 1, -1, 2, 7, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)]
LONGS = st.one_of(st.sampled_from(EDGES), st.integers(-20, 20))
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, 1e22]), st.floats(-100, 100))
TEXTS = st.one_of(
    st.sampled_from(["", "a", "Ab", "ß", "İx", "12", "-3", " 4", "1_0", "aXa"]),
    st.text("aAbBé€\U0001f600 ", max_size=6),
)
KINDS: dict[str, st.SearchStrategy[Any]] = {"long": LONGS, "double": DOUBLES, "string": TEXTS, "boolean": st.booleans()}
OBJECTS = st.one_of(st.none(), st.fixed_dictionaries({n: st.one_of(st.none(), KINDS[k]) for n, k in VALUE}))


def expressions(kind: str, depth: int) -> st.SearchStrategy[Expression]:
    """Expressions of a type."""
    leaves: list[st.SearchStrategy[Any]] = [
        st.sampled_from([value[n] for n, k in VALUE if k == kind]),
        KINDS[kind].map(lit),
    ]
    if kind == "string":
        leaves.append(st.just(key))
    if kind == "long":
        leaves.append(st.just(timestamp))
    if depth == 0:
        return st.one_of(leaves)
    below = {each: expressions(each, depth - 1) for each in KINDS}
    number = st.one_of(below["long"], below["double"])
    of = st.builds
    compared = [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a == b, lambda a, b: a != b]
    made: dict[str, list[st.SearchStrategy[Any]]] = {
        "long": [
            *(of(f, below["long"], below["long"]) for f in
              (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b, lambda a, b: a % b)),
            below["string"].map(lambda a: a.length()),
            of(lambda a: a.cast("long"), st.one_of(number, below["string"])),
        ],
        "double": [
            *(of(f, number, below["double"]) for f in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b)),
            of(lambda a, b: a / b, number, number),
            of(lambda a: a.cast("double"), number),
        ],
        "string": [
            of(lambda a, b: a + b, below["string"], below["string"]),
            below["string"].map(lambda a: a.lower()),
            below["string"].map(lambda a: a.upper()),
            of(lambda a, n, m: a.substring(n, m), below["string"], st.integers(0, 3), st.integers(0, 4)),
            of(lambda a, o, n: a.replace(o, n), below["string"], st.sampled_from(["a", "é", "aa"]), TEXTS),
            of(lambda a: a.cast("string"), number),
        ],
        "boolean": [
            *(of(f, a, b) for f in compared for a, b in ((number, number), (below["string"], below["string"]))),
            *(of(f, below["boolean"], below["boolean"]) for f in (lambda a, b: a & b, lambda a, b: a | b)),
            below["boolean"].map(lambda a: ~a),
            of(lambda a, t: a.contains(t), below["string"], TEXTS),
            of(lambda a, t: a.starts_with(t) | a.ends_with(t), below["string"], TEXTS),
            of(lambda a, some: a.is_in(*some), below["long"], st.lists(LONGS, min_size=1, max_size=3)),
            st.one_of(list(below.values())).map(lambda a: a.is_null()),
        ],
    }  # fmt: skip
    otherwise = of(lambda a, b: a.otherwise(b), below[kind], below[kind])
    return st.one_of(*leaves, *made[kind], otherwise)


def frame(rows: list[tuple[Any, Any, int]]) -> Frame:
    keys, values, stamps = zip(*rows, strict=True)
    return Frame(
        pa.array(keys, pa.string()),
        pa.array(values, arrow_type(VALUE)),
        np.array(stamps, dtype=np.int64),
        np.arange(len(rows)),
    )


ROW = st.tuples(st.one_of(st.none(), TEXTS), OBJECTS, st.integers(0, 1 << 45))
ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda kind: expressions(kind, 2))
agreed = [0, 0]


def bits(found: Any) -> Any:
    """Zeros have signs, and not-a-number is itself."""
    return found.hex() if isinstance(found, float) else (type(found), found)


@given(ANY, st.lists(ROW, min_size=1, max_size=8))
def test_columns_give_what_single_records_give(expression: Expression, rows: list[tuple[Any, Any, int]]) -> None:
    one = row(expression)
    try:
        columns = evaluate(expression, frame(rows))
    except (ValueError, ArithmeticError, TypeError):
        # One record at least cannot be computed: they are taken one by one.
        with pytest.raises((ValueError, ArithmeticError)):
            _ = [one(*each) for each in rows]
        agreed[1] += 1
        return
    kind = type_of(expression, "string", VALUE)
    assert columns.type == arrow_type(kind)
    assert [bits(each) for each in columns.to_pylist()] == [bits(one(*each)) for each in rows]
    agreed[0] += 1


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param(timestamp < value["a"] // lit(0), [None, None], id="null divided by zero is null"),
        pytest.param(key.length() < lit(7) // lit(2), [None, True], id="two literals"),
        pytest.param(7 // lit(2) + 7 % lit(4), [6, 6], id="a number divided by a literal"),
        pytest.param(key.length() + lit(7) % lit(4), [None, 5], id="the rest of two literals"),
        pytest.param(value["a"] // lit(2), [None, None], id="null divided by a literal"),
    ],
)
def test_divisions_of_nulls_and_literals_are_computed_as_columns(expression: Expression, expected: list[Any]) -> None:
    nothing = dict.fromkeys(FIELDS)
    rows = [(None, nothing, 5), ("ab", nothing, 6)]
    assert evaluate(expression, frame(rows)).to_pylist() == expected
    assert [row(expression)(*each) for each in rows] == expected


def test_most_of_them_were_computed_as_columns() -> None:
    assert agreed[0] > sum(agreed) // 2


SERDES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (STRING, TEXTS),
    (BYTES, st.binary(max_size=4)),
    (LONG, LONGS),
    (DOUBLE, DOUBLES),
    (ColumnsSerde(FIELDS), OBJECTS.filter(lambda each: each is not None)),
]


@pytest.mark.parametrize(("serde", "values"), SERDES, ids=lambda one: getattr(one, "name", "")[:6])
def test_columns_are_written_and_read_as_single_values(serde: Any, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(st.one_of(st.none(), values), min_size=1, max_size=8))
    def check(some: list[Any]) -> None:
        written = [None if each is None else serde.serialize("t", each) for each in some]
        array = pa.array(some, arrow_type(serde.column_type))
        assert encode(serde, array).to_pylist() == written
        read = [None if each is None else serde.deserialize("t", each) for each in written]
        assert [repr(each) for each in decode(serde, pa.array(written, pa.binary())).to_pylist()] == list(
            map(repr, read)
        )

    check()


SCRAPS = st.sampled_from(
    ["{", "}", '"a":', '"x":', '"s":', "1", "-0", "1.0", "1e3", '"t"', "null", "true", ",", " ", "\n", '"\\ud800"',
     "[1]", "NaN", '"\\u0000"', "9" * 25, '"z":{"q":1}', "-", "\ufeff"]
)  # fmt: skip


@given(st.lists(st.lists(SCRAPS, max_size=8).map("".join) | OBJECTS.map(json.dumps), min_size=1, max_size=4))
def test_json_that_is_read_as_columns_is_what_single_values_are(texts: list[str]) -> None:
    serde = ColumnsSerde(FIELDS)
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    try:
        columns = decode(serde, pa.array(data, pa.binary()))
    except (ValueError, TypeError):
        return
    assert [repr(each) for each in columns.to_pylist()] == [repr(serde.deserialize("t", each)) for each in data]


def test_errors_of_types_name_the_line_of_the_user() -> None:
    wrong = [
        (value["s"] + 1, "invalid types in .value.s . 1.: string and long .expected number or string."),
        (value["s"] > value["a"], "string and long"),
        (value["z"], "value has no field z .its fields: a, b,"),
        (key["id"], "key is a string, so it has no field id"),
        (~value["a"], "invalid types in not.value.a.: long .expected boolean."),
        (value["x"] % 2, "double and long .expected long."),
    ]
    for expression, text in wrong:
        with pytest.raises(TopologyError, match=rf"{text}.*test_expression\.py:\d+"):
            type_of(expression, "string", VALUE)
    with pytest.raises(TopologyError, match=r"has no truth value.*test_expression\.py"):
        bool(value["a"] > 1 and value["b"])
    with pytest.raises(TopologyError, match="invalid constant"):
        lit([1])
    assert repr(col("amount") > 10) == "(value.amount > 10)"
    assert type_of(struct(n=col("a"), k=col("key")), "string", VALUE) == (("n", "long"), ("k", "string"))


@pytest.mark.parametrize(
    "grown", [lambda e: e + 1, lambda e: 1 + e, lambda e: ~e, lambda e: struct(a=e), lambda e: e["a"]]
)
def test_an_expression_that_is_nested_too_deeply_is_refused_where_it_is_written(grown: Any) -> None:
    """Not by a RecursionError of a thousand lines when the program is built or sent to Spark's workers."""
    expression = col("amount")
    for _ in range(148):
        expression = grown(expression)
    with pytest.raises(TopologyError, match=r"^[^\n]* nested more than 150 deep;[^\n]*test_expression\.py:\d+[^\n]*$"):
        grown(expression)
    assert pickle.loads(pickle.dumps([[ColumnFunction(expression)]]))[0][0].expression.depth == 150
    assert type_of(reduce(or_, [col("a") == number for number in range(147)]), "string", VALUE) == "boolean"


def test_objects_with_wrong_fields_are_refused() -> None:
    serde = ColumnsSerde({"n": "long", "x": "double"})
    for data in (b"[]", b'{"n": 1.5}', b'{"n": true}', b'{"x": "1"}', b'{"n": 9223372036854775808}', b'{"x": NaN}'):
        with pytest.raises(SerdeError):
            serde.deserialize("t", data)
    assert serde.deserialize("t", b'{"n": 1, "x": 2, "z": 3}') == {"n": 1, "x": 2.0}
    with pytest.raises(SerdeError, match="has no field m"):
        serde.serialize("t", {"m": 1})
    with pytest.raises(TopologyError, match="invalid columns"):
        ColumnsSerde({"n": "int"})


def test_a_record_whose_condition_is_null_is_left_out() -> None:
    rows: list[tuple[Any, Any, int]] = [("a", {}, 1), ("b", {}, 2), ("c", {}, 3)]
    kept = frame(rows).where(pa.array([None, True, False]))
    assert (kept.keys.to_pylist(), kept.timestamps.tolist(), kept.rows.tolist()) == (["b"], [2], [1])
    assert len(frame(rows).where(pa.array([True, None, True]))) == 2
    assert len(frame(rows).where(pa.array([True, True, True]))) == 3
