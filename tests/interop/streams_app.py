"""One instance of the word count of Kafka Streams (java/streams/Streams.java), driven by lines."""

import queue
import subprocess
import threading
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from tests.interop import toolchain

PATIENCE_S = 90.0


class App:
    """A running instance. Whoever makes it uses it as a context; leaving that ends the program."""

    def __init__(self, bootstrap: str, application: str, topics: tuple[str, str], directory: Path, **more: str) -> None:
        """`more` are settings of Kafka Streams, underscores for dots."""
        self._stderr = directory.with_suffix(".stderr")
        settings = [f"{name.replace('_', '.')}={value}" for name, value in more.items()]
        command = [*toolchain.streams_peer(), bootstrap, application, *topics, str(directory), *settings]
        with self._stderr.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
            )
        #: Every line that was said.
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._reader.join(5)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def await_line(self, start: str, timeout_s: float = PATIENCE_S) -> str:
        """The next line that begins so."""
        deadline = monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {start!r} in {timeout_s:.0f} s; said {self.said}\n{self.errors()}") from None
            assert line is not None, f"ended before {start!r}; said {self.said}\n{self.errors()}"
            if line.startswith(start):
                return line

    def ask(self, command: str, answer: str | None = None) -> str:
        """What it answers to a command."""
        self.tell(command)
        return self.await_line(answer or f"{command} ")

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def tasks(self) -> tuple[set[str], set[str]]:
        """The active and the standby tasks it has now."""
        active, standby = self.ask("tasks").removeprefix("tasks ").split("|")
        return set(filter(None, active.strip().split(","))), set(filter(None, standby.strip().split(",")))

    def close(self) -> None:
        """A clean end: the instance leaves its group."""
        self.tell("close")
        self.await_line("closed")
        assert self._process.wait(30) == 0, self.errors()

    def kill(self) -> None:
        """SIGKILL: it says goodbye to nobody."""
        self._process.kill()
        self._process.wait()

    def errors(self) -> str:
        return "\n".join(self._stderr.read_text(errors="replace").splitlines()[-25:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.rstrip("\n"))
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
