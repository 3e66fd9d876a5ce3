"""A wait of a chaos run that has no end says what it was for."""

import asyncio

import pytest

from ottla.sim.checker import Broken
from tests.chaos.wait import Waits


async def _never(waits: Waits) -> None:
    async with waits.within(0, "two nodes to answer"):
        waits.now = "two nodes to answer; last seen: node 2"
        await asyncio.get_running_loop().create_future()


async def _fails(waits: Waits) -> None:
    async with waits.within(60, "a topic"):
        raise TimeoutError("the client's own")


def test_a_wait_without_an_end_is_named() -> None:
    with pytest.raises(Broken, match="waited 0 s for two nodes to answer; last seen: node 2"):
        asyncio.run(_never(Waits()))


def test_a_timeout_of_the_body_stays_what_it_is() -> None:
    with pytest.raises(TimeoutError, match="the client's own"):
        asyncio.run(_fails(Waits()))
