"""Expressions of one record check the types of what a function has returned: a wrong one is an error, not a result."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.flow.column.expression import Expression, col, key, lit, struct, timestamp, value
from ottla.flow.column.row import cast, row

_NUMBER = value["n"]
_REFUSED: list[tuple[Expression, list[Any], str]] = [
    (value["s"] + "x", [5, 1.5, b"x", True], "have types that do not match"),
    (_NUMBER + 1, ["x", True, b"x"], "have types that do not match"),
    (_NUMBER / 2, ["x", True], "have types that do not match"),
    (_NUMBER < 2, ["x", True], "have types that do not match"),
    (_NUMBER // 2, ["x", 1.5, True], "are not both longs"),
    (2 % _NUMBER, ["x", 1.5, True], "are not both longs"),
    (value["s"].lower(), [5, b"x", True], "is not a string"),
    (value["s"].length(), [5, b"x"], "is not a string"),
    (value["s"].starts_with("a"), [5], "is not a string"),
    (value["s"].replace("a", "b"), [b"a"], "is not a string"),
    (value["s"].substring(0, 1), [[1]], "is not a string"),
    (~value["p"], [0, 1, "x"], "is not a boolean"),
    (value["p"] & True, [0, 1, "x"], "is not a boolean"),
    (lit(True) | value["p"], [0, 1, "x"], "is not a boolean"),
    (_NUMBER.is_in(1, 2), ["x", 1.0, True], "is not a long"),
    (value["s"].is_in("a"), [1], "is not a string"),
    (_NUMBER.cast("string"), [True, b"x", [1]], "is not a long, a double or a string"),
    (_NUMBER.cast("long"), [True], "is not a long, a double or a string"),
]


@pytest.mark.parametrize(("expression", "operands", "words"), _REFUSED)
def test_a_value_of_another_type_is_refused(expression: Expression, operands: list[Any], words: str) -> None:
    one = row(expression)
    for operand in operands:
        with pytest.raises(TypeError, match=words):
            one("k", dict.fromkeys("nsp", operand), 7)


@pytest.mark.parametrize(
    ("operand", "kind", "error"),
    [
        ("1.5", "long", ValueError),
        ("", "long", ValueError),
        (" 1", "long", ValueError),
        ("1_0", "long", ValueError),
        ("x", "double", ValueError),
        (str(1 << 63), "long", OverflowError),
        (-(1 << 63) - 1, "long", OverflowError),
        (1e19, "long", OverflowError),
    ],
)
def test_what_another_type_cannot_hold_is_refused(operand: Any, kind: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        cast(operand, kind)


def test_longs_end_where_they_end() -> None:
    largest, smallest = (1 << 63) - 1, -(1 << 63)
    for expression, number, found in (
        (_NUMBER + 1, largest - 1, largest),
        (_NUMBER - 1, smallest + 1, smallest),
        (_NUMBER * 1, smallest, smallest),
    ):
        assert row(expression)("k", {"n": number}, 0) == found
    for expression, number in ((_NUMBER + 1, largest), (_NUMBER - 1, smallest), (_NUMBER * -1, smallest)):
        with pytest.raises(OverflowError, match="does not fit in a long"):
            row(expression)("k", {"n": number}, 0)
    assert cast("-9223372036854775808", "long") == smallest
    assert cast(str(largest), "long") == largest


def test_a_long_and_a_double_are_two_doubles() -> None:
    one = row(_NUMBER + 1)("k", {"n": 2.5}, 0)
    assert (one, type(one)) == (3.5, float)
    assert row(_NUMBER < 2)("k", {"n": 1.5}, 0) is True
    assert row(_NUMBER == 2)("k", {"n": 2.0}, 0) is True


def test_roots_literals_structs_and_missing_values() -> None:
    whole = struct(k=key, t=timestamp, c=lit(5), n=_NUMBER.is_null(), o=_NUMBER.otherwise(9))
    assert row(whole)("k", {"n": None}, 7) == {"k": "k", "t": 7, "c": 5, "n": True, "o": 9}
    assert row(whole)("k", {"n": 3}, 7) == {"k": "k", "t": 7, "c": 5, "n": False, "o": 3}
    assert row(_NUMBER + 1)("k", {"n": None}, 7) is None
    assert row(value["s"].lower())("k", {"s": None}, 7) is None
    assert row(col("n"))("k", {"n": 4}, 7) == 4

    class Given:
        n = 6

    assert row(_NUMBER + 1)("k", Given(), 7) == 7


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (True, True, True, True),
        (True, False, False, True),
        (False, False, False, False),
        (None, True, None, True),
        (None, False, False, None),
        (None, None, None, None),
    ],
)
def test_unknown_is_neither_true_nor_false(left: Any, right: Any, both: Any, either: Any) -> None:
    for p, q in ((left, right), (right, left)):
        given = {"p": p, "q": q}
        assert row(value["p"] & value["q"])("k", given, 0) is both
        assert row(value["p"] | value["q"])("k", given, 0) is either
