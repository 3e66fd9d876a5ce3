"""The process of a node on this machine, found by its log directory, and the stacks of its threads.

Rules:
- The process is the one that has `.lock` of the directory open; Linux's /proc shows that to its own user and to root.
- A node writes its stacks to a memory file on SIGUSR2 (`ottla.host.stacks`). Only a process with such a file gets the
  signal: it would kill any other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ottla.host.stacks import NAME
from ottla.kernel.error import OttlaError
from ottla.log.checkpoint import LOCK

_PROC = Path("/proc")
_STACKS_SECONDS, _LOOK_SECONDS = 5.0, 0.05
_STACKS_BYTES_MAX = 1 << 20
#: What is shown of /proc/PID.
_SHOWN = ("status", "limits", "sched", "io", "smaps_rollup")


class NodeFiles(NamedTuple):
    """The files that the process was started with; None where unknown."""

    properties: str | None
    log: str | None


class LocalNode(NamedTuple):
    """A node's process."""

    pid: int
    command: list[str]
    files: NodeFiles


def find(directories: Sequence[str]) -> LocalNode | None:
    """Return the process that holds one of these log directories; None when no such process is visible."""
    wanted = {os.path.realpath(os.path.join(directory, LOCK)) for directory in directories}
    for pid in sorted(int(path.name) for path in _PROC.iterdir() if path.name.isdigit()):
        if any(target in wanted for _, target in _open_files(pid)):
            command = (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")[:-1]
            return LocalNode(pid, command, _files(pid, command))
    return None


def _open_files(pid: int) -> Iterator[tuple[Path, str]]:
    """Yield (link, target) of each open file; nothing for another user's process or one that has exited."""
    with suppress(OSError):
        for path in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                yield path, os.readlink(path)


def _files(pid: int, command: Sequence[str]) -> NodeFiles:
    with suppress(OSError):
        place = os.readlink(_PROC / str(pid) / "cwd")
        properties = next((os.path.join(place, word) for word in command if word.endswith(".properties")), None)
        log = next((command[at + 1] for at, word in enumerate(command[:-1]) if word == "--log-file"), None)
        log = log or next((word.partition("=")[2] for word in command if word.startswith("--log-file=")), None)
        stderr = _PROC / str(pid) / "fd/2"
        if log is None and stderr.is_file():
            log = os.readlink(stderr)
        return NodeFiles(properties, log and os.path.join(place, log))
    return NodeFiles(None, None)


def state(pid: int) -> dict[str, Any]:
    """Return what Linux reports about the process: memory, limits, open files, what each thread waits for."""
    about: dict[str, Any] = {}
    for name in _SHOWN:
        with suppress(OSError):
            about[name] = (_PROC / str(pid) / name).read_text().splitlines()
    about["open_files"] = sum(1 for _ in _open_files(pid))
    about["threads"] = {path.name: _thread(path) for path in (_PROC / str(pid) / "task").iterdir()}
    return about


def _thread(task: Path) -> dict[str, str]:
    about = {}
    for name in ("comm", "wchan", "schedstat"):
        with suppress(OSError):
            about[name] = (task / name).read_text().strip()
    return about


def stacks(pid: int) -> str:
    """Return the stack of each thread of a node, innermost call first. Raises OttlaError without an answer."""
    link = next((link for link, target in _open_files(pid) if target.startswith(f"/memfd:{NAME} ")), None)
    if link is None:
        raise OttlaError(f"process {pid} has no memory file for its stacks: it is not a node of this version on Linux")
    with link.open("r+b") as file:
        file.truncate(0)
        os.kill(pid, signal.SIGUSR2)
        until, size = time.monotonic() + _STACKS_SECONDS, -1
        while time.monotonic() < until:
            before, size = size, os.fstat(file.fileno()).st_size
            if size == before > 0:
                return file.read(_STACKS_BYTES_MAX).decode(errors="replace")
            time.sleep(_LOOK_SECONDS)
    raise OttlaError(f"process {pid} did not write its stacks within {_STACKS_SECONDS:.0f} s")
