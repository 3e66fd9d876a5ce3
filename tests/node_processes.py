"""Processes of nodes, of Ottla and of Apache Kafka: started, stopped, killed, with what they say kept in a file.

Each node has a folder with its server.properties; `output` beside it keeps what its process says through restarts.
Used by the mixed clusters, the chaos runs and the bench of clusters.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop import toolchain

_FORMAT_S = 180.0
_STOP_S = 60.0


def program(kind: str, jvm: Sequence[str]) -> list[str]:
    """The command that runs a class of this kind, "ottla" or "apache": of ours the name of a command follows."""
    return [sys.executable, "-m", "ottla.cli"] if kind == "ottla" else ["java", *jvm, "-cp", toolchain.classpath()]


class NodeProcesses:
    """Those of a cluster by node. `folder / node-N` is a node's home; the caller ends them with `close`."""

    def __init__(self, folder: Path, jvm: Sequence[str]) -> None:
        self._folder = folder
        self._jvm = jvm
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    # ---- files

    def home(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    def properties(self, node: int) -> Path:
        return self.home(node) / "server.properties"

    def output(self, node: int) -> Path:
        return self.home(node) / "output"

    def tail(self, node: int, lines: int = 30) -> str:
        """What it said last."""
        text = self.output(node).read_text(errors="replace") if self.output(node).exists() else ""
        return f"node {node}:\n" + "\n".join(text.splitlines()[-lines:])

    # ---- life

    def format(self, node: int, kind: str, cluster_id: str, *how: str) -> None:
        """Format its directories, with further options of the storage tool. AssertionError with what the tool said."""
        words = ["storage"] if kind == "ottla" else ["kafka.tools.StorageTool"]
        command = [
            *program(kind, self._jvm),
            *words,
            "format",
            "-t",
            cluster_id,
            "-c",
            str(self.properties(node)),
            *how,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FORMAT_S)
        assert done.returncode == 0, f"node {node} cannot be formatted: {done.stdout}{done.stderr}"

    def start(
        self,
        node: int,
        kind: str,
        *,
        inside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        where: Path | None = None,
    ) -> None:
        """Start its process and return at once. `inside`: the command that runs it; `where`: its working directory."""
        words = ["start"] if kind == "ottla" else ["kafka.Kafka"]
        command = [*inside, *program(kind, self._jvm), *words, str(self.properties(node))]
        with self.output(node).open("ab") as said:
            self._running[node] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | (environment or {}),
                cwd=where,
            )

    def pid(self, node: int) -> int:
        """KeyError if it does not run."""
        return self._running[node].pid

    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]

    def runs(self, node: int) -> bool:
        process = self._running.get(node)
        return process is not None and process.poll() is None

    def ended(self) -> list[int]:
        """Those that were started, and ended without being told to."""
        return [node for node, process in self._running.items() if process.poll() is not None]

    def signal(self, node: int, number: int) -> None:
        self._running[node].send_signal(number)

    def kill(self, node: int) -> None:
        """kill -9."""
        process = self._running.pop(node, None)
        if process is not None:
            process.kill()
            process.wait()

    def stop(self, *nodes: int) -> list[int]:
        """SIGTERM to all of them; those that did not end in their time and were killed."""
        stopping = {node: self._running.pop(node) for node in nodes if node in self._running}
        for process in stopping.values():
            process.send_signal(signal.SIGTERM)
        late = []
        for node, process in stopping.items():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                late.append(node)
        return late

    def stop_all(self) -> list[int]:
        return self.stop(*self._running)

    def close(self) -> None:
        for node in list(self._running):
            self.kill(node)
