"""Callbacks that are called together: an error of one reaches the caller, and the others are called."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.kernel.callbacks import call_each


def test_all_are_called_and_the_errors_are_raised_at_the_end() -> None:
    called: list[str] = []

    def calling(name: str, error: Exception | None = None) -> Callable[[], None]:
        def call() -> None:
            called.append(name)
            if error is not None:
                raise error

        return call

    call_each([calling("a"), calling("b")])
    with pytest.raises(ValueError, match="one"):
        call_each([calling("c"), calling("d", ValueError("one")), calling("e")])
    with pytest.raises(ExceptionGroup) as several:
        call_each([calling("f", ValueError("one")), calling("g", KeyError("two")), calling("h")])
    assert [type(each) for each in several.value.exceptions] == [ValueError, KeyError]
    assert "".join(called) == "abcdefgh"
