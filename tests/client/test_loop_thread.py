"""The thread on which the synchronous clients run: whose calls it takes, and what becomes of one that is given up."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from ottla.client import OttlaError
from ottla.client.connection.loop_thread import LoopThread, _HelperThreads


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    if not made._ended:
        made.end()
    made.loop.run_until_complete(made.loop.shutdown_default_executor())
    made.loop.close()


async def answer() -> int:
    return 5


def refused(call: Coroutine[Any, Any, Any]) -> bool:
    """Whether a call has not begun and never will: one that is only dropped is a RuntimeWarning."""
    return inspect.getcoroutinestate(call) == inspect.CORO_CLOSED


def test_a_call_that_takes_too_long_is_cancelled(thread: LoopThread) -> None:
    ended = threading.Event()

    async def hangs() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        thread.run(hangs(), 0.01)
    assert ended.wait(5)
    assert thread.run(answer(), 5) == 5, "the next call is not held up"


def test_a_call_from_the_loop_itself_is_refused_before_it_waits_for_itself(thread: LoopThread) -> None:
    call = answer()

    async def from_the_loop() -> None:
        thread.run(call)

    with pytest.raises(OttlaError, match="use the Async client there"):
        thread.submit(from_the_loop()).result(5)
    assert refused(call)


def test_a_forked_child_is_told_to_make_clients_of_its_own(thread: LoopThread) -> None:
    call = answer()
    thread.pid = os.getpid() + 1
    with pytest.raises(OttlaError, match="made before the process forked"):
        thread.run(call)
    assert refused(call)


def test_a_call_after_the_end_of_the_program_is_refused(thread: LoopThread) -> None:
    thread.end()
    call = answer()
    with pytest.raises(OttlaError, match="the program has ended, and its clients with it"):
        thread.run(call)
    assert refused(call)


@pytest.mark.parametrize("ending", [False, True])
def test_what_blocks_is_done_also_when_python_lets_no_helper_work_any_more(thread: LoopThread, ending: bool) -> None:
    """Executors end before the program's exit handlers, in which a producer still delivers."""

    async def blocks() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="not this one"):
            await loop.run_in_executor(None, fails)
        return await loop.run_in_executor(None, lambda: (7, threading.current_thread().name))

    def fails() -> None:
        raise ValueError("not this one")

    helpers = _HelperThreads(thread_name_prefix="helper")
    thread.loop.set_default_executor(helpers)
    if ending:
        helpers.shutdown()
    number, where = thread.run(blocks(), 5)
    assert number == 7
    assert where.startswith("helper") is not ending
