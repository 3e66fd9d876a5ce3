"""A loop that a test turns itself until something has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_TURNS_MAX = 200_000


def turn_until(loop: asyncio.AbstractEventLoop, done: Callable[[], bool]) -> None:
    """Turn the loop until `done`. Raises AssertionError when it never is."""
    for _ in range(_TURNS_MAX):
        if done():
            return
        loop.run_until_complete(asyncio.sleep(0))
    raise AssertionError("it never came")
