"""Carries out the decisions of `Transactions`: sends requests to both coordinators, and retries retriable errors.

The driver lives on the producer's loop. An interrupted call (max.block.ms, Ctrl-C) can be repeated: it continues where
the last one stopped. A request that it has sent is still waited for before the transaction ends: offsets that a group's
coordinator took after the end would wait for it forever, and hold up that group's readers.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.connection.clock import Backoff
from ottla.client.connection.cluster import GROUP, TRANSACTION, Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.membership.commit import CommittedAt, GroupMetadata
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.state import TRANSACTION_PAUSE_MS, Owed, Phase, PreparedTransaction, Transactions
from ottla.kernel.client_error import NotReachable, RequestTimedOut, Unsupported, kafka_error
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.wire.api.end_txn import EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.txn_offset_commit import TxnOffsetCommitResponse

if TYPE_CHECKING:
    from ottla.client.producer.sender import Sender

T = TypeVar("T")

_log = logging.getLogger("ottla.client")

#: The last versions of the first protocol, which adds partitions and offsets at the coordinator (before KIP-890).
_ADD_PARTITIONS, _END_TXN, _TXN_OFFSET_COMMIT = 3, 4, 4
#: The first version of EndTxn that returns the next epoch, and of TxnOffsetCommit that adds the group by writing.
_EPOCH_BUMPS_FROM, _OFFSETS_JOIN_FROM = 5, 5
_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Transactor:
    """A producer's requests to its coordinators. The producer creates it and closes it."""

    def __init__(
        self,
        cluster: Cluster,
        sender: Sender,
        settings: ProducerSettings,
        lock: threading.Lock,
        transactions: Transactions,
    ) -> None:
        self.transactions = transactions
        self._cluster = cluster
        self._sender = sender
        self._settings = settings
        self._lock = lock
        self._adding: asyncio.Task[None] | None = None
        #: Held while offsets are being written, so that they go out in order and no end overtakes them.
        self._writing_offsets = asyncio.Lock()
        #: The requests without an answer, also of calls that were interrupted.
        self._unanswered: set[asyncio.Future[Any]] = set()
        sender.on_pending = self._pending

    async def close(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Abort an open transaction, so that consumers need not wait for its timeout; retry an unanswered commit."""
        if self.transactions.phase in (Phase.OPEN, Phase.PREPARING, Phase.FAILED, Phase.COMMITTING, Phase.ABORTING):
            commits = self.transactions.unanswered
            try:
                await (self.commit if commits else self.abort)(flush)
            except (KafkaError, OttlaError) as error:
                outcome = "confirmed as committed" if commits else "aborted"
                _log.warning("the transaction of %s was not %s: %s", self.transactions.transactional_id, outcome, error)
        if self._adding is not None:
            self._adding.cancel()

    # ---- calls of the program

    async def init(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Get the producer id, which fences every earlier producer with this transactional id.

        With `keep_prepared`, a prepared transaction of such a producer is kept and returned.
        """
        if self.transactions.phase is Phase.NEW:
            with self._lock:
                self.transactions.keeps = keep_prepared
            await self._init()
        else:
            self.transactions.check_unfailed()
        return self.transactions.prepared

    async def prepare(self, flush: Callable[[], Awaitable[None]]) -> PreparedTransaction:
        """Deliver all of the transaction, which then stays open for its end even if this producer dies."""
        with self._lock:
            self.transactions.preparing()
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                await flush()
                await self._write_owed()
                await self._all_answered()
        except TimeoutError:
            raise self._timed_out("not all records and offsets were delivered") from None
        else:
            with self._lock:
                return self.transactions.is_prepared()
        finally:
            with self._lock:
                self.transactions.not_prepared()

    async def complete(self, flush: Callable[[], Awaitable[None]], decided: PreparedTransaction) -> bool:
        """Commit the prepared transaction if it equals `decided`, otherwise abort it. Returns True if committed."""
        with self._lock:
            prepared = self.transactions.to_complete()
        if prepared == decided and prepared != PreparedTransaction():
            await self.commit(flush)
            return True
        await self.abort(flush)
        return False

    async def begin(self) -> None:
        """Open a transaction with the newest protocol that the coordinator has enabled."""
        connection = await self._retry(self._at_own_coordinator(lambda connection: _identity(connection)))
        with self._lock:
            self.transactions.begin(_protocol(connection))

    async def send_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedAt]) -> None:
        """Add a group's offsets to the open transaction. Those not written in time are written before its commit."""
        with self._lock:
            self.transactions.owe(group, offsets)
        await self._write_owed()

    async def _write_owed(self) -> None:
        """Write the owed offsets, in order."""
        async with self._writing_offsets:
            while self.transactions.owed:
                try:
                    await self._write(self.transactions.owed[0])
                except KafkaError as error:
                    # Includes errors in reaching the coordinator, which no answer reports.
                    if not error.code.retriable:
                        with self._lock:
                            self.transactions.failed(error)
                    raise

    async def _write(self, owed: Owed) -> None:
        transactions, group_id = self.transactions, owed[0].group_id
        request = transactions.group_request(group_id)
        if request is not None:

            async def add(connection: BrokerConnection) -> None:
                response = await self._call(connection, request, AddOffsetsToTxnResponse)
                self._answered(transactions.group_answered, group_id, response.error_code)

            await self._retry(self._at_own_coordinator(add))

        async def commit(connection: BrokerConnection) -> None:
            at_most = _TXN_OFFSET_COMMIT if transactions.version < 2 else _OFFSETS_JOIN_FROM
            commit_request = transactions.offsets_request(owed)
            response = await self._call(connection, commit_request, TxnOffsetCommitResponse, at_most)
            self._answered(transactions.offsets_answered, owed, response)

        await self._retry(self._at_coordinator(GROUP, group_id, commit))

    async def commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Deliver all of the transaction, then commit it. Raises why it cannot be committed; abort it then."""
        with self._lock:
            self.transactions.committing()
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                await flush()
                await self._write_owed()
                await self._all_answered()
        except TimeoutError:
            raise self._timed_out("not all records and offsets were delivered") from None
        await self._end(Phase.COMMITTING)

    async def abort(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Fail what was not sent, wait for the answers to what was, then abort."""
        with self._lock:
            error = self.transactions.aborting()
        self._sender.abort(error)
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                await flush()
                if self._adding is not None:
                    await asyncio.gather(self._adding, return_exceptions=True)
                async with self._writing_offsets:
                    await self._all_answered()
        except TimeoutError:
            raise self._timed_out("the broker has not answered for all records") from None
        # The error that caused the abort has already reported these failures.
        self._sender.failed.clear()
        await self._end(Phase.ABORTING)

    async def _end(self, phase: Phase) -> None:
        """End the transaction by a commit or an abort, unless another call has done so meanwhile."""
        transactions = self.transactions
        if transactions.must_end(phase) and not transactions.needs_init:
            await self._retry(self._at_own_coordinator(functools.partial(self._end_once, phase)))
        if transactions.needs_init:
            await self._init()

    async def _end_once(self, phase: Phase, connection: BrokerConnection) -> None:
        transactions = self.transactions
        if not transactions.must_end(phase):
            return
        request = transactions.end_request()
        if request is None:
            with self._lock:
                return transactions.ended()
        at_most = _END_TXN if transactions.version < 2 else _EPOCH_BUMPS_FROM
        response = await self._call(connection, request, EndTxnResponse, at_most)
        self._answered(transactions.end_answered, response)
        self._renumber()

    async def _init(self) -> None:
        async def attempt(connection: BrokerConnection) -> None:
            version = self.transactions.init_version
            if version >= 0 and not connection.supports(ApiKey.INIT_PRODUCER_ID, version):
                raise Unsupported(
                    "the broker has no two-phase commit (InitProducerId 6, KIP-939): set transaction.two.phase.commit"
                    ".enable=true and unstable.api.versions.enable=true on the brokers"
                )
            timeout_ms = self._settings.request_timeout_ms
            request = self.transactions.init_request()
            response = await connection.call(request, InitProducerIdResponse, timeout_ms=timeout_ms, version=version)
            self._answered(self.transactions.init_answered, response)

        await self._retry(self._at_own_coordinator(attempt))
        self._renumber()

    def _renumber(self) -> None:
        with self._lock:
            self._sender.renumber(self.transactions.producer)

    # ---- partitions, in the first protocol

    def _pending(self) -> None:
        if self._adding is None or self._adding.done():
            self._adding = asyncio.get_running_loop().create_task(self._add())

    async def _add(self) -> None:
        try:
            await self._cluster.retry(
                self._at_own_coordinator(self._add_once), self._settings.delivery_timeout_ms, backoff=self._backoff()
            )
        except Exception as error:
            # Otherwise the records that wait for the partition would wait until delivery.timeout.ms.
            with self._lock:
                self.transactions.pending.clear()
                self.transactions.failed(kafka_error(error))
        self._sender.wake()

    async def _add_once(self, connection: BrokerConnection) -> None:
        if self.transactions.pending and self.transactions.sends:
            request = self.transactions.add_request()
            response = await self._call(connection, request, AddPartitionsToTxnResponse, _ADD_PARTITIONS)
            self._answered(self.transactions.add_answered, response)

    # ---- requests

    def _answered(self, take_in: Callable[..., None], *answer: object) -> None:
        try:
            with self._lock:
                take_in(*answer)
        finally:
            self._sender.wake()

    async def _call(
        self, connection: BrokerConnection, request: object, response: type[T], at_most: int | None = None
    ) -> T:
        timeout_ms = self._settings.request_timeout_ms
        answer = asyncio.ensure_future(connection.call(request, response, timeout_ms=timeout_ms, at_most=at_most))
        self._unanswered.add(answer)
        answer.add_done_callback(self._has_answer)
        return await asyncio.shield(answer)

    def _has_answer(self, answer: asyncio.Future[Any]) -> None:
        self._unanswered.discard(answer)
        if not answer.cancelled():
            # An interrupted call does not look at its error.
            answer.exception()

    async def _all_answered(self) -> None:
        while self._unanswered:
            await asyncio.wait(self._unanswered)

    def _at_own_coordinator(self, attempt: Callable[[BrokerConnection], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        return self._at_coordinator(TRANSACTION, self.transactions.transactional_id, attempt)

    def _at_coordinator(
        self, kind: int, key: str, attempt: Callable[[BrokerConnection], Awaitable[T]]
    ) -> Callable[[], Awaitable[T]]:
        """Wrap `attempt` to run on the coordinator, which is looked up again when it has moved."""

        async def attempt_once() -> T:
            try:
                return await attempt(await self._cluster.coordinator(kind, key, purpose=""))
            except NotReachable:
                self._cluster.forget_coordinator(kind, key)
                raise
            except KafkaError as error:
                if error.code in _MOVED:
                    self._cluster.forget_coordinator(kind, key)
                raise

        return attempt_once

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retry(attempt, self._settings.max_block_ms, backoff=self._backoff())

    def _backoff(self) -> Backoff:
        # Retries mostly wait for the last transaction to end, which does not take long.
        return Backoff(min(TRANSACTION_PAUSE_MS, self._settings.retry_backoff_ms), self._settings.retry_backoff_max_ms)

    def _timed_out(self, problem: str) -> KafkaError:
        return RequestTimedOut(f"{problem} within max.block.ms={self._settings.max_block_ms}: try again, or abort")


def _protocol(connection: BrokerConnection) -> int:
    switched_on = connection.features.get("transaction.version", 0) >= 2
    return 2 if switched_on and connection.supports(ApiKey.END_TXN, _EPOCH_BUMPS_FROM) else 1


async def _identity(connection: BrokerConnection) -> BrokerConnection:
    return connection
