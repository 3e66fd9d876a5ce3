"""kafka-server-stop: SIGTERM (or $SIGNAL) to the nodes that kafka-server-start has started on this machine.

Rules:
- Only processes of ours: Python that runs our kafka-server-start. Not Apache's, and not those of `ottla start`, whose
  terminal or service stops them.
- --node-id and --process-role choose by what file and overrides of the process say; --node-id goes before
  --process-role. It does not wait for the end.
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
    #: Where relative paths of the command line begin.
    directory: str


def main() -> None:
    """The console script."""
    leave(lambda: _run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    node_id, role = _wanted(words, "node-id"), _wanted(words, "process-role")
    if node_id and role:
        print("When both node-id and process-role are provided, the value for node-id will take precedence")
    servers = [(each, found) for each in processes() if (found := server_words(each.words)) is not None]
    if not servers:
        print("No kafka server to stop")
        return 1
    chosen = [each for each, found in servers if _is_meant(each, found, node_id, role)]
    if not chosen:
        tell(f"No kafka server to stop has {f'node.id {node_id}' if node_id else f'process.roles {role}'}")
    number = _signal(os.environ.get("SIGNAL") or "TERM")
    refused = 0
    for each in chosen:
        try:
            os.kill(each.pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            tell(f"kill: ({each.pid}) - Operation not permitted")
            refused += 1
    return 1 if refused else 0


def _wanted(words: Sequence[str], name: str) -> str:
    """The value of --name=VALUE or --name VALUE; other words are passed over, as Apache's script does it."""
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
    """What a process of kafka-server-start was given; None for another process."""
    if not words or not os.path.basename(words[0]).lower().startswith("python"):
        return None
    for place, word in enumerate(words[1:4], 1):
        if os.path.basename(word) in _SCRIPTS or (word == _MODULE and words[place - 1] == "-m"):
            given = list(words[place + 1 :])
            # With -daemon it is the process that starts the daemon, not the daemon.
            return given if given and given[0] != "-daemon" else None
    return None


def _is_meant(process: Process, words: list[str], node_id: str, role: str) -> bool:
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
        # The server is about to end with the same complaint.
        return False
    if node_id:
        return properties.get("node.id") == node_id
    return properties.get("process.roles") == role


def processes() -> Iterable[Process]:
    """All processes, but not this one."""
    found = _from_proc() if os.path.isdir(f"{_PROCESSES}/self") else _from_ps()
    return [each for each in found if each.pid != os.getpid()]


def _from_proc() -> Iterator[Process]:
    for entry in os.listdir(_PROCESSES):
        if not entry.isdecimal():
            continue
        try:
            content = Path(_PROCESSES, entry, "cmdline").read_bytes()
            directory = os.readlink(f"{_PROCESSES}/{entry}/cwd")
        except OSError:  # it has ended, or is another user's
            continue
        words = content.decode(errors="surrogateescape").split("\0")[:-1]
        yield Process(int(entry), tuple(words), directory)


def _from_ps() -> Iterator[Process]:
    """Where there is no /proc: a path with a blank is then two words."""
    import subprocess

    shown = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, timeout=30, check=True).stdout
    for line in shown.decode(errors="surrogateescape").splitlines():
        pid, *words = line.split()
        yield Process(int(pid), tuple(words), os.getcwd())
