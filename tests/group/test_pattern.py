"""Regular expressions over topic names: RE2's language, and no more."""

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.group.pattern import Expression, InvalidExpression

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
