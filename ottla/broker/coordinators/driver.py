"""Drives a coordinator's machine: its log, its timer, and its pending requests.

Rules:
- A machine is loaded from its partition's log, piece by piece (`Coordinators` does that), before it answers anything.
  Its state changes only by `replay` of appended records.
- Effects are carried out in order. A response, or a request to another component, leaves when everything appended
  before
  it is committed: failover must not take back what a client was told. A lone replica commits by appending.
- Records are committed once the high watermark has passed them. It does not move below min.insync.replicas (KIP-966),
  so enough replicas had the records when it moved; an ISR that shrinks later takes nothing back. Only a transaction
  coordinator then answers COORDINATOR_NOT_AVAILABLE, as in Apache Kafka.
- Below min.insync.replicas nothing is appended: a request in `writing` gets COORDINATOR_NOT_AVAILABLE before the
  machine sees it, and `TimePassed` and what goes through `when_writable` is postponed. The machine stays, and goes on
  answering requests that only read. An event whose records are refused all the same fails alone (`refused`).
- A step caused by the effects of another step (a transaction's markers) runs after that step is complete.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ottla.broker.coordinators.refusals import TOO_LARGE, Refusals
from ottla.broker.metadata.images import raise_error
from ottla.coordinator.contract import (
    Append,
    Called,
    Continue,
    CoordinatorMachine,
    Entry,
    Loaded,
    TimePassed,
    append_error,
)
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.now import Now
from ottla.log.log import Origin
from ottla.replica.partition import Partition
from ottla.wire.batch import Batch, build, check, read

if TYPE_CHECKING:
    from ottla.broker.coordinators.parts import CoordinatorParts

#: When to retry a write of the coordinator's own, below min.insync.replicas for example (Apache Kafka's backoff).
RETRY_SECONDS = 0.5
_BASE_OFFSET = Struct(">q")
_REFUSED = (ErrorCode.NOT_ENOUGH_REPLICAS, *TOO_LARGE)
#: Size of a piece of a log being loaded: some hundred records, a few milliseconds.
LOAD_BYTES = 32 << 10


M = TypeVar("M", bound=CoordinatorMachine)


class Driver(ABC, Generic[M]):
    """A coordinator of one partition. Subclasses supply the machine and carry out the effects specific to it."""

    #: The names of the requests that append before they are answered.
    writing: ClassVar[frozenset[str]]
    #: Whether a response is also refused when its records are committed but the ISR has shrunk below
    #: min.insync.replicas.
    answers_want_min_isr: ClassVar[bool] = False
    #: Whether the coordinator, and what waits for its records, goes on in a new leader epoch of the same leader.
    goes_on: ClassVar[bool] = True

    def __init__(self, parts: CoordinatorParts, partition: Partition, machine: M) -> None:
        self.runtime = parts.runtime
        self._flusher = parts.flusher
        self._log_dirs = parts.log_dirs
        self.partition = partition
        self.machine = machine
        self.refusals = Refusals(partition.tp)
        self._tickets = count()
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._steps: deque[Any] = deque()
        #: What `when_writable` has postponed, and the next try.
        self._postponed: deque[Callable[[], None]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        #: The log refused an append, or this node lost the leadership: the machine may hold state that the log does not
        #: have, and its effects are ignored.
        self.failed = False
        #: Called once on such a failure.
        self.on_failure: Callable[[Driver[Any]], None] = lambda _: None

    @abstractmethod
    def ask_others(self, effect: Any) -> None:
        """Pass a machine's request on to another component; everything it depends on is committed."""

    def replay_batch(self, batch: Batch) -> None:
        """Replay every record of a batch of the log."""
        header = batch.header
        if header.is_control:
            return self.replay_control(batch)
        producer_id = header.producer_id if header.is_transactional else -1
        for record in batch.records():
            if record.key is not None:
                self.machine.replay(record.key, record.value, offset=record.offset, producer_id=producer_id)
        return None

    def replay_control(self, batch: Batch) -> None:
        """Replay a transaction marker, if this machine takes part in transactions."""

    def load(self) -> Iterator[None]:
        """Replay the whole log; yields between two pieces, so that the loop can serve others."""
        for number, batches in enumerate(self.pieces()):
            if number:
                yield
            for batch in batches:
                self.replay_batch(batch)

    def begin(self) -> None:
        """Tell the machine that its whole log is replayed."""
        self.step(Loaded())

    def pieces(self) -> Iterator[list[Batch]]:
        """The batches of the log in pieces, up to its end at that time."""
        offset = self.partition.log.start_offset
        # A move to another directory may have replaced the log since the last piece.
        while offset < (log := self.partition.log).end_offset and not log.closed:
            # Retention may have moved the log start since the last piece.
            offset = max(offset, log.start_offset)
            data = log.read(offset, LOAD_BYTES, end_offset=log.end_offset, min_one_batch=True).bytes()
            batches = list(read(data))
            for batch in batches:
                # Only this log holds the coordinator's state, so fail rather than load corrupt records.
                check(batch.data)
            if not batches:
                # The cleaner has removed the last records before the end.
                return
            yield batches
            offset = batches[-1].header.last_offset + 1

    def ask(self, request: Any, version: int, answer: Callable[[Any], None], **client: Any) -> int:
        """Pass a request to the coordinator and return its ticket; `answer` is called once with the response, now or
        later.

        `client`: `client_id`, `client_host`, `principal`, `may_describe` and `selected`, for machines that use them.
        """
        ticket = next(self._tickets)
        self._waiting[ticket] = answer
        self.step(Called(ticket, request, version, **client))
        return ticket

    def step(self, event: Any) -> None:
        """Pass an event to the machine and carry out its effects in order."""
        if self.failed:
            return self.give_up()
        if isinstance(event, Called) and self.writes(event.request):
            write_error = self.write_error()
            if write_error is not None:
                return self._waiting.pop(event.ticket)(write_error)
            self._do_postponed()
        self._steps.append(event)
        if len(self._steps) > 1:
            return None
        now = Now.of(self.runtime.clock)
        try:
            while self._steps and not self.failed:
                self._carry_out(self.machine.step(self._steps[0], now), now.wall_ms)
                self._steps.popleft()
        except Exception as error:
            self._break(error)
        finally:
            self._steps.clear()
        if not self.failed:
            self._plan()
        return None

    def _break(self, error: Exception) -> None:
        """End the machine after a bug: its state cannot be trusted, and no request may wait for it forever.

        The error is raised in its own turn of the loop, because the caller of this step may be in the middle of a
        metadata change. A request that met the bug gets an error that its client does not retry.
        """
        answer = self._waiting.pop(getattr(self._steps[0], "ticket", -1), None)
        self._fail()
        self.runtime.loop.call_soon(raise_error, error)
        if answer is not None:
            answer(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def write_error(self) -> KafkaError | None:
        """Why nothing can be appended now (too few in-sync replicas), or None."""
        try:
            self.partition.check_in_sync()
        except KafkaError as error:
            return _client_error(error)
        return None

    def _carry_out(self, effects: Sequence[Any], now_ms: int) -> None:
        """Carry out effects in order. Requests that wait for an append that the log refused get its error.

        A log that takes these records never or not now concerns only their client; any other error ends the machine.
        """
        failed: KafkaError | None = None
        for effect in effects:
            ticket = getattr(effect, "ticket", None)
            if ticket is not None:
                # A failed append may have taken the partition offline; `give_up` has then answered its requests.
                answer = self._waiting.pop(ticket, None)
                if answer is not None:
                    self._answer(answer, effect.response if failed is None else _client_error(failed))
            elif failed is None or (failed.code in TOO_LARGE and isinstance(effect, Append) and effect.independent):
                failed = self._attempt(effect, now_ms) or failed
        if failed is None:
            if any(isinstance(effect, Append) for effect in effects):
                self.refusals.appended(self._steps[0])
            return None
        if failed.code not in _REFUSED:
            return self._fail()
        event = self._steps[0]
        self.refused(event)
        answer = self._waiting.pop(getattr(event, "ticket", -1), None)
        if answer is not None:
            answer(_client_error(failed))
        return None

    def writes(self, request: Any) -> bool:
        """Whether this request appends before it is answered."""
        return type(request).__name__ in self.writing

    def refused(self, event: Any) -> None:
        """Have the machine take back the step of this event: the log has refused its records."""

    def when_writable(self, do: Callable[[], None]) -> None:
        """Call `do` now, or when enough replicas are in sync: in turn, and before any request that appends. Never when
        this coordinator ends before.
        """
        self._postponed.append(do)
        self._do_postponed()

    def _do_postponed(self) -> None:
        while self._postponed and not self.failed:
            if self.write_error() is not None:
                if self._retry is None:
                    self._retry = self.runtime.loop.call_later(RETRY_SECONDS, self._retry_postponed)
                return
            self._postponed.popleft()()

    def _retry_postponed(self) -> None:
        self._retry = None
        self._do_postponed()

    def _answer(self, answer: Callable[[Any], None], response: Any) -> None:
        """Answer once the whole log is committed, or with an error when that takes too long."""
        partition = self.partition
        if partition.machine is None or isinstance(response, KafkaError):
            return answer(response)
        timer: asyncio.TimerHandle | None = None

        def committed(error: KafkaError | None) -> None:
            if timer is not None:
                timer.cancel()
            if _is_committed(error) and not self.answers_want_min_isr:
                error = None
            answer(response if error is None else _client_error(error))

        def timed_out() -> None:
            assert waiter is not None
            waiter.cancel()
            answer(KafkaError(append_error(ErrorCode.REQUEST_TIMED_OUT)))

        waiter = partition.when_committed(partition.log.end_offset, committed, stays=self.goes_on)
        if waiter is not None:
            timer = self.runtime.loop.call_later(self.runtime.settings.offsets_commit_timeout_ms / 1000, timed_out)
        return None

    def _after_commit(self, do: Callable[[], None]) -> None:
        """Call `do` once the whole log is committed; never when this coordinator ends before."""

        def committed(error: KafkaError | None) -> None:
            if not self.failed and _is_committed(error):
                do()

        self.partition.when_committed(self.partition.log.end_offset, committed, stays=self.goes_on)

    def _fail(self) -> None:
        self.failed = True
        call_each([self.give_up, partial(self.on_failure, self)])

    def end(self) -> None:
        """End the coordinator: this node no longer leads the partition."""
        self.failed = True
        self.give_up()

    def give_up(self) -> None:
        """Stop, and answer pending requests with NOT_COORDINATOR; their clients retry."""
        self._cancel_timer()
        waiting, self._waiting = self._waiting, {}
        call_each(partial(answer, KafkaError(ErrorCode.NOT_COORDINATOR)) for answer in waiting.values())

    def _attempt(self, effect: Any, now_ms: int) -> KafkaError | None:
        try:
            match effect:
                case Append():
                    self._append_all(effect, now_ms)
                case Continue(event):
                    self.step(event)
                case _:
                    self._after_commit(partial(self.ask_others, effect))
        except KafkaError as error:
            failed = error
        except OSError as error:
            self._log_dirs.check(self.partition.log, error)
            failed = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        else:
            return None
        self.refusals.refused(self._steps[0], failed)
        return failed

    def _append_all(self, effect: Append, now_ms: int) -> None:
        """Append the effect's batches. A batch that is too large fails the effect, but not its other batches."""
        settings = self.partition.log.settings
        too_large: KafkaError | None = None
        for entries in effect.batches(min(settings.max_message_bytes, settings.segment_bytes)):
            try:
                self._append(entries, effect.producer_id, effect.producer_epoch, now_ms)
            except KafkaError as error:
                if error.code not in TOO_LARGE:
                    raise
                too_large = error
        if too_large is not None:
            raise too_large

    def _append(self, entries: Sequence[Entry], producer_id: int, epoch: int, now_ms: int) -> None:
        """Append records as one batch (in the producer's transaction, if there is a producer) and replay them."""
        records = [(now_ms, key, value, ()) for key, value in entries]
        data = bytearray(build(records, producer_id=producer_id, producer_epoch=epoch, transactional=producer_id >= 0))
        appended = self.partition.append(data, now_ms, Origin.COORDINATOR)
        self._flusher.flush_now(self.partition)
        # The topic's settings (LogAppendTime, a codec) may have had the log write a copy, which alone has the offset.
        _BASE_OFFSET.pack_into(data, 0, appended.base_offset)
        for batch in read(data):
            self.replay_batch(batch)

    def _plan(self) -> None:
        """Set the timer to the machine's deadline."""
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
        if self.write_error() is not None:
            # The timer's events need an append, so they wait until one is possible.
            self._timer = self.runtime.loop.call_later(RETRY_SECONDS, self._time_passed)
            return
        self._timer_ms = None
        self.step(TimePassed())


def _client_error(error: KafkaError) -> KafkaError:
    """The error for a client whose records could not be appended or committed."""
    return KafkaError(append_error(error.code), error.message)


def _is_committed(error: KafkaError | None) -> bool:
    """Whether a waiter that got this error (or none) knows that its records are below the high watermark."""
    return error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
