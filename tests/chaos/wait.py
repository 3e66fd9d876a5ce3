"""What a chaos run waits for: each wait has a bound and a name, so that a run that does not end says where it stood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.sim.checker import Broken


class Waits:
    """`now` is the wait under way, for who ends the run from outside."""

    def __init__(self) -> None:
        self.now = "the network and the nodes' processes"

    @asynccontextmanager
    async def within(self, seconds: float, what: str) -> AsyncIterator[None]:
        """Broken when the body has not ended after so many seconds. `what`: a phrase such as "all clients to end"."""
        self.now = what
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if limit.expired():
                raise Broken(f"waited {seconds:g} s for {self.now}") from error
            raise
