"""Regular expressions over topic names: RE2's language, and no more."""

import itertools
import re
from collections.abc import Generator
from contextlib import suppress
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kernel.re2.automaton import STATES_A_STEP, WORK_MAX
from ottla.kernel.re2.pattern import Expression, InvalidExpression

T = TypeVar("T")
NAMES = ["", "a", "aab", "foo", "FOO", "bar", "foo.1", "y", "a.b", "ab.c", "ababc", "orders-eu-07", "orders_eu", "x-9"]


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("orders-(eu|us)-[0-9]{2,}", "orders-(eu|us)-[0-9]{2,}"),
        ("a*", "a*"),
        ("[^.]*", "[^.]*"),
        ("foo.*", "foo.*"),
        (r"\w+\.\d{1,3}", r"\w+\.\d{1,3}"),
        ("(?i)fOo", "(?i)fOo"),
        ("(?i:foo)|bar", "(?i:foo)|bar"),
        ("x{0}y", "x{0}y"),
        ("[[:alpha:]_]+", "[a-zA-Z_]+"),
        ("[[:^alpha:]]+", "[^a-zA-Z]+"),
        ("^a$", "^a$"),
        ("a|", "a|"),
        (r"\Qa.b\E", r"a\.b"),
        (r"\Aorders\b.*\z", r"orders\b.*"),
        (r"orders\B.*", r"orders\B.*"),
        ("(?:ab){2}c?", "(?:ab){2}c?"),
        ("(?P<name>f)(?<other>o)o", "foo"),
        (r"\pL+", "[a-zA-Z]+"),
        (r"\p{Lu}+|\P{L}+", "[A-Z]+|[^a-zA-Z]+"),
        (r"\p{^Lu}+", "[^A-Z]+"),
        (r"\P{^Lu}+", "[A-Z]+"),
        (r"\p{Common}+", "[^a-zA-Z]+"),
        ("(?U)a+?b|(?U:.*)o", "a+b|.*o"),
        (r"\x66\x{6f}\157", "foo"),
        ("[a-c.]+", "[a-c.]+"),
        ("[]a]*", "[]a]*"),
        ("a.*?b", "a.*?b"),
        ("{", r"\{"),
        ("a{,3}", r"a\{,3\}"),
        ("(a+)+b", "(a+)+b"),
        ("(|a)*", "(|a)*"),
        ("a{01}", r"a\{01\}"),
        ("(?i:f)oo|FOO", "[fF]oo|FOO"),
        ("(?i)[^f]+", "[^fF]+"),
        (r"(?i)\P{Lu}+", "[^a-zA-Z]+"),
        (r"\Qab\E*", "ab*"),
        (r"\p{Greek}*\p{Latin}+", "[a-zA-Z]+"),
        ("\\\N{LATIN SMALL LETTER E WITH ACUTE}|a", "a"),
        ("(?:(?P<n>a)){1,2}", "a{1,2}"),
    ],
)
def test_what_re2_knows_matches_as_in_re2(text: str, python: str) -> None:
    expression = Expression(text)
    for name in [*NAMES, "{", "a{,3}"]:
        assert expression.matches(name) == bool(re.fullmatch(python, name)), name


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a**",
        "a++",
        "*a",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        r"\1",
        r"(a)\1",
        "(?P=name)",
        "(?>a)",
        "(?#x)",
        "[a",
        "[z-a]",
        "[[:nothing:]]",
        "a{2000}",
        "a{3,2}",
        "((a{1000}){1000})",
        "\\",
        r"\Z",
        r"\p{Nothing}",
        r"\x{zz}",
        r"\x{}",
        r"\x{66",
        r"\x{110000}",
        r"\x6",
        r"\x",
        r"\x6g",
        r"\p{Lu",
        r"\p",
        "(?P<>a)",
        "(?<n>a)(?<n>b)",
        "(?-:a)",
        "(?i--s:a)",
        "{1}",
        "a{?",
        "(" * 200 + ")" * 200,
    ],
)
def test_what_re2_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression(text)


def test_no_expression_takes_more_than_linear_time() -> None:
    expression = Expression("(a+)+(a*)*b")
    assert not expression.matches("a" * 249)
    assert expression.matches("a" * 248 + "b")


