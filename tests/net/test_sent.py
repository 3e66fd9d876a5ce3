"""Callbacks for what was sent: each at its own byte, in order, and all of them when the connection ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.net.sent import SentMarks


class Marks:
    """Some marks, and the names of those that were called."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.marks = SentMarks()

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.called.append(name)


@pytest.fixture
def noted() -> Marks:
    return Marks()


def test_a_callback_comes_with_the_last_of_its_bytes_and_not_before(noted: Marks) -> None:
    noted.marks.add(10, noted.note("first"))
    noted.marks.add(15, noted.note("second"))
    noted.marks.sent(9)
    assert noted.called == []
    noted.marks.sent(1)
    assert noted.called == ["first"]
    noted.marks.sent(4)
    assert noted.called == ["first"]
    noted.marks.sent(1)
    assert noted.called == ["first", "second"]
    noted.marks.sent(100)
    noted.marks.end()
    assert noted.called == ["first", "second"]


def test_bytes_of_before_do_not_count_for_a_later_mark(noted: Marks) -> None:
    noted.marks.sent(50)
    noted.marks.add(10, noted.note("mark"))
    noted.marks.sent(9)
    assert noted.called == []
    noted.marks.sent(1)
    assert noted.called == ["mark"]


def test_one_write_may_reach_several_marks(noted: Marks) -> None:
    for name, unsent in (("a", 1), ("b", 2), ("c", 4)):
        noted.marks.add(unsent, noted.note(name))
    noted.marks.sent(3)
    assert noted.called == ["a", "b"]


def test_with_nothing_unsent_the_callback_comes_at_once(noted: Marks) -> None:
    noted.marks.add(5, noted.note("later"))
    noted.marks.add(0, noted.note("now"))
    assert noted.called == ["now"]


def test_the_end_makes_the_callbacks_that_are_left_in_order_and_once(noted: Marks) -> None:
    for name in ("a", "b"):
        noted.marks.add(5, noted.note(name))
    noted.marks.end()
    assert noted.called == ["a", "b"]
    noted.marks.end()
    noted.marks.sent(5)
    assert noted.called == ["a", "b"]
