"""Run a node as a process: `ottla start`.

Rules:
- One line when it serves, one line when it stops, one line when it cannot.
- What a fresh node does not need is imported a second after it serves, on a thread, before a request needs it. The
  collector is off until then: it takes as long for what a start makes as thirty imports.
- SIGTERM and SIGINT stop it cleanly: the next start has nothing to recover.
- SIGUSR2 has it write the stacks of its threads (`ottla.host.stacks`).
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.metadata_node import MetadataNode
from ottla.broker.node import BrokerNode
from ottla.host.descriptor import allow_many
from ottla.host.loop import new_loop
from ottla.host.stacks import tell_on_signal
from ottla.kernel.error import OttlaError
from ottla.kernel.lazy import LazyModule, load_all
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.broker import controller_node
else:
    controller_node = LazyModule("ottla.broker.controller_node")

#: A start has done by then what it does.
_LOAD_AFTER_SECONDS = 1.0


def run(settings: ServerSettings, say: Callable[[str], None] = print, started_at: float | None = None) -> int:
    """Serve until a signal comes. Returns the exit code; raises OttlaError when it cannot start.

    `started_at` is the `time.monotonic()` from which the line counts its milliseconds.
    """
    started_at = time.monotonic() if started_at is None else started_at
    allow_many()
    tell_on_signal()
    loop = new_loop()
    asyncio.set_event_loop(loop)
    failures: list[str] = []
    try:
        node: MetadataNode = (BrokerNode if settings.is_broker else controller_node.ControllerNode)(settings, loop)

        def fail(why: str) -> None:
            failures.append(why)
            loop.stop()

        node.on_failure = fail

        ready_already: list[bool] = []

        def ready() -> None:
            ready_already.append(True)
            at = ", ".join(f"{each.host}:{each.port}" for each in node.bound())
            line = f"ottla: node {node.node_id} ready on {at} in {1000 * (time.monotonic() - started_at):.0f} ms"
            # Said by the running loop: a signal that answers the line finds a handler.
            loop.call_soon(say, f"{line}, data in {', '.join(settings.log_dirs)}")
            loop.call_later(_LOAD_AFTER_SECONDS, _load_rest)

        stopping: list[bool] = []

        def stop() -> None:
            # A second signal does not wait for those who take over.
            if stopping:
                return loop.stop()
            stopping.append(True)
            return node.stop(loop.stop)

        node.on_ready = ready
        node.on_progress = lambda line: say(f"ottla: {line}")
        # A start makes what stays: to look through it again and again would take a third of the time.
        gc.disable()
        node.open()
        if not ready_already:
            # The node may wait for others long before it is ready.
            gc.enable()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        # On a full disk older Pythons leave compiled files that are cut short, and stumble over them at the next start
        # (python/cpython#126606). What is imported while the node serves leaves none.
        sys.dont_write_bytecode = True
        loop.run_forever()
        node.close()
    finally:
        loop.close()
    if failures:
        raise OttlaError(f"the node stopped: {failures[0]}")
    say(f"ottla: node {settings.node_id} stopped")
    return 0


def _load_rest() -> None:
    tune_collector()
    # An import gives the interpreter's lock away at every file that it opens: the loop waits for one module at most.
    threading.Thread(target=_load, name="ottla-load", daemon=True).start()


def _load() -> None:
    # A decorator that makes a class again leaves the first one behind: 3 MiB, if they stayed until the end.
    for _ in load_all():
        gc.collect(0)
    gc.freeze()


def tune_collector() -> None:
    """What is there after the start stays: keep it out of the collector, and collect the rest less often.

    The thresholds are measured in docs/internals/broker.md: a pass over a young generation of 50,000 objects takes
    about a millisecond, and a request leaves nothing behind that only the collector could free.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
