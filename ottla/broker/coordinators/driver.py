"""What drives a coordinator's machine: its log, its timer, and the requests that wait for it.

Rules:
- A machine is loaded from its partition's log before it answers anything, a piece at a time (`Coordinators` sees to
  it), and its state changes only by `replay` of what was appended.
- Effects are carried out in their order. An answer, and whatever others are asked to do, leaves when everything that
  was appended before it is committed: a client is not told what failover may take back. A lone replica commits by
  appending.
- Committed is what the high watermark has passed. It stands still below min.insync.replicas (KIP-966), so that many
  replicas had the records when it moved; an ISR that has shrunk since takes nothing back. Only a transaction
  coordinator answers COORDINATOR_NOT_AVAILABLE then, as in Apache Kafka.
- Below min.insync.replicas nothing is appended: a request of `writing` is answered COORDINATOR_NOT_AVAILABLE before the
  machine sees it, and time passes later. The machine stays, and goes on answering what only reads.
- A step that comes out of carrying out another (a transaction's markers) waits until that one is through.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ottla.coordinator.contract import (
    Append,
    Called,
    Continue,
    CoordinatorMachine,
    Loaded,
    TimePassed,
    append_error,
)
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.now import Now
from ottla.log.log import Origin
from ottla.replica.partition import Partition
from ottla.wire.batch import Batch, build, check, read

if TYPE_CHECKING:
    from ottla.broker.coordinators.parts import CoordinatorParts

_log = logging.getLogger("ottla.broker")
#: Below min.insync.replicas: when the machine is told of time again (Apache Kafka's backoff of a timer's write).
_TIMER_RETRY_SECONDS = 0.5
#: A piece of a log that is loaded: some hundred records, a few milliseconds.
LOAD_BYTES = 32 << 10


M = TypeVar("M", bound=CoordinatorMachine)


class Driver(ABC, Generic[M]):
    """A coordinator on one partition. Subclasses say which machine it is, and carry out what only that one asks for."""

    #: The names of the requests that are not answered without an append.
    writing: ClassVar[frozenset[str]]
    #: Is an answer refused, too, when its records are committed and the ISR is below min.insync.replicas since?
    answers_want_min_isr: ClassVar[bool] = False

    def __init__(self, parts: CoordinatorParts, partition: Partition, machine: M) -> None:
        self.runtime = parts.runtime
        self._flusher = parts.flusher
        self._log_dirs = parts.log_dirs
        self.partition = partition
        self.machine = machine
        self._tickets = count()
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._steps: deque[Any] = deque()
        #: The log refused an append, or its partition is not led here any more: the machine may know more than the log,
        #: and nothing it says counts any more.
        self.failed = False
        #: Called once when that happens.
        self.on_failure: Callable[[Driver[Any]], None] = lambda _: None

    @abstractmethod
    def ask_others(self, effect: Any) -> None:
        """Do what the machine wants done by others; what it follows from is committed."""

    def replay_batch(self, batch: Batch) -> None:
        """Give every record of a batch of the log to the machine."""
        header = batch.header
        if header.is_control:
            return self.replay_control(batch)
        producer_id = header.producer_id if header.is_transactional else -1
        for record in batch.records():
            if record.key is not None:
                self.machine.replay(record.key, record.value, offset=record.offset, producer_id=producer_id)
        return None

    def replay_control(self, batch: Batch) -> None:
        """Give a transaction marker to the machine, if it is one that takes part in transactions."""

    def load(self) -> Iterator[None]:
        """Replay the whole log, a piece at a time: others may have their turn between two."""
        for number, batches in enumerate(self.pieces()):
            if number:
                yield
            for batch in batches:
                self.replay_batch(batch)

    def begin(self) -> None:
        """All of the log is replayed: tell the machine."""
        self.step(Loaded())

    def pieces(self) -> Iterator[list[Batch]]:
        """Everything in the log, from its start to where it ends then."""
        log = self.partition.log
        offset = log.start_offset
        while offset < log.end_offset and not log.closed:
            # Retention may have been here since the last piece.
            offset = max(offset, log.start_offset)
            data = log.read(offset, LOAD_BYTES, end_offset=log.end_offset, min_one_batch=True).bytes()
            batches = list(read(data))
            for batch in batches:
                # Only the coordinator knows what its log holds: rather none than one that is wrong.
                check(batch.data)
            if not batches:
                # The cleaner took what stood before the end.
                return
            yield batches
            offset = batches[-1].header.last_offset + 1

    def ask(self, request: Any, version: int, answer: Callable[[Any], None], **client: Any) -> int:
        """Put a request to the coordinator, under a ticket; `answer` is called once with the response, now or later.

        `client`: `client_id`, `client_host`, `principal` and `may_describe`, where the machine wants to know them.
        """
        ticket = next(self._tickets)
        self._waiting[ticket] = answer
        self.step(Called(ticket, request, version, **client))
        return ticket

    def step(self, event: Any) -> None:
        """An event through the machine, its effects carried out in their order."""
        if self.failed:
            return self.give_up()
        if type(getattr(event, "request", None)).__name__ in self.writing:
            refusal = self.refusal()
            if refusal is not None:
                return self._waiting.pop(event.ticket)(refusal)
        self._steps.append(event)
        if len(self._steps) > 1:
            return None
        now = Now.of(self.runtime.clock)
        try:
            while self._steps and not self.failed:
                self._carry_out(self.machine.step(self._steps[0], now), now.wall_ms)
                self._steps.popleft()
        except Exception:
            # Our own fault. What the machine holds is not to be trusted, and no request may wait for it forever.
            self._fail()
            raise
        finally:
            self._steps.clear()
        if not self.failed:
            self._plan()
        return None

    def refusal(self) -> KafkaError | None:
        """Why nothing can be appended now: too few replicas are in sync."""
        try:
            self.partition.check_in_sync()
        except KafkaError as error:
            return KafkaError(append_error(error.code), error.message)
        return None

    def _carry_out(self, effects: Sequence[Any], now_ms: int) -> None:
        """Effects in their order. Requests that wait for an append that the log refused are told its error."""
        failed: KafkaError | None = None
        for effect in effects:
            ticket = getattr(effect, "ticket", None)
            if ticket is not None:
                # A failed append may have taken the partition away, and its requests were told then.
                answer = self._waiting.pop(ticket, None)
                if answer is not None:
                    self._answer(answer, failed or effect.response)
            elif failed is None:
                failed = self._attempt(effect, now_ms)
        if failed is not None:
            self._fail()

    def _answer(self, answer: Callable[[Any], None], response: Any) -> None:
        """Answer when all that the log holds now is committed, or say that it was not in time."""
        partition = self.partition
        if partition.machine is None or isinstance(response, KafkaError):
            return answer(response)
        timer: asyncio.TimerHandle | None = None

        def committed(error: KafkaError | None) -> None:
            if timer is not None:
                timer.cancel()
            if _is_committed(error) and not self.answers_want_min_isr:
                error = None
            answer(response if error is None else KafkaError(append_error(error.code), error.message))

        def timed_out() -> None:
            assert waiter is not None
            waiter.cancel()
            answer(KafkaError(append_error(ErrorCode.REQUEST_TIMED_OUT)))

        waiter = partition.when_committed(partition.log.end_offset, committed)
        if waiter is not None:
            timer = self.runtime.loop.call_later(self.runtime.settings.offsets_commit_timeout_ms / 1000, timed_out)
        return None

    def _after_commit(self, do: Callable[[], None]) -> None:
        """Have others do something when all that the log holds now is committed; nothing when this coordinator ends."""

        def committed(error: KafkaError | None) -> None:
            if not self.failed and _is_committed(error):
                do()

        self.partition.when_committed(self.partition.log.end_offset, committed)

    def _fail(self) -> None:
        self.failed = True
        self.give_up()
        self.on_failure(self)

    def end(self) -> None:
        """The partition is not led here any more."""
        self.failed = True
        self.give_up()

    def give_up(self) -> None:
        """Nothing more is done here; requests that still wait get NOT_COORDINATOR, and are asked again."""
        self._cancel_timer()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _attempt(self, effect: Any, now_ms: int) -> KafkaError | None:
        try:
            match effect:
                case Append():
                    self._append(effect, now_ms)
                case Continue(event):
                    self.step(event)
                case _:
                    self._after_commit(partial(self.ask_others, effect))
        except KafkaError as error:
            failed = KafkaError(append_error(error.code), error.message)
        except OSError as error:
            self._log_dirs.check(self.partition.log, error)
            failed = KafkaError(append_error(ErrorCode.KAFKA_STORAGE_ERROR), str(error))
        else:
            return None
        _log.error("%s cannot be appended to: %s", self.partition.tp, failed.message)
        return failed

    def _append(self, effect: Append, now_ms: int) -> None:
        """Write records as one batch, part of the producer's transaction where the effect names one; replay them."""
        entries, producer_id, epoch = effect.entries, effect.producer_id, effect.producer_epoch
        records = [(now_ms, key, value, ()) for key, value in entries]
        data = bytearray(build(records, producer_id=producer_id, producer_epoch=epoch, transactional=producer_id >= 0))
        self.partition.append(data, now_ms, Origin.COORDINATOR)
        self._flusher.flush_now(self.partition)
        for batch in read(data):
            self.replay_batch(batch)

    def _plan(self) -> None:
        """Set the timer to when the machine wants to be told of time."""
        deadline_ms = self.machine.deadline_ms()
        if deadline_ms == self._timer_ms:
            return
        self._cancel_timer()
        self._timer_ms = deadline_ms
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self.runtime.clock.monotonic_ms())
            self._timer = self.runtime.loop.call_later(delay_ms / 1000, self._time_passed)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_ms = None

    def _time_passed(self) -> None:
        self._timer = None
        if self.refusal() is not None:
            # What is due would be written, and is due still when it can be.
            self._timer = self.runtime.loop.call_later(_TIMER_RETRY_SECONDS, self._time_passed)
            return
        self._timer_ms = None
        self.step(TimePassed())


def _is_committed(error: KafkaError | None) -> bool:
    """Has the high watermark passed the records of a waiter that was told this?"""
    return error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
