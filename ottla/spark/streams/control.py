"""The connection between the driver and its workers: JSON messages over TCP, one per line.

A worker first identifies itself (the driver's secret, its slot), then sends reports, answers and errors. The driver
sends requests (pause, resume, reopen, stop, queries). A lost connection ends the worker too, so workers end with their
driver; if the driver is still there, Spark starts the worker again. A slot that Spark starts again replaces its
predecessor, whose later messages are ignored.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.net.keepalive import keep_alive_soon

Message = dict[str, Any]
CONNECT_TIMEOUT_S = 30
#: How long a worker keeps reopening its tasks without progress.
PATIENCE_S = 60


class Workers:
    """The driver's end of all connections. Calls `on_message(slot, message)` on internal threads."""

    def __init__(self, host: str, on_message: Callable[[int, Message], None], bind: str | None = None) -> None:
        """`host`: where workers reach this process. `bind`: the address to listen on, if it differs."""
        self._listener = socket.create_server((bind or host, 0))
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self.secret = secrets.token_hex(16)
        self._on_message = on_message
        self._lines: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._stopped = False
        self._paused = False
        self._numbers = itertools.count()
        self._answers: dict[int, queue.SimpleQueue[tuple[int, Message]]] = {}
        threading.Thread(target=self._accept, daemon=True, name="ottla-streams-accept").start()

    @property
    def connected(self) -> list[int]:
        """The slots with a connected worker."""
        with self._lock:
            return sorted(self._lines)

    def pause(self, paused: bool) -> None:
        """Pause or resume all workers, including those that connect later."""
        with self._lock:
            self._paused = paused
            slots = list(self._lines)
        for slot in slots:
            self._send(slot, {"paused": paused})

    def reopen(self, slot: int) -> None:
        """Tell a failed worker to reopen its tasks."""
        self._send(slot, {"again": True})

    def ask(self, question: Message, timeout: float) -> dict[int, Message]:
        """Query all workers and return their answers by slot. OttlaError if one takes longer than `timeout` seconds."""
        number = next(self._numbers)
        arrived = self._answers[number] = queue.SimpleQueue()
        slots = self.connected
        answers: dict[int, Message] = {}
        try:
            for slot in slots:
                self._send(slot, {"ask": number} | question)
            while len(answers) < len(slots):
                slot, answer = arrived.get(timeout=timeout)
                answers[slot] = answer
        except queue.Empty:
            missing = ", ".join(str(slot) for slot in slots if slot not in answers)
            raise OttlaError(f"worker {missing} did not answer within {timeout:g} s; try again") from None
        finally:
            del self._answers[number]
        return answers

    def stop(self) -> None:
        """Stop all workers, including those that connect later."""
        with self._lock:
            self._stopped = True
            lines = dict(self._lines)
        for slot, line in lines.items():
            self._send(slot, {"stop": True})
            _end(line)

    def close(self) -> None:
        self.stop()
        _end(self._listener)
        self._listener.close()

    def _send(self, slot: int, message: Message) -> None:
        line = self._lines.get(slot)
        if line is not None:
            with contextlib.suppress(OSError), self._sending:
                line.sendall(json.dumps(message).encode() + b"\n")

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True, name="ottla-streams-worker").start()

    def _serve(self, line: socket.socket) -> None:
        slot = -1
        with line, line.makefile("rb") as lines:
            try:
                keep_alive_soon(line)
                hello = json.loads(lines.readline(4096) or b"{}")
                if not secrets.compare_digest(str(hello.get("secret")), self.secret):
                    return
                slot = int(hello["slot"])
                with self._lock:
                    before = self._lines.get(slot)
                    self._lines[slot] = line
                    stopped, paused = self._stopped, self._paused
                if before is not None:
                    _end(before)
                if paused:
                    self._send(slot, {"paused": True})
                if stopped:
                    self._send(slot, {"stop": True})
                    _end(line)
                for text in lines:
                    if self._lines.get(slot) is line:
                        self._take(slot, json.loads(text))
            except (OSError, ValueError):
                return
            finally:
                with self._lock:
                    gone = self._lines.get(slot) is line
                    if gone:
                        del self._lines[slot]
                if gone:
                    self._on_message(slot, {"gone": True})

    def _take(self, slot: int, message: Message) -> None:
        if "answer" in message:
            waiting = self._answers.get(message["answer"])
            if waiting is not None:
                waiting.put((slot, message))
        else:
            self._on_message(slot, message)


class DriverLine:
    """A worker's end of the connection. `stopped` is set when the driver stops the worker or is gone, `paused` while
    the driver pauses it.

    `answer`, if set, is called on an internal thread with each query and returns the answer.
    """

    def __init__(self, address: tuple[str, int], secret: str, slot: int) -> None:
        self.stopped = threading.Event()
        self.paused = threading.Event()
        self._reopen = threading.Event()
        self._told_to_stop = False
        self.answer: Callable[[Message], Message] | None = None
        self._sending = threading.Lock()
        self._line = socket.create_connection(address, CONNECT_TIMEOUT_S)
        self._line.settimeout(None)
        # A worker that is cut off must end soon: Spark starts its slot elsewhere.
        keep_alive_soon(self._line)
        self.send({"secret": secret, "slot": slot})
        self._listener = threading.Thread(target=self._listen, daemon=True, name="ottla-streams-driver")
        self._listener.start()

    def send(self, message: Message) -> None:
        """Send a message. If the driver is gone, set `stopped` instead."""
        try:
            with self._sending:
                self._line.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.stopped.set()

    def wait_for_reopen(self) -> None:
        """After an error, wait until the driver says to reopen the tasks or to stop."""
        while not self.stopped.is_set():
            if self._reopen.wait(0.1):
                self._reopen.clear()
                return

    @property
    def is_lost(self) -> bool:
        """After `stopped`: whether the connection ended although the driver did not stop this worker."""
        self._listener.join(1)
        return not self._told_to_stop

    def close(self) -> None:
        _end(self._line)
        self._line.close()

    def _listen(self) -> None:
        try:
            with contextlib.suppress(OSError, ValueError), self._line.makefile("rb") as lines:
                for text in lines:
                    self._take(json.loads(text))
        finally:
            self.stopped.set()

    def _take(self, message: Message) -> None:
        if "stop" in message:
            self._told_to_stop = True
        elif message.get("paused"):
            self.paused.set()
        elif "paused" in message:
            self.paused.clear()
        elif "again" in message:
            self._reopen.set()
        elif "ask" in message:
            self.send({"answer": message["ask"]} | self._reply(message))

    def _reply(self, question: Message) -> Message:
        answer = self.answer
        if answer is None:
            return {"error": "its tasks are being opened"}
        try:
            return answer(question)
        except Exception as error:  # a query must not end the connection, by which the driver stops this worker
            return {"error": f"{type(error).__name__}: {error}"}


def _end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
