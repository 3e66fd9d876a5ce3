"""The background thread on which the synchronous clients run their asyncio clients.

Rules:
- One daemon loop thread per process, started at first use and shared by all clients. A forked child gets its own, and
  clients made before the fork refuse to work in the child (their sockets belong to the parent).
- The caller waits on an interruptible lock, so Ctrl-C works at once and cancels the call.
- Clients work until the process ends. Python stops all executors when the main thread ends, before other threads do;
  the loop then looks up host names itself.
- uvloop is used if it is installed. The loop ends after the program's exit handlers and before Python takes itself
  apart: uvloop takes the GIL for each event, and crashes the process once there is none.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures.thread import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from ottla.kernel.error import OttlaError

T = TypeVar("T")

#: How long the end of the program waits for the loop, which a callback of the program may hold up.
_END_SECONDS_MAX = 5.0


class LoopThread:
    """An event loop that runs forever in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ended = False
        self.loop = _new_loop()
        self.loop.set_default_executor(_HelperThreads(thread_name_prefix="ottla-client-helper"))
        self._thread = threading.Thread(target=self._run, name="ottla-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop."""
        if os.getpid() != self.pid:
            work.close()
            raise forked()
        if self._ended:
            work.close()
            raise OttlaError("the program has ended, and its clients with it")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def end(self) -> None:
        """Stop the loop and wait for its thread, as the last exit handler of the program."""
        self._ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_END_SECONDS_MAX)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run `work` on the loop and wait for it; TimeoutError after `timeout` seconds. Ctrl-C cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise OttlaError("a synchronous client was called from its own loop thread: use the Async client there")
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise


class _HelperThreads(ThreadPoolExecutor):
    """The loop's helper threads, for calls that block, such as the lookup of a host name."""

    def submit(self, call: Callable[..., T], /, *arguments: Any, **keywords: Any) -> Future[T]:
        """Run a call on a helper, or at once when Python is ending and lets no helper work."""
        try:
            return super().submit(call, *arguments, **keywords)
        except RuntimeError:
            done: Future[T] = Future()
            try:
                done.set_result(call(*arguments, **keywords))
            except Exception as error:
                done.set_exception(error)
            return done


class Forkable(Protocol):
    """A client with a path that bypasses the loop thread, which must be told that it is in a forked child."""

    def _in_child(self) -> None: ...


def forked() -> OttlaError:
    """The error of a client that is used in a forked child."""
    return OttlaError("this client was made before the process forked: make a new one in the child")


#: Clients to notify after a fork, held weakly.
fork_aware: weakref.WeakSet[Forkable] = weakref.WeakSet()

_lock = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The loop thread of this process; created at first use, and again after a fork."""
    global _current
    thread = _current
    if thread is not None and thread.pid == os.getpid():
        return thread
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def needs_loop(client_name: str) -> None:
    """Raise OttlaError if no event loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        synchronous_name = client_name.removeprefix("Async")
        raise OttlaError(
            f"{client_name} must be made in a coroutine, on a running event loop; without one, use {synchronous_name}"
        ) from None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _end() -> None:
    if _current is not None and _current.pid == os.getpid():
        _current.end()


#: Handlers that are registered later, as those of the program are, run earlier.
atexit.register(_end)


def _forget_after_fork() -> None:
    global _lock, _current
    _lock = threading.Lock()
    _current = None
    for client in list(fork_aware):
        client._in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
