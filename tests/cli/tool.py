"""Run a tool as a person does: in this process for its words, in a process of its own for signals and terminals."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from ottla.cli.ottla.root import run

OTTLA = [sys.executable, "-m", "ottla.cli"]
CTRL_C = b"\x03"
_SECONDS_MAX = 30


class Said(NamedTuple):
    """What a tool wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The table on stdout, as a pipe gets it."""
        return [line.split("\t") for line in self.out.splitlines()]


class Tool:
    """Runs tools against one cluster."""

    def __init__(self, bootstrap: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", bootstrap)
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            run()
        out, err = self._capfd.readouterr()
        code = left.value.code
        assert isinstance(code, int)
        return Said(code, out, err)


def in_process(*arguments: str, stdin: bytes = b"", **environment: str) -> Said:
    """In a process of its own, through pipes."""
    done = subprocess.run(
        [*OTTLA, *arguments],
        input=stdin,
        capture_output=True,
        timeout=_SECONDS_MAX,
        env=os.environ | environment,
        check=False,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def on_terminal(
    *arguments: str, typed: Sequence[tuple[str, bytes]] = (), command: Sequence[str] = (), **environment: str
) -> Said:
    """In a process of its own whose stdin, stdout and stderr are a terminal of 100 columns, with colours.

    `typed`: each time the first text has appeared, the second is typed. `command` runs instead of a tool.
    """
    ours, theirs = pty.openpty()
    size = {"COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color", "NO_COLOR": ""}
    process = subprocess.Popen(
        list(command) or [*OTTLA, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | size | environment,
    )
    os.close(theirs)
    shown = bytearray()
    waiting = list(typed)
    seen = 0
    deadline = time.monotonic() + _SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if waiting and (at := shown.find(waiting[0][0].encode(), seen)) >= 0:
                seen = at + len(waiting[0][0])
                keys = waiting.pop(0)[1]
                # It is not the process's controlling terminal: what Ctrl-C does there, we do.
                if keys == CTRL_C:
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(ours, keys)
        return Said(process.wait(_SECONDS_MAX), shown.decode().replace("\r\n", "\n"), "")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
