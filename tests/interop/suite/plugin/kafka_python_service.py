"""`test/service.py` of kafka-python's tests, which their archive on PyPI does not have: a server that they start.

`wait_for` looks for a pattern in what the process has printed.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

_STOP_S = 30


class SpawnedService:
    """A process whose output is read on a thread. Whoever starts it stops it."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str]) -> None:
        self._args = args
        self._env = env
        self._printed = ""
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the process and return at once."""
        self._process = subprocess.Popen(
            self._args,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._printed += line
                self._changed.notify_all()
        with self._changed:
            self._process.wait()
            self._changed.notify_all()

    def wait_for(self, pattern: str, timeout: float = 30) -> bool:
        """Whether the process prints this within `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._has(pattern) or self._process.poll() is not None, timeout)
            return self._has(pattern)

    def _has(self, pattern: str) -> bool:
        return re.search(pattern, self._printed, re.IGNORECASE) is not None

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not end."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def dump_logs(self) -> None:
        """Print what the process has printed."""
        with self._changed:
            sys.stdout.write(self._printed)


class ExternalService:
    """A server that others have started; these tests start their own."""

    def __init__(self, host: str, port: int) -> None:
        raise RuntimeError(f"{host}:{port} is not started by the tests")
