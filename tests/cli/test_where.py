"""The expression of `consume --where`, the templates of `-o`, and the paths of both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.records.field import getter
from ottla.cli.records.template import template
from ottla.cli.records.where import where
from ottla.columns.record import ConsumerRecord
from ottla.kernel.error import OttlaError

_VALUE = b'{"price": 60, "who": "ann", "tags": ["a", "b"], "deep": {"odd key": [1, {"x": null}]}, "paid": true}'
RECORD: ConsumerRecord = ConsumerRecord(
    "orders", 2, 17, 1_795_304_325_959, b"5", _VALUE, (("kind", b"new"), ("kind", b"old")), 0
)
NULL = ConsumerRecord("orders", 0, 0, -1, None, None, (), 0)


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("value.price > 50", True),
        ("value.price > 50 and key == 5", True),
        ("value.price > 60 or not value.who == 'bob'", True),
        ("not (value.price >= 60 or value.paid)", False),
        ('value.who in ["ann", "bob"]', True),
        ('value.tags contains "b"', True),
        ('value.who contains "n"', True),
        ("value.who startswith 'an' and value.who endswith 'nn'", True),
        ('value.deep["odd key"][0] = 1', True),
        ('value.deep["odd key"][1].x == null', True),
        ("value.nowhere == null", True),
        ("value.nowhere > 1", False),
        ("value.nowhere != 1", True),
        ("value.who > 5", False),
        ("value.paid == 1", False),
        ("value.paid == true", True),
        ("key == 1" + " or key == 1" * 5_000 + " or key == 5", True),
        ("key == 5" + " and key == 5" * 5_000 + " and key == 1", False),
        ("(value.nowhere or key) == 5 and (key and value.who) == 'ann'", True),
        ("key < 10", True),
        ('key < "10"', False),
        ("partition == 2 and offset >= 1.7e1 and topic == 'orders'", True),
        ('header.kind == "old"', True),
        ("header.none", False),
        ("timestamp_ms >= 1795304325959", True),
        ('timestamp startswith "2026-11-21T"', True),
        ("value.price == -5 or value.price < -1", False),
        # The fields of an object, and the elements of a list.
        ('value.deep contains "odd key"', True),
        ('"odd key" in value.deep', True),
        ("value.deep contains 1", False),
        ("value.tags contains 1", False),
        ("value.price contains 6", False),
        ("value.who contains 1", False),
        ("value.price startswith '6'", False),
        ("'6' startswith value.price", False),
        ("value.price endswith '0'", False),
        # Text that is a number is one beside a number, and text beside text.
        ("key == 5.0", True),
        ("5 == key", True),
        ("'5.0' == 5", True),
        ("'1e1' >= 10", True),
        ("'5.0' == key", False),
        ("'5x' == 5", False),
        (f"'{'0' * 38}5' == 5", True),
        (f"'{'0' * 39}5' == 5", False),
        ("'9' < '10'", False),
        ("9 < 10 and not 10 < 10 and 10 <= 10 and not 11 <= 10", True),
        ("11 > 10 and not 10 > 10 and 10 >= 10 and not 9 >= 10", True),
        ("true < 2", False),
        ("false == false and not true == false and false != null", True),
        ("null", False),
        ("not null and not false and 1", True),
        # `and` binds more than `or`.
        ("true or true and false", True),
        ("(true or true) and false", False),
        ("not false and false", False),
        ("value.who == 'a\\'b' or 'a\"b' == \"a\\\"b\"", True),
        ("'it\\'s' == \"it's\"", True),
        ("[] contains 1", False),
        ("[[1], 2] contains 2", True),
    ],
)
def test_an_expression_says_what_holds(source: str, holds: bool) -> None:
    assert where(source)(RECORD) is holds


def test_nothing_is_equal_to_null_but_null() -> None:
    assert where("value == null and key == null")(NULL)
    assert not where('value == "null"')(NULL)
    assert not where("value.a.b > 1")(NULL)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("", "a field, a number"),
        ("value.price >", "a field, a number"),
        ("(value.price > 1", "expected )"),
        ("value.price > 1 value", "and, or"),
        ("prise > 1", "unknown field prise"),
        ("value.price ?? 1", "unexpected '?? 1'"),
        ("__import__('os').system('ls')", "unexpected"),
        ("value.__class__()", "and, or"),
        ("(" * 500 + "1" + ")" * 500, "brackets are nested more than"),
        ("not " * 5000 + "1", "brackets are nested more than"),
        ("[" * 5000, "brackets are nested more than"),
        ("value in [1 2]", "expected , or ]"),
        ("value.price > 1 value", "--where value.price > 1 value: at 'value': expected and, or, or the end"),
        ("(1", "--where (1: at the end: expected )"),
        ("1 ?" + "x" * 30, f"unexpected '?{'x' * 19}'"),
        (r"key == '\q'", r"--where: invalid text '\q'; write a backslash as"),
        ("and", "expected a field, a number, a quoted text or ("),
        ("1 contains contains", "expected a field, a number, a quoted text or ("),
    ],
)
def test_what_is_wrong_with_an_expression_is_said(source: str, wrong: str) -> None:
    with pytest.raises(OttlaError) as told:
        where(source)
    assert wrong in str(told.value)


def test_brackets_are_nested_fifty_deep_and_no_deeper() -> None:
    for opening, closing in (("(", ")"), ("not ", ""), ("[", "]")):
        where(opening * 50 + "1" * (opening != "[") + closing * 50)
        with pytest.raises(OttlaError, match="brackets are nested more than 50 deep"):
            where(opening * 52 + "1" * (opening != "[") + closing * 52)


@given(st.text(alphabet="value.key()[]<>=!'\"and or not in 0123456789,", max_size=60), st.binary(max_size=40))
def test_any_text_is_an_expression_or_an_error_and_any_record_can_be_asked(source: str, value: bytes) -> None:
    try:
        test = where(source)
    except OttlaError:
        return
    assert test(RECORD._replace(value=value)) in (True, False)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{key} {value.price}\\n", "5 60\n"),
        ("{topic}:{partition}:{offset:>5}|{value.who:<5}|", "orders:2:   17|ann  |"),
        ("{value.tags} {value.paid} {value.nowhere} {header.kind}", '["a","b"] true NULL old'),
        ("{{{timestamp}}}\\t{timestamp_ms}", "{2026-11-21T23:38:45.959Z}\t1795304325959"),
        ("{headers}", '[["kind","new"],["kind","old"]]'),
    ],
)
def test_a_template_is_filled(source: str, text: str) -> None:
    assert template(source, null="NULL")(RECORD) == text


@pytest.mark.parametrize("source", ["{", "}", "{key", "{nothing}", "{key:x}", "{value.price.}", "{}", "{key:>99999}"])
def test_a_wrong_template_is_an_error(source: str) -> None:
    with pytest.raises(OttlaError):
        template(source, null="NULL")


def test_a_path_into_what_is_no_json_leads_nowhere() -> None:
    for value in (b"plain", b"{", b"NaN", b"\xff", b"[" * 100_000, None, b""):
        assert getter("value.a")(RECORD._replace(value=value)) is None
