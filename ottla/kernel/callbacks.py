"""Calls several callbacks; an error of one keeps none of the others from being called."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def call_each(callbacks: Iterable[Callable[[], object]]) -> None:
    """Call all callbacks in order, then raise what they raised: each waits for its own client or partition."""
    errors: list[Exception] = []
    for callback in callbacks:
        try:
            callback()
        except Exception as error:
            errors.append(error)
    raise_all(errors)


def raise_all(errors: list[Exception]) -> None:
    """Raise what several callbacks raised, if anything."""
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("several callbacks failed", errors)
