"""kafka-server-stop: send SIGTERM (or $SIGNAL) to the nodes that kafka-server-start has started on this machine.

Rules:
- It signals only Python processes that run our kafka-server-start: not Apache's, and not those of `ottla start`, which
  are stopped by their terminal or service.
- --node-id and --process-role select by the file and overrides of the process; --node-id takes precedence. The tool
  does not wait for the processes to end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.cli.kafka.program.option import Refused, Usage
from ottla.cli.kafka.program.tool import Failed, leave, tell
from ottla.cli.kafka.server.server_start import properties_of

_SCRIPTS = ("kafka-server-start", "kafka-server-start.sh")
_MODULE = "ottla.cli.kafka.server.server_start"
_PROCESSES = "/proc"


@dataclass(frozen=True)
class Process:
    """A process with its command line."""

    pid: int
    words: tuple[str, ...]
    #: Working directory, for relative paths on the command line.
    directory: str


def main() -> None:
    """The console script."""
    leave(lambda: _run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    node_id, role = _option_value(words, "node-id"), _option_value(words, "process-role")
    if node_id and role:
        print("When both node-id and process-role are provided, the value for node-id will take precedence")
    servers = [
        (process, arguments) for process in processes() if (arguments := server_words(process.words)) is not None
    ]
    if not servers:
        print("No kafka server to stop")
        return 1
    chosen = [server for server, arguments in servers if _is_selected(server, arguments, node_id, role)]
    if not chosen:
        tell(f"No kafka server to stop has {f'node.id {node_id}' if node_id else f'process.roles {role}'}")
    number = _signal(os.environ.get("SIGNAL") or "TERM")
    refused = 0
    for process in chosen:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            tell(f"kill: ({process.pid}) - Operation not permitted")
            refused += 1
    return 1 if refused else 0


def _option_value(words: Sequence[str], name: str) -> str:
    """Return the value of --name=VALUE or --name VALUE; other words are ignored, as in Apache's script."""
    for place, word in enumerate(words):
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
        if word == f"--{name}" and place + 1 < len(words):
            return words[place + 1]
    return ""


def _signal(name: str) -> signal.Signals:
    try:
        return (
            signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
        )
    except (KeyError, ValueError) as error:
        raise Failed(f"{name}: invalid signal specification") from error


def server_words(words: Sequence[str]) -> list[str] | None:
    """Return the arguments of a kafka-server-start process; None for another process."""
    if not words or not os.path.basename(words[0]).lower().startswith("python"):
        return None
    for place, word in enumerate(words[1:4], 1):
        if os.path.basename(word) in _SCRIPTS or (word == _MODULE and words[place - 1] == "-m"):
            given = list(words[place + 1 :])
            # With -daemon, this is the process that starts the daemon, not the daemon.
            return given if given and given[0] != "-daemon" else None
    return None


def _is_selected(process: Process, words: list[str], node_id: str, role: str) -> bool:
    if not node_id and not role:
        return True
    file = Path(process.directory, words[0])
    if not file.exists():
        raise Failed(
            "Can not find the configuration file in the current directory. Please make sure the kafka stop process and "
            "the start process are called in the same directory."
        )
    try:
        properties = properties_of([str(file), *words[1:]])
    except (Usage, Refused, Failed):
        # The server is about to fail with the same error.
        return False
    if node_id:
        return properties.get("node.id") == node_id
    return properties.get("process.roles") == role


def processes() -> Iterable[Process]:
    """Return all processes except this one."""
    all_processes = _from_proc() if os.path.isdir(f"{_PROCESSES}/self") else _from_ps()
    return [process for process in all_processes if process.pid != os.getpid()]


def _from_proc() -> Iterator[Process]:
    for entry in os.listdir(_PROCESSES):
        if not entry.isdecimal():
            continue
        try:
            content = Path(_PROCESSES, entry, "cmdline").read_bytes()
            directory = os.readlink(f"{_PROCESSES}/{entry}/cwd")
        except OSError:  # it has ended, or belongs to another user
            continue
        words = content.decode(errors="surrogateescape").split("\0")[:-1]
        yield Process(int(entry), tuple(words), directory)


def _from_ps() -> Iterator[Process]:
    """Yield the processes without /proc; a path with a blank becomes two words."""
    import subprocess

    shown = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, timeout=30, check=True).stdout
    for line in shown.decode(errors="surrogateescape").splitlines():
        pid, *words = line.split()
        yield Process(int(pid), tuple(words), os.getcwd())
