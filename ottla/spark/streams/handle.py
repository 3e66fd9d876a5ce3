"""The handle of a started program: its state, its listeners, and the wait for its end."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.flow.handler import ErrorResponse, State
from ottla.spark.streams.alive import Heartbeat
from ottla.spark.streams.layout import Program

if TYPE_CHECKING:
    from ottla.spark.streams.query import StoreView

log = logging.getLogger(__name__)
OnStateChange = Callable[[State, State], None]
OnError = Callable[[BaseException], ErrorResponse | None]


class Handle(ABC):
    """A started program. Stops the program at the end of a `with` block.

    Listeners are called on internal threads, one call at a time. A subclass sets `_heartbeat` and calls
    `_run_on_thread`.
    """

    _heartbeat: Heartbeat

    def __init__(
        self, program: Program, slots: int, on_state_change: Sequence[OnStateChange], on_error: OnError | None
    ) -> None:
        self.program = program
        #: How many Spark tasks run the program.
        self.slots = slots
        #: The metrics of each task from its worker's last report, by the names in metric.py.
        self.tasks: dict[str, dict[str, Any]] = {}
        self.error: BaseException | None = None
        self.state = State.CREATED
        self._on_state_change = on_state_change
        self._on_error = on_error
        self._lock = threading.RLock()
        #: Set at the end of the program. The thread cannot tell: in Python 3.11 and 3.12, a `join` that a signal
        #: interrupts makes it look ended.
        self._over = threading.Event()
        #: The thread that is calling a listener.
        self._caller: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the program, and raise the error that ended it unless the block failed itself."""
        self.stop()
        if error is None:
            self.await_termination(0)

    @abstractmethod
    def stop(self) -> None:
        """End the program, and wait for its end."""

    @abstractmethod
    def store(self, name: str, max_behind: int | None = None) -> StoreView:
        """A read-only view of a store."""

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the program ends, and raise the error that ended it. False if `timeout` seconds pass first."""
        if not self._over.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True

    def _run_on_thread(self, run: Callable[[], None]) -> None:
        def body() -> None:
            try:
                run()
            finally:
                self._over.set()

        threading.Thread(target=body, daemon=True, name=f"ottla-streams-{self.program.application_id}").start()

    def _respond(self, error: BaseException) -> ErrorResponse | None:
        """The response of the program's error handler, if it has one."""
        if self._on_error is None:
            return None
        self._caller = threading.get_ident()
        try:
            return self._on_error(error)
        except Exception:
            log.exception("the error handler of %s failed", self.program.application_id)
            return None
        finally:
            self._caller = None

    def _set_state(self, new: State) -> None:
        with self._lock:
            old = self.state
            ended = old in (State.NOT_RUNNING, State.ERROR)
            ending = old in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)
            if new is old or ended or (ending and new in (State.REBALANCING, State.RUNNING)):
                return
            self.state = new
            self._heartbeat.wake()
            before, self._caller = self._caller, threading.get_ident()
            try:
                for listener in self._on_state_change:
                    try:
                        listener(new, old)
                    except Exception:
                        log.exception("a state listener of %s failed", self.program.application_id)
            finally:
                self._caller = before
