"""The line between the driver and its workers: JSON, a message a line, over TCP.

A worker says who it is (the driver's secret, its slot), then reports progress and its error. The driver says stop; a
line that ends says the same, so that workers end with their driver. A slot that Spark starts again replaces its
predecessor, whose further words do not count.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
CONNECT_TIMEOUT_S = 30


class Workers:
    """The driver's end. `told(slot, message)` is called on threads of ours."""

    def __init__(self, host: str, told: Callable[[int, Message], None]) -> None:
        self._listener = socket.create_server((host, 0))
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self.secret = secrets.token_hex(16)
        self._told = told
        self._lines: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._stopped = False
        threading.Thread(target=self._accept, daemon=True, name="ottla-streams-accept").start()

    def stop(self) -> None:
        """Tell all workers, those that come later included."""
        with self._lock:
            self._stopped = True
            lines = list(self._lines.values())
        for line in lines:
            _end(line)

    def close(self) -> None:
        self.stop()
        _end(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True, name="ottla-streams-worker").start()

    def _serve(self, line: socket.socket) -> None:
        with line, line.makefile("rb") as lines:
            try:
                hello = json.loads(lines.readline(4096) or b"{}")
                if not secrets.compare_digest(str(hello.get("secret")), self.secret):
                    return
                slot = int(hello["slot"])
                with self._lock:
                    before = self._lines.get(slot)
                    self._lines[slot] = line
                    stopped = self._stopped
                if before is not None:
                    _end(before)
                if stopped:
                    _end(line)
                for text in lines:
                    if self._lines.get(slot) is line:
                        self._told(slot, json.loads(text))
            except (OSError, ValueError):
                return


class DriverLine:
    """A worker's end. `stopped` is set when the driver says so or is gone."""

    def __init__(self, address: tuple[str, int], secret: str, slot: int) -> None:
        self.stopped = threading.Event()
        self._line = socket.create_connection(address, CONNECT_TIMEOUT_S)
        self._line.settimeout(None)
        self.tell({"secret": secret, "slot": slot})
        threading.Thread(target=self._listen, daemon=True, name="ottla-streams-driver").start()

    def tell(self, message: Message) -> None:
        """Nothing happens if the driver is gone: `stopped` says so."""
        try:
            self._line.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.stopped.set()

    def close(self) -> None:
        _end(self._line)
        self._line.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while self._line.recv(4096):
                pass
        self.stopped.set()


def _end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
