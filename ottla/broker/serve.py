"""Runs a node as a process: `ottla start`.

Rules:
- One line when the node serves, one when it stops, one when it fails.
- Modules that a fresh node does not need are imported on a thread soon after the node serves, before a request needs
  them. The garbage collector is off until then: its passes over the start's objects cost as much as thirty
  imports.
- SIGTERM and SIGINT stop the node cleanly, so that the next start has nothing to recover.
- A crash leaves no core file, which would contain the node's secrets.
- SIGUSR2 makes it write the stacks of its threads (`ottla.host.stacks`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.metadata_node import MetadataNode
from ottla.broker.node import BrokerNode
from ottla.host.descriptor import set_limits
from ottla.host.loop import new_loop
from ottla.host.stacks import tell_on_signal
from ottla.kernel.error import OttlaError
from ottla.kernel.lazy import LazyModule, load_all
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.broker import controller_node
else:
    controller_node = LazyModule("ottla.broker.controller_node")

_log = logging.getLogger("ottla.broker")
#: How long a start may keep the loop from answering probes and signals while the logs are opened.
_OPEN_SECONDS = 0.5
#: By then a start has done its work, and few clients have come.
_LOAD_AFTER_SECONDS = 0.25


def run(settings: ServerSettings, say: Callable[[str], None] = print, started_at: float | None = None) -> int:
    """Serve until a signal arrives. Returns the exit code; raises OttlaError if the node cannot start.

    `started_at` is the `time.monotonic()` from which the ready line counts its milliseconds.
    """
    started_at = time.monotonic() if started_at is None else started_at
    set_limits()
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
            at = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in node.bound())
            line = f"ottla: node {node.node_id} ready on {at} in {1000 * (time.monotonic() - started_at):.0f} ms"
            # Printed by the running loop, so that a signal sent in reaction to the line finds its handler.
            loop.call_soon(say, f"{line}, data in {', '.join(settings.log_dirs)}")
            loop.call_later(_LOAD_AFTER_SECONDS, _load_rest)

        stopping: list[bool] = []

        def stop() -> None:
            # A second signal stops the node without waiting for others to take over.
            if stopping:
                return loop.stop()
            stopping.append(True)
            return node.stop(loop.stop)

        node.on_ready = ready
        node.on_progress = lambda line: say(f"ottla: {line}")
        # The objects of a start stay: repeated collector passes over them would take a third of its time.
        gc.disable()
        node.open(wait_seconds=_OPEN_SECONDS)
        if not ready_already:
            # The node may wait for other nodes, or for its logs, for a long time before it is ready.
            gc.enable()
        _on_signals(loop, stop)
        # On a full disk older Pythons leave truncated compiled files, and fail on them at the next start
        # (python/cpython#126606). Write none for modules imported while the node serves.
        sys.dont_write_bytecode = True
        loop.run_forever()
        node.close()
    finally:
        loop.close()
    if failures:
        raise OttlaError(f"the node stopped: {failures[0]}")
    say(f"ottla: node {settings.node_id} stopped")
    return 0


def _on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # Our image blocks it until there is a handler, which only the running loop calls.
    loop.call_soon(signal.pthread_sigmask, signal.SIG_UNBLOCK, (signal.SIGTERM,))


def _load_rest() -> None:
    tune_collector()
    # An import releases the interpreter's lock at every file that it opens, so the loop waits for one module at most.
    threading.Thread(target=_load, name="ottla-load", daemon=True).start()


def _load() -> None:
    # A decorator that builds a class again leaves the first one as garbage: 3 MiB if it stayed until the end.
    try:
        for _ in load_all():
            gc.collect(0)
    except (ImportError, OSError) as error:
        _log.warning("Not every module could be loaded ahead: %s. The others are loaded when they are needed.", error)
    gc.freeze()


def tune_collector() -> None:
    """Exclude the objects of the start from the collector, and collect the rest less often.

    docs/internals/broker.md has the measurements behind the thresholds: a pass over a young generation of 50,000
    objects takes about a millisecond, and a request leaves no garbage that only the collector could free. The middle
    generation is collected at a quarter of a million objects: a long request makes more, and the loop waits.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 5, 400)
