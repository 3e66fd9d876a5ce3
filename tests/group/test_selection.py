"""What a member's regular expression selects, and the steps in which it is looked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.group.selection import Selected, select
from ottla.kernel.error import ErrorCode


def selected(regex: str, *names: str) -> tuple[int, Selected]:
    """(steps, result)."""
    topics: Any = SimpleNamespace(version=7, names=lambda: names)
    work, steps = select(regex, topics), 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return steps, done.value
        steps += 1


def test_the_whole_names_that_match_are_selected_in_their_order() -> None:
    _, found = selected("a.*b", "azb", "ab", "aab", "xab", "abx", "b")
    assert found == Selected("a.*b", 7, ("aab", "ab", "azb"))
    assert selected("none", "a")[1] == Selected("none", 7)
    assert selected("a")[1] == Selected("a", 7)


@pytest.mark.parametrize("regex", ["(", "[", "a{2,1}", "*"])
def test_an_expression_that_is_none_selects_nothing_and_says_why(regex: str) -> None:
    _, found = selected(regex, "a")
    assert (found.regex, found.version, found.names) == (regex, 7, ())
    assert found.error is not None and found.error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"SubscribedTopicRegex `{regex}` is not a valid regular expression: " in str(found.error)


def test_others_are_served_after_two_hundred_names() -> None:
    none, _ = selected("a", *(["b"] * 199))
    for count, more in ((200, 1), (399, 1), (400, 2)):
        assert selected("a", *(["b"] * count))[0] - none == more, count
