"""Text to typed values and back, as Kafka's ConfigDef does it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ottla.kernel.error import OttlaError
from ottla.kernel.validators import POSITIVE, AtLeast, Between, ListOf, OffsetReset, OneOf, ThrottledReplicas
from ottla.settings.schema import (
    Layer,
    Setting,
    Settings,
    SettingSource,
    Synonym,
    boolean,
    double,
    integer,
    listing,
    long,
    nearest,
    password,
    short,
    string,
)
from ottla.settings.text import text_of_value

SHORT = short("a.short", 1, "A short.")
INTEGER = integer("an.integer", 1, "An integer.")
LONG = long("a.long", 1, "A long.")
DOUBLE = double("a.double", 0.5, "A double.")
BOOLEAN = boolean("a.boolean", False, "A boolean.")
LIST = listing("a.list", (), "A list.")
STRING = string("a.string", "", "A string.")
SECRET = password("a.secret", None, "A secret.")


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (INTEGER, " 42 ", 42),
        (INTEGER, "+7", 7),
        (INTEGER, "-2147483648", -2147483648),
        (SHORT, "32767", 32767),
        (LONG, "9223372036854775807", 9223372036854775807),
        (DOUBLE, "0.75", 0.75),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, "2d", 2.0),
        (BOOLEAN, "TRUE", True),
        (BOOLEAN, " false", False),
        (LIST, "a, b ,c", ("a", "b", "c")),
        (LIST, "a , b\t,\nc\n, d", ("a", "b", "c", "d")),
        (LIST, " a b , c d ", ("a b", "c d")),
        (LIST, ",", ("", "")),
        (LIST, "", ()),
        (LIST, " a ", ("a",)),
        (LIST, "a,", ("a", "")),
        (STRING, "  text with blanks  ", "text with blanks"),
        (SECRET, "hush", "hush"),
    ],
)
def test_text_becomes_a_value(setting: Setting[Any], text: str, value: object) -> None:
    parsed = setting.parse(text)
    assert parsed == value
    assert type(parsed) is type(value) or setting is SECRET


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (INTEGER, "2147483648"),
        (SHORT, "32768"),
        (LONG, "9223372036854775808"),
        (INTEGER, "1_000"),
        (INTEGER, "1.0"),
        (INTEGER, ""),
        (INTEGER, "\u0661"),
        (DOUBLE, "1_0.0"),
        (DOUBLE, "half"),
        (BOOLEAN, "yes"),
        (BOOLEAN, "1"),
    ],
)
def test_text_of_another_type_is_refused_by_name_and_value(setting: Setting[Any], text: str) -> None:
    with pytest.raises(OttlaError) as caught:
        setting.parse(text)
    assert str(caught.value).startswith(f"invalid value for {setting.name}: {text} (expected ")


def test_a_number_is_refused_in_linear_time() -> None:
    with pytest.raises(OttlaError):
        DOUBLE.parse("1" * 200_000 + "x")


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (AtLeast(-1), [-1, 0, 1 << 40], [-2, None]),
        (Between(1, 9, other=-1), [1, 9, -1], [0, 10, None]),
        (OneOf("a", "b"), ["a"], ["A", "c", None]),
        (OneOf("A", any_case=True), ["a", "A"], ["b", None]),
        (ListOf("x", "y"), [(), ("x",), ("y", "x")], [("x", "x"), ("z",), None]),
        (ListOf(empty=False), [("anything",)], [(), ("",), ("a", "a"), None]),
        (ListOf(null=True), [None, ()], [("",)]),
        (ThrottledReplicas(), [("*",), ("0:1", "10:2"), ()], [("0",), ("0:1", "*")]),
        (
            OffsetReset(),
            ["latest", "EARLIEST", "by_duration:PT1H", "by_duration:P1DT2.5S"],
            ["by_duration", "by_duration:1h", "by_duration:P", "by_duration:PT", "never", None],
        ),
    ],
)
def test_a_check_takes_what_kafka_takes(check: Any, right: list[object], wrong: list[object]) -> None:
    assert [check.accepts(value) for value in right] == [True] * len(right)
    assert [check.accepts(value) for value in wrong] == [False] * len(wrong)


def test_an_error_says_what_would_be_right() -> None:
    setting = integer("num.partitions", 1, "Partitions.", POSITIVE)
    with pytest.raises(OttlaError, match=r"value for num\.partitions: 0 \(expected a whole number, 1 or more\)$"):
        setting.parse("0")


def test_a_secret_shows_neither_in_an_error_nor_in_a_structure() -> None:
    secret = password("a.secret", None, "A secret.", ListOf())
    with pytest.raises(OttlaError) as caught:
        secret.parse(None)
    assert "hush" not in repr({"secret": SECRET.parse("hush")})
    assert "[hidden]" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (100.25, "100.25"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0005, "5.0E-4"),
        (0.001, "0.001"),
        (1e22, "1.0E22"),
        (-2.5e-9, "-2.5E-9"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert DOUBLE.write(value) == text


@given(some.floats(allow_nan=False))
def test_a_double_comes_back_as_it_was(value: float) -> None:
    assert DOUBLE.parse(DOUBLE.write(value)) == value


@given(some.lists(some.text(alphabet="abcXYZ019._-", min_size=1)))
def test_a_list_comes_back_as_it_was(values: list[str]) -> None:
    assert LIST.parse(LIST.write(tuple(values))) == tuple(values)


class _Small(Settings):
    limit = integer("small.limit", 3, "A limit.", POSITIVE)
    names = listing("small.names", ("a",), "Names.")


class _Secret(Settings):
    secret = password("a.secret", None, "A secret.")
    shown = string("a.shown", "x", "No secret.")


def test_a_secret_is_told_by_its_source_alone() -> None:
    texts = {"a.secret": "hush", "a.shown": "y"}
    made = _Secret((Layer(SettingSource.DYNAMIC_BROKER, texts), Layer(SettingSource.STATIC_BROKER, texts)))
    assert made.secret == "hush"
    assert (made.text("a.secret"), made.text("a.shown")) == (None, "y")
    sources = (SettingSource.DYNAMIC_BROKER, SettingSource.STATIC_BROKER)
    assert made.synonyms("a.secret") == [Synonym("a.secret", None, source) for source in sources]
    assert made.synonyms("a.shown") == [
        *(Synonym("a.shown", "y", source) for source in sources),
        Synonym("a.shown", "x", SettingSource.DEFAULT),
    ]
    assert "hush" not in repr(made) and "hush" not in repr(made.secret)
    assert (_Secret(()).synonyms("a.secret"), _Secret(()).source_of("a.secret")) == ([], SettingSource.DEFAULT)


def test_an_instance_never_changes() -> None:
    small = _Small(())
    assert (small.limit, small.names) == (3, ("a",))
    with pytest.raises(AttributeError):
        small.limit = 4


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (5, "5"), (0.5, "0.5"), ("x", "x"), (["a", 1], "a,1"), (("a",), "a"), ([], "")],
)
def test_a_value_of_a_program_is_written_as_in_a_file(value: object, text: str) -> None:
    assert text_of_value(value) == text


def test_an_unknown_name_gets_the_nearest_right_one() -> None:
    assert nearest("small.limits", _Small.declared()) == "; did you mean small.limit?"
    assert nearest("wholly.other", _Small.declared()) == ""
