r"""Search with groups beside Python's engine, which agrees with Java's on these, and the bound on its work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kernel.re2.pattern import InvalidExpression
from ottla.kernel.re2.search import RegexMatch, Search


@st.composite
def _expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "(a)", "(ab|a)", "^", "$", r"\w", "([^,]+,)"]))
    parts = draw(st.lists(_expressions(depth=depth - 1), min_size=1, max_size=3))
    match draw(st.integers(0, 3)):
        case 0:
            return "(" + "|".join(parts) + ")"
        case 1:
            several = draw(st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "+?", "??", "{0,2}?"]))
            return draw(st.sampled_from(["a", ".", "(a|b)", "(?:b|ab)", "(ab?)", "([^,]+,)"])) + several
        case _:
            return "".join(parts)


@settings(max_examples=300, deadline=None)
@given(_expressions(), st.text("aab,é", max_size=8))
def test_it_agrees_with_pythons_engine_where_both_know_the_language(text: str, name: str) -> None:
    search, other = Search(text), re.compile(text, re.ASCII)
    assert search.matches(name) is (other.fullmatch(name) is not None)
    ours: list[list[str | None]] = []

    def note(found: RegexMatch) -> str:
        ours.append([found.text(number) for number in range(found.groups + 1)])
        return ""

    search.replace(name, note, 1)
    first = other.search(name)
    theirs = [] if first is None else [[first[0], *first.groups()]]
    assert ours == theirs


def test_what_is_found_is_replaced_as_java_does() -> None:
    assert Search(".*").replace("ab", lambda found: f"<{found.text(0)}>") == "<ab><>"
    assert Search("b*?").replace("ab", lambda found: "-") == "-a-b-"
    assert Search("(?<x>a)|b").replace("ab", lambda found: f"<{found.text('x')}>") == "<a><None>"
    with pytest.raises(IndexError):
        Search("a").replace("a", lambda found: found.text("x") or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CN=(a+)+,O=x", "CN=" + "a" * 5000),
        ("CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),C=(.*?)", "CN=a" + ",OU=,O=,L=" * 40),
        ("(a*)*(a*)*b", "a" * 300),
    ],
)
def test_a_name_takes_no_more_than_linear_time(text: str, name: str) -> None:
    search = Search(text)
    assert not search.matches(name)
    assert search.replace(name, lambda found: "") == name


def test_too_much_work_is_refused() -> None:
    with pytest.raises(InvalidExpression, match="too much work"):
        Search("(?:a?){500}b").matches("a" * 500)
