"""Offset look-ups by timestamp on the loop; a thread decompresses the batches that need it, one at a time.

Rules:
- A batch may decompress to thousands of times its size (decision 0342). Only one decompressed batch is in memory at a
  time; other look-ups that need one wait for their turn.
- The rest of a look-up runs on the loop, one step at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from functools import partial

from ottla.broker.call.reply import Wait
from ottla.kernel.error import KafkaError
from ottla.log.lookup import Lookup, LookupResult, Unpack


class LookUps:
    """A node's stepwise look-ups. The node creates it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool
        self._busy = False
        self._waiting: deque[Callable[[], None]] = deque()

    def steps(self, look: Lookup) -> Generator[Wait | None, None, LookupResult]:
        """The steps of a look-up, for `in_turns`."""
        held: Unpack | None = None
        try:
            while True:
                try:
                    asked = next(look)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                if held is not None and held.plain is None:
                    held = None
                    self._release()
                if asked is None:
                    yield None
                    continue
                held = asked
                yield self._acquire
                job = self._pool.submit(asked.run)
                yield partial(self._when_done, job)
                job.result()
        finally:
            look.close()
            if held is not None:
                self._release()

    def run(self, look: Lookup, done: Callable[[LookupResult | KafkaError], None], stopped: Callable[[], bool]) -> None:
        """Run the steps in turns of the loop; call `done` at the end, or never once `stopped` returns True."""
        work = self.steps(look)

        def step() -> None:
            if stopped():
                work.close()
                return
            try:
                wait = next(work)
            except StopIteration as end:
                done(end.value)
            except KafkaError as error:
                done(error)
            else:
                (wait or self._loop.call_soon)(step)

        step()

    def _acquire(self, go_on: Callable[[], None]) -> None:
        if self._busy:
            self._waiting.append(go_on)
        else:
            self._busy = True
            self._loop.call_soon(go_on)

    def _release(self) -> None:
        if self._waiting:
            self._loop.call_soon(self._waiting.popleft())
        else:
            self._busy = False

    def _when_done(self, job: Future[None], go_on: Callable[[], None]) -> None:
        job.add_done_callback(lambda _: self._loop.call_soon_threadsafe(go_on))
