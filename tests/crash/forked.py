"""A node's process without the half second of its imports: forked from one that has them behind it.

What is killed is a process of its own all the same: its threads, files and sockets are its own. `Forker` asks for one;
the module run as a program is the process that they are forked from. It has no threads and no node.
"""

import faulthandler
import gc
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_ASKED_FOR = (
    "PRODUCE",
    "FETCH",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "FIND_COORDINATOR",
    "JOIN_GROUP",
    "HEARTBEAT",
    "SYNC_GROUP",
    "API_VERSIONS",
    "INIT_PRODUCER_ID",
    "END_TXN",
    "CONSUMER_GROUP_HEARTBEAT",
)


class Forked:
    """As much of `subprocess.Popen` as a server needs, for a process that is another's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: What it ended with is its parent's to know: 0 stands for any end.
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired("ottla start", timeout or 0)
        return 0

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._descriptor], [], [], timeout_s)[0]:
            os.close(self._descriptor)
            self.returncode = 0
        return self.returncode


class Forker:
    """The process that forks. Whoever makes it calls `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, properties: Path, output: Path) -> Forked:
        """A process that runs `ottla start` with this file."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(properties, output, sep="\t", file=self._process.stdin, flush=True)
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        """What was forked goes on."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(10)


def _serve() -> None:
    """For every line with a properties file and one for the output, a process; its id is printed."""
    import ottla.broker.serve
    import ottla.cli.ottla.root
    import ottla.cli.ottla.start  # noqa: F401
    from ottla.kernel.lazy import load_all

    list(load_all())
    _compile_codecs()
    # Who sends one of these SIGABRT finds the stacks of its threads in its output.
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    # A child's first collection is to walk what is its own, and to leave the pages that it shares alone.
    gc.collect()
    gc.freeze()
    # Its children leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        properties, output = line.rstrip("\n").split("\t")
        pid = os.fork()
        if not pid:
            answers.close()
            _become_node(properties, output)
        print(pid, file=answers, flush=True)


def _compile_codecs() -> None:
    """Those of the requests that come here again and again, and of what stands in a node's own logs."""
    from ottla.wire.api import API, ApiKey
    from ottla.wire.compile import decoder, encoder
    from ottla.wire.record import consumer_group, metadata, offset, registration, transaction
    from ottla.wire.schema import schema

    for key in _ASKED_FOR:
        for version in schema(API[ApiKey[key]].request).versions or ():
            decoder(API[ApiKey[key]].request, version)
            encoder(API[ApiKey[key]].response, version)
    for module in (consumer_group, metadata, offset, registration, transaction):
        for cls in vars(module).values():
            if isinstance(cls, type) and hasattr(cls, "__wire__"):
                for version in schema(cls).versions or ():
                    decoder(cls, version)
                    encoder(cls, version)


def _become_node(properties: str, output: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor, taken in enumerate((nothing, said, said)):
        os.dup2(taken, descriptor)
    os.close(nothing)
    os.close(said)
    import ottla.cli.node
    from ottla.cli.ottla.root import run

    vars(ottla.cli.node)["STARTED_AT"] = time.monotonic()
    sys.argv = ["ottla", "start", properties]
    run()


if __name__ == "__main__":
    _serve()
