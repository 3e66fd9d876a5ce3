"""The coordinator of the transactional ids on one partition of `__transaction_state`.

Rules:
- `step` decides and `replay` changes the state: `step` returns a request's records as `Append`, and the driver replays
  them at once.
- A transaction ends with two records: the decision (`Prepare…`) and, when every marker is written, the completion.
  Requests in between get CONCURRENT_TRANSACTIONS.
- InitProducerId during an ongoing transaction aborts it and makes the producer retry; a transaction that exceeds its
  timeout is aborted too. Both raise the epoch, which fences the old producer.
- A producer of a two-phase commit (KIP-939) has no timeout. With `keep_prepared_txn` InitProducerId keeps the ongoing
  transaction, so that the producer can end it as the other resources have decided, however long that takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.coordinator.contract import Answer, Append, Called, Continue, Entry, Loaded, independent
from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.kernel.now import Now
from ottla.settings.server.transaction import TransactionDeclaration
from ottla.settings.view import AS_DECLARED, SettingsView
from ottla.txn.event import AddPartitions, Effect, Event, MarkersWritten, TimedOut, VerifyPartitions, WriteMarkers
from ottla.txn.transaction import (
    COMPLETED,
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    PREPARED,
    State,
    Transaction,
)
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.record.transaction import TransactionLogKey, key_bytes, parse

_MINUTE_MS = 60_000
_EPOCH_BUMPS_FROM = 5
#: Before this version of EndTxn a fenced producer gets INVALID_PRODUCER_EPOCH.
_FENCED_SINCE = 2
_FIRST_VERSION = 0


@frozen
class TransactionSettings(SettingsView, of=(TransactionDeclaration,)):
    """The broker's transaction settings."""

    transaction_max_timeout_ms: int = AS_DECLARED
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = AS_DECLARED
    transactional_id_expiration_ms: int = AS_DECLARED
    transaction_remove_expired_transaction_cleanup_interval_ms: int = AS_DECLARED
    transaction_two_phase_commit_enable: bool = AS_DECLARED


