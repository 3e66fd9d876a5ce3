"""What becomes of producers that the program does not close.

Rules:
- At the end of the program, each open `Producer` is closed as `close` does: it delivers its queued records and aborts
  an open transaction. All of them together have `SECONDS_MAX`, so that the program ends even without a broker.
- A `Producer` that the program drops is closed in the background.
- An `AsyncProducer` whose loop has ended cannot deliver anything.
- Records that are not delivered are logged with their number; a dropped producer is a ResourceWarning.
- A forked child leaves the producers of its parent alone. A process that is killed or ends by `os._exit` runs none of
  this.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
import weakref
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from ottla.client.connection.loop_thread import LoopThread
from ottla.client.producer.delivery import how_many

if TYPE_CHECKING:
    from ottla.client.producer.accumulator import Accumulator
    from ottla.client.producer.producer import AsyncProducer
    from ottla.client.producer.sync import Producer

_log = logging.getLogger("ottla.client")

#: How long the end of the program waits for deliveries.
SECONDS_MAX = 5.0

#: The accumulators of open producers, and what closes those of a `Producer`.
_open: weakref.WeakSet[Accumulator] = weakref.WeakSet()
_threads: weakref.WeakKeyDictionary[AsyncProducer, LoopThread] = weakref.WeakKeyDictionary()
#: Producers that are being closed because the program dropped them.
_closing: dict[AsyncProducer, Future[None]] = {}


def watch(producer: AsyncProducer, accumulator: Accumulator) -> weakref.finalize[..., AsyncProducer]:
    """Report this producer if it is dropped, or the program ends, before it is closed. `forget` it when it closes."""
    # What was registered last runs first: a node in this process still serves then.
    atexit.unregister(_close_all)
    atexit.register(_close_all)
    _open.add(accumulator)
    dropped = weakref.finalize(producer, _dropped, os.getpid(), accumulator)
    dropped.atexit = False
    return dropped


def forget(accumulator: Accumulator) -> None:
    """Note that a producer is closed."""
    _open.discard(accumulator)


def close_at_end(producer: Producer, inner: AsyncProducer, thread: LoopThread) -> weakref.finalize[..., Producer]:
    """Close this producer if it is dropped, or at the end of the program."""
    _threads[inner] = thread
    dropped = weakref.finalize(producer, _close, inner, thread)
    dropped.atexit = False
    return dropped


def _close(inner: AsyncProducer, thread: LoopThread) -> None:
    """Close a dropped producer. Any thread may run this, also the loop's: it must not wait."""
    if thread.pid == os.getpid() and not inner._closed:
        _warn("a Producer was dropped before it was closed: use `with`, or call close")
        _closing[inner] = closing = thread.submit(inner.close())
        closing.add_done_callback(lambda _: _closing.pop(inner, None))


def _close_all() -> None:
    """Close every producer at the end of the program."""
    pid = os.getpid()
    closings = list(_closing.values())
    closings += [
        thread.submit(inner.close())
        for inner, thread in list(_threads.items())
        if thread.pid == pid and inner not in _closing and not inner._closed
    ]
    try:
        wait(closings, SECONDS_MAX)
    except KeyboardInterrupt:
        _log.warning("interrupted while the records of unclosed producers were being delivered")
    for accumulator in list(_open):
        _report(accumulator, "when the program ended")


def _dropped(pid: int, accumulator: Accumulator) -> None:
    """Report an AsyncProducer that was dropped, usually with its loop."""
    if pid == os.getpid() and accumulator in _open:
        forget(accumulator)
        _warn("an AsyncProducer was dropped before it was closed: use `async with`, or call close")
        _report(accumulator, "when the producer was dropped")


def _warn(text: str) -> None:
    # The garbage collector calls this: no line of the program is to blame.
    warnings.warn(text, ResourceWarning, stacklevel=1)


def _report(accumulator: Accumulator, when: str) -> None:
    records = sum(batch.records for batch in list(accumulator.incomplete))
    if records:
        _log.warning("%s not delivered %s: close or flush the producer", how_many(records), when)


def _forget_after_fork() -> None:
    _open.clear()
    _threads.clear()
    _closing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