@st.composite
def _expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "", "^", "$", r"\b"]))
    parts = st.lists(_expressions(depth=depth - 1), min_size=1, max_size=3)
    match draw(st.integers(0, 3)):
        case 0:
            return "(?:" + "|".join(draw(parts)) + ")"
        case 1:
            return "(?:" + "".join(draw(parts)) + ")" + draw(st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"]))
        case _:
            return "".join(draw(parts))


@settings(max_examples=200, deadline=None)
@given(_expressions(), st.text("ab.", max_size=8))
def test_it_agrees_with_pythons_engine_where_both_know_the_language(text: str, name: str) -> None:
    assert Expression(text).matches(name) == bool(re.fullmatch(text, name))


@settings(max_examples=200, deadline=None)
@given(st.text("ab(|)[]{}*+?^$\\.1,-:Qp", max_size=12))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    with suppress(InvalidExpression):
        Expression(text).matches("ab.a")


def others(name: str, text: str) -> bool:
    return Expression(text, name).matches(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (".*", "zahlung-übrig"),
        ("[^a]+", "日本"),
        (r"\W", "é"),
        (r"\PN+", "né"),
        (r"\p{L}+", "né日"),
        (r"\p{Greek}+", "λόγος"),
        (r"\p{Han}+", "日本"),
        ("(?i)ÉA", "éa"),
        ("(?i)λόγος", "ΛΌΓΟς"),
        ("[à-ü]", "é"),
        ("é{2}", "éé"),
        (r"\x{e9}", "é"),
        ("(?s)a.b", "a\nb"),
        ("(?m)a$\n^b", "a\nb"),
        ("[[:^alpha:]]", "é"),
        (r"\bn\b.*", "né"),
    ],
)
def test_names_of_any_characters(text: str, name: str) -> None:
    assert others(name, text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("a.b", "a\nb"), (r"\w+", "é"), (r"\p{L}", "१"), ("[^é]", "é"), ("(?s:a).b", "a\nb"), ("a$\n^b", "a\nb")],
)
def test_names_of_any_characters_that_do_not_match(text: str, name: str) -> None:
    assert not others(name, text)


@pytest.mark.parametrize(
    "text",
    ["(a+)+$", "(a|a)*b", "(a*)*b", "[ab]*a[ab]{400}", "((a?){100}){20}a{100}", "(.*.*.*.*.*){50}x", "(a|aa)+$"],
)
def test_no_expression_costs_more_than_its_bound(text: str) -> None:
    """Work is counted: the states that were visited. What would be more is refused in words."""
    expression = Expression(text)
    rng = Random(1)
    names = ["a" * 250, *("".join(rng.choices("ab", k=249)) for _ in range(2000))]
    with suppress(InvalidExpression):
        for name in names:
            expression.matches(name)
    assert -20_000 <= expression._automaton._work_left <= WORK_MAX
    # What is remembered is as bounded as the work.
    assert sum(len(each) for each in expression._automaton._next.values()) <= WORK_MAX


def test_an_expression_that_is_too_much_work_is_refused_in_words() -> None:
    expression = Expression("[ab]*a[ab]{400}")
    rng = Random(1)
    names = ("".join(rng.choices("ab", k=249)) for _ in range(10_000))
    with pytest.raises(InvalidExpression, match="too much work"):
        any(expression.matches(name) and False for name in names)


def test_a_usual_expression_costs_little_however_many_names_there_are() -> None:
    expression = Expression("(orders|payments|invoices)-(eu|us|asia)-.*")
    assert sum(expression.matches(f"orders-eu-{number:06d}") for number in range(20_000)) == 20_000
    assert expression._automaton._work_left > WORK_MAX * 0.9


def test_a_hard_expression_is_compiled_and_matched_in_small_steps() -> None:
    text, name = "((a?){100}){19}a{100}", "a" * 5
    steps = Expression.in_steps(text)
    expression, compiling = counted(steps)
    assert compiling > len(expression._automaton) / STATES_A_STEP / 2
    # A step ends behind the character that takes it over its bound: each has all states reachable.
    is_match, matching = counted(expression.matches_in_steps(name))
    assert (is_match, matching) == (False, len(name))
    assert counted(Expression.in_steps("orders-.*"))[1] == 0


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and how often the steps were interrupted."""
    for count in itertools.count():
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
    raise AssertionError