class TransactionCoordinator:
    """The transactional ids of one partition. The driver creates it, replays the log into it, and drops it."""

    def __init__(
        self,
        settings: TransactionSettings,
        next_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int] = lambda: EPOCH_BUMP_VERSION,
    ) -> None:
        self._settings = settings
        self._next_producer_id = next_producer_id
        #: The cluster's current level of `transaction.version`.
        self._transaction_version = transaction_version
        #: By transactional id, in the order of their first record.
        self.transactions: dict[str, Transaction] = {}
        #: The epoch that the client had before the last bump, by transactional id; as in Apache Kafka, not in the log.
        self._last_epochs: dict[str, int] = {}
        #: When timeouts and expiration were last checked, in monotonic time; the checks compare timestamps in wall
        #: time.
        self._timeouts_checked_ms = 0
        self._expiry_checked_ms = 0

    # ---- the log

    def replay(self, key: bytes, value: bytes | None, *, offset: int = -1, producer_id: int = -1) -> None:
        """Apply a record of the log."""
        log_key, log_value = parse(key, value)
        name = log_key.transactional_id
        if log_value is None:
            self.transactions.pop(name, None)
            self._last_epochs.pop(name, None)
            return
        self.transactions[name] = Transaction.of_record(log_key, log_value, self._last_epochs.get(name, NO_EPOCH))

    def deadline_ms(self) -> int | None:
        """When `TimePassed` is due, in monotonic time; None without transactional ids."""
        return min(self._timeouts_due_ms, self._expiry_due_ms) if self.transactions else None

    @property
    def _timeouts_due_ms(self) -> int:
        return self._timeouts_checked_ms + self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms

    @property
    def _expiry_due_ms(self) -> int:
        return self._expiry_checked_ms + self._settings.transaction_remove_expired_transaction_cleanup_interval_ms

    def step(self, event: Event, now: Now) -> list[Effect]:
        """The effects of an event, to be carried out in order."""
        if isinstance(event, Called):
            return self._called(event, now.wall_ms)
        if isinstance(event, MarkersWritten):
            return self._markers_written(event.transactional_id, now.wall_ms)
        if isinstance(event, TimedOut):
            return self._timed_out(event.transactional_id, now.wall_ms)
        if isinstance(event, Loaded):
            self._timeouts_checked_ms = self._expiry_checked_ms = now.monotonic_ms
            return [
                _markers(transaction) for transaction in self.transactions.values() if transaction.state in PREPARED
            ]
        return self._time_passed(now)

    def _save(self, transaction: Transaction) -> Append:
        self._last_epochs[transaction.transactional_id] = transaction.last_epoch
        return Append([transaction.record(self._transaction_version())])

    # ---- requests

    def _called(self, event: Called, now_ms: int) -> list[Effect]:
        request = event.request
        if isinstance(request, InitProducerIdRequest):
            return self._init(event.ticket, request, now_ms)
        if isinstance(request, EndTxnRequest):
            return self._end_called(event, request, now_ms)
        if isinstance(request, AddPartitions):
            code, saved = self._add(request, now_ms)
            return [*saved, Answer(event.ticket, code)]
        if isinstance(request, VerifyPartitions):
            return [Answer(event.ticket, self._verify(request))]
        raise TypeError(f"a transaction coordinator does not know {type(request).__name__}")

    def _init(self, ticket: int, request: InitProducerIdRequest, now_ms: int) -> list[Effect]:
        name = request.transactional_id
        assert name is not None
        expected_id, expected_epoch = request.producer_id, request.producer_epoch
        if (expected_id == NO_PRODUCER_ID) != (expected_epoch == NO_EPOCH) or not name:
            return [_refuse_init(ticket, ErrorCode.INVALID_REQUEST)]
        if request.enable2_pc and not self._settings.transaction_two_phase_commit_enable:
            return [_refuse_init(ticket, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
        enabled = self._settings.transaction_two_phase_commit_enable
        if request.keep_prepared_txn and not (enabled and self._transaction_version() >= EPOCH_BUMP_VERSION):
            # Records of an older level have no field for the second producer id and epoch.
            return [_refuse_init(ticket, ErrorCode.UNSUPPORTED_VERSION)]
        timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
        if not request.enable2_pc and not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return [_refuse_init(ticket, ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
        known = self.transactions.get(name)
        if known is None:
            first_id = self._next_producer_id()
            if first_id is None:
                return [_refuse_init(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            known = Transaction(name, first_id, NO_EPOCH, timeout_ms)
        elif expected_id != NO_PRODUCER_ID and not _may_initialize(known, expected_id, expected_epoch):
            return [_refuse_init(ticket, ErrorCode.PRODUCER_FENCED)]
        if known.state in PREPARED:
            return [_refuse_init(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if known.state is State.ONGOING and request.keep_prepared_txn:
            return self._take_over(ticket, known, timeout_ms, now_ms)
        if known.state is State.ONGOING:
            # The client retries until the abort has completed.
            ended = self._fence(known, now_ms)
            if ended is None:
                return [_refuse_init(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            return [self._save(ended), _refuse_init(ticket, ErrorCode.CONCURRENT_TRANSACTIONS), _markers(ended)]
        needs_new_id = known.exhausted and expected_epoch in (NO_EPOCH, known.producer_epoch)
        new_producer_id = self._next_producer_id() if needs_new_id else None
        if needs_new_id and new_producer_id is None:
            return [_refuse_init(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        begun = known.initialized(timeout_ms, expected_epoch, new_producer_id, now_ms)
        if begun is None:
            return [_refuse_init(ticket, ErrorCode.PRODUCER_FENCED)]
        response = InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch)
        return [self._save(begun), Answer(ticket, response)]

    def _take_over(self, ticket: int, known: Transaction, timeout_ms: int, now_ms: int) -> list[Effect]:
        new_producer_id = self._next_producer_id() if known.client_exhausted else None
        if known.client_exhausted and new_producer_id is None:
            return [_refuse_init(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        taken = known.taken_over(timeout_ms, new_producer_id, now_ms)
        producer_id, epoch = taken.client
        response = InitProducerIdResponse(
            producer_id=producer_id,
            producer_epoch=epoch,
            ongoing_txn_producer_id=taken.producer_id,
            ongoing_txn_producer_epoch=taken.producer_epoch,
        )
        return [self._save(taken), Answer(ticket, response)]

    def _add(self, asked: AddPartitions, now_ms: int) -> tuple[ErrorCode, list[Effect]]:
        known, code = self._find_owned(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        if known is None:
            return code, []
        if known.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS, []
        if known.state is State.ONGOING and set(asked.partitions) <= set(known.partitions):
            return ErrorCode.NONE, []
        return ErrorCode.NONE, [self._save(known.extended(asked.partitions, asked.client_version, now_ms))]

    def _verify(self, asked: VerifyPartitions) -> dict[TopicPartition, ErrorCode]:
        known, code = self._find_owned(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        if known is not None and known.state in PREPARED:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if known is None or code:
            return dict.fromkeys(asked.partitions, code)
        added = set(known.partitions)
        return {tp: ErrorCode.NONE if tp in added else ErrorCode.TRANSACTION_ABORTABLE for tp in asked.partitions}

    def _find_owned(self, name: str, producer_id: int, producer_epoch: int) -> tuple[Transaction | None, ErrorCode]:
        known = self.transactions.get(name)
        if not name:
            return None, ErrorCode.INVALID_REQUEST
        if known is None or producer_id not in (known.producer_id, known.client[0]):
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.client != (producer_id, producer_epoch):
            return None, ErrorCode.PRODUCER_FENCED
        if known.client != (known.producer_id, known.producer_epoch):
            # A transaction that was taken over can only be ended.
            return None, ErrorCode.INVALID_TXN_STATE
        return known, ErrorCode.NONE

    # ---- the end

    def _end_called(self, event: Called, request: EndTxnRequest, now_ms: int) -> list[Effect]:
        ticket, bumps = event.ticket, event.version >= _EPOCH_BUMPS_FROM
        known = self.transactions.get(request.transactional_id)
        if not request.transactional_id:
            return [_refuse_end(ticket, ErrorCode.INVALID_REQUEST)]
        if known is None:
            return [_refuse_end(ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        code, retries = _check_end(known, request, bumps=bumps)
        if code is ErrorCode.PRODUCER_FENCED and event.version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code:
            return [_refuse_end(ticket, code)]
        if known.state is State.ONGOING or (bumps and not request.committed and not retries):
            # The version of this request decides, whichever protocol the transaction began with.
            version = EPOCH_BUMP_VERSION if bumps else _FIRST_VERSION
            ended = self._end(known, commit=request.committed, client_version=version, bumps=bumps, now_ms=now_ms)
            if ended is None:
                return [_refuse_end(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            return [self._save(ended), _end_answer(ticket, ended), _markers(ended)]
        return [_end_answer(ticket, known)]

    def _fence(self, known: Transaction, now_ms: int) -> Transaction | None:
        """Abort a transaction and fence its producer, by a higher epoch at every level."""
        version = self._transaction_version()
        ended = self._end(known, commit=False, client_version=version, bumps=True, now_ms=now_ms)
        if ended is None or version >= EPOCH_BUMP_VERSION:
            return ended
        # Below that level the producer does not expect the higher epoch, so with its own it is no retry but fenced.
        return replace(ended, last_epoch=NO_EPOCH)

    def _end(
        self, known: Transaction, *, commit: bool, client_version: int, bumps: bool, now_ms: int
    ) -> Transaction | None:
        """The transaction with its end decided; None if it needs a new producer id and there is none yet."""
        next_id = self._next_producer_id() if bumps and known.client_exhausted else NO_PRODUCER_ID
        if next_id is None:
            return None
        return known.ended(commit=commit, client_version=client_version, bumps=bumps, next_id=next_id, now_ms=now_ms)

    def _markers_written(self, name: str, now_ms: int) -> list[Effect]:
        known = self.transactions.get(name)
        if known is None or known.state not in PREPARED:
            return []
        return [self._save(known.completed(now_ms))]

    # ---- time

    def _time_passed(self, now: Now) -> list[Effect]:
        effects: list[Effect] = []
        if now.monotonic_ms >= self._timeouts_due_ms:
            self._timeouts_checked_ms = now.monotonic_ms
            for transaction in list(self.transactions.values()):
                if transaction.timeout_ms == NO_TIMEOUT_MS:
                    continue
                if transaction.state is State.ONGOING and transaction.start_ms + transaction.timeout_ms < now.wall_ms:
                    effects.append(Continue(TimedOut(transaction.transactional_id)))
        if now.monotonic_ms >= self._expiry_due_ms:
            self._expiry_checked_ms = now.monotonic_ms
            oldest_ms = now.wall_ms - self._settings.transactional_id_expiration_ms
            tombstones: list[Entry] = [
                (key_bytes(TransactionLogKey(transactional_id=transaction.transactional_id)), None)
                for transaction in self.transactions.values()
                if transaction.state in (State.EMPTY, *COMPLETED) and transaction.update_ms <= oldest_ms
            ]
            effects += independent(tombstones)
        return effects

    def _timed_out(self, name: str, now_ms: int) -> list[Effect]:
        known = self.transactions.get(name)
        ended = self._fence(known, now_ms) if known is not None and known.state is State.ONGOING else None
        # Without a new producer id, or if the log refuses the record, the next check tries again.
        return [] if ended is None else [self._save(ended), _markers(ended)]


def _may_initialize(known: Transaction, producer_id: int, producer_epoch: int) -> bool:
    return (
        known.producer_epoch == NO_EPOCH
        or producer_id in (known.producer_id, known.client[0])
        or (producer_id == known.previous_producer_id and producer_epoch >= EPOCH_MAX)
    )


def _check_end(known: Transaction, request: EndTxnRequest, *, bumps: bool) -> tuple[ErrorCode, bool]:
    """(the error, or NONE; is the request a retry of an end that was accepted?)."""
    # After InitProducerId (EMPTY) the epoch is one higher too, but for a newer producer: the older one stays fenced.
    ended = known.state in PREPARED or known.state in COMPLETED
    client_id, client_epoch = known.client
    retries = bumps and ended and client_epoch == request.producer_epoch + 1
    had_last_epoch = (
        bumps
        and known.previous_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_MAX
        and client_epoch == 0
    )
    # If InitProducerId or a takeover has brought the new id, it fences the producer that had the last epoch.
    overflowed = had_last_epoch and ended
    if client_id != request.producer_id and not had_last_epoch:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, False
    if client_epoch != request.producer_epoch and not (retries or overflowed):
        return ErrorCode.PRODUCER_FENCED, False
    if bumps and known.state in PREPARED and not (retries or overflowed):
        return ErrorCode.PRODUCER_FENCED, False
    is_retry = retries or overflowed or not bumps
    outcome_states = (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        if request.committed
        else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    )
    if known.state in PREPARED:
        return (
            ErrorCode.CONCURRENT_TRANSACTIONS if known.state in outcome_states else ErrorCode.INVALID_TXN_STATE
        ), is_retry
    if known.state in COMPLETED and is_retry and known.state not in outcome_states:
        return ErrorCode.INVALID_TXN_STATE, is_retry
    if known.state is State.EMPTY and (request.committed or not bumps):
        return ErrorCode.INVALID_TXN_STATE, is_retry
    if known.state in COMPLETED and not is_retry and request.committed:
        return ErrorCode.INVALID_TXN_STATE, is_retry
    return ErrorCode.NONE, is_retry


def _markers(transaction: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state is State.PREPARE_COMMIT,
        transaction.partitions,
        transaction.client_version,
    )


def _refuse_init(ticket: int, code: ErrorCode) -> Answer:
    return Answer(ticket, InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH))


def _refuse_end(ticket: int, code: ErrorCode) -> Answer:
    return Answer(ticket, EndTxnResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH))


def _end_answer(ticket: int, transaction: Transaction) -> Answer:
    """The response; from version 5 on the client continues with its producer id and epoch."""
    producer_id, epoch = transaction.after_end
    return Answer(ticket, EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))
