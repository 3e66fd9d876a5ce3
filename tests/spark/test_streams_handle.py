"""The handle of a started program."""

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from ottla.spark.streams.handle import Handle


class Waiting(Handle):
    """A program that runs until `stop`."""

    def __init__(self) -> None:
        program: Any = SimpleNamespace(application_id="app")
        super().__init__(program, 1, (), None)
        self.told = threading.Event()
        self._run_on_thread(self._wait)

    def _wait(self) -> None:
        self.told.wait(30)

    def store(self, name: str, max_behind: int | None = None) -> NoReturn:
        raise KeyError(name)

    def stop(self) -> None:
        self.told.set()
        self._over.wait()


class SignalError(Exception):
    """What the signal raises."""


def test_a_wait_that_a_signal_interrupts_does_not_end_the_program() -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise SignalError

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Waiting() as handle:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(SignalError):
                handle.await_termination()
            assert not handle.await_termination(0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handle.await_termination(0)
